// In place of nccl.cpp in a build without NCCL.
#include "comm/nccl.h"
#include "comm/nccl_version.h"
#include "src/error.h"

namespace ringattn {

bool nccl_built() { return false; }

std::string nccl_version() { return ""; }

// NOLINTNEXTLINE(performance-unnecessary-value-param): as where it is used
std::unique_ptr<DeviceCommunicator> make_nccl_communicator(std::shared_ptr<Communicator>, void*,
                                                           const NcclOptions&) {
  throw DeviceError(
      "this build has no NCCL: it was made without CUDA or NCCL (nccl.h, libnccl), or with "
      "RINGATTN_NCCL=OFF");
}

}  // namespace ringattn
