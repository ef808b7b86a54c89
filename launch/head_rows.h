// Rows of one head as the check sees them: float64, read or made again in pieces, and turned by RoPE in
// float64.
#pragma once
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "src/rope.h"
#include "src/types.h"

namespace ringattn::launch {

// Fills `to` with the head's rows at `positions`, one after the other, exactly as they are in the tensor.
using ReadHead = std::function<void(index_t batch, index_t head, Range positions, std::span<float> to)>;

// RoFormer's rotation (arXiv:2104.09864, eq. 15) in float64, written apart from the one that is checked. The
// angle of pair p at position m is the double m * base^(-2p/dim), and cos and sin reduce it themselves.
class Float64Rotation {
 public:
  Float64Rotation(const Rope& rope, index_t head_dim);
  void turn(index_t position, std::span<double> row) const;
  // The gradient with respect to a turned row, as one with respect to the row: a rotation's transpose is the
  // turn the other way.
  void turn_back(index_t position, std::span<double> row) const;

 private:
  void turn(index_t position, std::span<double> row, double direction) const;

  Rope rope_;
  index_t dim_;
  std::vector<double> frequency_;
};

class HeadRows {
 public:
  // `count` positions; holds about `budget_bytes` of them at a time.
  HeadRows(ReadHead read, index_t count, index_t dim, Float64Rotation rotation, std::size_t budget_bytes);
  void select(index_t batch, index_t head);
  // Valid until the next call.
  std::span<const double> at(index_t position);

 private:
  const std::vector<double>& piece(index_t number);

  ReadHead read_;
  index_t count_, dim_;
  Float64Rotation rotation_;
  std::size_t most_pieces_;
  index_t batch_ = 0, head_ = 0;
  std::unordered_map<index_t, std::vector<double>> pieces_;
};

}  // namespace ringattn::launch
