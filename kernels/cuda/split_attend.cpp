#include "kernels/cuda/split_attend.h"

#include "kernels/cuda/launches.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/sent.h"

namespace ringattn::cuda {

void attend_parts(const Chapter& chapter, DType dtype, const Schedule& parts, index_t state_rows,
                  const AttendParams& whole, Uploads& uploads, cudaStream_t stream) {
  const SentWalk sent = send(uploads, parts);
  const index_t rows = sent.walk.count * state_rows, states = checked_product({whole.all_heads, rows});
  const index_t floats = checked_product({states, whole.o.stride + 2});
  const DeviceMemory memory(static_cast<std::size_t>(floats) * sizeof(float), stream);

  AttendParams params = whole;
  params.walk = sent.walk;
  params.o = {.data = memory.data(), .rows = rows, .stride = whole.o.stride};
  params.maximum = reinterpret_cast<float*>(memory.data()) + states * whole.o.stride;
  params.sum = params.maximum + states;
  launch_reset({.o = params.o, .maximum = params.maximum, .sum = params.sum, .all_heads = whole.all_heads},
               stream);
  chapter.attend(dtype, params, stream);
  launch_merge({.merges = sent.merges,
                .count = static_cast<index_t>(parts.merges.size()),
                .state_rows = state_rows,
                .part_o = params.o,
                .part_maximum = params.maximum,
                .part_sum = params.sum,
                .o = whole.o,
                .maximum = whole.maximum,
                .sum = whole.sum,
                .q_rows = whole.q_rows,
                .all_heads = whole.all_heads,
                .slope = whole.scores.slope},
               stream);
}

}  // namespace ringattn::cuda
