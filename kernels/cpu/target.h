// What is compiled once for every instruction set, as a table of plain functions. A kernel object picks its
// table when it is made; there is no process-wide choice.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "kernels/cpu/backward_layout.h"
#include "kernels/cpu/packed.h"

namespace ringattn::cpu {

// One group of 48 queries against the keys that one piece shows it among up to kStepKeys. Lane i sees key j
// (counted from the first of them) iff
//   key_begin <= j < key_end,  lane_begin <= i < lane_end,  lo <= j - i <= hi.
// Pairs are those of a block: see packed.h.
struct GroupStep {
  GroupView group;
  const float* k = nullptr;  // [v_rows / 8][head_dim][8], or of cells [v_rows / 8][head_dim / 2][8]
  const float* v = nullptr;  // for every 64 keys [dim_v / 8][rows][8], or of cells [dim_v / 8][rows / 2][8]
  int head_dim = 0, dim_v = 0, v_rows = 0;
  float slope = 1;
  int key_begin = 0, key_end = 0, lane_begin = 0, lane_end = 0, lo = 0, hi = 0;
  MemoryRows next[2] = {};  // of the group to come, if they are not in the L2 cache yet
  bool v_finite = true;     // false: V of this block holds NaN or infinity, which hidden keys must not spread
};

// Backward of one group against the keys that one piece shows it among those of a task. Keys are counted from
// the task's first one, otherwise as in GroupStep; key_end may be anywhere up to `keys`. Where a cell is a
// pair of bf16, the dimension that a product sums is half as long, and p and ds have rows of 48 bf16.
struct GradientStep {
  const float *q = nullptr, *dout = nullptr;      // [head_dim][48], [dim_v][48]
  float *q_rows = nullptr, *dout_rows = nullptr;  // the same, [48][k_stride] and [48][v_stride]
  bool turn_rows = false;                         // they have yet to be made, by probabilities
  const RowsState* rows = nullptr;
  const float* k = nullptr;            // [keys / 8][head_dim][8]
  const float* v = nullptr;            // [keys / 8][dim_v rounded up to 8][8]
  const float* k_columns = nullptr;    // [head_dim / 8][keys][8]
  float *p = nullptr, *ds = nullptr;   // [keys][48], what of them the piece shows
  float* ds_columns = nullptr;         // ds, or its pairs along keys [keys / 2][48]
  float *dk = nullptr, *dv = nullptr;  // [keys][k_stride], [keys][v_stride]
  float* dq = nullptr;                 // [head_dim rounded up to 8][48]
  int head_dim = 0, dim_v = 0, k_stride = 0, v_stride = 0, keys = 0;
  float slope = 1;
  int key_begin = 0, key_end = 0, lane_begin = 0, lane_end = 0, lo = 0, hi = 0;
  const std::byte* next = nullptr;  // what the step after this one will read, so many bytes of it
  int next_bytes = 0;
  bool k_finite = true;  // false: K holds NaN or infinity, which hidden keys must not spread
};

// Rows [begin, end) of a panel.
struct PanelRows {
  int begin, end;
  friend bool operator==(const PanelRows&, const PanelRows&) = default;
};

// y[n][8 c + r] = (add ? y[n][8 c + r] : 0) + sum over the rows i of `rows`, in order, panel_c[i][r] *
// x[n][i]: scores, if panels are those of K and x a query; an output, if they are those of V and x its
// probabilities.
struct PanelProduct {
  const std::byte* panels = nullptr;  // each [..][8] in the wire dtype
  DType dtype = DType::f32;
  index_t panel_bytes = 0;            // from one panel to the next
  int count = 0;                      // panels
  bool ordered = false;               // one query alone, in the order of memory; see few.cpp
  std::span<const PanelRows> rows{};  // ascending; no others are touched
  const float* x = nullptr;           // [queries][kFewStride]
  int queries = 0;
  float* y = nullptr;  // [queries][y_stride]
  index_t y_stride = 0;
  bool add = false;
  // For PairTarget::few_product, of the layout of x: the upper halves of its numbers, rounded to bf16, and
  // what is left of them; null if that is 0 throughout. See split_few.
  const std::uint16_t* halves[2] = {};
  bool tiny_matters = false;  // a sum that is tiny is to be as accurate as any other
};

// A query's running maximum and sum, as in RowState.
struct FewRow {
  float shift, limit, sum;
  bool seen;  // a key, whatever its score
};

// Distance in floats of the 8 staged rows; not a power of two, so that they do not compete for a cache set.
inline constexpr int kStageStride = kMaxDim + 16;
// Likewise of the queries of PanelProduct, and of their probabilities.
inline constexpr int kFewStride = kMaxDim + 16;

struct Magnitude {
  bool finite;    // all of them
  float largest;  // of the finite ones
};

// Blocks of 8 x 8 elements, a block 4 rows of 8 cells; strides of rows and steps of blocks in cells.
struct PairBlocks {
  const float* from;
  index_t from_stride, from_step;
  float* to;
  index_t to_stride, to_step;
};

// Products of bf16 by the dot-product instruction: two of them and both their sums at the price of one fp32
// multiply-add.
struct PairTarget {
  void (*attend)(const GroupStep&);
  void (*probabilities)(const GradientStep&);
  void (*key_gradients)(const GradientStep&);
  void (*query_gradients)(const GradientStep&);
  void (*pair_rows)(const float* from, index_t n, float* to);  // [n][48] to cells [(n + 1) / 2][48]; in place
  void (*split_rows)(const float* from, index_t n, float* to);  // and back, but not in place
  // Pairs along one dimension of each block, of n elements in all, become pairs along the other one.
  void (*regroup)(const PairBlocks& blocks, index_t n);
  // n numbers, rounded up to 32, as two bf16 each; whether any of `low` is not 0.
  bool (*split_few)(const float* x, index_t n, std::uint16_t* high, std::uint16_t* low);
  void (*few_product)(const PanelProduct&);             // as panel_product, of bf16
  float (*dot_chains)(index_t iterations, float seed);  // as fma_chains, of twice its FLOPs
};

// The dot-product instruction takes and returns denormals as 0. Where that could be seen in a result, numbers
// are widened. It is not seen while what is lost, less than 2^-126 of each product (or a denormal times the
// other factor), is far below the rounding of the largest numbers to bf16.
struct DotRange {
  // Queries: no denormals, and none so large that denormals of K would have changed a score: 512 terms of
  // less than 2^-126 * 2^90 are below 2^-27. 0, infinity and NaN are what they are; infinity times a denormal
  // is NaN.
  static constexpr float kLowest = 0x1p-126f, kHighest = 0x1p90f;
  // Those of few_product, whose lower half must not be denormal either.
  static constexpr float kLowestSplit = 0x1p-100f;
  // V of a step, by its largest element. Probabilities are up to 2^16: less than 2^-110 is lost for each key.
  static bool outputs(float v) { return v == 0 || v >= 0x1p-60f; }
  // Backward, by the largest elements of the group and of the task's keys: dS is P times up to |dO| |V|, and
  // is multiplied by K and Q.
  static bool gradients(float q, float dout, float k, float v) {
    const double keys_and_queries = q == 0 || k == 0 ? 1.0 : double{q < k ? q : k};
    const double product = double{dout} * double{v} * (keys_and_queries < 1 ? keys_and_queries : 1.0);
    return dout == 0 || (dout >= 0x1p-80f && (v == 0 || product >= 0x1p-80));
  }
};

struct Target {
  const char* name;                   // "AVX3"
  const PairTarget* pairs = nullptr;  // null: 16-bit elements are widened

