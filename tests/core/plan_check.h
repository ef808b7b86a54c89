// Compares the plans of all ranks with the oracle, pair by pair.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/plan.h"
#include "tests/core/dense.h"

namespace ringattn::test {

inline Problem problem_of(Mask mask) {
  return {.shape = {.num_heads = 1, .num_heads_kv = 1, .head_dim = 8}, .mask = std::move(mask)};
}

// How often the plans compute each (query, key) pair, and the last hop at which one is computed.
class SeenPairs {
 public:
  SeenPairs(const Problem& problem, const Sharding& sharding)
      : columns_(sharding.k.seqlen()),
        times_(static_cast<std::size_t>(sharding.q.seqlen() * sharding.k.seqlen())) {
    for (int r = 0; r < sharding.ranks(); ++r) add(Plan(problem, sharding, r), sharding);
  }
  int times(index_t query, index_t key) const {
    return times_[static_cast<std::size_t>(query * columns_ + key)];
  }
  std::size_t hops() const { return hops_; }
  std::size_t last_hop() const { return last_hop_; }
  const std::string& fault() const { return fault_; }

 private:
  void add(const Plan& plan, const Sharding& sharding) {
    require(hops_ == 0 || plan.hops().size() == hops_, "ranks differ in their number of hops");
    hops_ = plan.hops().size();
    require(plan.q_rows() == sharding.q.rows(plan.rank()), "q_rows");
    require(plan.k_rows() == sharding.k.rows(plan.rank()), "k_rows");
    const std::vector<index_t> queries = sharding.q.positions(plan.rank());
    for (std::size_t s = 0; s < hops_; ++s) {
      const Hop& hop = plan.hops()[s];
      const auto ranks = static_cast<std::size_t>(plan.ranks());
      require(
          static_cast<std::size_t>(hop.owner) == (static_cast<std::size_t>(plan.rank()) + ranks - s) % ranks,
          "owner");
      const std::vector<index_t> keys = sharding.k.positions(hop.owner);
      require(hop.k_rows == static_cast<index_t>(keys.size()), "hop.k_rows");
      const std::vector<Tile> tiles = plan.tiles(s);
      require(hop.tile_count == static_cast<index_t>(tiles.size()), "tile_count");
      index_t pairs = 0;
      for (const Tile& t : tiles) pairs += count(t, queries, keys, s);
      require(hop.pairs == pairs, "hop.pairs");
    }
  }

  index_t count(const Tile& t, const std::vector<index_t>& queries, const std::vector<index_t>& keys,
                std::size_t hop) {
    require(t == normalized(t) && !t.q.empty(), "a tile is not normalised");
    require(t.q.begin >= 0 && t.q.end <= static_cast<index_t>(queries.size()), "query rows");
    require(t.k.begin >= 0 && t.k.end <= static_cast<index_t>(keys.size()), "key rows");
    index_t pairs = 0;
    for (index_t i = t.q.begin; fault_.empty() && i < t.q.end; ++i) {
      for (index_t j = t.k.begin; j < t.k.end; ++j) {
        if (!t.band.contains(j - i)) continue;
        ++pairs;
        ++times_[static_cast<std::size_t>(queries[static_cast<std::size_t>(i)] * columns_ +
                                          keys[static_cast<std::size_t>(j)])];
        last_hop_ = std::max(last_hop_, hop);
      }
    }
    return pairs;
  }

  void require(bool holds, const char* what) {
    if (!holds && fault_.empty()) fault_ = what;
  }

  index_t columns_;
  std::vector<int> times_;
  std::size_t hops_ = 0, last_hop_ = 0;
  std::string fault_;
};

// Every visible pair is computed once, no other pair is, and the last hop is needed by some rank.
inline ::testing::AssertionResult plans_match(const Mask& mask, const Sharding& sharding,
                                              const Visible& visible) {
  const SeenPairs seen(problem_of(mask), sharding);
  const auto fail = [&] {
    return ::testing::AssertionFailure()
           << "mask " << mask.name() << ", " << sharding.q.seqlen() << " queries "
           << name_of(sharding.q.kind()) << ", " << sharding.k.seqlen() << " keys "
           << name_of(sharding.k.kind()) << ", " << sharding.ranks() << " ranks: ";
  };
  if (!seen.fault().empty()) return fail() << seen.fault();
  index_t total = 0;
  for (index_t i = 0; i < sharding.q.seqlen(); ++i) {
    for (index_t j = 0; j < sharding.k.seqlen(); ++j) {
      const int want = visible(i, j) ? 1 : 0;
      total += want;
      if (seen.times(i, j) != want) {
        return fail() << "query " << i << ", key " << j << " computed " << seen.times(i, j) << " times, not "
                      << want;
      }
    }
  }
  if (mask.visible_pairs() != total) return fail() << "visible_pairs " << mask.visible_pairs();
  const std::size_t needed = total == 0 ? 1 : seen.last_hop() + 1;
  if (seen.hops() != needed) return fail() << seen.hops() << " hops, " << needed << " needed";
  return ::testing::AssertionSuccess();
}

}  // namespace ringattn::test
