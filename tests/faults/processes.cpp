#include "tests/faults/processes.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

namespace ringattn::test {
namespace {

constexpr std::string_view kRankVariable = "OMPI_COMM_WORLD_RANK=";

template <class Number>
std::optional<Number> whole(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// "" if the process is gone or is somebody else's.
std::string read_all(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> environment_of(const std::filesystem::path& process) {
  const std::string text = read_all(process / "environ");
  std::vector<std::string> entries;
  for (auto begin = text.begin(); begin != text.end();) {
    const auto end = std::find(begin, text.end(), '\0');
    entries.emplace_back(begin, end);
    begin = end == text.end() ? end : end + 1;
  }
  return entries;
}

}  // namespace

std::string JobProcess::text() const {
  std::string text = std::to_string(pid);
  text.append(" (").append(name);
  if (rank) text.append(", rank ").append(std::to_string(*rank));
  return text.append(")");
}

std::vector<JobProcess> processes_with(const std::string& entry) {
  std::vector<JobProcess> found;
  for (const auto& folder : std::filesystem::directory_iterator("/proc")) {
    const auto pid = whole<pid_t>(folder.path().filename().string());
    if (!pid) continue;
    const std::vector<std::string> environment = environment_of(folder.path());
    if (std::ranges::find(environment, entry) == environment.end()) continue;
    JobProcess process{.pid = *pid, .name = read_all(folder.path() / "comm"), .rank = std::nullopt};
    if (!process.name.empty()) process.name.pop_back();  // the end of the line
    for (const std::string& variable : environment) {
      if (variable.starts_with(kRankVariable))
        process.rank = whole<int>(variable.substr(kRankVariable.size()));
    }
    found.push_back(std::move(process));
  }
  return found;
}

}  // namespace ringattn::test
