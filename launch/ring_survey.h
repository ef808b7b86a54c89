// All ranks of a ring planned in one place, without ranks: what each of them computes, sends and holds.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/backend.h"
#include "src/cost.h"
#include "src/plan.h"
#include "src/problem.h"

namespace ringattn::launch {

// What one pass takes of a rank.
struct PlannedPass {
  double flops = 0;  // of all heads and batches
  Traffic traffic{};
  double workspace_bytes = 0, tensor_bytes = 0;  // backward: with room for forward, and with gradients
};

struct PlannedRank {
  int rank = 0;
  index_t q_rows = 0, k_rows = 0, tiles = 0, pairs = 0;  // pairs of one head
  PlannedPass forward{}, backward{};
};

// Hop s on the slowest rank: the ring moves in step.
struct PlannedHop {
  index_t largest_pairs = 0, largest_rows = 0;
};

struct RingSurvey {
  std::vector<PlannedRank> ranks{};  // all of them, or those that were asked for
  std::vector<PlannedHop> hops{};    // over `ranks`
  std::optional<Balance> balance{};  // none unless all ranks were planned
  std::string incomplete{};          // why not
};

// Of a kernel of that backend: blocks and workspace differ.
PlannedRank planned_rank(const Problem& problem, const Sharding& sharding, const Plan& plan, int threads,
                         Backend backend = Backend::cpu);

// Plans rank after rank. If the first one shows that all of them would take longer than `patience_seconds`,
// only the first, the middle and the last rank are planned and `incomplete` says so.
RingSurvey survey_ring(const Problem& problem, const Sharding& sharding, int threads, double patience_seconds,
                       Backend backend = Backend::cpu);

// What forward's numbers are worth in time, under assumptions that are part of the answer.
struct Machine {
  double flops_per_second = 0;  // of one rank; 0 = not known, and computing counts for nothing
  double link_gbps = 0;         // 0 = unlimited
  double link_latency_us = 0;
  bool has_link() const { return link_gbps > 0 || link_latency_us > 0; }  // else transfers are not estimated
};
struct Estimate {
  double compute_seconds = 0;   // sum over hops of the slowest rank
  double transfer_seconds = 0;  // sum over hops of the largest block; 0 without a link
  double seconds = 0;           // hop by hop the longer of the two: transfers hidden where they can be
};
Estimate estimate(const Problem& problem, const std::vector<PlannedHop>& hops, const Machine& machine,
                  Backend backend = Backend::cpu);

}  // namespace ringattn::launch
