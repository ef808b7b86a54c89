#include <algorithm>
#include <array>

#include "kernels/cuda/chapter.h"
#include "kernels/cuda/device_error.h"
#include "src/error.h"

namespace ringattn::cuda {
namespace {

// Fastest first.
std::array<const Chapter*, 2> chapters() { return {&sm_80_chapter(), &plain_chapter()}; }

int compute_capability() {
  int device = 0, major = 0, minor = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "compute capability");
  check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "compute capability");
  return 10 * major + minor;
}

bool runs_on(const Chapter& chapter, int capability) {
  return chapter.lowest <= capability && capability <= chapter.highest;
}

const Chapter& named(const std::string& isa) {
  std::string names = "auto";
  for (const Chapter* chapter : chapters()) {
    if (isa == chapter->name) return *chapter;
    names += std::string(", ") + chapter->name;
  }
  throw UsageError("isa: '" + isa + "' for the CUDA kernel; allowed are " + names);
}

std::string text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

}  // namespace

const Chapter& chapter_for(const KernelConfig& config) {
  if (config.isa == "auto") {
    const int capability = compute_capability();
    const auto all = chapters();
    return **std::ranges::find_if(all, [&](const Chapter* chapter) {  // the plain one can do everything
      return chapter == &plain_chapter() ||
             (runs_on(*chapter, capability) && chapter->obstacle(config).empty());
    });
  }
  const Chapter& chapter = named(config.isa);
  if (const std::string obstacle = chapter.obstacle(config); !obstacle.empty())
    throw UsageError("isa: '" + config.isa + "' cannot do this: " + obstacle);
  if (const int capability = compute_capability(); !runs_on(chapter, capability))
    throw DeviceError("isa: '" + config.isa +
                      "' does not run on the current device, whose compute capability is " +
                      text(capability));
  return chapter;
}

}  // namespace ringattn::cuda
