#include "launch/query_check.h"

#include <algorithm>

#include "launch/naive_arithmetic.h"
#include "launch/query_gradient.h"

namespace ringattn::launch {
namespace {

// Rows of keys and of values that a rank keeps in float64 while it checks.
constexpr std::size_t kCacheBytes = std::size_t{64} << 20;

class QueryChecker {
 public:
  QueryChecker(const Problem& problem, const CheckInputs& inputs, const ConstTensorView& dq)
      : problem_(problem),
        heads_(problem.heads()),
        inputs_(inputs),
        dq_(dq),
        rotation_(problem.rope, heads_.head_dim),
        k_(inputs.k, problem.seqlen_k(), heads_.head_dim, rotation_, kCacheBytes),
        v_(inputs.v, problem.seqlen_k(), heads_.head_dim_v, Float64Rotation({}, heads_.head_dim_v),
           kCacheBytes) {}

  void check(const QueryRow& row, index_t local, index_t head) {
    const index_t place = problem_.query_position(row.position);
    std::vector<double> q = read(inputs_.q, row, head, heads_.head_dim);
    rotation_.turn(place, q);
    const std::vector<double> dout = read(inputs_.dout, row, head, heads_.head_dim_v);
    k_.select(row.batch, head / heads_.group());
    v_.select(row.batch, head / heads_.group());
    const std::vector<Range> keys = visible_keys(problem_.mask, row.position);
    const RowInputs inputs{.q = q,
                           .keys = keys,
                           .key = [&](index_t j) { return k_.at(j); },
                           .value = [&](index_t j) { return v_.at(j); },
                           .head_dim_v = heads_.head_dim_v,
                           .softmax_scale = problem_.scale()};
    QueryGradient exact = exact_query_gradient(inputs, dout);
    std::vector<double> naive = naive_query_gradient(problem_.dtype, inputs, dout);
    rotation_.turn_back(place, exact.dq);
    rotation_.turn_back(place, naive);
    Deviation here{.batch = row.batch, .position = row.position, .head = head};
    for (index_t e = 0; e < heads_.head_dim; ++e) {
      const auto element = static_cast<std::size_t>(e);
      here.element = e;
      here.got = element_of(dq_, row.batch, local, head, e);
      here.want = exact.dq[element];
      seen_.add(here, narrow(problem_.dtype, naive[element]), exact.terms);
    }
  }

  const Seen& seen() const { return seen_; }

 private:
  static std::vector<double> read(const ReadHead& from, const QueryRow& row, index_t head, index_t dim) {
    std::vector<float> raw(static_cast<std::size_t>(dim));
    from(row.batch, head, {row.position, row.position + 1}, raw);
    return {raw.begin(), raw.end()};
  }

  const Problem& problem_;
  const HeadShape heads_;
  const CheckInputs& inputs_;
  const ConstTensorView dq_;
  const Float64Rotation rotation_;
  HeadRows k_, v_;
  Seen seen_;
};

}  // namespace

Seen check_query_gradients(const Problem& problem, const Sharding& sharding, int rank, const CheckPlan& plan,
                           const CheckInputs& inputs, const ConstTensorView& dq) {
  const HeadShape heads = problem.heads();
  QueryChecker checker(problem, inputs, dq);
  // Head by head, so that a head's keys are made or read once.
  for (index_t b = 0; b < heads.batch; ++b) {
    for (index_t head = 0; head < heads.num_heads; ++head) {
      for (std::size_t r = 0; r < plan.rows.size(); ++r) {
        if (plan.rows[r].batch != b) continue;
        const auto local = local_row(sharding.q, rank, plan.rows[r].position);
        const std::vector<index_t> chosen = checked_heads(plan, r, heads.num_heads);
        if (local && std::ranges::find(chosen, head) != chosen.end())
          checker.check(plan.rows[r], *local, head);
      }
    }
  }
  return checker.seen();
}

double query_check_bytes(const Problem& problem) {
  const HeadShape heads = problem.heads();
  const auto keys = static_cast<double>(problem.seqlen_k());
  const auto cache = [&](index_t dim) {
    return std::min(static_cast<double>(kCacheBytes), keys * static_cast<double>(dim) * sizeof(double));
  };
  // Two float64 numbers a key, later two fp32 ones.
  return cache(heads.head_dim) + cache(heads.head_dim_v) + 2 * keys * sizeof(double);
}

}  // namespace ringattn::launch
