#include "src/cost.h"

#include <algorithm>

#include "src/load.h"
#include "src/ring_order.h"

namespace ringattn {
namespace {

// Elements of this rank's q and out; of its k and v.
struct ShardElements {
  double q_and_out, k_and_v, lse;
};

ShardElements elements_of(const Problem& problem, const Plan& plan) {
  const HeadShape heads = problem.heads();
  const auto dims = static_cast<double>(heads.head_dim + heads.head_dim_v);
  const auto q_rows = static_cast<double>(heads.batch * heads.num_heads) * static_cast<double>(plan.q_rows());
  const auto k_rows =
      static_cast<double>(heads.batch * heads.num_heads_kv) * static_cast<double>(plan.k_rows());
  return {.q_and_out = q_rows * dims, .k_and_v = k_rows * dims, .lse = q_rows};
}

// Written once and read once at each hop.
double at_hand(const Plan& plan, const std::function<std::uint64_t(index_t rows)>& bytes) {
  double sum = 0;
  for (const Hop& hop : plan.hops()) sum += 2 * static_cast<double>(bytes(hop.k_rows));
  return sum;
}

}  // namespace

double forward_flops(const Problem& problem, index_t pairs) {
  // One multiplication and one addition for each element of a key and of a value. Doubles throughout: exact
  // up to 2^53, correctly rounded above.
  const HeadShape heads = problem.heads();
  const auto elements = static_cast<double>(heads.head_dim + heads.head_dim_v);
  return 2.0 * static_cast<double>(pairs) * elements * static_cast<double>(heads.num_heads) *
         static_cast<double>(heads.batch);
}

double forward_flops(const Problem& problem) { return forward_flops(problem, problem.mask.visible_pairs()); }

double backward_flops(const Problem& problem, index_t pairs) {
  const HeadShape heads = problem.heads();
  const auto elements = static_cast<double>(3 * heads.head_dim + 2 * heads.head_dim_v);
  return 2.0 * static_cast<double>(pairs) * elements * static_cast<double>(heads.num_heads) *
         static_cast<double>(heads.batch);
}

double backward_flops(const Problem& problem) {
  return backward_flops(problem, problem.mask.visible_pairs());
}

Traffic forward_traffic(const Plan& plan, const std::function<std::uint64_t(index_t rows)>& block_bytes) {
  // At every hop but the last one the block at hand is handed on.
  Traffic traffic;
  for (std::size_t s = 0; s + 1 < plan.hops().size(); ++s) {
    const index_t rows = plan.hops()[s].k_rows;
    if (rows == 0) continue;
    traffic.bytes_sent += block_bytes(rows);
    traffic.messages_sent += 1;
  }
  return traffic;
}

Traffic backward_traffic(const Plan& plan, const std::function<std::uint64_t(index_t rows)>& block_bytes,
                         const std::function<std::uint64_t(index_t rows)>& gradient_bytes) {
  Traffic traffic = forward_traffic(plan, block_bytes);
  for (std::size_t s = 1; s < plan.hops().size(); ++s) {
    const index_t rows = plan.hops()[s].k_rows;
    if (rows == 0) continue;
    traffic.bytes_sent += gradient_bytes(rows);
    traffic.messages_sent += 1;
  }
  return traffic;
}

double forward_bytes(const Problem& problem, const Plan& plan,
                     const std::function<std::uint64_t(index_t rows)>& block_bytes) {
  const ShardElements shard = elements_of(problem, plan);
  return (shard.q_and_out + shard.k_and_v) * static_cast<double>(size_of(problem.dtype)) +
         shard.lse * sizeof(float) + at_hand(plan, block_bytes);
}

double backward_bytes(const Problem& problem, const Plan& plan,
                      const std::function<std::uint64_t(index_t rows)>& block_bytes,
                      const std::function<std::uint64_t(index_t rows)>& gradient_bytes) {
  // Every tensor but lse has a gradient of its shape.
  const ShardElements shard = elements_of(problem, plan);
  return 2 * (shard.q_and_out + shard.k_and_v) * static_cast<double>(size_of(problem.dtype)) +
         shard.lse * sizeof(float) + at_hand(plan, block_bytes) + at_hand(plan, gradient_bytes);
}

double Balance::value() const {
  if (total_pairs == 0) return 1;
  return static_cast<double>(total_pairs) / ranks / static_cast<double>(critical_pairs);
}

Balance ring_balance(const Problem& problem, const Sharding& sharding) {
  validate(problem, sharding);
  const int ranks = sharding.ranks();
  const LoadCounter counter(problem.mask, sharding);
  std::vector<index_t> slowest(static_cast<std::size_t>(ranks));
  Balance balance{.ranks = ranks};
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<Load> loads = counter.by_owner(rank);
    for (int hop = 0; hop < ranks; ++hop) {
      const index_t pairs = loads[static_cast<std::size_t>(owner_at(rank, hop, ranks))].pairs;
      index_t& most = slowest[static_cast<std::size_t>(hop)];
      most = std::max(most, pairs);
      balance.total_pairs += pairs;
    }
  }
  for (const index_t pairs : slowest) balance.critical_pairs += pairs;
  return balance;
}

}  // namespace ringattn
