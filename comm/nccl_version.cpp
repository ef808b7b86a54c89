#include "comm/nccl_version.h"

#include <nccl.h>

namespace ringattn {

std::string nccl_version() {
  int code = 0;
  if (ncclGetVersion(&code) != ncclSuccess) return "unknown";
  // As NCCL has written its versions since 2.9: 22809 is 2.28.9.
  return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." +
         std::to_string(code % 100);
}

}  // namespace ringattn
