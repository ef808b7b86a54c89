// Chapter 2: tensor cores as sm_80 and everything later has them.
#include <limits>

#include "kernels/cuda/chapter.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/pack.h"
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

GroupRows group_rows(const KernelConfig& config) {
  int rows = 0;
  sm80::with_dims(static_cast<int>(config.shape.head_dim), static_cast<int>(config.shape.head_dim_v),
                  [&](auto dims) { rows = sm80::attend_rows(decltype(dims)::kV); });
  const Pack pack = pack_of(config.q_rows, config.shape.group(), rows, HeadCounts::powers_of_two);
  return {pack.rows, sm80::kGradientRows, sm80::kGradientRows, pack.heads};
}

constexpr Chapter kSm80{.name = "sm_80",
                        .lowest = 80,
                        .highest = std::numeric_limits<int>::max(),
                        .obstacle = obstacle,
                        .group_rows = group_rows,
                        .attend = attend,
                        .ends = true,
                        .query_gradients = query_gradients,
                        .key_gradients = key_gradients};

}  // namespace

const Chapter& sm_80_chapter() { return kSm80; }

}  // namespace ringattn::cuda
