// Problems for kernels: tensors, tiles, a kernel run from load to finish on poisoned outputs, and what to
// compare it with.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernel.h"

namespace ringattn::test {

// A dense [batch, rows, heads, dim] array of any dtype.
struct Tensor {
  DType dtype = DType::f32;
  std::array<index_t, 4> shape{};
  std::vector<std::byte> bytes;

  Tensor(DType dtype, std::array<index_t, 4> shape);
  std::size_t size() const { return bytes.size() / size_of(dtype); }
  double get(std::size_t i) const;
  void set(std::size_t i, double value);  // rounded to nearest
  std::size_t index(index_t b, index_t row, index_t head, index_t e) const;
  ConstTensorView view() const { return dense_view(bytes.data(), dtype, shape); }
  TensorView view() { return dense_view(bytes.data(), dtype, shape); }
  std::vector<double> doubles() const;
};

// Normally distributed with that standard deviation; the same for the same seed on every machine.
Tensor random_tensor(DType dtype, std::array<index_t, 4> shape, unsigned seed, double deviation = 1);
// A dtype's name for traces.
std::string text(DType dtype);
Tensor filled(DType dtype, std::array<index_t, 4> shape, double value);
// v[b][j][h][0] = j, other components 0.
Tensor key_indices(DType dtype, std::array<index_t, 4> shape);
// Generator G of the fault cases (t = 0 q, 1 k, 2 v): multiples of 1/64, exact in every dtype.
Tensor generated(int t, DType dtype, std::array<index_t, 4> shape);

struct Problem {
  HeadShape shape;
  DType dtype = DType::f32;
  index_t q_rows = 0, k_rows = 0;
  double scale = 1;
  std::vector<Tile> tiles;
  Rotation q_rotation, k_rotation;

  std::array<index_t, 4> q_shape() const { return {shape.batch, q_rows, shape.num_heads, shape.head_dim}; }
  std::array<index_t, 4> k_shape() const { return {shape.batch, k_rows, shape.num_heads_kv, shape.head_dim}; }
  std::array<index_t, 4> v_shape() const {
    return {shape.batch, k_rows, shape.num_heads_kv, shape.head_dim_v};
  }
  std::array<index_t, 4> out_shape() const {
    return {shape.batch, q_rows, shape.num_heads, shape.head_dim_v};
  }
  bool visible(index_t i, index_t j) const;
};

// A problem with the usual scale, 1 / sqrt(head_dim), and no rotation.
Problem problem_of(HeadShape shape, DType dtype, index_t q_rows, index_t k_rows, std::vector<Tile> tiles);

std::vector<Tile> full_tiles(index_t q_rows, index_t k_rows);
std::vector<Tile> causal_tiles(index_t q_rows, index_t k_rows);  // aligned at the end
std::vector<Tile> window_tiles(index_t q_rows, index_t k_rows, index_t left, index_t right);

struct Inputs {
  Tensor q, k, v;
};
Inputs random_inputs(const Problem& problem, unsigned seed, double deviation = 1);
Inputs generated_inputs(const Problem& problem);

struct Result {
  Tensor out;
  std::vector<float> lse;  // [batch, heads, q_rows]
};
bool same_bits(const Result& a, const Result& b);

// Ranges of keys that become blocks, in the order in which they are attended; none: all keys in one block.
using Blocks = std::vector<Range>;
Blocks blocks_of(index_t rows_a_block, index_t k_rows);

// How the outputs are written: by attend_last of the last block, or by finish() after it.
enum class Ending : std::uint8_t { last_block, finish };

// load_queries, then load_block (into a block full of NaN) and attend for each block; into outputs full of
// NaN.
Result run(Kernel& kernel, const Problem& problem, const ConstTensorView& q, const ConstTensorView& k,
           const ConstTensorView& v, const Blocks& blocks = {}, const Poll& poll = {},
           Ending ending = Ending::last_block);
Result run(Kernel& kernel, const Problem& problem, const Inputs& inputs, const Blocks& blocks = {});
KernelConfig config_of(const Problem& problem, const std::string& isa = "auto", int threads = 1);
Result run_cpu(const Problem& problem, const Inputs& inputs, const std::string& isa = "auto",
               const Blocks& blocks = {}, int threads = 1);

// The tiles as seen by a block that holds keys [begin, end).
std::vector<Tile> tiles_of_keys(const std::vector<Tile>& tiles, index_t begin, index_t end);

struct Answer {
  std::vector<double> out, lse;
};
Answer oracle(const Problem& problem, const Inputs& inputs);  // reference_attention

// Asserts that out and lse are the oracle's: NaN, infinity and -inf in the same places, errors at most twice
// those of a naive implementation in the same dtype, plus a floor.
void expect_accurate(const Result& result, const Problem& problem, const Inputs& inputs);

// `x` rounded to the dtype.
double rounded(double x, DType dtype);
// Turns dense rows of that shape in double; back if `direction` is -1.
void turn(std::vector<double>& x, const Tensor& like, const Rotation& rotation, double direction = 1);
// What the oracle sees of a tensor: turned in double where the problem turns.
std::vector<double> turned(const Tensor& tensor, const Rotation& rotation);
// Of the finite numbers; and of the differences between finite numbers.
double largest(const std::vector<double>& x);
double largest_error(const std::vector<double>& x, const std::vector<double>& truth);
// NaN and infinity where the truth has them, elsewhere errors up to `bound`.
void expect_close(const char* what, const std::vector<double>& ours, const std::vector<double>& truth,
                  double bound);

// Rotation by angles position(row) / base^(2p / dim), cos and sin in double.
Rotation test_rotation(index_t dim, bool interleaved, index_t first_position, double base = 10000);

}  // namespace ringattn::test
