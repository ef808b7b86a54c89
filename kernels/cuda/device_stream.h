// A stream of a GPU with what a program does on it besides attention: memory, copies, points in time. For
// programs that know no CUDA types; in a build without CUDA every constructor throws DeviceError.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/kernel.h"

namespace ringattn {

// Makes a device the calling thread's own: the objects below belong to it and are used by that thread alone.
class DeviceStream {
 public:
  explicit DeviceStream(int device);  // its index, see CudaDevice
  ~DeviceStream();
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  void* get() const { return stream_; }  // the cudaStream_t

  // Device memory, there as of here in the stream and freed in its order, before the stream ends. Throws
  // OutOfMemory naming the size. 0 bytes are a null pointer.
  Buffer allocate(std::size_t bytes);
  // Both return when the host's memory is free again, or filled. They wait for what the stream holds: to be
  // called when it is known to have ended, see RingAttention::settle.
  void upload(std::span<const std::byte> host, std::span<std::byte> device);
  void download(std::span<const std::byte> device, std::span<std::byte> host);
  // Returns when all of that has ended; without a deadline, like those.
  void wait();

 private:
  void* stream_ = nullptr;
};

// A point in a stream, at which the device reads its clock.
class StreamMark {
 public:
  StreamMark();
  ~StreamMark();
  StreamMark(const StreamMark&) = delete;
  StreamMark& operator=(const StreamMark&) = delete;

  void set(const DeviceStream& stream);  // behind all that was queued so far
  // Of the device's time. Both have been set, and the host has seen the end of what was queued before.
  double seconds_since(const StreamMark& earlier) const;

 private:
  [[maybe_unused]] void* event_ = nullptr;  // in a build without CUDA
};

// Bytes that can still be allocated on the calling thread's device, by whichever process comes first.
std::uint64_t free_device_bytes();

}  // namespace ringattn
