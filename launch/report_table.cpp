#include <algorithm>
#include <cstdio>
#include <sstream>

#include "launch/device_report.h"
#include "launch/report.h"
#include "launch/units.h"

namespace ringattn::launch {
namespace {

// "min .. max" if ranks differ, else the one figure.
template <class T, class Text>
std::string range_text(const Report& report, T RankFigures::*figure, Text&& text) {
  T low = report.ranks.at(0).*figure, high = low;
  for (const RankFigures& rank : report.ranks) {
    low = std::min(low, rank.*figure);
    high = std::max(high, rank.*figure);
  }
  const std::string first = text(static_cast<double>(low));
  return low == high ? first : first + " .. " + text(static_cast<double>(high));
}

// One decimal: the second is noise on any machine.
std::string percent(double fraction) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f%%", 100 * fraction);
  return text;
}

std::string threads_text(const Report& report) {
  const std::string count = range_text(report, &RankFigures::threads, count_text);
  return count + (count == "1" ? " thread" : " threads");
}

std::string error_text(double error) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", error);
  return text;
}

// Ranks that are out of step, because of the mask or of CPUs that they share, wait longer than a transfer
// takes.
std::string hidden_text(double fraction) {
  return fraction >= 0 ? ", hidden " + percent(fraction) : ", waits exceed the exchange: ranks out of step";
}

std::string ranks_line(const Report& report) {
  std::string line = std::to_string(report.ranks.size()) +
                     (report.ranks.size() == 1 ? " rank (" : " ranks (") + report.communicator +
                     (report.communicator_why.empty() ? "" : ": " + report.communicator_why) + ") x " +
                     threads_text(report) + ", " + report.backend + ", " +
                     range_text(report, &RankFigures::cpus_allowed, count_text) + " CPUs allowed";
  if (report.oversubscribed) line += ", OVERSUBSCRIBED";
  return line;
}

// Case A33: the time is the slowest rank's, and how far ranks are apart is shown beside it.
std::string time_line(const Report& report) {
  const Spread over_ranks = seconds_over_ranks(report);
  std::string line = "median " + seconds_text(report.seconds.median) + " (" +
                     seconds_text(report.seconds.min) + " .. " + seconds_text(report.seconds.max) + ") of " +
                     std::to_string(report.iterations) + " after " + std::to_string(report.warmup) +
                     " warm-up, slowest rank";
  if (report.ranks.size() > 1) {
    line += "; over ranks min " + seconds_text(over_ranks.min) + ", mean " + seconds_text(over_ranks.mean) +
            ", max " + seconds_text(over_ranks.max);
  }
  if (report.direction == Direction::both) {
    line += "; forward " + seconds_text(report.forward_seconds) + " (" +
            percent(share_of(report, report.forward_seconds)) + "), backward " +
            seconds_text(report.backward_seconds) + " (" +
            percent(share_of(report, report.backward_seconds)) + ")";
  }
  return line;
}

std::string rate_line(const Report& report) {
  const double tokens =
      static_cast<double>(report.problem->shape.batch * report.problem->seqlen_q()) / report.seconds.median;
  const auto rate = rate_of(report);
  if (!rate) return "no arithmetic in mode " + std::string(name_of(report.mode));
  std::string line = rate_text(*rate) + "FLOP/s, " +
                     rate_text(*rate / static_cast<double>(report.ranks.size())) + "FLOP/s a rank";
  if (const auto fraction = fraction_of_peak(report)) {
    line += " = " + percent(*fraction) + " of its " + report.product + " peak " +
            rate_text(*fma_peak_of(report)) + "FLOP/s";
  }
  return line + ", " + count_text(tokens) + " tokens/s";
}

// Empty if it is not known.
std::string roofline_line(const Report& report) {
  const auto roofline = roofline_of(report);
  if (!roofline) return "";
  const auto ranks = static_cast<double>(report.ranks.size());
  char over[32];
  std::snprintf(over, sizeof over, "%.3f", roofline->over_floor);
  return "compute floor " + seconds_text(roofline->compute_seconds) + " (" + rate_text(roofline->flops) +
         "FLOP at " + rate_text(ranks * *fma_peak_of(report)) + "FLOP/s), memory floor " +
         seconds_text(roofline->memory_seconds) + " (" + bytes_text(roofline->bytes) + " at " +
         rate_text(ranks * *read_bandwidth_of(report)) + "B/s); " +
         (roofline->memory_binds() ? "memory" : "compute") + " binds, median time " + over + " x its floor";
}

