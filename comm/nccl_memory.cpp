#include "comm/nccl_memory.h"

#include "comm/nccl_registration.h"
#include "comm/poll.h"
#include "src/error.h"

namespace ringattn {

NcclBlock::NcclBlock(std::shared_ptr<NcclEndpoint> endpoint, std::size_t bytes,
                     std::chrono::milliseconds patience)
    : end_(std::move(endpoint)), bytes_(bytes), patience_(patience), data_(nccl_allocate(bytes)) {
  if (data_ != nullptr) handle_ = end_->register_memory(data_, bytes_);
}

NcclBlock::~NcclBlock() {
  if (data_ == nullptr) return;
  if (used_ && !stream_is_here()) {
    end_->fail("rank " + std::to_string(end_->rank) + ": the stream does not come to the end of a block");
    return;
  }
  if (handle_ != nullptr) end_->deregister_memory(handle_);
  nccl_free(data_);
}

bool NcclBlock::stream_is_here() noexcept {
  try {
    last_.record(end_->compute);
    return poll_until(
        Clock::now() + patience_, [this] { return last_.passed(); }, [] { return std::size_t{0}; });
  } catch (...) {  // an error of the device, on which nothing goes on
    return true;
  }
}

BlockMemory NcclBlock::hand_over(std::shared_ptr<NcclBlock> block) {
  std::byte* const data = block->data_;
  block->used_ = true;
  check_cuda(cudaMemsetAsync(data, 0, block->bytes_, block->end_->compute), "block_memory",
             "cudaMemsetAsync");
  return {data, [owner = std::move(block)](std::byte*) mutable { owner.reset(); }};
}

std::vector<std::shared_ptr<NcclBlock>> make_nccl_blocks(const std::shared_ptr<NcclEndpoint>& endpoint,
                                                         std::size_t count, std::size_t bytes,
                                                         std::chrono::milliseconds patience) {
  std::vector<std::shared_ptr<NcclBlock>> blocks;
  try {
    for (std::size_t i = 0; i < count; ++i) {
      blocks.push_back(std::make_shared<NcclBlock>(endpoint, bytes, patience));
      if (!blocks.back()->registered()) return {};
    }
  } catch (const DeviceError&) {  // one that lasts comes up where there is no other way
    return {};
  }
  return blocks;
}

}  // namespace ringattn
