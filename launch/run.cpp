#include "launch/run.h"

#include <optional>

#include "launch/file_rows.h"
#include "launch/output.h"
#include "launch/problem_options.h"
#include "launch/result_check.h"
#include "launch/ring_report.h"
#include "launch/ring_tensors.h"
#include "launch/run_files.h"
#include "launch/spoil.h"
#include "launch/steps.h"
#include "launch/tensors.h"

namespace ringattn::launch {
namespace {

// Pieces of a file that a rank keeps while it checks.
constexpr std::size_t kReaderBytes = std::size_t{64} << 20;

// The steps of one rank, in the order of run(). Nothing is computed before the outputs are known to be
// writable.
class Run {
 public:
  Run(Session session, InputFiles inputs, const Shapes& shapes, Problem problem)
      : session_(std::move(session)),
        inputs_(std::move(inputs)),
        shapes_(shapes),
        problem_(std::move(problem)),
        sharding_(session_.sharding(problem_)),
        progress_(session_.progress()) {}

  // The outputs have their names when this returns and `accept` did not throw on any rank.
  Report run(const std::function<void(const Report&)>& accept) {
    agree_on_problem(session_, problem_, sharding_);
    OutputFiles outputs = open_outputs();
    const double readers = inputs_.dout ? 4 : 2;
    require_shard_memory(session_, problem_, sharding_, readers * static_cast<double>(kReaderBytes));
    progress_.show("reading");
    step([&] { read(); });

    const auto [facts, iterations] = turn_ring();
    const std::uint64_t peak_rss = peak_rss_bytes();
    progress_.show("writing");
    step([&] { write(outputs); });
    Report report = make_report(session_, problem_, sharding_, facts, iterations, {}, peak_rss);
    report.check = check();
    report.check_off = check_off_;
    progress_.erase();
    accept(report);
    step([&] {
      if (session_.rank() != 0) return;
      for (PendingFile* file : all_of(outputs)) file->commit();
    });
    return report;
  }

 private:
  const Options& options() const { return session_.options; }
  void step(const std::function<void()>& body) { shared_step(*session_.comm, options().deadline, body); }

  // Rank 0 makes the files under temporary names, the others fill theirs: a folder that cannot be written is
  // known before anything is computed.
  OutputFiles open_outputs() {
    std::optional<OutputFiles> outputs;
    std::string names;
    step([&] {
      if (session_.rank() != 0) return;
      outputs = create_outputs(options().files, shapes_);
      names = temporary_names(*outputs);
    });
    names = gather_texts(*session_.comm, names, options().deadline).at(0);
    step([&] {
      if (session_.rank() != 0) outputs = attach_outputs(options().files, shapes_, names);
    });
    return std::move(*outputs);
  }

  // Only this rank's rows; the files know which bytes those are.
  void read() {
    tensors_ = allocate_shard(problem_, sharding_, session_.rank(), pass_of(options().direction));
    inputs_.q.read(sharding_.q.segments(session_.rank()), tensors_.q);
    inputs_.k.read(sharding_.k.segments(session_.rank()), tensors_.k);
    inputs_.v.read(sharding_.k.segments(session_.rank()), tensors_.v);
    if (inputs_.dout) inputs_.dout->read(sharding_.q.segments(session_.rank()), tensors_.dout);
  }

  void write(OutputFiles& outputs) {
    constexpr int kTensorAxis = 1, kLseAxis = 2;
    const auto queries = sharding_.q.segments(session_.rank()), keys = sharding_.k.segments(session_.rank());
    outputs.out.write(queries, kTensorAxis, tensors_.out);
    if (outputs.lse) outputs.lse->write(queries, kLseAxis, std::as_bytes(std::span(tensors_.lse)));
    if (outputs.dq) outputs.dq->write(queries, kTensorAxis, tensors_.dq);
    if (outputs.dk) outputs.dk->write(keys, kTensorAxis, tensors_.dk);
    if (outputs.dv) outputs.dv->write(keys, kTensorAxis, tensors_.dv);
  }

  std::pair<RingFacts, Iterations> turn_ring() {
    std::optional<RingAttention> ring;
    shared_call(
        [&] { ring.emplace(session_.ring, problem_, sharding_, session_.ring_options(options().mode)); });
    std::optional<RingTensors> on_ring;
    step([&] { on_ring.emplace(tensors_, session_.stream()); });
    const IterationHooks hooks{.sleep = session_.faults.sleep_of(session_.rank()),
                               .before = [&](int, int, bool) { progress_.show("computing"); }};
    const RingRun run{.ring = *ring,
                      .ranks = *session_.comm,
                      .link = *session_.ring,
                      .tensors = on_ring->views(),
                      .stream = session_.stream()};
    Iterations iterations = time_iterations(run, options().direction, {}, hooks, options().deadline);
    RingFacts facts(*ring, options().direction, session_.backend());
    require_planned_traffic(session_, facts, iterations, options().mode);
    step([&] {
      on_ring->fetch();
      const ResultPlan plan = plan_result_check(session_, problem_);
      spoil_result(session_.faults, plan.rows, plan.keys, sharding_, session_.rank(), tensors_);
    });
    return {std::move(facts), std::move(iterations)};
  }

  std::optional<CheckOutcome> check() {
    if (options().check_rows == 0) {
      check_off_ = "--check-rows 0";
      return std::nullopt;
    }
    progress_.show("checking");
    ResultPlan plan;
    step([&] { plan = plan_result_check(session_, problem_); });
    if (plan.rows.rows.empty()) {
      check_off_ = "no query rows";
      return std::nullopt;
    }
    // Only a few rows of q and dout are looked at, unless keys are checked through all of them.
    const std::size_t query_bytes = inputs_.dout ? kReaderBytes : 0;
    const CheckInputs inputs{.q = head_reader(inputs_.q, query_bytes),
                             .k = head_reader(inputs_.k, kReaderBytes),
                             .v = head_reader(inputs_.v, kReaderBytes),
                             .dout = inputs_.dout ? head_reader(*inputs_.dout, query_bytes) : ReadHead()};
    return check_result(session_, problem_, sharding_, plan, inputs, tensors_);
  }

  Session session_;
  InputFiles inputs_;
  Shapes shapes_;
  Problem problem_;
  Sharding sharding_;
  Progress progress_;
  ShardTensors tensors_;
  std::string check_off_;
};

}  // namespace

void run(const std::shared_ptr<Communicator>& comm, const Options& options, const Seat& seat) {
  Session session = open_session(comm, options, seat);
  std::optional<Output> output;
  std::optional<InputFiles> inputs;
  std::optional<Shapes> shapes;
  std::optional<Problem> problem;
  shared_step(*comm, options.deadline, [&] {
    inputs = open_inputs(options.files, options.problem.dtype);
    shapes = shapes_of(options.problem, *inputs);
    problem = make_problem(options.problem, *shapes);
    if (comm->rank() == 0) output.emplace(options.json);
  });
  Run run(std::move(session), std::move(*inputs), *shapes, *problem);
  run.run([&](const Report& report) {
    // The report comes first: numbers that are wrong are reported, and then no output file appears.
    shared_step(*comm, options.deadline, [&] {
      if (output) output->write(table_of(report), json_of(report).dump() + "\n");
    });
    require_right_numbers(report);
  });
}

}  // namespace ringattn::launch
