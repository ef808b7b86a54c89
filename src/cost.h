// What a plan costs: FLOPs, bytes, messages, balance. Pure arithmetic on the plan.
#pragma once
#include <cstdint>
#include <functional>

#include "src/plan.h"

namespace ringattn {

// 4 x visible pairs x head_dim per head (2 for each of the two products; head_dim and head_dim_v each count
// half). Exact pairs, not seqlen^2 / 2. Double: 2^63 is passed by long runs.
double forward_flops(const Problem& problem);
double forward_flops(const Problem& problem, index_t pairs);

// Five products, S and dP computed again among them: 2 x pairs x (3 head_dim + 2 head_dim_v) per head, which
// is 2.5 times forward where head_dim_v = head_dim.
double backward_flops(const Problem& problem);
double backward_flops(const Problem& problem, index_t pairs);

// Wire traffic of one rank. A message is one block handed to the next rank; empty blocks are not
// sent.
struct Traffic {
  std::uint64_t bytes_sent = 0, messages_sent = 0;
  friend bool operator==(const Traffic&, const Traffic&) = default;
};
// block_bytes: wire size of a block of that many rows, from the kernel.
Traffic forward_traffic(const Plan& plan, const std::function<std::uint64_t(index_t rows)>& block_bytes);
// K and V as in forward, and dK and dV of every block but the rank's own, gradient_bytes each.
Traffic backward_traffic(const Plan& plan, const std::function<std::uint64_t(index_t rows)>& block_bytes,
                         const std::function<std::uint64_t(index_t rows)>& gradient_bytes);

// Bytes that one rank must move between its memory and its cores at least, whatever the kernel does: every
// element of q, k, v, out and lse once (backward: of dout, dq, dk and dv as well), and the block at hand of
// every hop written once, by packing or by its arrival, and read once. In backward its dK and dV likewise.
// Caches hide the rest.
double forward_bytes(const Problem& problem, const Plan& plan,
                     const std::function<std::uint64_t(index_t rows)>& block_bytes);
double backward_bytes(const Problem& problem, const Plan& plan,
                      const std::function<std::uint64_t(index_t rows)>& block_bytes,
                      const std::function<std::uint64_t(index_t rows)>& gradient_bytes);

// How evenly the hops are loaded. The ring moves in step, so a hop lasts as long as its slowest rank.
struct Balance {
  index_t total_pairs = 0;     // over ranks and hops, one head
  index_t critical_pairs = 0;  // sum over hops of the largest rank's pairs
  int ranks = 1;
  // Mean over ranks of visible pairs / critical path: 1 is perfect. 1 if nothing is visible.
  double value() const;
};
// Counts the work of every rank: O(ranks * (ranks + tiles)), or O(ranks^2 * tiles) if every tile meets every
// shard and they are not striped.
Balance ring_balance(const Problem& problem, const Sharding& sharding);

}  // namespace ringattn
