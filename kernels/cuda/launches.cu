#include "kernels/cuda/launches.h"

#include "kernels/cuda/grid.h"
#include "kernels/cuda/merge.h"
#include "kernels/cuda/rows.h"

namespace ringattn::cuda {
namespace {

__global__ void __launch_bounds__(kThreads) reset_kernel(ResetParams a) {
  const index_t warp = global_warp();
  if (warp >= a.all_heads * a.o.rows) return;
  float* const o = static_cast<float*>(a.o.data) + warp * a.o.stride;
  for (int e = lane_index(); e < a.o.stride; e += kWarpSize) ptx::store_global(o + e, 0.0f);
  if (lane_index() != 0) return;
  ptx::store_global(a.maximum + warp, -INFINITY);
  ptx::store_global(a.sum + warp, 0.0f);
}

__global__ void __launch_bounds__(kThreads) add_kernel(AddParams a) {
  const index_t at = 4 * (static_cast<index_t>(blockIdx.x) * kThreads + threadIdx.x);
  if (at >= a.count) return;
  const auto* const from = reinterpret_cast<const float4*>(a.from + at);
  auto* const to = reinterpret_cast<float4*>(a.to + at);
  const float4 x = ptx::load_global(from);
  float4 sum = ptx::load_global(to);
  sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
  ptx::store_global(to, sum);
}

index_t blocks_of_warps(index_t warps) { return (warps + kWarps - 1) / kWarps; }

}  // namespace

void launch_load(DType dtype, const LoadParams& params, cudaStream_t stream) {
  with_element(dtype, [&](auto element) {
    start("load", load_kernel<decltype(element)>, blocks_of_warps(params.all_heads * params.to.rows), 0,
          params, stream);
  });
}

void launch_store(DType dtype, const StoreParams& params, cudaStream_t stream) {
  with_element(dtype, [&](auto element) {
    start("store", store_kernel<decltype(element)>, blocks_of_warps(params.all_heads * params.rows), 0,
          params, stream);
  });
}

void launch_finish(DType dtype, const FinishParams& params, cudaStream_t stream) {
  with_element(dtype, [&](auto element) {
    start("finish", finish_kernel<decltype(element)>,
          blocks_of_warps(params.all_heads * params.groups * params.group_rows), 0, params, stream);
  });
}

void launch_row_numbers(DType dtype, const RowNumbersParams& params, cudaStream_t stream) {
  with_element(dtype, [&](auto element) {
    start("row_numbers", row_numbers_kernel<decltype(element)>,
          blocks_of_warps(params.all_heads * params.rows), 0, params, stream);
  });
}

void launch_merge(const MergeParams& params, cudaStream_t stream) {
  start("merge", merge_kernel, blocks_of_warps(params.all_heads * params.count * params.state_rows), 0,
        params, stream);
}

void launch_add(const AddParams& params, cudaStream_t stream) {
  constexpr index_t kFloatsABlock = 4 * kThreads;
  start("add", add_kernel, (params.count + kFloatsABlock - 1) / kFloatsABlock, 0, params, stream);
}

void launch_reset(const ResetParams& params, cudaStream_t stream) {
  start("reset", reset_kernel, blocks_of_warps(params.all_heads * params.o.rows), 0, params, stream);
}

}  // namespace ringattn::cuda
