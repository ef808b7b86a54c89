// Chapter 1: plain. Every dtype and every head_dim on every device.
#include <limits>

#include "kernels/cuda/chapter.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/typed_launches.h"

namespace ringattn::cuda {
namespace {

void attend(DType dtype, const AttendParams& params, cudaStream_t stream) {
  with_element(dtype, [&](auto element) { launch_attend_of<decltype(element)>(params, stream); });
}
void query_gradients(DType dtype, const BackwardParams& params, cudaStream_t stream) {
  with_element(dtype, [&](auto element) { launch_query_gradients_of<decltype(element)>(params, stream); });
}
void key_gradients(DType dtype, const BackwardParams& params, cudaStream_t stream) {
  with_element(dtype, [&](auto element) { launch_key_gradients_of<decltype(element)>(params, stream); });
}

constexpr Chapter kPlain{.name = "plain",
                         .lowest = 0,
                         .highest = std::numeric_limits<int>::max(),
                         .obstacle = [](const KernelConfig&) { return std::string(); },
                         .group_rows = [](const KernelConfig&) -> GroupRows {
                           return {kGroupRows, kGroupRows, kGroupRows};
                         },
                         .attend = attend,
                         .ends = false,
                         .query_gradients = query_gradients,
                         .key_gradients = key_gradients};

}  // namespace

const Chapter& plain_chapter() { return kPlain; }

}  // namespace ringattn::cuda
