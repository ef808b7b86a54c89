// Rows in fp32 on their way between the caller's tensors and the packed layouts.
#pragma once
#include "kernels/cpu/packed.h"
#include "kernels/cpu/target.h"

namespace ringattn::cpu {

inline const std::byte* element_at(const ConstTensorView& t, index_t batch, index_t row, index_t head) {
  return static_cast<const std::byte*>(t.data) +
         t.offset(batch, row, head) * static_cast<index_t>(size_of(t.dtype));
}
inline std::byte* element_at(const TensorView& t, index_t batch, index_t row, index_t head) {
  return static_cast<std::byte*>(t.data) +
         t.offset(batch, row, head) * static_cast<index_t>(size_of(t.dtype));
}

enum class Turn : bool { forth, back };

// Eight rows of one head; rows past the end are zero. Reading goes through here so that nothing past the last
// element of a row is touched.
class Stage {
 public:
  Stage(const Target& target, const Rotation& rotation, Turn turn = Turn::forth)
      : target_(target), rotation_(rotation), turn_(turn) {}

  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // Angles of rows [first, first + 8), as far as they exist: formed once, used for every head.
  void turn_to(index_t first, index_t rows);

  // Takes rows of a tensor times `factor`, turned. What remains to be multiplied is in factor(): eight rows
  // of fp32 that are not turned are not copied either.
  void load(const ConstTensorView& tensor, index_t batch, index_t head, double factor);
  const float* row(int r) const { return source_ + r * stride_; }
  index_t stride() const { return stride_; }
  float factor() const { return factor_; }

  // Multiplies eight rows, `stride` floats apart, by `factor`, turns them and rounds them into a tensor.
  void store(const float* from, index_t stride, const TensorView& tensor, index_t batch, index_t head,
             double factor);

  // Room for rows to be stored, kStageStride floats apart.
  float* rows() { return rows_; }
  int valid() const { return valid_; }

 private:
  void turn(int r);

  const Target& target_;
  const Rotation& rotation_;
  Turn turn_;
  index_t first_ = 0;
  int valid_ = 0;
  const float* source_ = rows_;
  index_t stride_ = kStageStride;
  float factor_ = 1;
  alignas(64) float rows_[kPanel * kStageStride];
  alignas(64) float cos_[kPanel][kMaxDim / 2], sin_[kPanel][kMaxDim / 2];
};

}  // namespace ringattn::cpu
