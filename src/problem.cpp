#include "src/problem.h"

#include <cmath>
#include <cstdio>
#include <limits>

#include "src/refuse.h"

namespace ringattn {
namespace {

// Elements of a tensor are counted and addressed in 64 bits; a product beyond that is refused here, once.
void check_size(const std::string& name, const std::array<index_t, 4>& shape) {
  index_t room = std::numeric_limits<index_t>::max() / 8;
  for (const index_t extent : shape) {
    if (extent == 0) return;
    room /= extent;
  }
  if (room > 0) return;
  throw UsageError(name + " of batch " + std::to_string(shape[0]) + ", seqlen " + std::to_string(shape[1]) +
                   ", heads " + std::to_string(shape[2]) + ", head_dim " + std::to_string(shape[3]) +
                   " has more elements than 64 bits can address");
}

void check_length(const std::string& name, index_t problem, index_t layout) {
  if (problem == layout) return;
  throw UsageError(name + " is " + std::to_string(problem) + " in the problem and " + std::to_string(layout) +
                   " in its layout");
}

}  // namespace

double Problem::scale() const {
  return softmax_scale ? *softmax_scale : 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
}

HeadShape Problem::heads() const {
  HeadShape filled = shape;
  filled.head_dim_v = head_dim_v();
  return filled;
}

void validate(const Problem& problem) {
  const HeadShape& s = problem.shape;
  constexpr index_t most = std::numeric_limits<index_t>::max();
  require_between("batch", s.batch, 1, most);
  require_between("num_heads", s.num_heads, 1, most);
  require_between("num_heads_kv", s.num_heads_kv, 1, most);
  if (s.num_heads % s.num_heads_kv != 0) {
    refuse("num_heads", std::to_string(s.num_heads),
           "allowed are multiples of num_heads_kv, which is " + std::to_string(s.num_heads_kv));
  }
  require_between("head_dim", s.head_dim, 1, kMaxHeadDim);
  require_between("head_dim_v", s.head_dim_v, 0, kMaxHeadDim);
  check_size("q", {s.batch, problem.seqlen_q(), s.num_heads, s.head_dim});
  check_size("k", {s.batch, problem.seqlen_k(), s.num_heads_kv, s.head_dim});
  check_size("v", {s.batch, problem.seqlen_k(), s.num_heads_kv, problem.head_dim_v()});
  check_size("out", {s.batch, problem.seqlen_q(), s.num_heads, problem.head_dim_v()});
  if (!std::isfinite(problem.scale())) {
    refuse("softmax_scale", std::to_string(problem.scale()), "allowed is any finite number");
  }
  validate(problem.rope, s.head_dim);
}

void validate(const Problem& problem, const Sharding& sharding) {
  validate(problem);
  check_length("seqlen_q", problem.seqlen_q(), sharding.q.seqlen());
  check_length("seqlen_k", problem.seqlen_k(), sharding.k.seqlen());
  if (sharding.q.ranks() != sharding.k.ranks()) {
    throw UsageError("ranks is " + std::to_string(sharding.q.ranks()) + " in the layout of the queries and " +
                     std::to_string(sharding.k.ranks()) + " in that of the keys");
  }
}

}  // namespace ringattn
