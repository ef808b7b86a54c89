// Rotary position embedding (RoFormer, arXiv:2104.09864, eq. 15): which pairs turn, and by which angle.
#pragma once
#include <span>
#include <string_view>

#include "src/types.h"

namespace ringattn {

struct Rope {
  // half: element e turns with element e + dim/2 (Llama, GPT-NeoX); interleaved: 2e with 2e+1 (GPT-J,
  // RoFormer).
  enum class Pairing : std::uint8_t { none, half, interleaved };
  Pairing pairing = Pairing::none;
  double base = 10000.0;        // > 0; pair p turns by position * base^(-2p/dim)
  index_t dim = 0;              // leading elements of a head that turn, even; 0 = the whole head_dim
  index_t position_offset = 0;  // added to every position, the caller's own included
  // Largest offset either way: with positions up to the same size a sum is exact in double.
  static constexpr index_t kMaxOffset = index_t{1} << 52;
  friend bool operator==(const Rope&, const Rope&) = default;
};

std::string_view name_of(Rope::Pairing p);            // "none", "half", "interleaved"
Rope::Pairing pairing_from_name(std::string_view s);  // throws UsageError
// Elements of a head that turn: rope.dim, or head_dim if that is 0; 0 if the pairing is none.
index_t rotary_dim(const Rope& rope, index_t head_dim);

// Throws UsageError naming the field if base, dim or offset cannot be used with head_dim, or if one of them
// is set and the pairing is none.
void validate(const Rope& rope, index_t head_dim);

// cos and sin of the angles of one position, rotary_dim/2 of each (cases A7, A41). The angle is formed in
// double and reduced modulo 2 pi as that double, without further loss. Its relative error is about 1e-15 (the
// rounding of the frequency and of the product), so cos and sin are off by about 1e-15 * position * frequency
// besides their rounding to fp32: 1e-10 at position 131071, 1e-3 at 2^40. Pair 0 has frequency 1, which is
// exact at every position below 2^53.
class RotaryAngles {
 public:
  RotaryAngles(const Rope& rope, index_t head_dim);
  void at(index_t position, std::span<float> cos, std::span<float> sin) const;

 private:
  index_t offset_;
  std::array<double, 256> frequency_{};  // head_dim <= 512
  index_t pairs_;
};

}  // namespace ringattn
