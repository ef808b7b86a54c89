// Between the caller's tensors and the packed layouts, spread over threads.
#pragma once
#include "kernels/cpu/packed.h"
#include "kernels/cpu/stage.h"
#include "kernels/cpu/target.h"

namespace ringattn::cpu {

// Eight rows of 16-bit elements as pairs, to be turned into columns of cells.
struct PairedRows {
  alignas(64) float cells[kPanel * kStageStride];

  // Rounds what the stage holds.
  void take(const Target& target, const Stage& stage, DType dtype, index_t dim);
  // Copies rows [first, first + valid) as they are.
  void copy(const ConstTensorView& t, index_t batch, index_t head, index_t first, int valid);

 private:
  // 0 where nothing will be written: a row past the end, the last half cell of an odd row.
  std::byte* begin_row(int r, int valid, index_t dim);
};

// Fills every byte of a block. Rotation::angles is called once for each row and batch.
void pack_block(const Target& target, const ConstTensorView& k, const ConstTensorView& v,
                const Rotation& rotation, const BlockLayout& layout, std::byte* block, int threads);

// Where a group's rows go.
struct OutputRows {
  const TensorView& out;
  const LseView& lse;  // or null
  index_t batch, head, group;
  bool stream;  // see streams()
};
// Whether an output is written past the caches.
bool streams(const TensorView& out);
// Normalises and rounds a group's o [dim_v][48], and writes the logarithms of its sums.
void unpack_group(const Target& target, const RowState& rows, const float* o, float slope,
                  const OutputRows& to);
// Likewise all groups that are not written yet.
void unpack_output(const Target& target, const StateLayout& layout, std::byte* state, float slope,
                   const TensorView& out, const LseView& lse, int threads);

}  // namespace ringattn::cpu
