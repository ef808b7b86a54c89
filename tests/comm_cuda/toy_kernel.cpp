#include "tests/comm_cuda/toy_kernel.h"

#include <cstring>

namespace ringattn::test {
namespace {

std::uint64_t at(std::span<const std::byte> bytes, index_t row) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + row * 8, sizeof value);
  return value;
}

void add(std::span<std::byte> bytes, index_t row, std::uint64_t value) {
  const std::uint64_t sum = at(bytes, row) + value;
  std::memcpy(bytes.data() + row * 8, &sum, sizeof sum);
}

template <class Body>
void each_visible(std::span<const Tile> tiles, const Body& body) {
  for (const Tile& tile : tiles)
    for (index_t i = tile.q.begin; i < tile.q.end; ++i)
      for (index_t j = tile.k.begin; j < tile.k.end; ++j)
        if (tile.band.contains(j - i)) body(i, j);
}

}  // namespace

ToyKernel::ToyKernel(cudaStream_t stream, std::vector<std::uint64_t> q, std::vector<std::uint64_t> k)
    : stream_(stream), q_(std::move(q)), k_(std::move(k)), rows_(q_.size() * 8) {}

// Poison, unlike the memory of real kernels: nothing may be read that was not written.
Buffer ToyKernel::allocate(std::size_t bytes) const {
  void* p = nullptr;
  cudaMalloc(&p, bytes > 0 ? bytes : 1);
  return {.data = {static_cast<std::byte*>(p), [](std::byte* data) { cudaFree(data); }}, .size = bytes};
}

void ToyKernel::clear_rows() { write_zero(stream_, rows_.bytes()); }
void ToyKernel::clear_gradients(std::span<std::byte> gradients) const { write_zero(stream_, gradients); }

void ToyKernel::write_own_block(std::span<std::byte> block) {
  on_stream(stream_, {{block, simt::Access::write}}, [block, k = k_] {
    if (!k.empty()) std::memcpy(block.data(), k.data(), block.size());
  });
}

void ToyKernel::attend(std::span<const Tile> tiles, std::span<const std::byte> block, index_t,
                       const Poll& poll) {
  if (poll) poll();
  const std::span<std::byte> rows = rows_.bytes();
  on_stream(stream_, {{block, simt::Access::read}, {rows, simt::Access::write}},
            [block, rows, list = std::vector(tiles.begin(), tiles.end())] {
              each_visible(list, [&](index_t i, index_t j) { add(rows, i, at(block, j)); });
            });
  if (poll) poll();
}

// As the real one: what stays here first, and then, when they are needed, the sums from the previous rank.
void ToyKernel::attend_backward(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
                                const GradientBlock& gradients, const Poll& poll) {
  if (gradients.fresh) clear_gradients(gradients.bytes);
  attend(tiles, block, k_rows, poll);
  if (gradients.arrived) {
    while (gradients.arrived() < gradients.bytes.size()) {
    }
  }
  on_stream(stream_, {{gradients.bytes, simt::Access::write}},
            [sums = gradients.bytes, q = q_, list = std::vector(tiles.begin(), tiles.end())] {
              each_visible(list, [&](index_t i, index_t j) { add(sums, j, q[static_cast<std::size_t>(i)]); });
            });
}

}  // namespace ringattn::test
