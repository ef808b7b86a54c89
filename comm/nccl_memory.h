// Blocks in memory that is registered with NCCL. Internal to comm/.
#pragma once
#include <memory>
#include <vector>

#include "comm/nccl_endpoint.h"

namespace ringattn {

// One block: allocated, registered once, and gone with its owner, however many transfers it is in. It keeps
// the endpoint, and with it NCCL's communicator, which may not end before.
class NcclBlock {
 public:
  NcclBlock(std::shared_ptr<NcclEndpoint> endpoint, std::size_t bytes, std::chrono::milliseconds patience);
  // Waits for the compute stream to come to here, and so for all transfers of the block that were waited for
  // or given up. Memory that the stream has not come to at the end of the patience is left to the end of the
  // process, and the endpoint has failed.
  ~NcclBlock();
  NcclBlock(const NcclBlock&) = delete;
  NcclBlock& operator=(const NcclBlock&) = delete;

  // False if NCCL has no such memory, or does not register it.
  bool registered() const { return handle_ != nullptr; }
  // Zeroes it in the order of the compute stream, and makes the caller its owner.
  static BlockMemory hand_over(std::shared_ptr<NcclBlock> block);

 private:
  bool stream_is_here() noexcept;

  std::shared_ptr<NcclEndpoint> end_;
  std::size_t bytes_;
  std::chrono::milliseconds patience_;
  Event last_{};  // where the compute stream was when the memory was given back
  std::byte* data_ = nullptr;
  void* handle_ = nullptr;
  bool used_ = false;
};

// So many blocks, all of them registered, or none at all.
std::vector<std::shared_ptr<NcclBlock>> make_nccl_blocks(const std::shared_ptr<NcclEndpoint>& endpoint,
                                                         std::size_t count, std::size_t bytes,
                                                         std::chrono::milliseconds patience);

}  // namespace ringattn
