// What the kernels are told: plain data, the same for host and device.
#pragma once
#include "src/types.h"

namespace ringattn::cuda {

// A block of threads works on 16 rows of one head, four to a warp, against 32 columns at a time, one to a
// lane. Rows are queries and columns keys, or, for dK and dV, the other way round.
inline constexpr int kGroupRows = 16;
inline constexpr int kWarps = 4;
inline constexpr int kWarpRows = kGroupRows / kWarps;
inline constexpr int kWarpSize = 32;
inline constexpr int kColumns = kWarpSize;
inline constexpr int kThreads = kWarps * kWarpSize;

// Columns whose sums are formed apart from all others, so that what is small is not lost in what is large:
// the columns of a step in registers, those of a span of 2,048 in registers of their own, spans in the memory
// that carries them. A rank of a ring sees its own keys first, which may have nearly all the weight;
// thousands of far keys, each below half an ulp of that, would be lost if they were added to it one by one.
inline constexpr int kSpan = 2048;

// What one tile shows to one group. Column c is visible to row i of the group iff
//   begin <= c < end,  row_begin <= i < row_end,  lo <= c - i <= hi.
struct Piece {
  index_t begin, end;
  index_t lo, hi;  // relative to the group: the band's, plus the first row of the group
  int row_begin, row_end;
};
struct Group {
  index_t first_row;
  index_t first_piece, pieces;  // in the list of pieces, sorted by their first column before a split
  index_t first_state;          // where its rows' state is among those of a head: first_row, or see split.h
};
// On the device. Only groups that see something, longest first.
struct Walk {
  const Group* groups;
  const Piece* pieces;
  index_t count;
};

// [batch][head][rows][stride]. `head` below counts the heads of all batches.
struct Rows {
  void* data;
  index_t rows, stride;
};

// A tensor of the caller's, [batch, rows, heads, dim], strides in elements, last stride 1.
struct Tensor {
  void* data;
  index_t batch_stride, row_stride, head_stride;
};

// Cosines and sines on the device: row r has dim / 2 cosines from angles + r * dim on, then as many sines.
struct Turn {
  const float* angles;
  int dim;  // 0: nothing turns
  bool interleaved;
  bool back;  // by the negative angle
};

// Scores in units of log2: slope * factor * (q k), `factor` a power of two.
struct Scores {
  float factor, slope;
};

// Rows of a tensor to an array of rows, turned; padding becomes 0.
struct LoadParams {
  Tensor from;
  Rows to;
  index_t rows, heads, all_heads;  // heads of one batch, of all
  int dim;
  double factor;
  Turn turn;
};

// Rows that have seen nothing: o 0, maximum -inf, sum 0.
struct ResetParams {
  Rows o;
  float *maximum, *sum;
  index_t all_heads;
};

// Where the answer of rows goes.
struct Outputs {
  Tensor out;  // data null: nowhere
  float* lse;  // null: not wanted
  index_t lse_stride[3];
  index_t heads;  // of one batch
};

struct AttendParams {
  Walk walk;
  Rows q, k, v, o;
  float *maximum, *sum;  // [head][q.rows]: of score * factor, and of 2^(slope * (score * factor - maximum))
  index_t q_rows, k_rows, all_heads, heads_a_kv;
  int head_dim, dim_v;
  int group_rows, group_heads;  // that the walk's tiles are cut to; heads that share them, see pack.h
  index_t packs_a_kv;           // of so many heads, for all heads of a KV head
  Scores scores;
  // Not null: these are the last keys of the walk's rows, which are finished instead of carried on. It saves
  // the way of o through memory, fp32 written by attend and read by finish: 8 bytes of the 14 that an element
  // of 16 bits costs after the last product.
  Outputs end;
};

// Of all heads.
constexpr index_t all_packs(const AttendParams& a) { return a.packs_a_kv * (a.all_heads / a.heads_a_kv); }

// A group whose columns are split: its rows' partial states, `parts` times `state_rows` rows of a head.
struct Merge {
  index_t first_row, first_state, parts;
};

// Partial states are added to the state of their rows.
struct MergeParams {
  const Merge* merges;
  index_t count, state_rows;
  Rows part_o;
  const float *part_maximum, *part_sum;  // [head][part_o.rows]
  Rows o;
  float *maximum, *sum;
  index_t q_rows, all_heads;
  float slope;
};

struct FinishParams {
  Rows o;
  const float *maximum, *sum;
  Outputs to;
  // Groups of group_rows rows, from first_rows[g] on, or, if that is null, from g * group_rows on.
  const index_t* first_rows;
  index_t groups, group_rows;
  index_t rows, all_heads;
  int dim_v;
  float slope;
};

// lse in units of log2 as two floats, high + low, so that only its own rounding remains; high is -inf for a
// row that saw nothing. delta = sum_e dout_e out_e.
struct RowNumbers {
  float *high, *low, *delta;
};

struct RowNumbersParams {
  Tensor dout, out;
  const float* lse;
  index_t lse_stride[3];
  RowNumbers to;
  Rows loaded_q, loaded_dout;  // arrays whose rows become 0 where lse is -inf
  double log2e;                // what lse is multiplied by, see Scaling
  index_t stride;              // rows of a head in all of these
  index_t rows, heads, all_heads;
  int dim_v;
};

// Queries [begin, end) of a piece, whose blocks are visited from the last to the first with the same turn.
struct TurnRun {
  int begin, end, turn;
};
// On the device; see turns.h.
struct Turns {
  const int* first_runs;  // of each of the walk's groups, in the order of its visits, and the end of all
  const TurnRun* runs;
  int* ticket;     // number of the group that begins next, times the heads: 0 before the launch
  int* done;       // [head][blocks], visits that have ended: 0 before the launch
  index_t blocks;  // of queries, of a head
};

// dq of the walk's queries, or dK and dV of the walk's keys. With `turns`, dq as well as those.
struct BackwardParams {
  Walk walk;
  Rows q, dout, k, v;  // in the wire dtype
  Rows dq, dk, dv;     // fp32
  RowNumbers numbers;
  index_t q_rows, k_rows, all_heads, all_heads_kv, heads_a_kv;
  int head_dim, dim_v;
  Scores scores;
  Turns turns;
};

// to[i] += from[i].
struct AddParams {
  float* to;
  const float* from;
  index_t count;  // a multiple of 4
};

// fp32 rows times a factor to a tensor, turned, rounded once.
struct StoreParams {
  Rows from;
  Tensor to;
  index_t rows, heads, all_heads;
  int dim;
  double factor;
  Turn turn;
};

}  // namespace ringattn::cuda
