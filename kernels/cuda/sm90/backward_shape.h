// Chapter 3, backward: how the work is cut. One kernel with 128 queries to a block of threads makes dq,
// another with 128 keys makes dk and dv; both form the probabilities anew, nothing is added by two blocks.
// Each consumer warpgroup has 64 of the 128 rows, whose two tiles (q and dout, or k and v) stay in shared
// memory; of the other side tiles of 64 columns come by, two at a time (k and v, or q and dout):
//
//   S = first first^T,  dP = second second^T             by wgmma, both operands in shared memory
//   dq += dS k,  or dv += P dout and dk += dS q          P and dS in registers, in the orientation they have
#pragma once
#include "kernels/cuda/sm90/shape.h"

namespace ringattn::cuda::sm90 {

// head_dim and head_dim_v up to kDim. Beyond 128 the sums of dk and dv outgrow the registers.
template <int kDim_>
struct BackwardShape {
  static constexpr int kDim = kDim_, kPanels = kDim / kPanelColumns;
  static constexpr int kConsumers = 2, kRows = kConsumers * kRowsWarpgroup, kColumns = 64;
  static constexpr int kThreads = kWarpgroup * (1 + kConsumers);
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
  static constexpr int kPanelRowsBytes = kRows * kPanelRowBytes;
  static constexpr int kPanelColumnsBytes = kColumns * kPanelRowBytes;
};
inline constexpr int kMostBackwardDim = 128;

// [2]: the first and the second tile of each side.
template <class S>
struct BackwardShared {
  std::uint8_t rows[2][S::kPanels][S::kPanelRowsBytes];
  std::uint8_t columns[2][kStages][S::kPanels][S::kPanelColumnsBytes];
  std::uint8_t finite[S::kConsumers][S::kPanels][kDepthRowsBytes];  // see finite.h
  // Of the queries of a tile, where they are columns: high, low and delta (RowNumbers), of two tiles by
  // turns.
  alignas(16) float numbers[S::kConsumers][2][3][S::kColumns];
  alignas(16) std::uint32_t infinite[S::kConsumers][4];  // of a warp each
  std::uint64_t rows_full;
  std::uint64_t full[2][kStages], empty[2][kStages];
};
template <class S>
inline constexpr int kBackwardSharedBytes = static_cast<int>(sizeof(BackwardShared<S>)) + kAtomBytes;

}  // namespace ringattn::cuda::sm90
