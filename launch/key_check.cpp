#include "launch/key_check.h"

#include <algorithm>

#include "launch/key_gradient.h"
#include "launch/naive_arithmetic.h"
#include "launch/row_statistics.h"
#include "launch/steps.h"

namespace ringattn::launch {
namespace {

// Queries are taken in ascending order, once: no more of them need be kept than HeadRows keeps at least.
constexpr std::size_t kCacheBytes = 0;
// Keys of a rank are kept for as long as their rows are recomputed (launch/row_statistics.cpp).
constexpr double kRecomputeBytes = 2.0 * (64 << 20);

// One checked key of this rank, for one KV head.
struct LocalKey {
  QueryRow key;
  index_t local = 0;
  std::vector<Range> queries;
  KeyGradient gradient;
};

class KeyChecker {
 public:
  KeyChecker(const KeyPlan& plan, const KeysToCheck& what, int rank)
      : plan_(plan),
        what_(what),
        problem_(what.problem),
        heads_(what.problem.heads()),
        rank_(rank),
        rotation_(problem_.rope, heads_.head_dim),
        // A query turns by the position of the key that it is aligned with.
        q_(what.inputs.q, problem_.seqlen_q(), heads_.head_dim, query_rotation(), kCacheBytes),
        dout_(what.inputs.dout, problem_.seqlen_q(), heads_.head_dim_v, Float64Rotation({}, 1), kCacheBytes) {
  }

  void check(index_t batch, index_t kv_head, const std::vector<std::vector<RowStatistics>>& rows) {
    std::vector<LocalKey> keys = local_keys(batch, kv_head);
    if (keys.empty()) return;
    for (index_t h = 0; h < heads_.group(); ++h) {
      q_.select(batch, kv_head * heads_.group() + h);
      dout_.select(batch, kv_head * heads_.group() + h);
      const std::vector<RowStatistics>& head = rows[static_cast<std::size_t>(h)];
      for (index_t i = 0; i < problem_.seqlen_q(); ++i) add_query(keys, i, head[static_cast<std::size_t>(i)]);
    }
    for (const LocalKey& key : keys) compare(key, kv_head);
  }

  const KeysSeen& seen() const { return seen_; }

 private:
  Float64Rotation query_rotation() const {
    Rope rope = problem_.rope;
    rope.position_offset += problem_.query_position(0);
    return {rope, heads_.head_dim};
  }

  std::vector<double> read(const ReadHead& from, const QueryRow& key, index_t kv_head, index_t dim) const {
    std::vector<float> raw(static_cast<std::size_t>(dim));
    from(key.batch, kv_head, {key.position, key.position + 1}, raw);
    return {raw.begin(), raw.end()};
  }

  std::vector<LocalKey> local_keys(index_t batch, index_t kv_head) const {
    std::vector<LocalKey> keys;
    for (std::size_t n = 0; n < plan_.keys.size(); ++n) {
      const QueryRow& key = plan_.keys[n];
      const std::vector<index_t> chosen = checked_kv_heads(plan_, n, heads_.num_heads_kv);
      const auto local = local_row(what_.sharding.k, rank_, key.position);
      if (key.batch != batch || !local || std::ranges::find(chosen, kv_head) == chosen.end()) continue;
      std::vector<double> k = read(what_.inputs.k, key, kv_head, heads_.head_dim);
      rotation_.turn(key.position, k);
      const std::vector<double> v = read(what_.inputs.v, key, kv_head, heads_.head_dim_v);
      keys.push_back({.key = key,
                      .local = *local,
                      .queries = visible_queries(problem_.mask, key.position),
                      .gradient = KeyGradient(problem_.dtype, k, v, problem_.scale())});
    }
    return keys;
  }

  void add_query(std::vector<LocalKey>& keys, index_t i, const RowStatistics& row) {
    for (LocalKey& key : keys) {
      const auto sees = [i](const Range& range) { return range.begin <= i && i < range.end; };
      if (std::ranges::any_of(key.queries, sees))
        key.gradient.add({.q = q_.at(i), .dout = dout_.at(i), .lse = row.lse, .delta = row.delta});
    }
  }

  void compare(const LocalKey& key, index_t kv_head) {
    KeyGradient::Sums exact = key.gradient.exact(), naive = key.gradient.naive();
    rotation_.turn_back(key.key.position, exact.dk);
    rotation_.turn_back(key.key.position, naive.dk);
    const auto add = [&](Seen& seen, const ConstTensorView& got, const std::vector<double>& want,
                         const std::vector<double>& beside, double terms) {
      Deviation here{.batch = key.key.batch, .position = key.key.position, .head = kv_head};
      for (std::size_t e = 0; e < want.size(); ++e) {
        here.element = static_cast<index_t>(e);
        here.got = element_of(got, key.key.batch, key.local, kv_head, here.element);
        here.want = want[e];
        seen.add(here, narrow(problem_.dtype, beside[e]), terms);
      }
    };
    add(seen_.dk, what_.dk, exact.dk, naive.dk, key.gradient.dk_terms());
    add(seen_.dv, what_.dv, exact.dv, naive.dv, key.gradient.dv_terms());
  }

  const KeyPlan& plan_;
  const KeysToCheck& what_;
  const Problem& problem_;
  const HeadShape heads_;
  const int rank_;
  const Float64Rotation rotation_;
  HeadRows q_, dout_;
  KeysSeen seen_;
};

// Whether some key of the plan asks for that KV head: the same on every rank.
bool is_checked(const KeyPlan& plan, index_t batch, index_t kv_head, index_t num_heads_kv) {
  for (std::size_t n = 0; n < plan.keys.size(); ++n) {
    const std::vector<index_t> chosen = checked_kv_heads(plan, n, num_heads_kv);
    if (plan.keys[n].batch == batch && std::ranges::find(chosen, kv_head) != chosen.end()) return true;
  }
  return false;
}

}  // namespace

KeysSeen check_key_gradients(Communicator& comm, const KeyPlan& plan, const KeysToCheck& what,
                             std::chrono::milliseconds patience) {
  const HeadShape heads = what.problem.heads();
  KeyChecker checker(plan, what, comm.rank());
  for (index_t b = 0; b < heads.batch; ++b) {
    for (index_t kv_head = 0; kv_head < heads.num_heads_kv; ++kv_head) {
      if (!is_checked(plan, b, kv_head, heads.num_heads_kv)) continue;
      const auto rows = gather_row_statistics(
          comm, {what.problem, what.sharding, what.inputs, what.output, plan.recompute_rows}, b, kv_head,
          patience);
      shared_step(comm, patience, [&] { checker.check(b, kv_head, rows); });
    }
  }
  return checker.seen();
}

double key_check_bytes(const Problem& problem) {
  const HeadShape heads = problem.heads();
  constexpr double kPieces = 2 * 256;  // rows that HeadRows keeps at least
  return kRecomputeBytes + kPieces * static_cast<double>(heads.head_dim + heads.head_dim_v) * sizeof(double);
}

}  // namespace ringattn::launch
