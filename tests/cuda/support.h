// The problems of tests/kernels on device memory of the harness: run() and run_backward() of the CUDA kernel
// as they are for CPU kernels, with all that the kernel touches on the device and poisoned.
#pragma once
#include <cuda_runtime.h>

#include <functional>
#include <memory>

#include "kernels/cuda/cuda.h"
#include "tests/kernels/backward_support.h"
#include "tests/kernels/random_tiles.h"
#include "tests/kernels/support.h"

namespace ringattn::test {

class DeviceStream {
 public:
  DeviceStream();
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;
  ~DeviceStream();

  cudaStream_t get() const { return stream_; }
  // Returns when all is done. Faults that the harness found are thrown here.
  void wait() const;

 private:
  cudaStream_t stream_ = nullptr;
};

// A copy of host memory on the device, exactly as large: what is next to it is guarded.
class DeviceCopy {
 public:
  DeviceCopy(const void* host, std::size_t bytes);
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;
  ~DeviceCopy();

  void* data() const { return data_; }
  void read(void* host) const;  // back; the stream has to be done

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

// The same view of device memory.
template <class View>
View moved(View view, const DeviceCopy& to) {
  view.data = static_cast<decltype(view.data)>(to.data());
  return view;
}

std::unique_ptr<Kernel> cuda_kernel(const Problem& problem, const DeviceStream& stream);

// The host waits for nothing between the first call and the last one.
Result run_cuda(const Problem& problem, const Inputs& inputs, const Blocks& blocks = {},
                Ending ending = Ending::last_block);
Gradients run_backward_cuda(const Problem& problem, const BackwardInputs& inputs, const Blocks& blocks = {});

}  // namespace ringattn::test
