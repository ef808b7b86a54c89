// Which query rows and heads the check recomputes, and where they are.
#pragma once
#include <chrono>
#include <optional>
#include <vector>

#include "src/layout.h"
#include "src/mask.h"
#include "src/problem.h"

namespace ringattn::launch {

struct QueryRow {
  index_t batch = 0, position = 0;
  friend bool operator==(const QueryRow&, const QueryRow&) = default;
};

// At most `count` of the batch * seqlen_q query rows, ascending: the first, the last (if there is to be one
// only: the last), and one from each of the equal stretches between them, at a place that a hash of the
// stretch decides. The same on every rank, whatever the ranks and the layout.
std::vector<QueryRow> sample_rows(index_t batch, index_t seqlen_q, index_t count);

// Keys that a query sees: disjoint ranges, ascending.
std::vector<Range> visible_keys(const Mask& mask, index_t query);

// The rank's local row of a position, if the rank holds it.
std::optional<index_t> local_row(const Layout& layout, int rank, index_t position);

struct CheckPlan {
  std::vector<QueryRow> rows;
  index_t heads_per_row = 0;  // of num_heads
  double flops = 0;           // of one evaluation of them all
};

// All heads, unless that takes more than `budget` FLOP: then as many as fit, at least one.
CheckPlan plan_check(const Problem& problem, index_t rows, double budget = 2e9);

// `count` of `num_heads`, evenly spread, starting one further for each sample.
std::vector<index_t> spread_heads(index_t count, std::size_t sample, index_t num_heads);

// The heads of the row-th checked row, spread so.
std::vector<index_t> checked_heads(const CheckPlan& plan, std::size_t row, index_t num_heads);

// A rank that has nothing to check waits for the others, so its patience covers their work, an exact and a
// naive evaluation, at a very slow 10^8 FLOP/s.
std::chrono::milliseconds check_patience(double flops, std::chrono::milliseconds patience);

}  // namespace ringattn::launch