std::string ring_line(const Report& report) {
  std::string line = std::to_string(report.hops) + (report.hops == 1 ? " hop, " : " hops, ") +
                     range_text(report, &RankFigures::bytes_sent, bytes_text) + " in " +
                     range_text(report, &RankFigures::messages_sent, count_text) + " messages a rank";
  if (report.compute_seconds && report.wait_seconds)
    line +=
        "; compute " + seconds_text(*report.compute_seconds) + ", wait " + seconds_text(*report.wait_seconds);
  if (report.comm_seconds && report.ranks.size() > 1)
    line += ", exchange alone " + seconds_text(*report.comm_seconds);
  if (const auto hidden = hidden_fraction(report)) line += hidden_text(*hidden);
  return line + "; balance " + percent(report.balance.value());
}

// The naive error stands beside ours: a bound without its yardstick tells nobody anything.
std::string check_line(const Report& report) {
  if (!report.check) return "off: " + report.check_off;
  const CheckOutcome& check = *report.check;
  std::string line = std::to_string(check.rows) + " rows x " + std::to_string(check.heads_per_row) + " of " +
                     std::to_string(check.num_heads) + " heads in float64: max error " +
                     error_text(check.out.worst.error) + ", bound " + error_text(check.out.bound) +
                     " (naive " + error_text(check.out.naive_error) + "); lse " +
                     error_text(check.lse.worst.error) + ", bound " + error_text(check.lse.bound);
  return line + (check.passed ? "; passed" : "; FAILED");
}

// Empty if there are no gradients to check.
std::string gradients_line(const Report& report) {
  if (!report.check || !report.check->gradients) return "";
  const GradientOutcome& check = *report.check->gradients;
  const auto judged = [](const char* name, const Judgement& judgement) {
    return std::string(name) + " max error " + error_text(judgement.worst.error) + ", bound " +
           error_text(judgement.bound) + " (naive " + error_text(judgement.naive_error) + ")";
  };
  return judged("dq", check.dq) + "; " + judged("dk", check.dk) + "; " + judged("dv", check.dv) + "; " +
         std::to_string(check.keys) + " keys x " + std::to_string(check.kv_heads_per_key) + " of " +
         std::to_string(check.num_heads_kv) + " kv heads";
}

}  // namespace

std::string problem_text(const Problem& problem) {
  const HeadShape heads = problem.heads();
  std::ostringstream text;
  text << "batch " << heads.batch << ", ";
  if (problem.seqlen_q() == problem.seqlen_k()) {
    text << "seqlen " << problem.seqlen_q();
  } else {
    text << "seqlen " << problem.seqlen_q() << " q, " << problem.seqlen_k() << " k";
  }
  text << ", heads " << heads.num_heads << " q, " << heads.num_heads_kv << " kv, head_dim " << heads.head_dim;
  if (heads.head_dim_v != heads.head_dim) text << ", " << heads.head_dim_v << " v";
  text << ", " << name_of(problem.dtype) << ", mask " << problem.mask.name() << ", rope "
       << name_of(problem.rope.pairing);
  if (problem.rope.pairing != Rope::Pairing::none) {
    text << " base " << number_text(problem.rope.base) << " dim " << rotary_dim(problem.rope, heads.head_dim)
         << " offset " << problem.rope.position_offset;
  }
  text << ", scale " << number_text(problem.scale());
  return text.str();
}

std::string table_of(const Report& report) {
  std::ostringstream text;
  text << "ringattn " << name_of(report.command) << '\n'
       << "  ranks    " << ranks_line(report) << '\n'
       << (report.device ? "  device   " + device_line(report) + '\n' : "") << "  problem  "
       << problem_text(*report.problem) << '\n'
       << "  ring     layout " << name_of(report.layout) << ", direction " << name_of(report.direction)
       << ", mode " << name_of(report.mode) << "; " << ring_line(report) << '\n'
       << "  time     " << time_line(report) << '\n'
       << "  rate     " << rate_line(report) << '\n';
  if (const std::string line = roofline_line(report); !line.empty()) text << "  roofline " << line << '\n';
  text << "  memory   " << range_text(report, &RankFigures::workspace_bytes, bytes_text)
       << " workspace a rank, peak resident " << range_text(report, &RankFigures::peak_rss_bytes, bytes_text)
       << (report.ranks_share_a_process ? " of the process\n" : " a rank\n") << "  check    "
       << check_line(report) << '\n';
  if (const std::string line = gradients_line(report); !line.empty()) text << "           " << line << '\n';
  if (!report.test_fault.empty()) text << "  fault    RINGATTN_TEST_FAULT " << report.test_fault << '\n';
  return text.str();
}

}  // namespace ringattn::launch
