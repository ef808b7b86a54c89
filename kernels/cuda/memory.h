// Device memory in the order of a stream, and pinned host memory on its way to it.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "kernels/kernel.h"

namespace ringattn::cuda {

struct FreeDevice {
  cudaStream_t stream = nullptr;
  void operator()(std::byte* p) const noexcept { cudaFreeAsync(p, stream); }
};
struct FreePinned {
  void operator()(std::byte* p) const noexcept { cudaFreeHost(p); }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const noexcept { cudaEventDestroy(event); }
};

// Device memory, allocated and freed when the stream gets there: nothing waits. Throws OutOfMemory naming the
// size. 0 bytes are a null pointer.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(std::size_t bytes, cudaStream_t stream);

  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  // Hands it over as the interface's buffer.
  Buffer release() &&;

 private:
  std::unique_ptr<std::byte, FreeDevice> data_;
  std::size_t size_ = 0;
};

// Small things that the host makes and a kernel reads. Each waits in pinned memory of its own until the
// stream has copied it, since the host may be far ahead; memory whose copy is done is used again. The
// destructor waits for copies that are under way.
class Uploads {
 public:
  explicit Uploads(cudaStream_t stream) : stream_(stream) {}
  Uploads(const Uploads&) = delete;
  Uploads& operator=(const Uploads&) = delete;
  ~Uploads();

  // Pinned memory to fill, valid until send() or the next room().
  std::span<std::byte> room(std::size_t bytes);
  // The first `bytes` of it, on the device as of here in the stream.
  DeviceMemory send();

 private:
  struct Slot {
    std::unique_ptr<std::byte, FreePinned> data;
    std::size_t size = 0;
    std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent> copied;
    bool used = false;  // its event has been recorded
  };
  static bool free(const Slot& slot);

  cudaStream_t stream_;
  std::vector<Slot> slots_;
  std::size_t filled_ = 0, bytes_ = 0;  // slot and size of the last room()
};

}  // namespace ringattn::cuda
