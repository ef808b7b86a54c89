#include "launch/bench.h"

#include <algorithm>
#include <optional>

#include "kernels/cpu/cpu.h"
#include "launch/device_report.h"
#include "launch/generator.h"
#include "launch/machine.h"
#include "launch/output.h"
#include "launch/problem_options.h"
#include "launch/result_check.h"
#include "launch/ring_report.h"
#include "launch/ring_tensors.h"
#include "launch/spoil.h"
#include "launch/steps.h"
#include "launch/tensors.h"
#include "src/error.h"

namespace ringattn::launch {
namespace {

void generate(ShardTensors& tensors, std::uint64_t seed, const Problem& problem, const Sharding& sharding,
              int rank) {
  const HeadShape heads = problem.heads();
  const auto q = sharding.q.segments(rank), k = sharding.k.segments(rank);
  generate_shard(seed, TensorId::q, q, heads.batch, heads.num_heads, heads.head_dim, problem.dtype,
                 tensors.q);
  generate_shard(seed, TensorId::k, k, heads.batch, heads.num_heads_kv, heads.head_dim, problem.dtype,
                 tensors.k);
  generate_shard(seed, TensorId::v, k, heads.batch, heads.num_heads_kv, heads.head_dim_v, problem.dtype,
                 tensors.v);
  if (tensors.dout.empty()) return;
  generate_shard(seed, TensorId::dout, q, heads.batch, heads.num_heads, heads.head_dim_v, problem.dtype,
                 tensors.dout);
}

// The check makes its inputs again from the formula: it does not look at the tensors that the ring was given.
ReadHead generated(std::uint64_t seed, TensorId tensor, index_t dim, DType dtype) {
  return [=](index_t batch, index_t head, Range positions, std::span<float> to) {
    for (index_t i = 0; i < positions.count(); ++i) {
      const auto row = to.subspan(static_cast<std::size_t>(i * dim), static_cast<std::size_t>(dim));
      generate_row(seed, tensor, batch, positions.begin + i, head, dtype, row);
    }
  };
}

CheckInputs generated_inputs(std::uint64_t seed, const Problem& problem) {
  const HeadShape heads = problem.heads();
  return {.q = generated(seed, TensorId::q, heads.head_dim, problem.dtype),
          .k = generated(seed, TensorId::k, heads.head_dim, problem.dtype),
          .v = generated(seed, TensorId::v, heads.head_dim_v, problem.dtype),
          .dout = generated(seed, TensorId::dout, heads.head_dim_v, problem.dtype)};
}

// The steps of one rank, in the order of run().
class Bench {
 public:
  Bench(Session session, Problem problem)
      : session_(std::move(session)),
        problem_(std::move(problem)),
        sharding_(session_.sharding(problem_)),
        progress_(session_.progress()) {}

  Report run() {
    agree_on_problem(session_, problem_, sharding_);
    require_shard_memory(session_, problem_, sharding_);
    progress_.show("making tensors");
    shared_step(*session_.comm, options().deadline, [&] {
      tensors_ = allocate_shard(problem_, sharding_, session_.rank(), pass_of(options().direction));
      generate(tensors_, options().seed, problem_, sharding_, session_.rank());
      on_ring_.emplace(tensors_, session_.stream());
    });
    measure_peak();
    const auto [facts, iterations] = time_mode(options().mode, "timed iteration ");
    const std::uint64_t peak_rss = peak_rss_bytes();
    shared_step(*session_.comm, options().deadline, [&] { on_ring_->fetch(); });
    const auto outcome = check();
    const std::optional<double> exchange = time_exchange(iterations);
    const std::optional<Iterations> arithmetic = time_arithmetic(iterations);
    measure_peak();
    const Ceilings ceilings = session_.gpu
                                  ? ceilings_of(*session_.gpu, problem_.dtype, session_.rank())
                                  : Ceilings{.fma_peak = peak_, .read_bandwidth = measure_bandwidth()};

    Report report = make_report(session_, problem_, sharding_, facts, iterations, ceilings, peak_rss);
    if (arithmetic) add_compute(report, *arithmetic);
    report.warmup = options().warmup;
    report.seed = options().seed;
    report.comm_seconds = exchange;
    report.check = outcome;
    report.check_off = check_off_;
    progress_.erase();
    return report;
  }

 private:
  const Options& options() const { return session_.options; }

  // Taken before, between and after the timed iterations, and the largest counts: a neighbour on the machine
  // can only make the peak look smaller, and fraction_of_peak larger than it is. Ranks that share CPUs
  // measure at the same time, so each of them finds its share.
  // GPUs are not measured: device_peak().
  void measure_peak(double seconds = 0.1) {
    if (session_.gpu) return;
    meet(*session_.comm, options().deadline);
    peak_ = std::max(peak_, measure_product_peak(problem_.dtype, session_.threads(), options().isa, seconds));
  }

