#include "kernels/cpu/stage.h"

#include <algorithm>

namespace ringattn::cpu {

void Stage::turn_to(index_t first, index_t rows) {
  first_ = first;
  valid_ = static_cast<int>(std::clamp<index_t>(rows - first, 0, kPanel));
  const auto pairs = static_cast<std::size_t>(rotation_.dim / 2);
  for (int r = 0; r < valid_ && pairs > 0; ++r) {
    rotation_.angles(first_ + r, std::span(cos_[r]).first(pairs), std::span(sin_[r]).first(pairs));
    if (turn_ == Turn::forth) continue;
    for (std::size_t p = 0; p < pairs; ++p) sin_[r][p] = -sin_[r][p];
  }
}

void Stage::turn(int r) {
  if (rotation_.dim > 0)
    target_.rotate(rows_ + r * kStageStride, cos_[r], sin_[r], rotation_.dim, rotation_.interleaved);
}

void Stage::load(const ConstTensorView& tensor, index_t batch, index_t head, double factor) {
  factor_ = static_cast<float>(factor);
  if (tensor.dtype == DType::f32 && rotation_.dim == 0 && valid_ == kPanel && double{factor_} == factor) {
    source_ = reinterpret_cast<const float*>(element_at(tensor, batch, first_, head));
    stride_ = tensor.stride[1];
    return;
  }
  source_ = rows_;
  stride_ = kStageStride;
  factor_ = 1;
  for (int r = 0; r < kPanel; ++r) {
    float* row = rows_ + r * kStageStride;
    if (r >= valid_) {
      std::fill_n(row, tensor.dim(), 0.0f);
      continue;
    }
    // A power of two may come before the rotation: it changes exponents only.
    target_.widen(element_at(tensor, batch, first_ + r, head), tensor.dtype, tensor.dim(), factor, row);
    turn(r);
  }
}

void Stage::store(const float* from, index_t stride, const TensorView& tensor, index_t batch, index_t head,
                  double factor) {
  const bool as_it_is = tensor.dtype == DType::f32 && rotation_.dim == 0;
  for (int r = 0; r < valid_; ++r) {
    std::byte* to = element_at(tensor, batch, first_ + r, head);
    float* row = as_it_is ? reinterpret_cast<float*>(to) : rows_ + r * kStageStride;
    target_.widen(from + r * stride, DType::f32, tensor.dim(), factor, row);
    if (as_it_is) continue;
    turn(r);
    target_.narrow(row, tensor.dtype, tensor.dim(), to);
  }
}

}  // namespace ringattn::cpu
