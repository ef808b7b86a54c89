// Numbers of few queries for products of bf16.
#pragma once
#include <cstdint>

#include "kernels/cpu/target.h"

namespace ringattn::cpu {

// What a product multiplies, in two halves: see PairTarget::split_few.
class Halves {
 public:
  // `room`: kFewStride floats for each query.
  Halves(float* room, index_t queries)
      : high_(reinterpret_cast<std::uint16_t*>(room)), low_(high_ + queries * kFewStride) {}

  // n numbers of a query.
  void split(const PairTarget& target, const float* x, index_t query, index_t n) {
    const index_t at = query * kFewStride;
    any_low_ |= target.split_few(x, n, high_ + at, low_ + at);
  }
  // From element `first` of a query on.
  void show(index_t query, index_t first, PanelProduct& product) const {
    const index_t at = query * kFewStride + first;
    product.halves[0] = high_ + at;
    product.halves[1] = any_low_ ? low_ + at : nullptr;
  }
  void clear() { any_low_ = false; }

 private:
  std::uint16_t *high_, *low_;  // [queries][kFewStride]
  bool any_low_ = false;
};

}  // namespace ringattn::cpu
