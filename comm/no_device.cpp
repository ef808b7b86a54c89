// In place of staged.cpp and device_ranks.cpp in a build without CUDA.
#include "comm/device_ranks.h"
#include "comm/staged.h"
#include "src/error.h"

namespace ringattn {
namespace {

[[noreturn]] void refuse(const char* what) {
  throw DeviceError(std::string(what) +
                    ": this build has no CUDA: it was made without nvcc, or with RINGATTN_CUDA=OFF");
}

}  // namespace

std::unique_ptr<DeviceCommunicator> make_staged(std::shared_ptr<Communicator>, void*, const StagedOptions&) {
  refuse("make_staged");
}

std::unique_ptr<DeviceCommunicator> make_device_ranks(std::shared_ptr<Communicator>, void*) {
  refuse("make_device_ranks");
}

}  // namespace ringattn
