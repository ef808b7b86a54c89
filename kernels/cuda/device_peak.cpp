// What a device could do at best, by its data sheet. Plain arithmetic, in every build.
#include "kernels/cuda/devices.h"

namespace ringattn {
namespace {

struct Architecture {
  int capability;
  int tensor, fma;  // operations a clock and multiprocessor: dense fp16 or bf16 products; fp32
};

// The data sheets' own figures come out of these: A100 108 x 1.41 GHz x 2048 = 312 TFLOP/s, H100 SXM
// 132 x 1.83 x 4096 = 989, B200 148 x 1.85 x 8192 = 2243. Where products with fp32 sums run at half the rate
// on the cheaper devices of a capability (8.6, 8.9, 12.0), this is the rate of the dearer ones.
constexpr Architecture kArchitectures[] = {
    {80, 2048, 128}, {86, 1024, 256},  {87, 2048, 256},  {89, 1024, 256},
    {90, 4096, 256}, {100, 8192, 256}, {103, 8192, 256}, {120, 1024, 256},
};

}  // namespace

DevicePeak device_peak(const CudaDevice& device, DType dtype) {
  const bool tensor = dtype != DType::f32;
  DevicePeak peak{.unit = tensor ? "tensor core " + std::string(name_of(dtype)) : "FMA"};
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.capability != 10 * device.major + device.minor) continue;
    peak.flops_per_clock = tensor ? architecture.tensor : architecture.fma;
  }
  peak.flops = static_cast<double>(device.multiprocessors) * device.clock_hz * peak.flops_per_clock;
  return peak;
}

double device_bandwidth(const CudaDevice& device) {
  return 2 * device.memory_clock_hz * device.memory_bus_bits / 8;
}

}  // namespace ringattn
