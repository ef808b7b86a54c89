// What a run or bench has found out, and its two forms: a short table for people, one JSON object for
// programs.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/check.h"
#include "launch/gpus.h"
#include "launch/measure.h"
#include "launch/options.h"
#include "src/cost.h"
#include "src/problem.h"

namespace ringattn::launch {

// One rank's figures; gathered as bytes.
struct RankFigures {
  int threads = 0, cpus_allowed = 0;
  index_t q_rows = 0, k_rows = 0;
  // Medians over its iterations.
  double seconds = 0, forward_seconds = 0, backward_seconds = 0;
  std::optional<double> compute_seconds{}, wait_seconds{};  // none: nobody timed the hops, see add_compute()
  double fma_peak = 0;                                      // FLOP/s of Report::product; 0 = not known
  double read_bandwidth = 0;                                // bytes/s; 0 = not known
  double bytes_to_move = 0;                                 // an iteration, see bytes_of
  std::uint64_t bytes_sent = 0, messages_sent = 0;          // an iteration, as counted by the communicator
  std::uint64_t workspace_bytes = 0, peak_rss_bytes = 0;
};

struct Report {
  Command command = Command::bench;
  const Problem* problem = nullptr;
  LayoutKind layout = LayoutKind::zigzag;
  std::string communicator, backend, isa;
  std::string communicator_why;      // of one that the program chose; may be empty
  std::optional<CudaDevice> device;  // rank 0's; none: CPUs
  std::vector<RankGpu> gpus;         // of every rank, if there is a device
  std::string product = "FMA";       // what the kernel multiplies with, whose peak counts: see cpu_product()
  Direction direction = Direction::forward;
  Mode mode = Mode::overlap;
  std::optional<std::uint64_t> seed;  // none in run
  int iterations = 1, warmup = 0;
  bool oversubscribed = false, ranks_share_a_process = false;
  double link_gbps = 0, link_latency_us = 0;
  std::vector<RankFigures> ranks;
  std::size_t hops = 0;
  Balance balance;
  Spread seconds;  // of the slowest rank in each iteration
  // Largest over ranks, median over iterations; forward and backward are 0 if there is none of it.
  double forward_seconds = 0, backward_seconds = 0;
  std::optional<double> compute_seconds, wait_seconds;
  std::optional<double> comm_seconds;  // the same exchange alone: largest over ranks, median over iterations
  std::optional<CheckOutcome> check;   // none: switched off
  std::string check_off;               // then: why
  std::string test_fault;
};

// Derived figures that both forms show.
double flops_of(const Report& report);                    // one iteration, all ranks
double share_of(const Report& report, double seconds);    // of forward's and backward's seconds together
std::optional<double> rate_of(const Report& report);      // FLOP/s of the median iteration; none in comm-only
std::optional<double> fma_peak_of(const Report& report);  // FLOP/s, mean over ranks
std::optional<double> fraction_of_peak(const Report& report);
std::optional<double> hidden_fraction(const Report& report);  // 1 - wait / comm; overlap and blocking only

// Of ranks on GPUs, whose hops nobody times: compute_seconds are those of the same work without transfers,
// and wait_seconds what the iteration takes beyond them.
void add_compute(Report& report, const Iterations& arithmetic);
// Where the ranks' peaks are from: "measured", or how they follow from the data sheet.
std::string peak_source(const Report& report);

// The least time that an iteration could take if the ranks' arithmetic ran at its measured peak, or their
// memory at its measured read bandwidth, work divided as their peaks are (Williams, Waterman and Patterson,
// CACM 52(4), 2009). The larger floor binds.
struct Roofline {
  double flops = 0, bytes = 0;                     // all ranks
  double compute_seconds = 0, memory_seconds = 0;  // the floors
  double over_floor = 0;                           // the median iteration over the larger one
  bool memory_binds() const { return memory_seconds > compute_seconds; }
};
// None in comm-only, or if a peak was not measured.
std::optional<Roofline> roofline_of(const Report& report);
std::optional<double> read_bandwidth_of(const Report& report);  // bytes/s, mean over ranks

Spread seconds_over_ranks(const Report& report);  // of the ranks' own median times

// Throws SharedFailure(wrong_numbers) if the check failed. The report is the same on every rank as far as the
// check goes, so all ranks throw or none.
void require_right_numbers(const Report& report);

nlohmann::ordered_json json_of(const Report& report);
std::string table_of(const Report& report);

// "f32, causal, zigzag, rope half base 10000 dim 64 offset 0": shared with the plan's table.
std::string problem_text(const Problem& problem);
void add_problem(nlohmann::ordered_json& json, const Problem& problem);

}  // namespace ringattn::launch