  // attention
  int step_keys;  // of a GroupStep, so that their probabilities come fast enough for the output's tiles
  void (*attend)(const GroupStep&);
  void (*fold)(const GroupView& part, const GroupView& whole, int dim_v, float slope);
  bool (*all_finite)(const float* x, index_t n);

  // attention of few queries
  void (*panel_product)(const PanelProduct&);
  // Turns `keys` scores, a multiple of 16, into probabilities; hidden ones are -inf. Rescales o if need be.
  void (*few_softmax)(float* scores, int keys, FewRow& row, float* o, int dim_v, float slope);

  // backward, in this order
  void (*probabilities)(const GradientStep&);           // p and ds
  void (*key_gradients)(const GradientStep&);           // adds to dk and dv
  void (*query_gradients)(const GradientStep&);         // adds to dq
  void (*move_sum)(float* from, float* to, index_t n);  // to += from, from = 0
  double (*dot)(const float* a, const float* b, index_t n);

  // rows between the caller's tensors and the packed layouts
  void (*widen)(const void* from, DType dtype, index_t n, double factor, float* to);  // one rounding at most
  void (*narrow)(const float* from, DType dtype, index_t n, void* to);                // to nearest even
  // Neighbours along a dimension of n, in pairs (see packed.h), to rows of 8: [n][8]. Exact.
  void (*widen_pairs)(const void* from, DType dtype, index_t n, float* to);
  // Two rows of n columns as pairs: 8 columns to 8 pairs, to_step elements after the 8 before; the last
  // columns are filled up with 0.
  void (*interleave_rows)(const std::uint16_t* even, const std::uint16_t* odd, index_t n, std::uint16_t* to,
                          index_t to_step);
  Magnitude (*magnitude_bf16)(const void* from, index_t n);
  // The largest magnitude of the finite numbers, n a multiple of 16 and x 64-byte aligned; and whether all
  // but 0, infinity and NaN have magnitudes of [lowest, highest].
  float (*largest_finite)(const float* x, index_t n);
  bool (*within_magnitudes)(const float* x, index_t n, float lowest, float highest);
  void (*rotate)(float* row, const float* cos, const float* sin, index_t dim, bool interleaved);
  // to[c * to_stride + r] = factor * rows[r * row_stride + c] for 8 rows r and n columns c. A factor of 1
  // keeps all bits, whatever they mean.
  void (*rows_to_columns)(const float* rows, index_t row_stride, float factor, index_t n, float* to,
                          index_t to_stride);
  // And back: rows[r * row_stride + c] = from[c * from_stride + r].
  void (*columns_to_rows)(const float* from, index_t from_stride, index_t n, float* rows, index_t row_stride);
  // The next three may write past the caches (`stream`, see memory.h), as far as lines are written as a
  // whole. Then flush_stream comes before another thread reads. Eight rows as a panel: to[8 * c + r] = rows[r
  // * row_stride + c].
  void (*rows_to_panel)(const float* rows, index_t row_stride, index_t n, float* to, bool stream);
  // Eight rows as panels of 8 columns: to[c / 8 * panel + 8 * r + c % 8] = rows[r * row_stride + c]; the last
  // panel is filled up with 0.
  void (*rows_to_panels)(const float* rows, index_t row_stride, index_t n, float* to, index_t panel,
                         bool stream);
  // rows[r * row_stride + c] = from[c * from_stride + r] / divisors[r].
  void (*quotients_to_rows)(const float* from, index_t from_stride, index_t n, const float* divisors,
                            float* rows, index_t row_stride, bool stream);
  void (*flush_stream)();
  // Transposes `count` dense 8 x 8 blocks, which start from_step and to_step floats apart.
  void (*transpose_blocks)(const float* from, index_t from_step, index_t count, float* to, index_t to_step);

  // measurement and checks
  float (*fma_chains)(index_t iterations, float seed);              // returns the sum of its accumulators
  int fma_flops;                                                    // FLOPs of one iteration
  std::uint32_t (*read_all)(const std::uint32_t* x, index_t n);     // the bits that any of them has
  void (*exp2)(const float* x, index_t n, float slope, float* to);  // 2^(slope * x), 1 <= slope < 2
  const char* (*self_test)();  // nullptr, or what the compiler got wrong about NaN and infinity (case A11)
};

// Those that this build holds and this machine runs, best first.
std::span<const Target* const> targets();
// "auto" is the best. Throws UsageError naming the value and the allowed ones.
const Target& target_named(const std::string& isa);

}  // namespace ringattn::cpu
