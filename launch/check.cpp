#include "launch/check.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/attention.h"
#include "launch/element.h"
#include "launch/naive_row.h"
#include "launch/steps.h"
#include "launch/units.h"

namespace ringattn::launch {
namespace {

// Rows of keys and of values that a rank keeps in float64 while it checks.
constexpr std::size_t kCacheBytes = std::size_t{64} << 20;

// What one rank saw of one tensor.
struct Seen {
  Deviation worst;
  double naive_error = 0, largest = 0;

  void add(const Deviation& here, double naive) {
    if (here.error > worst.error) worst = here;
    if (std::isfinite(here.want)) largest = std::max(largest, std::abs(here.want));
    // A naive evaluation that overflowed is no yardstick.
    const double error = difference(naive, here.want);
    if (std::isfinite(error)) naive_error = std::max(naive_error, error);
  }
};

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
      here.got = out_element(row.batch, local, head, e);
      here.want = exact.out[element];
      here.error = difference(here.got, here.want);
      seen_.out.add(here, naive.out[element]);
    }
    const LseView& lse = output_.lse;
    here.element = 0;
    here.got = lse.data[row.batch * lse.stride[0] + head * lse.stride[1] + local * lse.stride[2]];
    here.want = exact.lse;
    here.error = difference(here.got, here.want);
    seen_.lse.add(here, naive.lse);
  }

  double out_element(index_t b, index_t local, index_t head, index_t e) const {
    const ConstTensorView& out = output_.out;
    const auto offset = static_cast<std::size_t>(out.offset(b, local, head) + e) * size_of(out.dtype);
    return load_element(out.dtype, static_cast<const std::byte*>(out.data) + offset);
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

Judgement judge(DType type, const std::vector<SeenBoth>& ranks, Seen SeenBoth::*tensor) {
  Judgement all;
  for (const SeenBoth& rank : ranks) {
    const Seen& seen = rank.*tensor;
    if (seen.worst.error > all.worst.error) all.worst = seen.worst;
    all.naive_error = std::max(all.naive_error, seen.naive_error);
    all.largest = std::max(all.largest, seen.largest);
  }
  all.bound = error_bound(type, all.naive_error, all.largest);
  // Nothing compared is not a pass; error is never NaN.
  all.passed = all.worst.error >= 0 && all.worst.error <= all.bound;
  return all;
}

std::string wrong_text(const char* name, const Judgement& judgement, bool with_element) {
  const Deviation& d = judgement.worst;
  const auto text = [](index_t n) { return std::to_string(n); };
  if (d.error < 0) return std::string(name) + ": no row was compared";
  std::string index = "batch " + text(d.batch) + ", row " + text(d.position) + ", head " + text(d.head);
  if (with_element) index += ", element " + text(d.element);
  return std::string(name) + "[" + index + "] is " + number_text(d.got) + ", float64 reference " +
         number_text(d.want) + ": error " + number_text(d.error) + ", bound " + number_text(judgement.bound);
}

// A rank that has nothing to check waits for the others, so its patience covers their work at a very slow
// 10^8 FLOP/s.
std::chrono::milliseconds check_patience(const CheckPlan& plan, std::chrono::milliseconds patience) {
  constexpr double kSlowest = 1e8, kEvaluations = 2;
  return patience +
         std::chrono::milliseconds(static_cast<std::int64_t>(plan.flops * kEvaluations / kSlowest * 1000));
}

}  // namespace

double difference(double got, double want) {
  if (std::isnan(got) || std::isnan(want)) {
    return std::isnan(got) && std::isnan(want) ? 0 : std::numeric_limits<double>::infinity();
  }
  if (got == want) return 0;
  return std::abs(got - want);  // infinite if one of them is
}

double error_bound(DType type, double naive_error, double largest) {
  const double half_unit = type == DType::f32 ? 0x1p-24 : type == DType::f16 ? 0x1p-11 : 0x1p-8;
  return std::max(2 * naive_error, half_unit * largest) + 1e-6 * largest;
}

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
  const auto enough = check_patience(plan, patience);
  shared_step(comm, enough,
              [&] { mine = RowChecker(problem, sharding, comm.rank(), plan, inputs, output).run(); });
  const std::vector<SeenBoth> ranks = gather_values(comm, mine, enough);

  CheckOutcome outcome{.rows = static_cast<index_t>(plan.rows.size()),
                       .heads_per_row = plan.heads_per_row,
                       .num_heads = problem.shape.num_heads};
  outcome.out = judge(problem.dtype, ranks, &SeenBoth::out);
  outcome.lse = judge(DType::f32, ranks, &SeenBoth::lse);
  outcome.passed = outcome.out.passed && outcome.lse.passed;
  if (!outcome.out.passed) {
    outcome.text = wrong_text("out", outcome.out, true);
  } else if (!outcome.lse.passed) {
    outcome.text = wrong_text("lse", outcome.lse, false);
  }
  return outcome;
}

}  // namespace ringattn::launch
