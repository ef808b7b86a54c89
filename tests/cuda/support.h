// The problems of tests/kernels on device memory of the harness: run() and run_backward() of the CUDA kernel
// as they are for CPU kernels, with all that the kernel touches on the device and poisoned.
#pragma once
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

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

std::unique_ptr<Kernel> cuda_kernel(const Problem& problem, const DeviceStream& stream,
                                    const std::string& isa = "auto");

// The host waits for nothing between the first call and the last one.
using MakeKernel = std::function<std::unique_ptr<Kernel>(const DeviceStream& stream)>;
Result run_made(const MakeKernel& make, const Problem& problem, const Inputs& inputs,
                const Blocks& blocks = {}, Ending ending = Ending::last_block);
// With the chapter `isa`.
Result run_cuda(const std::string& isa, const Problem& problem, const Inputs& inputs,
                const Blocks& blocks = {}, Ending ending = Ending::last_block);
// `first`: what gradient blocks hold at first: sums of 0; with fresh, bytes that mean nothing; given, some
// sums; late, the same ones, which come when the kernel asks for them and are NaN before.
enum class First : std::uint8_t { zero, fresh, given, late };
Gradients run_backward_cuda(const std::string& isa, const Problem& problem, const BackwardInputs& inputs,
                            const Blocks& blocks = {}, First first = First::zero);

// The same questions to every chapter. INSTANTIATE_TEST_SUITE_P with kChapters, to which a new one is added.
inline constexpr const char* kChapters[] = {"plain", "sm_80", "sm_90a"};

class EveryChapter : public ::testing::TestWithParam<const char*> {
 protected:
  bool plain() const { return GetParam() == kChapters[0]; }
  std::vector<DType> dtypes() const {
    if (plain()) return {DType::f32, DType::bf16, DType::f16};
    return {DType::bf16, DType::f16};
  }
  DType dtype() const { return dtypes()[0]; }  // where one is enough
  bool can(index_t head_dim, index_t dim_v) const { return plain() || std::max(head_dim, dim_v) <= 256; }

  Result run_cuda(const Problem& problem, const Inputs& inputs, const Blocks& blocks = {},
                  Ending ending = Ending::last_block) const {
    return test::run_cuda(GetParam(), problem, inputs, blocks, ending);
  }
  Gradients run_backward_cuda(const Problem& problem, const BackwardInputs& inputs, const Blocks& blocks = {},
                              First first = First::zero) const {
    return test::run_backward_cuda(GetParam(), problem, inputs, blocks, first);
  }
};

}  // namespace ringattn::test
