// Chapter 2: tensor cores as sm_80 and everything later has them.
#include <algorithm>
#include <limits>

#include "kernels/cuda/chapter.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/sm80/attend.h"
#include "kernels/cuda/sm80/backward.h"
#include "kernels/cuda/sm80/dims.h"
#include "kernels/cuda/sm80/launches.h"

namespace ringattn::cuda {
namespace {

// Calls action with an element of a 16-bit type; obstacle() has refused the other one.
template <class Action>
void with_half(DType dtype, const Action& action) {
  if (dtype == DType::bf16) return action(Bf16{});
  action(F16{});
}

void attend(DType dtype, const AttendParams& params, cudaStream_t stream) {
  with_half(dtype, [&](auto element) { sm80::launch_attend<decltype(element)>(params, stream); });
}
void query_gradients(DType dtype, const BackwardParams& params, cudaStream_t stream) {
  with_half(dtype, [&](auto element) { sm80::launch_query_gradients<decltype(element)>(params, stream); });
}
void key_gradients(DType dtype, const BackwardParams& params, cudaStream_t stream) {
  with_half(dtype, [&](auto element) { sm80::launch_key_gradients<decltype(element)>(params, stream); });
}

std::string obstacle(const KernelConfig& config) {
  if (config.dtype == DType::f32) return "dtype is f32, only bf16 and f16 have these products";
  for (const auto& [name, dim] :
       {std::pair{"head_dim", config.shape.head_dim}, {"head_dim_v", config.shape.head_dim_v}})
    if (dim > sm80::kLargestTileDim)
      return std::string(name) + " is " + std::to_string(dim) + ", at most " +
             std::to_string(sm80::kLargestTileDim);
  return {};
}

// Of queries in attend, a power of two: a block's rows belong to as many heads as read the same keys, as long
// as each head has room for all its queries.
GroupRows group_rows(const KernelConfig& config) {
  int rows = 0;
  sm80::with_dims(static_cast<int>(config.shape.head_dim), static_cast<int>(config.shape.head_dim_v),
                  [&](auto dims) { rows = sm80::attend_rows(decltype(dims)::kV); });
  int group = rows;
  while (group / 2 >= std::max<index_t>(config.q_rows, 1) && rows / group < config.shape.group()) group /= 2;
  return {group, sm80::kGradientRows, sm80::kGradientRows, rows / group};
}

constexpr Chapter kSm80{.name = "sm_80",
                        .lowest = 80,
                        .highest = std::numeric_limits<int>::max(),
                        .obstacle = obstacle,
                        .group_rows = group_rows,
                        .attend = attend,
                        .ends = true,
                        .query_gradients = query_gradients,
                        .key_gradients = key_gradients,
                        .for_split = sm_80_chapter};

}  // namespace

const Chapter& sm_80_chapter() { return kSm80; }

}  // namespace ringattn::cuda
