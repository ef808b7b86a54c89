// Chapter 3, backward: how the work is cut. One kernel makes all gradients, of 5 products: dk and dv of 128
// keys stay with a block of threads, which adds its part of dq to memory, block of queries by block, when it
// is its turn (turns.h), so that each sum is formed in the same order every time.
//
//   warp 0         loads K and V once, then tiles of 64 queries, q and dout, by TMA
//   warp 1         tells which keys meet the queries of a tile, and their numbers
//   warp 2         adds what is ready of dq to memory, whenever its turn comes
//   warps 4 to 11  two consumers, 64 of the 128 keys each:
//     S^T = K q^T,  dP^T = V dout^T          by wgmma, both operands in shared memory
//     dv += P^T dout,  dk += dS^T q          P^T and dS^T in registers, in the orientation they have
//     dq = dS K                              dS of all 128 keys by way of shared memory; half of the columns
//
// Tiles of queries begin at multiples of 64, since the turns are those of blocks of 64 queries.
#pragma once
#include "kernels/cuda/sm90/query_walk.h"
#include "kernels/cuda/sm90/shape.h"

namespace ringattn::cuda::sm90 {

// head_dim and head_dim_v up to kDim. Beyond 128 the sums of dk and dv outgrow the registers.
template <int kDim_>
struct BackwardShape {
  static constexpr int kDim = kDim_, kPanels = kDim / kPanelColumns;
  static constexpr int kConsumers = 2, kRows = kConsumers * kRowsWarpgroup, kColumns = kTurnRows;
  static constexpr int kThreads = kWarpgroup * (1 + kConsumers);
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
  static constexpr int kPanelRowsBytes = kRows * kPanelRowBytes;
  static constexpr int kPanelColumnsBytes = kColumns * kPanelRowBytes;
  static constexpr int kDqColumns = kDim / kConsumers;  // of dq that a consumer makes
  static constexpr int kDqStride = kDim + 8;            // floats; stores of a warp then meet in no bank
  static constexpr int kWarps = 4 * kConsumers;
  static_assert(kColumns == kPanelColumns);  // a row of dS^T is one of the swizzle
};
inline constexpr int kMostBackwardDim = 128;

// [2]: of what stays, K and V; of what comes by, q and dout.
template <class S>
struct BackwardShared {
  std::uint8_t rows[2][S::kPanels][S::kPanelRowsBytes];
  std::uint8_t columns[2][kStages][S::kPanels][S::kPanelColumnsBytes];
  std::uint8_t ds[2][S::kPanelRowsBytes];  // dS^T of all keys, a row each, of two tiles by turns
  std::uint8_t finite[S::kConsumers][S::kPanels][kDepthRowsBytes];  // see finite.h
  alignas(16) float dq[S::kColumns][S::kDqStride];                  // of a tile, on its way to memory
  // Of the queries of a tile: high, low and delta (RowNumbers).
  alignas(16) float numbers[kStages][3][S::kColumns];
  QueryTile tiles[kStages];
  alignas(16) std::uint32_t infinite[S::kConsumers][4];  // of a warp each
  std::uint64_t rows_full;
  std::uint64_t told[kStages];                        // tiles and numbers are there
  std::uint64_t full[2][kStages], empty[2][kStages];  // they are freed with q
  std::uint64_t dq_full, dq_empty;
  std::uint32_t keys_finite[S::kConsumers];
  BackwardWork work;
};
template <class S>
inline constexpr int kBackwardSharedBytes = static_cast<int>(sizeof(BackwardShared<S>)) + kAtomBytes;

}  // namespace ringattn::cuda::sm90
