// Synthetic tensors from a counter: an element is a function of its global coordinates alone, so any rank can
// make any row, and neither the number of ranks nor the layout changes a value.
//
//   mix(x): x ^= x >> 30; x *= 0xBF58476D1CE4E5B9; x ^= x >> 27; x *= 0x94D049BB133111EB; x ^= x >> 31
//           (the finaliser of SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number
//           generators", OOPSLA 2014, variant 13 of Stafford), all modulo 2^64
//   key(x, n) = mix(x + (n + 1) * 0x9E3779B97F4A7C15)
//   bits  = key(key(key(key(key(key(0, seed), tensor), batch), position), head), element),
//           tensor: q 0, k 1, v 2, dout 3 (the gradient of the loss with respect to the output)
//   s     = sum of the four 16-bit parts of bits
//   value = (s - 131070) / 37837.2... : mean 0, variance 1, |value| < 3.47; rounded to fp32, then to the
//   dtype
//
// The divisor is sqrt((2^32 - 1) / 3), the standard deviation of s. A sum of four uniform numbers is close
// enough to normal for attention, and needs integers only: the same bits on every machine.
#pragma once
#include <cstdint>
#include <span>

#include "src/layout.h"
#include "src/types.h"

namespace ringattn::launch {

enum class TensorId : std::uint64_t { q = 0, k = 1, v = 2, dout = 3 };

// One head of one row: the first elements of the vector that stands at that position.
void generate_row(std::uint64_t seed, TensorId tensor, index_t batch, index_t position, index_t head,
                  DType dtype, std::span<float> elements);

// The rows of a shard, dense [batch, rows, heads, dim] in dtype. to.size() must be just that many bytes.
void generate_shard(std::uint64_t seed, TensorId tensor, std::span<const Segment> segments, index_t batch,
                    index_t heads, index_t dim, DType dtype, std::span<std::byte> to);

}  // namespace ringattn::launch
