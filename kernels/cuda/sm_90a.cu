// Chapter 3: sm_90a, for 16-bit elements. Backward of a head_dim above 128 is that of the chapter below.
#include <string>

#include "kernels/cuda/chapter.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/sm90/dispatch.h"
#include "kernels/cuda/sm90/launches.h"
#include "kernels/cuda/sm90/walk.h"
#include "src/error.h"

namespace ringattn::cuda {
namespace {

std::string obstacle(const KernelConfig& config) {
  if (config.dtype == DType::f32) return "dtype is f32, allowed are bf16 and f16";
  constexpr index_t kMostDim = 256;
  const HeadShape& shape = config.shape;
  if (shape.head_dim > kMostDim) return "head_dim is " + std::to_string(shape.head_dim) + ", at most 256";
  if (shape.head_dim_v > kMostDim)
    return "head_dim_v is " + std::to_string(shape.head_dim_v) + ", at most 256";
  if (config.q_rows > sm90::kMostRows) return "q_rows is " + std::to_string(config.q_rows) + ", at most 2^30";
  return {};
}

const Chapter& below() { return sm_80_chapter(); }

bool has_backward(index_t head_dim, index_t head_dim_v) {
  return head_dim <= sm90::kMostBackwardDim && head_dim_v <= sm90::kMostBackwardDim;
}

GroupRows group_rows(const KernelConfig& config) {
  const index_t head_dim = config.shape.head_dim, dim_v = config.shape.head_dim_v;
  GroupRows rows = below().group_rows(config);
  const int block = sm90::with_shape(head_dim, dim_v, [](auto shape) { return decltype(shape)::kRowsQ; });
  const Pack pack = pack_of(config.q_rows, config.shape.group(), block, HeadCounts::all);
  rows.attend = pack.rows;
  rows.heads = pack.heads;
  if (has_backward(head_dim, dim_v)) {
    rows.keys = sm90::with_backward_shape(head_dim, dim_v, [](auto shape) { return decltype(shape)::kRows; });
    rows.at_once = true;
  }
  return rows;
}

void check_rows(index_t k_rows) {
  if (k_rows > sm90::kMostRows)
    throw UsageError("k_rows is " + std::to_string(k_rows) + "; sm_90a attends at most 2^30");
}

void attend(DType dtype, const AttendParams& params, cudaStream_t stream) {
  check_rows(params.k_rows);
  if (dtype == DType::bf16) {
    sm90::launch_attend_of<__nv_bfloat16>(params, stream);
  } else {
    sm90::launch_attend_of<__half>(params, stream);
  }
}

// Up to kMostBackwardDim key_gradients makes all.
void query_gradients(DType dtype, const BackwardParams& params, cudaStream_t stream) {
  below().query_gradients(dtype, params, stream);
}

void key_gradients(DType dtype, const BackwardParams& params, cudaStream_t stream) {
  if (!has_backward(params.head_dim, params.dim_v)) return below().key_gradients(dtype, params, stream);
  check_rows(params.k_rows);
  if (dtype == DType::bf16) {
    sm90::launch_gradients_of<__nv_bfloat16>(params, stream);
  } else {
    sm90::launch_gradients_of<__half>(params, stream);
  }
}

}  // namespace

const Chapter& sm_90a_chapter() {
  static const Chapter chapter{.name = "sm_90a",
                               .lowest = 90,
                               .highest = 90,
                               .obstacle = obstacle,
                               .group_rows = group_rows,
                               .attend = attend,
                               .ends = true,
                               .query_gradients = query_gradients,
                               .key_gradients = key_gradients};
  return chapter;
}

}  // namespace ringattn::cuda
