// Rows of 16-bit elements in shared memory, and the operands that mma.sync takes from them.
#pragma once
#include "kernels/cuda/element.h"

namespace ringattn::cuda::sm80 {

// What mma.sync and pack call the element, its infinity and its 1.
template <class T>
struct Native;
template <>
struct Native<Bf16> {
  using type = __nv_bfloat16;
  static constexpr std::uint32_t kInfinity = 0x7F80, kOne = 0x3F80;
};
template <>
struct Native<F16> {
  using type = __half;
  static constexpr std::uint32_t kInfinity = 0x7C00, kOne = 0x3C00;
};

// Four registers of a warp: an A operand of 16x16, or two B operands of 16x8 side by side.
using Fragment = std::uint32_t[4];

// kRows x kDim, kDim a multiple of 16. Chunks of 16 bytes of a row change places with each other, so that the
// eight rows that one phase of ldmatrix reads at the same chunk fall into eight different groups of banks.
// There are 8 groups, a row of n chunks starts n groups after the one before, and 2^k, the largest power of
// two that divides n (8 at most), says what remains to be done: rows 8 / 2^k apart start at the same group.
// Example: n = 12 (kDim 96), 2^k = 4: rows 0, 2, 4, 6 start at group 0 and have their chunks xor 0, 1, 2, 3;
// rows 1, 3, 5, 7 start at group 4.
template <int kRows, int kDim>
struct SharedTile {
  static constexpr int kChunks = kDim / 8;
  static constexpr int kBytes = kRows * kDim * 2;
  static constexpr int kPower = (kChunks & -kChunks) < 8 ? kChunks & -kChunks : 8;
  static constexpr int kApart = 8 / kPower;

  static __device__ __forceinline__ std::uint32_t offset(int row, int chunk) {
    const int place = chunk ^ (row / kApart & (kPower - 1));
    return static_cast<std::uint32_t>(row * (2 * kDim) + place * 16);
  }
  // The same of row fixed_row + row and chunk fixed_chunk + chunk, where fixed_row is a multiple of 8,
  // fixed_chunk even and chunk 0 or 1: written so that a lane's part is the same for every fixed_row and for
  // every 8th chunk, and what is fixed becomes an immediate of the instruction. Registers are short.
  static __device__ __forceinline__ std::uint32_t offset(int fixed_row, int row, int fixed_chunk, int chunk) {
    const int mixed = (fixed_chunk & (kPower - 1)) ^ chunk ^ (row / kApart & (kPower - 1));
    return static_cast<std::uint32_t>(row * (2 * kDim) + mixed * 16) +
           static_cast<std::uint32_t>(fixed_row * (2 * kDim) + (fixed_chunk & ~(kPower - 1)) * 16);
  }

  // Calls action(row, chunk, offset) for this thread's share of the chunks, the same ones each time. The rows
  // and chunks of one thread are such that their offsets differ by constants.
  template <class Action>
  static __device__ __forceinline__ void for_own_chunks(const Action& action) {
    constexpr int kRowsAtOnce = kThreads / kPower;
    static_assert(kRows % kRowsAtOnce == 0 && kRowsAtOnce % 8 == 0);
    const int row = static_cast<int>(threadIdx.x) / kPower, chunk = static_cast<int>(threadIdx.x) % kPower;
    const std::uint32_t first = offset(row, chunk);
#pragma unroll
    for (int r = 0; r < kRows; r += kRowsAtOnce)
#pragma unroll
      for (int c = 0; c < kChunks; c += kPower)
        action(row + r, chunk + c, first + static_cast<std::uint32_t>(r * (2 * kDim) + c * 16));
  }

  // Starts copying. row_at(row) points to a row in memory, or is null: it becomes 0, and so does what is
  // beyond `stride` elements. `spare` is any aligned place.
  template <class RowAt>
  static __device__ __forceinline__ void load(std::uint32_t to, index_t stride, const void* spare,
                                              const RowAt& row_at) {
    const int chunks = static_cast<int>(stride / 8);
    for_own_chunks([&](int row, int chunk, std::uint32_t at) {
      const auto* const from = static_cast<const unsigned char*>(row_at(row));
      const bool inside = from != nullptr && chunk < chunks;
      ptx::cp_async<16>(to + at, inside ? from + chunk * 16 : spare, inside ? 16 : 0);
    });
  }
  // Rows [first, first + valid) of an array.
  static __device__ __forceinline__ void load(std::uint32_t to, const Rows& rows, index_t head, index_t first,
                                              int valid) {
    const auto* const from = row_at<const std::uint16_t>(rows, head, first);
    load(to, rows.stride, rows.data,
         [&](int row) -> const void* { return row < valid ? from + row * rows.stride : nullptr; });
  }

  // A: rows row0 .. row0 + 15, columns 16 k .. 16 k + 15.
  static __device__ __forceinline__ void a(Fragment& r, std::uint32_t tile, int row0, int k) {
    const int lane = lane_index();
    ptx::ldmatrix_x4(r, tile + offset(row0, lane % 16, 2 * k, lane / 16));
  }
  // B of a product with the transposed tile: rows 16 n .. 16 n + 15 are columns of B, columns 16 k .. are
  // summed over.
  static __device__ __forceinline__ void b_transposed(Fragment& r, std::uint32_t tile, int n, int k) {
    const int lane = lane_index();
    ptx::ldmatrix_x4(r, tile + offset(16 * n, lane / 16 * 8 + lane % 8, 2 * k, lane / 8 % 2));
  }
  // B of a product with the tile: columns 16 n .. 16 n + 15, rows 16 k .. are summed over.
  static __device__ __forceinline__ void b(Fragment& r, std::uint32_t tile, int n, int k) {
    const int lane = lane_index();
    ptx::ldmatrix_x4_trans(r, tile + offset(16 * k, lane % 16, 2 * n, lane / 16));
  }
};

// In an accumulator of 16x8 a lane holds rows lane / 4 (elements 0 and 1) and lane / 4 + 8 (2 and 3), columns
// 2 (lane % 4) and the next.
__device__ __forceinline__ int row_of_lane(int half) { return lane_index() / 4 + 8 * half; }
__device__ __forceinline__ int column_of_lane() { return lane_index() % 4 * 2; }

// A row is spread over the four lanes of a quad.
__device__ __forceinline__ float quad_maximum(float x) {
  x = fmaxf(x, ptx::shuffle_xor(x, 1));
  return fmaxf(x, ptx::shuffle_xor(x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += ptx::shuffle_xor(x, 1);
  return x + ptx::shuffle_xor(x, 2);
}

// Two neighbouring accumulators, rounded, are the A operand of 16 columns.
template <class T>
__device__ __forceinline__ void to_operand(Fragment& r, const float (&left)[4], const float (&right)[4]) {
  using Type = typename Native<T>::type;
  r[0] = ptx::pack<Type>(left[0], left[1]);
  r[1] = ptx::pack<Type>(left[2], left[3]);
  r[2] = ptx::pack<Type>(right[0], right[1]);
  r[3] = ptx::pack<Type>(right[2], right[3]);
}

template <int kCount>
__device__ __forceinline__ void clear(float (&sums)[kCount][4]) {
#pragma unroll
  for (int n = 0; n < kCount; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[n][e] = 0;
}

}  // namespace ringattn::cuda::sm80
