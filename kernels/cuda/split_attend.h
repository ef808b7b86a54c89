// attend for a schedule that is split.
#pragma once
#include "kernels/cuda/chapter.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/schedule.h"

namespace ringattn::cuda {

// Adds to the state of `whole` what the parts see, by the chapter's kernel: each part into a state that has
// seen nothing, and these to the rows' own. The partial states, as many as `state_rows` a part and head, live
// as long as the call's work in the stream. `whole` has all but the walk. Throws OutOfMemory, DeviceError.
void attend_parts(const Chapter& chapter, DType dtype, const Schedule& parts, index_t state_rows,
                  const AttendParams& whole, Uploads& uploads, cudaStream_t stream);

}  // namespace ringattn::cuda
