// Streams, events and pinned memory with owners. Internal to comm/.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <span>
#include <string>

namespace ringattn {

// Throws DeviceError "WHERE: WHAT: text of CUDA" if `code` is an error.
void check_cuda(cudaError_t code, const std::string& where, const char* what);

// Of the highest priority, so that transfers do not queue up behind the blocks of a kernel that fills the
// device; and it does not wait for the legacy default stream.
class TransferStream {
 public:
  TransferStream();
  ~TransferStream();
  TransferStream(const TransferStream&) = delete;
  TransferStream& operator=(const TransferStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// A point in a stream. Destroying one that streams still wait for is allowed: CUDA keeps it for them.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream);
  void hold_back(cudaStream_t stream) const;  // what is queued on it from now on
  bool passed() const;                        // without waiting
  void await() const noexcept;  // on the host; an error of the device ends the wait and comes up elsewhere

 private:
  cudaEvent_t event_ = nullptr;
};

// Host memory that the device copies to and from while the host goes on.
class PinnedBuffer {
 public:
  explicit PinnedBuffer(std::size_t bytes);  // throws OutOfMemory
  ~PinnedBuffer();
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace ringattn
