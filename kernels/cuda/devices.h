// The GPUs of this machine as plain data, for programs that know no CUDA types. The same in every build.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/types.h"

namespace ringattn {

struct CudaDevice {
  int index = 0;  // what selects it in this process
  std::string name{};
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  std::uint64_t memory_bytes = 0;
  double clock_hz = 0, memory_clock_hz = 0;  // the highest that they may reach; 0 = not told
  int memory_bus_bits = 0;
  std::string uuid{};  // "GPU-" and 32 hexadecimal digits: the same in every process, and no other device's
  std::string pci{};   // "0000:17:00.0": parts of one GPU that is divided have it in common
  std::string unusable{};  // why these kernels cannot run on it, "" if they can

  std::string capability() const { return std::to_string(major) + "." + std::to_string(minor); }
};

struct CudaMachine {
  std::vector<CudaDevice> devices{};
  std::string unavailable{};                    // why none of them can be used, "" if one can
  int driver_version = 0, runtime_version = 0;  // 13010 is 13.1; 0 = there is none
};
// Never throws for what is missing: that is its answer.
CudaMachine find_cuda_devices();

// Names of the kernels' chapters in this build, KernelConfig::isa, fastest first; empty without CUDA.
std::vector<std::string_view> cuda_chapters();

// What a device could multiply at best: its multiprocessors x its highest clock x operations a clock and
// multiprocessor, a multiply-add counting as two. 16 bits: dense products on tensor cores with fp32 sums,
// which GeForce cards of 8.6, 8.9 and 12.0 do at half the rate of the others. fp32: multiply-adds of the
// ordinary cores. The rates are NVIDIA's: fp32 from the table "arithmetic instructions" of the CUDA C++
// Programming Guide, tensor cores from the papers on its architectures: [1] A100, [2] Ampere GA102, [3]
// Jetson AGX Orin, [4] Ada, [5] H100, [6] Blackwell, [7] RTX Blackwell. It is a figure of the data sheet, not
// measured: a device that runs hot stays below its highest clock, and one may run above the clock that its
// data sheet reckons with.
struct DevicePeak {
  int flops_per_clock = 0;  // of one multiprocessor; 0 = not known for this compute capability
  double flops = 0;         // a second, of the device
  std::string unit{};       // "tensor core bf16", "FMA"
};
DevicePeak device_peak(const CudaDevice& device, DType dtype);

// Bytes a second of its memory: 2 a clock and bus line (double data rate). 0 = not known. From the data
// sheet, like the peak.
double device_bandwidth(const CudaDevice& device);

}  // namespace ringattn
