// A chapter: one way to do the arithmetic, from plain to fast. All chapters share the layouts, the state that
// is carried and the kernels around it (launches.h), so that they can be chosen call by call; what differs is
// in this table. A new chapter is a file that fills one in and a line in chapters.cpp.
#pragma once
#include <cuda_runtime.h>

#include <string>

#include "kernels/cuda/params.h"
#include "kernels/kernel.h"

namespace ringattn::cuda {

// Rows that a block of threads works on, to which tiles are cut: of queries in attend and for dq, of keys for
// dk and dv. It depends on the configuration, and so does who makes dq.
struct GroupRows {
  int attend, queries, keys;
  int heads = 1;  // that read the same keys and have their queries in one block of threads of attend
  // key_gradients makes dq as well, by BackwardParams::turns, and query_gradients is not launched.
  bool at_once = false;
};

struct Chapter {
  const char* name;     // KernelConfig::isa, "plain", "sm_80", "sm_90a"
  int lowest, highest;  // compute capabilities that run it, 10 major + minor
  // What it cannot do of a configuration, such as "head_dim is 300, at most 256"; empty: it can do it.
  std::string (*obstacle)(const KernelConfig& config);
  GroupRows (*group_rows)(const KernelConfig& config);
  // The only launches of these kernels. The walk's groups are cut to the rows above, and there is at least
  // one. They throw DeviceError naming the kernel, where the runtime refuses.
  void (*attend)(DType dtype, const AttendParams& params, cudaStream_t stream);
  bool ends;  // attend does what AttendParams::end asks for
  void (*query_gradients)(DType dtype, const BackwardParams& params, cudaStream_t stream);
  void (*key_gradients)(DType dtype, const BackwardParams& params, cudaStream_t stream);
};

const Chapter& plain_chapter();
const Chapter& sm_80_chapter();
const Chapter& sm_90a_chapter();

// The one that config.isa names, on the current device. "auto": the fastest that can do it. Throws UsageError
// naming isa, if there is no such chapter or it cannot do the configuration, and DeviceError, if it does not
// run on the device.
const Chapter& chapter_for(const KernelConfig& config);

}  // namespace ringattn::cuda
