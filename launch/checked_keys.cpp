#include "launch/checked_keys.h"

#include <algorithm>

#include "src/cost.h"

namespace ringattn::launch {

std::vector<Range> visible_queries(const Mask& mask, index_t key) {
  std::vector<Range> queries;
  for (const Tile& tile : mask.tiles()) {
    if (key < tile.k.begin || key >= tile.k.end) continue;
    // lo <= key - i <= hi, so i runs from key - hi to key - lo.
    const Range seeing{.begin = std::max(tile.q.begin, key - tile.band.hi),
                       .end = std::min(tile.q.end, key - tile.band.lo + 1)};
    if (!seeing.empty()) queries.push_back(seeing);
  }
  std::sort(queries.begin(), queries.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  return queries;
}

KeyPlan plan_key_check(const Problem& problem, index_t keys, double budget) {
  const HeadShape heads = problem.heads();
  KeyPlan plan{.keys = sample_rows(heads.batch, problem.seqlen_k(), keys)};
  double queries = 0;
  for (const QueryRow& key : plan.keys) {
    for (const Range& range : visible_queries(problem.mask, key.position))
      queries += static_cast<double>(range.count());
  }
  // Four products of a pair: the logit, dp, and what is added to dk and dv.
  const double flops_a_head =
      4 * queries * static_cast<double>(heads.group() * (heads.head_dim + heads.head_dim_v));
  // A sample that nobody sees costs nothing.
  const double affordable =
      flops_a_head > 0 ? budget / flops_a_head : static_cast<double>(heads.num_heads_kv);
  plan.heads_per_key =
      static_cast<index_t>(std::clamp(affordable, 1.0, static_cast<double>(heads.num_heads_kv)));
  plan.recompute_rows = forward_flops(problem) <= budget;
  plan.flops = flops_a_head * static_cast<double>(plan.heads_per_key) +
               (plan.recompute_rows ? forward_flops(problem) : 0);
  return plan;
}

std::vector<index_t> checked_kv_heads(const KeyPlan& plan, std::size_t key, index_t num_heads_kv) {
  return spread_heads(plan.heads_per_key, key, num_heads_kv);
}

}  // namespace ringattn::launch
