// Attention problems for one kernel on one device, and what is right about them: the float64 oracle, with
// bounds that a naive implementation in the same dtype sets (design.md: at most 2 times its error forward, 3
// times for gradients).
#pragma once
#include <string>
#include <vector>

#include "src/types.h"

namespace ringattn::acceptance {

struct KernelCase {
  std::string name;
  HeadShape shape{};
  DType dtype = DType::bf16;
  index_t q_rows = 0, k_rows = 0;
  std::vector<Tile> tiles{};
  std::vector<Range> blocks{};  // of keys, in the order in which they are attended; the state is carried
  double deviation = 1;         // of the normally distributed q and k

  double scale() const;  // 1 / sqrt(head_dim)
  bool visible(index_t i, index_t j) const;
  std::array<index_t, 4> q_shape() const { return {shape.batch, q_rows, shape.num_heads, shape.head_dim}; }
  std::array<index_t, 4> k_shape() const { return {shape.batch, k_rows, shape.num_heads_kv, shape.head_dim}; }
  std::array<index_t, 4> v_shape() const {
    return {shape.batch, k_rows, shape.num_heads_kv, shape.head_dim_v};
  }
  std::array<index_t, 4> out_shape() const {
    return {shape.batch, q_rows, shape.num_heads, shape.head_dim_v};
  }
};

// A dense array in the dtype, and the same numbers in double.
struct Numbers {
  std::vector<std::byte> bytes;
  std::vector<double> values;
};
std::vector<double> doubles_of(const std::vector<std::byte>& bytes, DType dtype);
Numbers rounded(std::vector<double> values, DType dtype);
double rounded(double x, DType dtype);

struct Inputs {
  Numbers q, k, v, dout;
};
// Normally distributed; the same for the same seed on every machine.
Inputs random_inputs(const KernelCase& problem, unsigned seed);

// An answer and how far from it a result may be.
struct Expected {
  std::vector<double> values{};
  double bound = 0;
};
struct Truth {
  Expected out, lse, dq, dk, dv;
};
// From kernels/reference, which knows no tiles: `problem.tiles` enter as a formula of (i, j).
Truth truth_of(const KernelCase& problem, const Inputs& inputs);

// Largest error over the bound. Above 1 is wrong; infinite where NaN or infinity stand in other places than
// in the truth, or the sizes differ.
double error_over_bound(const std::vector<double>& result, const Expected& truth);

}  // namespace ringattn::acceptance
