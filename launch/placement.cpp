#include "launch/placement.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "kernels/cpu/cpu.h"
#include "launch/machine.h"
#include "launch/option_values.h"
#include "launch/steps.h"
#include "src/error.h"

namespace ringattn::launch {
namespace {

// Both lists are ascending.
std::vector<int> common_cpus(const RankPlace& a, const RankPlace& b) {
  std::vector<int> common;
  std::set_intersection(a.cpus.begin(), a.cpus.end(), b.cpus.begin(), b.cpus.end(),
                        std::back_inserter(common));
  return common;
}

// "host cpu cpu cpu": host names hold no blank.
std::string place_text(const RankPlace& place) {
  std::string text = place.host;
  for (const int cpu : place.cpus) text += ' ' + std::to_string(cpu);
  return text;
}

RankPlace place_of(const std::string& text) {
  RankPlace place;
  std::size_t at = std::min(text.find(' '), text.size());
  place.host = text.substr(0, at);
  while (at < text.size()) {
    const std::size_t next = std::min(text.find(' ', at + 1), text.size());
    place.cpus.push_back(std::stoi(text.substr(at + 1, next - at - 1)));
    at = next;
  }
  return place;
}

}  // namespace

int Placement::ranks_on_node(int rank) const {
  const std::string& host = ranks[static_cast<std::size_t>(rank)].host;
  return static_cast<int>(
      std::count_if(ranks.begin(), ranks.end(), [&](const auto& r) { return r.host == host; }));
}

int Placement::cpus_on_node(int rank) const {
  const std::string& host = ranks[static_cast<std::size_t>(rank)].host;
  std::set<int> cpus;
  for (const RankPlace& r : ranks) {
    if (r.host == host) cpus.insert(r.cpus.begin(), r.cpus.end());
  }
  return static_cast<int>(cpus.size());
}

int Placement::threads_on_node(int rank) const {
  const std::string& host = ranks[static_cast<std::size_t>(rank)].host;
  int threads = 0;
  for (const RankPlace& r : ranks) threads += r.host == host ? r.threads : 0;
  return threads;
}

bool Placement::oversubscribed() const { return !warnings().empty(); }

// A rank with too few CPUs is named for itself; its machine is not counted again for the same reason.
std::vector<std::string> Placement::warnings() const {
  std::vector<std::string> warnings;
  std::set<std::string> hosts;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const int threads = ranks[r].threads, cpus = static_cast<int>(ranks[r].cpus.size());
    if (cpus < threads) {
      warnings.push_back("rank " + std::to_string(r) + ": allowed CPUs " + std::to_string(cpus) +
                         " < threads " + std::to_string(threads));
      continue;
    }
    const int rank = static_cast<int>(r);
    if (threads_on_node(rank) > cpus_on_node(rank) && hosts.insert(ranks[r].host).second) {
      warnings.push_back("allowed CPUs " + std::to_string(cpus_on_node(rank)) + " on " + ranks[r].host +
                         " < " + std::to_string(threads_on_node(rank)) + " threads of its " +
                         std::to_string(ranks_on_node(rank)) + " ranks");
    }
  }
  return warnings;
}

int default_threads(const Placement& placement, int rank, const char* environment) {
  if (environment != nullptr && *environment != '\0') {
    const std::string text = environment;  // "4", or "4,2" for nested levels
    const std::string first = text.substr(0, text.find(','));
    try {
      return static_cast<int>(parse_whole("threads", first, 1, 4096));
    } catch (const UsageError&) {
      throw UsageError("OMP_NUM_THREADS is '" + text + "', allowed is a whole number from 1 to 4096");
    }
  }
  const RankPlace& mine = placement.ranks[static_cast<std::size_t>(rank)];
  int sharing = 0;
  for (const RankPlace& other : placement.ranks) {
    if (other.host == mine.host && !common_cpus(mine, other).empty()) ++sharing;
  }
  return std::max(1, static_cast<int>(mine.cpus.size()) / std::max(1, sharing));
}

Placement place_ranks(Communicator& comm, std::optional<index_t> threads, bool ranks_are_threads,
                      std::chrono::milliseconds patience) {
  Placement placement{.ranks = {}, .ranks_are_threads = ranks_are_threads};
  const RankPlace mine{.host = host_name(), .cpus = allowed_cpus(), .threads = 0};
  for (const std::string& text : gather_texts(comm, place_text(mine), patience)) {
    placement.ranks.push_back(place_of(text));
  }
  int count = 0;
  shared_step(comm, patience, [&] {
    count = threads ? static_cast<int>(*threads)
                    : default_threads(placement, comm.rank(), std::getenv("OMP_NUM_THREADS"));
  });
  // Threads can only be counted once everybody knows who shares the machine.
  const std::vector<int> counts = gather_values(comm, count, patience);
  for (std::size_t r = 0; r < counts.size(); ++r) placement.ranks[r].threads = counts[r];
  return placement;
}

}  // namespace ringattn::launch
