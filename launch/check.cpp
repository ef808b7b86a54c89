#include "launch/check.h"

#include <algorithm>

#include "kernels/reference/attention.h"
#include "launch/naive_row.h"
#include "launch/steps.h"

namespace ringattn::launch {
namespace {

// Rows of keys and of values that a rank keeps in float64 while it checks.
constexpr std::size_t kCacheBytes = std::size_t{64} << 20;

// What one rank saw.
struct SeenBoth {
  Seen out, lse;
};

// Checks this rank's rows, head by head, so that a head's keys are made or read once.
class RowChecker {
 public:
  RowChecker(const Problem& problem, const Sharding& sharding, int rank, const CheckPlan& plan,
             const CheckInputs& inputs, const CheckedOutput& output)
      : problem_(problem),
        heads_(problem.heads()),
        plan_(plan),
        output_(output),
        rotation_(problem.rope, heads_.head_dim),
        read_q_(inputs.q),
        k_(inputs.k, problem.seqlen_k(), heads_.head_dim, rotation_, kCacheBytes),
        v_(inputs.v, problem.seqlen_k(), heads_.head_dim_v, Float64Rotation({}, heads_.head_dim_v),
           kCacheBytes) {
    for (const QueryRow& row : plan.rows) local_.push_back(local_row(sharding.q, rank, row.position));
  }

  SeenBoth run() {
    for (index_t b = 0; b < heads_.batch; ++b) {
      for (index_t kv_head = 0; kv_head < heads_.num_heads_kv; ++kv_head) {
        k_.select(b, kv_head);
        v_.select(b, kv_head);
        for (std::size_t r = 0; r < plan_.rows.size(); ++r) {
          if (plan_.rows[r].batch != b || !local_[r]) continue;
          for (const index_t head : checked_heads(plan_, r, heads_.num_heads)) {
            if (head / heads_.group() == kv_head) check(plan_.rows[r], *local_[r], head);
          }
        }
      }
    }
    return seen_;
  }

 private:
  void check(const QueryRow& row, index_t local, index_t head) {
    std::vector<float> raw(static_cast<std::size_t>(heads_.head_dim));
    read_q_(row.batch, head, {row.position, row.position + 1}, raw);
    std::vector<double> q(raw.begin(), raw.end());
    rotation_.turn(problem_.query_position(row.position), q);
    const std::vector<Range> keys = visible_keys(problem_.mask, row.position);

    const ReferenceRow exact = reference_row(q, problem_.scale(), heads_.head_dim_v, keys,
                                             [&](index_t j, std::span<double> k, std::span<double> v) {
                                               std::ranges::copy(k_.at(j), k.begin());
                                               std::ranges::copy(v_.at(j), v.begin());
                                             });
    const RowOutput naive = naive_row(problem_.dtype, {.q = q,
                                                       .keys = keys,
                                                       .key = [&](index_t j) { return k_.at(j); },
                                                       .value = [&](index_t j) { return v_.at(j); },
                                                       .head_dim_v = heads_.head_dim_v,
                                                       .softmax_scale = problem_.scale()});
    Deviation here{.batch = row.batch, .position = row.position, .head = head};
    for (index_t e = 0; e < heads_.head_dim_v; ++e) {
      const auto element = static_cast<std::size_t>(e);
      here.element = e;
      here.got = element_of(output_.out, row.batch, local, head, e);
      here.want = exact.out[element];
      seen_.out.add(here, naive.out[element]);
    }
    const LseView& lse = output_.lse;
    here.element = 0;
    here.got = lse.data[row.batch * lse.stride[0] + head * lse.stride[1] + local * lse.stride[2]];
    here.want = exact.lse;
    seen_.lse.add(here, naive.lse);
  }

  const Problem& problem_;
  const HeadShape heads_;
  const CheckPlan& plan_;
  const CheckedOutput& output_;
  const Float64Rotation rotation_;
  const ReadHead& read_q_;
  HeadRows k_, v_;
  std::vector<std::optional<index_t>> local_;
  SeenBoth seen_;
};

}  // namespace

double check_bytes(const Problem& problem) {
  const HeadShape heads = problem.heads();
  const auto rows = static_cast<double>(problem.seqlen_k());
  const auto cache = [&](index_t dim) {
    return std::min(static_cast<double>(kCacheBytes), rows * static_cast<double>(dim) * sizeof(double));
  };
  return cache(heads.head_dim) + cache(heads.head_dim_v) + rows * sizeof(float);
}

CheckOutcome check_output(Communicator& comm, const Problem& problem, const Sharding& sharding,
                          const CheckPlan& plan, const CheckInputs& inputs, const CheckedOutput& output,
                          std::chrono::milliseconds patience) {
  SeenBoth mine;
  const auto enough = check_patience(plan.flops, patience);
  shared_step(comm, enough,
              [&] { mine = RowChecker(problem, sharding, comm.rank(), plan, inputs, output).run(); });
  const std::vector<SeenBoth> ranks = gather_values(comm, mine, enough);

  CheckOutcome outcome{.rows = static_cast<index_t>(plan.rows.size()),
                       .heads_per_row = plan.heads_per_row,
                       .num_heads = problem.shape.num_heads};
  outcome.out = judge({.type = problem.dtype}, ranks, &SeenBoth::out);
  outcome.lse = judge({.type = DType::f32}, ranks, &SeenBoth::lse);
  outcome.passed = outcome.out.passed && outcome.lse.passed;
  if (!outcome.out.passed) {
    outcome.text = wrong_text("out", outcome.out);
  } else if (!outcome.lse.passed) {
    outcome.text = wrong_text("lse", outcome.lse, false);
  }
  return outcome;
}

void add_gradients(CheckOutcome& outcome, const GradientOutcome& gradients) {
  outcome.gradients = gradients;
  outcome.passed = outcome.passed && gradients.passed;
  // A wrong output explains wrong gradients, so it is named first.
  if (outcome.text.empty()) outcome.text = gradients.text;
}

}  // namespace ringattn::launch
