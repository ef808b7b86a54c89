// Chapter 3, sm_90a: how the work of a head is cut. A block of threads owns 64 queries a consumer warpgroup
// and walks over the key tiles that any of them sees:
//
//   warpgroup 0         producer: one thread loads Q once, and K and V by TMA into a ring of kStages tiles
//   each the other 2 or 3    consumers: S = Q K^T and O += P V by wgmma, softmax and P in registers
//
// Tiles lie in shared memory as wgmma reads them. 64 elements of 16 bits are 128 bytes, one row of the
// swizzle, so a tile of R rows x D columns is D / 64 panels of [R][64], each R * 128 bytes, filled by one TMA
// box. Columns beyond the tensor's and rows beyond the head's are filled with 0: head_dim 80 runs as 128.
#pragma once
#include <cstdint>

#include "kernels/cuda/ptx.h"

namespace ringattn::cuda::sm90 {

inline constexpr int kStages = 2;
inline constexpr int kPanelColumns = 64;    // a row of the 128-byte swizzle
inline constexpr int kPanelRowBytes = 128;  // the same in bytes
inline constexpr int kAtomBytes = 1024;     // 8 rows, in which the swizzle repeats
inline constexpr int kWarpgroup = 128;      // threads
inline constexpr int kRowsWarpgroup = 64;   // the m of wgmma
inline constexpr int kDepth = 16;           // the k of wgmma: what one instruction sums over
inline constexpr int kDepthBytes = kDepth * 2;
inline constexpr int kDepthRowsBytes = kDepth * kPanelRowBytes;  // 16 rows of a panel

// head_dim and head_dim_v up to kQk and kDv, multiples of 64.
template <int kQk_, int kDv_>
struct Shape {
  static constexpr int kQk = kQk_, kDv = kDv_;
  static constexpr int kPanelsQk = kQk / kPanelColumns, kPanelsV = kDv / kPanelColumns;
  // A thread holds kDv / 2 floats of O, kKeys / 2 of S and half as many registers of P, and 64 Ki registers
  // are all there are: two consumers of 240 at head_dim 128, three of 160 at 64, where tiles of 128 keys
  // would spill. At 256, O takes 128, and 64 keys are what both registers and shared memory have room for.
  static constexpr int kConsumers = kQk == 64 && kDv == 64 ? 3 : 2;
  static constexpr int kKeys = kQk == 256 ? 64 : kConsumers == 3 ? 96 : 128;
  static constexpr int kRowsQ = kConsumers * kRowsWarpgroup;
  static constexpr int kThreads = kWarpgroup * (1 + kConsumers);
  // At launch each thread has 64 Ki / kThreads; the producer gives up what the consumers claim.
  static constexpr int kProducerRegisters = kConsumers == 3 ? 32 : 24;
  static constexpr int kConsumerRegisters = kConsumers == 3 ? 160 : 240;
  static constexpr int kPanelQBytes = kRowsQ * kPanelRowBytes, kPanelBytes = kKeys * kPanelRowBytes;
};

// Panels first: each begins at a multiple of 1024 bytes.
template <class S>
struct Shared {
  std::uint8_t q[S::kPanelsQk][S::kPanelQBytes];
  std::uint8_t k[kStages][S::kPanelsQk][S::kPanelBytes];
  std::uint8_t v[kStages][S::kPanelsV][S::kPanelBytes];
  std::uint8_t finite[S::kConsumers][S::kPanelsV][kDepthRowsBytes];  // see finite.h
  std::uint64_t q_full;
  std::uint64_t k_full[kStages], k_empty[kStages];
  std::uint64_t v_full[kStages], v_empty[kStages];
  alignas(16) std::uint32_t infinite[S::kConsumers][4];  // of a warp each
};
// Dynamic shared memory is aligned to 16 bytes, no more.
template <class S>
inline constexpr int kSharedBytes = static_cast<int>(sizeof(Shared<S>)) + kAtomBytes;

template <class Shared>
__device__ __forceinline__ Shared& shared_memory() {
  unsigned char* const base = ptx::dynamic_shared();
  return *reinterpret_cast<Shared*>(base +
                                    (kAtomBytes - ptx::shared_address(base) % kAtomBytes) % kAtomBytes);
}

// Tile number `tile` of a block of threads goes to this slot of the ring, in a phase of this parity. Who
// waits for it to be full waits for that parity, who waits for it to be empty for the other one, which a
// fresh barrier reports as past: at first every slot is free.
__device__ __forceinline__ int slot_of(int tile) {
  return static_cast<int>(static_cast<std::uint32_t>(tile) % kStages);
}
__device__ __forceinline__ std::uint32_t phase_of(int tile) {
  return static_cast<std::uint32_t>(tile) / kStages % 2;
}

}  // namespace ringattn::cuda::sm90
