// In place of the devices in a build without CUDA.
#include "kernels/cuda/device_stream.h"
#include "kernels/cuda/devices.h"
#include "src/error.h"

namespace ringattn {
namespace {

constexpr const char* kWhy = "this build has no CUDA: it was made without nvcc, or with RINGATTN_CUDA=OFF";

[[noreturn]] void refuse() { throw DeviceError(kWhy); }

}  // namespace

CudaMachine find_cuda_devices() { return {.devices = {}, .unavailable = kWhy}; }

std::vector<std::string_view> cuda_chapters() { return {}; }

DeviceStream::DeviceStream(int) { refuse(); }
DeviceStream::~DeviceStream() = default;
Buffer DeviceStream::allocate(std::size_t) { refuse(); }
void DeviceStream::upload(std::span<const std::byte>, std::span<std::byte>) { refuse(); }
void DeviceStream::download(std::span<const std::byte>, std::span<std::byte>) { refuse(); }
void DeviceStream::wait() { refuse(); }

StreamMark::StreamMark() { refuse(); }
StreamMark::~StreamMark() = default;
void StreamMark::set(const DeviceStream&) { refuse(); }
double StreamMark::seconds_since(const StreamMark&) const { refuse(); }

std::uint64_t free_device_bytes() { refuse(); }

}  // namespace ringattn
