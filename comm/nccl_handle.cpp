#include "comm/nccl_handle.h"

#include "comm/last_words.h"
#include "comm/poll.h"
#include "src/error.h"

namespace ringattn {
namespace {

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

std::string text_of(ncclResult_t code, ncclComm_t comm) {
  std::string text = ncclGetErrorString(code);
  const char* details = ncclGetLastError(comm);
  if (details != nullptr && *details != '\0') text += std::string(" (") + details + ")";
  return text;
}

}  // namespace

void check_nccl(ncclResult_t code, const std::string& where, const char* what, ncclComm_t comm) {
  if (code == ncclSuccess || code == ncclInProgress) return;
  throw CommError(where + ": " + what + ": " + text_of(code, comm));
}

// A constructor that throws runs no destructor, so what has been begun is aborted here.
NcclHandle::NcclHandle(const ncclUniqueId& id, int rank, int size, std::chrono::milliseconds patience)
    : patience_(patience) {
  const std::string where = "rank " + std::to_string(rank);
  ncclConfig_t config = non_blocking();
  try {
    check_nccl(ncclCommInitRankConfig(&comm_, size, id, rank, &config), where, "ncclCommInitRankConfig");
    await_ready(where + ": ncclCommInitRankConfig");
  } catch (...) {
    abort();
    throw;
  }
}

NcclHandle::NcclHandle(ncclComm_t original, int rank, std::chrono::milliseconds patience)
    : patience_(patience) {
  const std::string where = "rank " + std::to_string(rank);
  ncclConfig_t config = non_blocking();
  try {
    check_nccl(ncclCommSplit(original, 0, rank, &comm_, &config), where, "ncclCommSplit", original);
    // Where the original does not block either, the split is its affair until it has ended.
    const bool in_time = poll_until(
        Clock::now() + patience_,
        [&] {
          ncclResult_t state = ncclSuccess;
          check_nccl(ncclCommGetAsyncError(original, &state), where, "ncclCommGetAsyncError", original);
          check_nccl(state, where, "ncclCommSplit", original);
          return state == ncclSuccess && comm_ != nullptr;
        },
        [] { return std::size_t{0}; });
    if (!in_time) throw CommError(where + ": ncclCommSplit: timed out after " + seconds_text(patience_));
    await_ready(where + ": ncclCommSplit");
  } catch (...) {
    abort();
    throw;
  }
}

// A kernel that has sent may have left bytes with the proxy that talks to the network. Finalize sends them;
// it ends when the peers do so, too.
NcclHandle::~NcclHandle() {
  if (comm_ == nullptr) return;
  try {
    check_nccl(ncclCommFinalize(comm_), "end", "ncclCommFinalize", comm_);
    await_ready("ncclCommFinalize");
    check_nccl(ncclCommDestroy(comm_), "end", "ncclCommDestroy", comm_);
  } catch (const CommError&) {  // nobody is left to hear of it
    abort();
  }
}

std::optional<std::string> NcclHandle::error() const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  if (asked != ncclSuccess) return "ncclCommGetAsyncError: " + text_of(asked, comm_);
  if (state == ncclSuccess || state == ncclInProgress) return {};
  return "NCCL: " + text_of(state, comm_);
}

void NcclHandle::await_issue(const std::string& where) { await_ready(where); }

void NcclHandle::await_ready(const std::string& where) {
  const bool in_time = poll_until(
      Clock::now() + patience_,
      [&] {
        ncclResult_t state = ncclSuccess;
        check_nccl(ncclCommGetAsyncError(comm_, &state), where, "ncclCommGetAsyncError", comm_);
        check_nccl(state, where, "NCCL", comm_);
        return state == ncclSuccess;
      },
      [] { return std::size_t{0}; });
  if (!in_time) throw CommError(where + ": timed out after " + seconds_text(patience_));
}

void NcclHandle::abort() noexcept {
  if (comm_ != nullptr) ncclCommAbort(comm_);
  comm_ = nullptr;
}

}  // namespace ringattn
