// In place of staged.cpp, device_ranks.cpp and mpi_device.cpp in a build without CUDA.
#include "comm/device_ranks.h"
#include "comm/mpi_device.h"
#include "comm/staged.h"
#include "src/error.h"

namespace ringattn {
namespace {

[[noreturn]] void refuse(const char* what) {
  throw DeviceError(std::string(what) +
                    ": this build has no CUDA: it was made without nvcc, or with RINGATTN_CUDA=OFF");
}

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): as where it is used
std::unique_ptr<DeviceCommunicator> make_staged(std::shared_ptr<Communicator>, void*, const StagedOptions&) {
  refuse("make_staged");
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): as where it is used
std::unique_ptr<DeviceCommunicator> make_device_ranks(std::shared_ptr<Communicator>, void*) {
  refuse("make_device_ranks");
}

MpiDevice make_mpi_device(const std::function<std::shared_ptr<Communicator>()>&, void*,
                          const MpiDeviceOptions&) {
  refuse("make_mpi_device");
}

}  // namespace ringattn
