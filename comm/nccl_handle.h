// An NCCL communicator with an owner: made, asked and ended without ever waiting longer than allowed.
// Internal to comm/.
#pragma once
#include <nccl.h>

#include <chrono>
#include <optional>
#include <string>

#include "comm/communicator.h"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 1)
#error "NCCL 2.18.1 or later is needed: ncclCommSplit, and communicators that do not block"
#endif

namespace ringattn {

class NcclHandle {
 public:
  // Collective. `id` is that of rank 0. Throws CommError.
  NcclHandle(const ncclUniqueId& id, int rank, int size, std::chrono::milliseconds patience);
  // Collective over `original`: the same ranks, nothing shared, so that the abort of one leaves the other be.
  NcclHandle(ncclComm_t original, int rank, std::chrono::milliseconds patience);
  // Waits for the peers' last bytes to leave, see end(). Aborts where that takes too long.
  ~NcclHandle();
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  ncclComm_t get() const { return comm_; }
  // What has gone wrong in the background. "in progress" is not an error.
  std::optional<std::string> error() const;
  // Returns when what was queued last has reached the stream: only then may an event be recorded behind it.
  // NCCL connects to a peer when it first meets it, so this can wait for the peer's host, once.
  void await_issue(const std::string& where);
  // Ends everything that is queued or running; kernels of NCCL leave the streams.
  void abort() noexcept;

 private:
  void await_ready(const std::string& where);

  ncclComm_t comm_ = nullptr;
  std::chrono::milliseconds patience_;
};

// Throws CommError "WHERE: WHAT: text of NCCL" if `code` is an error. "in progress" is not.
void check_nccl(ncclResult_t code, const std::string& where, const char* what, ncclComm_t comm = nullptr);

}  // namespace ringattn
