// Every wrapper of ptx.h once, for nvcc alone: that the PTX text assembles is all this file shows.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.h"

using namespace ringattn::ptx;

__global__ void every_sm80(const float* in, float* out) {
  out += thread_index();
  unsigned char* const s = dynamic_shared();
  const std::uint32_t a = shared_address(s);
  cp_async<16>(a, in);
  cp_async<8>(a + 16, in, 4);
  cp_async<4>(a + 32, in);
  cp_async_commit();
  cp_async_wait<0>();
  std::uint32_t r[4], r2[2];
  float d[4] = {};
  ldmatrix_x4(r, a);
  ldmatrix_x2(r2, a);
  mma_m16n8k16<__nv_bfloat16>(d, r, r2[0], r2[1]);
  ldmatrix_x4_trans(r, a);
  ldmatrix_x2_trans(r2, a);
  mma_m16n8k16<__half>(d, r, r2[0], r2[1]);
  named_barrier_arrive(2, 64);
  named_barrier_sync(1, 64);
  store_shared(a + 64, d[0]);
  store_shared(reinterpret_cast<float*>(s), d[2]);
  d[1] += load_shared<float>(a + 128) + load_shared(reinterpret_cast<float*>(s) + 7) + load_global(in);
  store_global(out, exp2_approx(shuffle_xor(d[0] + d[1] + d[3], 1)) + shuffle(d[2], 3));
  store_global(reinterpret_cast<std::uint32_t*>(out) + 1,
               pack<__half>(d[0], d[1]) + pack<__nv_bfloat16>(d[2], d[3]));
  wait_global(reinterpret_cast<const int*>(in), 3);
  fence_global();
  atomic_add_global(out, 1.0f);
}

void launch_it(const float* in, float* out, cudaStream_t stream) {
  ringattn::cuda::launch(every_sm80, dim3(1), dim3(64), 1024, stream, in, out);
}

#ifdef RINGATTN_TEST_SM90A
template <class T, int kRegisters>
__device__ void products(float* out, std::uint32_t address) {
  float d[kRegisters];
  std::uint32_t r[4] = {1, 2, 3, 4};
  pin(d);
  pin(r);
  wgmma_fence();
  const auto a = matrix_descriptor(address, 0, 1024), b = matrix_descriptor(address + 8192, 8192, 1024);
  wgmma_ss<T, Major::k, Major::k>(d, a, b, false);
  wgmma_ss<T, Major::mn, Major::mn>(d, advance_descriptor(a, 32), b, true);
  wgmma_rs<T, Major::mn>(d, r, b, true);
  wgmma_rs<T, Major::k>(d, r, b, true);
  wgmma_commit();
  wgmma_wait<0>();
  pin(d);
  for (int i = 0; i < kRegisters; ++i) out[i * 128 + threadIdx.x] = d[i];
}
template <class T, int... kRegisters>
__device__ void every_shape(float* out, std::uint32_t address) {
  (products<T, kRegisters>(out, address), ...);
}

__global__ void __launch_bounds__(128, 1) every_sm90(const __grid_constant__ CUtensorMap map, float* out) {
  unsigned char* const s = dynamic_shared();
  auto* const barrier = reinterpret_cast<std::uint64_t*>(s);
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    mbarrier_init_fence();
    tma_prefetch_map(&map);
  }
  __syncthreads();
  if (elect_one()) {
    mbarrier_arrive_expect_tx(barrier, 99);
    tma_load(s + 1024, &map, barrier, 1, 2, 3);
    tma_load(s + 2048, &map, barrier, 1, 2, 3, 4);
    mbarrier_arrive(barrier);
  }
  mbarrier_wait(barrier, 0);
  const std::uint32_t r[4] = {1, 2, 3, 4};
  stmatrix_x4(shared_address(s) + 4096, r);
  stmatrix_x4_trans(shared_address(s) + 4096, r);
  fence_proxy_async();
  fence_proxy_async_global();
  __syncthreads();
  bulk_reduce_add(out, reinterpret_cast<float*>(s), 256);
  bulk_commit();
  bulk_wait_read<0>();
  bulk_wait<0>();
  registers_release<24>();
  registers_claim<240>();
  every_shape<__nv_bfloat16, 16, 32, 40, 48, 64, 80, 88, 96, 128>(out, shared_address(s));
  every_shape<__half, 16, 32, 40, 48, 64, 80, 88, 96, 128>(out, shared_address(s));
}
#endif
