#include "launch/generator.h"

#include <stdexcept>
#include <vector>

#include "launch/element.h"

namespace ringattn::launch {
namespace {

constexpr std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

constexpr std::uint64_t key(std::uint64_t x, std::uint64_t n) {
  return mix(x + (n + 1) * 0x9E3779B97F4A7C15u);
}

constexpr std::uint64_t counter(index_t n) { return static_cast<std::uint64_t>(n); }

float unit_normal(std::uint64_t bits) {
  constexpr double kMean = 131070.0, kDeviation = 37837.22723720648;
  const std::uint64_t sum =
      (bits & 0xFFFFu) + ((bits >> 16) & 0xFFFFu) + ((bits >> 32) & 0xFFFFu) + (bits >> 48);
  return static_cast<float>((static_cast<double>(sum) - kMean) / kDeviation);
}

}  // namespace

void generate_row(std::uint64_t seed, TensorId tensor, index_t batch, index_t position, index_t head,
                  DType dtype, std::span<float> elements) {
  const std::uint64_t tensor_key = key(key(0, seed), static_cast<std::uint64_t>(tensor));
  const std::uint64_t row = key(key(key(tensor_key, counter(batch)), counter(position)), counter(head));
  for (std::size_t e = 0; e < elements.size(); ++e) {
    const float value = unit_normal(key(row, e));
    elements[e] = dtype == DType::f32 ? value : rounded(dtype, value);
  }
}

void generate_shard(std::uint64_t seed, TensorId tensor, std::span<const Segment> segments, index_t batch,
                    index_t heads, index_t dim, DType dtype, std::span<std::byte> to) {
  std::vector<float> row(static_cast<std::size_t>(dim));
  const std::size_t row_bytes = row.size() * size_of(dtype);
  std::byte* at = to.data();
  const std::byte* const end = at + to.size();
  for (index_t b = 0; b < batch; ++b) {
    for (const Segment& segment : segments) {
      for (index_t t = 0; t < segment.count; ++t) {
        for (index_t h = 0; h < heads; ++h) {
          if (static_cast<std::size_t>(end - at) < row_bytes)
            throw std::logic_error("generate_shard: too small");
          generate_row(seed, tensor, b, segment.position(t), h, dtype, row);
          for (const float value : row) {
            store_element(dtype, value, at);
            at += size_of(dtype);
          }
        }
      }
    }
  }
  if (at != end) throw std::logic_error("generate_shard: too large");
}

}  // namespace ringattn::launch
