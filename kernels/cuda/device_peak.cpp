// What a device could do at best, by its data sheet. Plain arithmetic, in every build.
#include "kernels/cuda/devices.h"

namespace ringattn {
namespace {

// Operations a clock and multiprocessor: dense fp16 or bf16 products with fp32 sums on tensor cores, on
// GeForce cards and on all others, and fp32 multiply-adds of the ordinary cores.
struct Architecture {
  int capability;
  int tensor, tensor_geforce, fma;
};

// Times multiprocessors and clock these give NVIDIA's own figures:
//   8.0  A100            108 x 1.410 GHz x 2048 =  312 TFLOP/s   [1]
//   8.6  A40, A10         84 x 1.740     x 1024 =  150, 125      [2]   RTX 3090   82 x 1.695 x 512 =  71 [2]
//   8.7  AGX Orin         16 x 1.300     x 2048 =   42           [3]
//   8.9  RTX 6000 Ada    142 x 2.505     x 1024 =  364           [4]   RTX 4090  128 x 2.520 x 512 = 165 [4]
//   9.0  H100 SXM        132 x 1.830     x 4096 =  989           [5]
//   10.0 B200            148 x 1.850     x 8192 = 2243           [6]
//   12.0 RTX PRO 6000    188 x 2.617     x 1024 =  504           [7]   RTX 5090  170 x 2.407 x 512 = 209 [7]
constexpr Architecture kArchitectures[] = {
    {80, 2048, 2048, 128}, {86, 1024, 512, 256},   {87, 2048, 2048, 256},  {89, 1024, 512, 256},
    {90, 4096, 4096, 256}, {100, 8192, 8192, 256}, {103, 8192, 8192, 256}, {120, 1024, 512, 256},
};

// Capability and clock do not tell the two apart, the name does: "NVIDIA GeForce RTX 4090".
bool is_geforce(const CudaDevice& device) { return device.name.find("GeForce") != std::string::npos; }

}  // namespace

DevicePeak device_peak(const CudaDevice& device, DType dtype) {
  const bool tensor = dtype != DType::f32;
  DevicePeak peak{.unit = tensor ? "tensor core " + std::string(name_of(dtype)) : "FMA"};
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.capability != 10 * device.major + device.minor) continue;
    const int on_tensor_cores = is_geforce(device) ? architecture.tensor_geforce : architecture.tensor;
    peak.flops_per_clock = tensor ? on_tensor_cores : architecture.fma;
  }
  peak.flops = static_cast<double>(device.multiprocessors) * device.clock_hz * peak.flops_per_clock;
  return peak;
}

double device_bandwidth(const CudaDevice& device) {
  return 2 * device.memory_clock_hz * device.memory_bus_bits / 8;
}

}  // namespace ringattn
