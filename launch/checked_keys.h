// Which keys and KV heads the check of dk and dv recomputes, and what that costs.
#pragma once
#include <vector>

#include "launch/checked_rows.h"

namespace ringattn::launch {

// Queries that see a key: disjoint ranges, ascending.
std::vector<Range> visible_queries(const Mask& mask, index_t key);

struct KeyPlan {
  std::vector<QueryRow> keys;  // batch and position of each, as sample_rows picks them
  index_t heads_per_key = 0;   // of num_heads_kv
  // Every query's lse and delta are recomputed in float64 as well; else they are the ring's own.
  bool recompute_rows = false;
  double flops = 0;  // of one evaluation of it all
};

// All KV heads, unless that takes more than `budget` FLOP: then as many as fit, at least one. Rows are
// recomputed if forward over all of them fits, too.
KeyPlan plan_key_check(const Problem& problem, index_t keys, double budget = 2e9);

// The KV heads of the n-th checked key: evenly spread, starting one further for each key.
std::vector<index_t> checked_kv_heads(const KeyPlan& plan, std::size_t key, index_t num_heads_kv);

}  // namespace ringattn::launch
