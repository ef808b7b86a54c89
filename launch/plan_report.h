// The plan's two forms: a table for people and JSON lines for programs.
#pragma once
#include <optional>
#include <string>

#include "launch/options.h"
#include "launch/ring_survey.h"

namespace ringattn::launch {

struct PlanReport {
  const Problem* problem = nullptr;
  LayoutKind layout = LayoutKind::zigzag;
  Backend backend = Backend::cpu;  // whose kernel's blocks and workspace these are
  int total_ranks = 1, threads = 1;
  std::string product = "FMA";  // what the kernel multiplies with: see cpu_product()
  double fma_peak = 0;          // FLOP/s of that; 0 = not known, nor then is the time of computing
  std::string peak_source{};    // of what, "2 threads here", or why it is not known
  Machine machine{};
  RingSurvey survey{};
  std::optional<Plan> detail{};  // with --rank: hop by hop
  bool tiles = false;            // and its tiles
};

std::string table_of(const PlanReport& report);

// One line {"subcommand": "plan", ...} about the ring; then a line {"rank": ...} for each rank of the survey
// if they are few, or, with --rank, a line {"hop": ...} for each of its hops.
std::string json_lines_of(const PlanReport& report);

}  // namespace ringattn::launch
