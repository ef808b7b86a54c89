#include "launch/fault_hook.h"

#include <algorithm>
#include <array>
#include <map>

#include "launch/hop_action.h"
#include "launch/option_values.h"
#include "src/error.h"

namespace ringattn::launch {
namespace {

// The tables are the whole vocabulary; the header explains the words.
constexpr auto kOutputs = std::to_array<std::pair<const char*, OutputFault>>({
    {"nan", OutputFault::nan},
    {"inf", OutputFault::inf},
    {"off", OutputFault::off},
    {"zero", OutputFault::zero},
});
constexpr auto kSpoilt = std::to_array<std::pair<const char*, Spoilt>>({
    {"output-", Spoilt::out},
    {"dq-", Spoilt::dq},
    {"dk-", Spoilt::dk},
    {"dv-", Spoilt::dv},
});
constexpr auto kTransfers = std::to_array<std::pair<const char*, Fault::Kind>>({
    {"delay", Fault::Kind::delay},
    {"truncate", Fault::Kind::truncate},
    {"corrupt", Fault::Kind::corrupt},
    {"fail", Fault::Kind::fail},
    {"vanish", Fault::Kind::vanish},
    {"die", Fault::Kind::die},
});
constexpr auto kActions = std::to_array<std::pair<const char*, HopAction>>({
    {"kill", HopAction::kill},
    {"stop", HopAction::stop},
    {"exit", HopAction::exit},
    {"throw", HopAction::throw_unknown},
    {"oom", HopAction::out_of_memory},
});

// The row of that name, or nothing.
template <class Table>
auto lookup(const Table& table, const std::string& name) {
  const auto row = std::find_if(table.begin(), table.end(), [&](const auto& r) { return name == r.first; });
  return row == table.end() ? std::nullopt : std::optional(row->second);
}

// Empty parts are kept, so that ";;" and a trailing separator are found out as kinds without a name.
std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || text[i] == separator) {
      parts.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  return parts;
}

[[noreturn]] void refuse_fault(const std::string& part, const std::string& why) {
  throw UsageError("RINGATTN_TEST_FAULT holds '" + part + "': " + why);
}

// "kind:key=value,key=value" with just the keys that the kind has.
struct Part {
  std::string text, kind;
  std::map<std::string, int> values;

  explicit Part(const std::string& whole) : text(whole) {
    const std::size_t colon = std::min(whole.find(':'), whole.size());
    kind = whole.substr(0, colon);
    if (colon == whole.size()) return;
    for (const std::string& pair : split(whole.substr(colon + 1), ',')) {
      const std::size_t equals = pair.find('=');
      if (equals == std::string::npos) refuse_fault(whole, "'" + pair + "' is not key=value");
      const std::string key = pair.substr(0, equals);
      int value = 0;
      try {
        value = static_cast<int>(parse_whole(key, pair.substr(equals + 1), 0, 1'000'000));
      } catch (const UsageError& e) {
        refuse_fault(whole, e.what());
      }
      if (!values.emplace(key, value).second) refuse_fault(whole, key + " is given twice");
    }
  }
  // A key too many is refused like one that is missing: a test that misspells its fault must not pass.
  void expect(const std::vector<std::string>& keys) const {
    for (const std::string& key : keys) {
      if (!values.contains(key)) refuse_fault(text, key + " is missing");
    }
    if (values.size() != keys.size()) refuse_fault(text, "it has a key that " + kind + " does not know");
  }
  // Of a transfer: rank, hop and what else is asked for. Takes the channel, which need not be given.
  int expect_transfer(std::vector<std::string> keys) {
    int channel = 0;
    if (const auto given = values.extract("channel")) channel = given.mapped();
    if (channel >= Route::kChannels) {
      refuse_fault(text, "channel is " + std::to_string(channel) + ", allowed is 0 to " +
                             std::to_string(Route::kChannels - 1));
    }
    keys.insert(keys.end(), {"rank", "hop"});
    expect(keys);
    return channel;
  }
};

// "dk-off": which tensor is spoilt and how; nothing if it is no such word.
std::optional<std::pair<Spoilt, OutputFault>> spoiling(const std::string& kind) {
  for (const auto& [prefix, tensor] : kSpoilt) {
    if (!kind.starts_with(prefix)) continue;
    if (const auto fault = lookup(kOutputs, kind.substr(std::string_view(prefix).size())))
      return std::pair{tensor, *fault};
  }
  return std::nullopt;
}

}  // namespace

std::chrono::milliseconds TestFaults::sleep_of(int rank) const {
  std::chrono::milliseconds time{};
  for (const Sleep& sleep : sleeps) time += sleep.rank == rank ? sleep.time : std::chrono::milliseconds{};
  return time;
}

TestFaults parse_test_faults(const char* value) {
  TestFaults faults;
  if (value == nullptr || *value == '\0') return faults;
  faults.text = value;
  for (const std::string& text : split(faults.text, ';')) {
    Part part(text);
    if (const auto spoilt = spoiling(part.kind)) {
      part.expect({});
      if (faults.output) refuse_fault(text, "an output is spoilt already");
      faults.spoilt = spoilt->first;
      faults.output = spoilt->second;
    } else if (part.kind == "sleep") {
      part.expect({"rank", "ms"});
      faults.sleeps.push_back(
          {.rank = part.values.at("rank"), .time = std::chrono::milliseconds(part.values.at("ms"))});
    } else if (const auto kind = lookup(kTransfers, part.kind)) {
      const bool delay = *kind == Fault::Kind::delay;
      const int channel =
          part.expect_transfer(delay ? std::vector<std::string>{"ms"} : std::vector<std::string>{});
      const std::chrono::milliseconds late(delay ? part.values.at("ms") : 0);
      faults.transfers.push_back(
          {.rank = part.values.at("rank"),
           .fault = {.kind = *kind, .hop = part.values.at("hop"), .channel = channel, .delay = late}});
    } else if (const auto action = lookup(kActions, part.kind)) {
      const int channel = part.expect_transfer({});
      faults.actions.push_back({.rank = part.values.at("rank"),
                                .hop = part.values.at("hop"),
                                .channel = channel,
                                .action = *action});
    } else {
      refuse_fault(text, "'" + part.kind + "' is no kind of fault");
    }
  }
  return faults;
}

// Actions wrap transfers: what ends the rank comes before what only spoils its message.
std::shared_ptr<Communicator> with_faults(std::shared_ptr<Communicator> inner, const TestFaults& faults) {
  const int rank = inner->rank();
  std::vector<Fault> mine;
  for (const auto& transfer : faults.transfers) {
    if (transfer.rank == rank) mine.push_back(transfer.fault);
  }
  if (!mine.empty()) inner = make_faulty(std::move(inner), std::move(mine));
  for (const auto& at : faults.actions) {
    if (at.rank == rank) inner = make_acting_at_hop(std::move(inner), at.hop, at.channel, at.action);
  }
  return inner;
}

}  // namespace ringattn::launch
