// What is compiled once for every instruction set, as a table of plain functions. A kernel object picks its
// table when it is made; there is no process-wide choice.
#pragma once
#include <span>
#include <string>

#include "kernels/cpu/packed.h"

namespace ringattn::cpu {

// One group of 48 queries against the keys that one piece shows it in one block of 64 keys. Lane i sees key j
// (counted from the start of the block) iff
//   key_begin <= j < key_end,  lane_begin <= i < lane_end,  lo <= j - i <= hi.
struct GroupStep {
  GroupView group;
  const float* k = nullptr;  // [v_rows / 8][head_dim][8]
  const float* v = nullptr;  // [dim_v / 8][v_rows][8]
  int head_dim = 0, dim_v = 0, v_rows = 0;
  float slope = 1;
  int key_begin = 0, key_end = 0, lane_begin = 0, lane_end = 0, lo = 0, hi = 0;
  bool v_finite = true;  // false: V of this block holds NaN or infinity, which hidden keys must not spread
};

// Distance in floats of the 8 staged rows; not a power of two, so that they do not compete for a cache set.
inline constexpr int kStageStride = kMaxDim + 16;

struct Target {
  const char* name;  // "AVX3"

  // attention
  void (*attend)(const GroupStep&);
  void (*fold)(const GroupView& part, const GroupView& whole, int dim_v, float slope);
  bool (*all_finite)(const float* x, index_t n);

  // rows between the caller's tensors and the packed layouts
  void (*widen)(const void* from, DType dtype, index_t n, double factor, float* to);  // one rounding at most
  void (*narrow)(const float* from, DType dtype, index_t n, void* to);                // to nearest even
  void (*rotate)(float* row, const float* cos, const float* sin, index_t dim, bool interleaved);
  void (*normalize)(float* row, index_t n, float divisor, DType dtype,
                    void* to);  // divide, narrow; row is lost
  // to[c * to_stride + r] = rows[r * kStageStride + c] for 8 rows r and n columns c; and back.
  void (*rows_to_columns)(const float* rows, index_t n, float* to, index_t to_stride);
  void (*columns_to_rows)(const float* from, index_t from_stride, index_t n, float* rows);

  // measurement and checks
  float (*fma_chains)(index_t iterations, float seed);              // returns the sum of its accumulators
  int fma_flops;                                                    // FLOPs of one iteration
  void (*exp2)(const float* x, index_t n, float slope, float* to);  // 2^(slope * x), 1 <= slope < 2
  const char* (*self_test)();  // nullptr, or what the compiler got wrong about NaN and infinity (case A11)
};

// Those that this build holds and this machine runs, best first.
std::span<const Target* const> targets();
// "auto" is the best. Throws UsageError naming the value and the allowed ones.
const Target& target_named(const std::string& isa);

}  // namespace ringattn::cpu
