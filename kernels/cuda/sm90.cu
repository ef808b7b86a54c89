// Chapter 3: sm_90a. Forward of 16-bit elements; backward is that of the chapter below.
#include <string>

#include "kernels/cuda/chapter.h"
#include "kernels/cuda/sm90_dispatch.h"
#include "kernels/cuda/sm90_launches.h"
#include "kernels/cuda/sm90_walk.h"
#include "src/error.h"

namespace ringattn::cuda {
namespace {

std::string obstacle(const KernelConfig& config) {
  if (config.dtype == DType::f32) return "dtype is f32, allowed are bf16 and f16";
  constexpr index_t kMostDim = 256;
  const HeadShape& shape = config.shape;
  if (shape.head_dim > kMostDim) return "head_dim is " + std::to_string(shape.head_dim) + ", at most 256";
  if (shape.head_dim_v > kMostDim) return "head_dim_v is " + std::to_string(shape.head_dim_v) + ", at most 256";
  if (config.q_rows > sm90::kMostRows) return "q_rows is " + std::to_string(config.q_rows) + ", at most 2^30";
  return {};
}

GroupRows group_rows(const KernelConfig& config) {
  GroupRows rows = plain_chapter().group_rows(config);
  rows.attend = sm90::with_shape(config.shape.head_dim, config.shape.head_dim_v,
                                 [](auto shape) { return decltype(shape)::kRowsQ; });
  return rows;
}

void attend(DType dtype, const AttendParams& params, cudaStream_t stream) {
  if (params.k_rows > sm90::kMostRows)
    throw UsageError("k_rows is " + std::to_string(params.k_rows) + "; sm_90a attends at most 2^30");
  if (dtype == DType::bf16) {
    sm90::launch_attend_of<__nv_bfloat16>(params, stream);
  } else {
    sm90::launch_attend_of<__half>(params, stream);
  }
}

}  // namespace

const Chapter& sm90_chapter() {
  static const Chapter chapter{.name = "sm_90a",
                               .lowest = 90,
                               .highest = 90,
                               .obstacle = obstacle,
                               .group_rows = group_rows,
                               .attend = attend,
                               .query_gradients = plain_chapter().query_gradients,
                               .key_gradients = plain_chapter().key_gradients};
  return chapter;
}

}  // namespace ringattn::cuda