  // Last of all, since its buffer is not the job's: peak_rss has been read by then. 0 where there is no room
  // for the buffer. The ranks of a machine share 256 MiB, several times the cache of most; 64 MiB a rank is
  // still more than its part of a cache.
  double measure_bandwidth() {
    constexpr std::size_t kShared = std::size_t{256} << 20, kLeast = std::size_t{64} << 20;
    const int neighbours = session_.placement.ranks_on_node(session_.rank());
    const std::size_t bytes = std::max(kShared / static_cast<std::size_t>(neighbours), kLeast);
    const int in_process = session_.placement.ranks_are_threads ? session_.ranks() : 1;
    const bool room = memory_room(neighbours, in_process).bytes >= 2 * static_cast<double>(bytes);
    meet(*session_.comm, options().deadline);
    if (!room) return 0;
    try {
      return measure_read_bandwidth(session_.threads(), bytes, 0.05);
    } catch (const OutOfMemory&) {
      return 0;
    }
  }

  std::pair<RingFacts, Iterations> time_mode(Mode mode, const std::string& name) {
    std::optional<RingAttention> ring;
    shared_call([&] { ring.emplace(session_.ring, problem_, sharding_, session_.ring_options(mode)); });
    const IterationHooks hooks{.sleep = session_.faults.sleep_of(session_.rank()),
                               .before = [&](int done, int of, bool timed) {
                                 constexpr double kBetween = 0.02;  // seconds
                                 if (timed && mode == options().mode) measure_peak(kBetween);
                                 progress_.show((timed ? name : "warm-up ") + std::to_string(done + 1) +
                                                " of " + std::to_string(of));
                               }};
    const Repeats repeats{.warmup = options().warmup, .timed = options().iterations};
    const RingRun run{.ring = *ring,
                      .ranks = *session_.comm,
                      .link = *session_.ring,
                      .tensors = on_ring_->views(),
                      .stream = session_.stream()};
    Iterations iterations = time_iterations(run, options().direction, repeats, hooks, options().deadline);
    RingFacts facts(*ring, options().direction, session_.backend());
    require_planned_traffic(session_, facts, iterations, mode);
    return {std::move(facts), std::move(iterations)};
  }

  // The same exchange with nothing else going on. It overwrites the output, so it comes after the check.
  // On GPUs it is the whole call, with the packing of the rank's own block.
  std::optional<double> time_exchange(const Iterations& timed) {
    const auto figure = session_.gpu ? &Iteration::seconds : &Iteration::wait;
    if (options().mode == Mode::compute_only) return std::nullopt;
    if (options().mode == Mode::comm_only) return spread_of(slowest(timed, figure)).median;
    if (session_.ranks() == 1) return 0.0;
    const auto [facts, iterations] = time_mode(Mode::comm_only, "exchange alone ");
    return spread_of(slowest(iterations, figure)).median;
  }

  // Likewise the arithmetic, which on CPUs is timed hop by hop. It spoils the output, too.
  std::optional<Iterations> time_arithmetic(const Iterations& timed) {
    if (!session_.gpu || options().mode == Mode::comm_only) return std::nullopt;
    if (options().mode == Mode::compute_only || session_.ranks() == 1) return timed;
    return time_mode(Mode::compute_only, "arithmetic alone ").second;
  }

  std::optional<CheckOutcome> check() {
    if (options().check_rows == 0) {
      const bool partial = options().mode == Mode::compute_only || options().mode == Mode::comm_only;
      check_off_ = partial ? "mode " + std::string(name_of(options().mode)) + " leaves the right answer out"
                           : "--check-rows 0";
      return std::nullopt;
    }
    progress_.show("checking");
    ResultPlan plan;
    shared_step(*session_.comm, options().deadline, [&] {
      plan = plan_result_check(session_, problem_);
      spoil_result(session_.faults, plan.rows, plan.keys, sharding_, session_.rank(), tensors_);
    });
    return check_result(session_, problem_, sharding_, plan, generated_inputs(options().seed, problem_),
                        tensors_);
  }

  Session session_;
  Problem problem_;
  Sharding sharding_;
  Progress progress_;
  ShardTensors tensors_;
  std::optional<RingTensors> on_ring_;
  double peak_ = 0;  // FLOP/s of this rank's threads
  std::string check_off_;
};

}  // namespace

void bench(const std::shared_ptr<Communicator>& comm, const Options& options, const Seat& seat) {
  Session session = open_session(comm, options, seat);
  std::optional<Output> output;
  std::optional<Problem> problem;
  shared_step(*comm, options.deadline, [&] {
    problem = make_problem(options.problem, shapes_of(options.problem));
    if (comm->rank() == 0) output.emplace(options.json);
  });
  Bench bench(std::move(session), *problem);
  const Report report = bench.run();
  shared_step(*comm, options.deadline, [&] {
    if (output) output->write(table_of(report), json_of(report).dump() + "\n");
  });
  require_right_numbers(report);
}

}  // namespace ringattn::launch
