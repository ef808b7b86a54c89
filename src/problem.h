// What is to be computed: the same on every rank, and checked to be.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/layout.h"
#include "src/mask.h"
#include "src/rope.h"
#include "src/types.h"

namespace ringattn {

struct Problem {
  HeadShape shape{};  // head_dim_v = 0 means head_dim
  DType dtype = DType::f32;
  Mask mask;  // carries seqlen_q and seqlen_k
  Rope rope{};
  std::optional<double> softmax_scale{};  // default 1/sqrt(head_dim)

  index_t seqlen_q() const { return mask.seqlen_q(); }
  index_t seqlen_k() const { return mask.seqlen_k(); }
  index_t head_dim_v() const { return shape.head_dim_v ? shape.head_dim_v : shape.head_dim; }
  double scale() const;
  // The shape with head_dim_v filled in.
  HeadShape heads() const;
  // Position that RoPE gives to query i: beside the key it is aligned with, i + seqlen_k - seqlen_q.
  index_t query_position(index_t i) const { return i + seqlen_k() - seqlen_q(); }
};

inline constexpr index_t kMaxHeadDim = 512;

// Throws UsageError naming the field, its value and what is allowed.
void validate(const Problem& problem);
void validate(const Problem& problem, const Sharding& sharding);

// One named value of the problem as text. Long lists (tiles, segments) enter as their length and a 64-bit
// hash.
struct Field {
  std::string name, value;
  friend bool operator==(const Field&, const Field&) = default;
};

// What ranks compare before the first byte moves. Same problem <=> same fields, in the same order.
std::vector<Field> fingerprint(const Problem& problem, const Sharding& sharding);
// The fingerprint in a few words, to tell problems apart: "causal 64 x 64, hash 8a2f...".
std::string digest(const Problem& problem, const Sharding& sharding);

}  // namespace ringattn
