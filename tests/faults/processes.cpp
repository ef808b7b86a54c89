#include "tests/faults/processes.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <thread>
#include <tuple>

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

// A kernel thread and a zombie have none.
bool has_executable(const std::filesystem::path& process) {
  std::error_code error;
  std::ignore = std::filesystem::read_symlink(process / "exe", error);
  return !error;
}

// In the middle of an exec the kernel shows no environment, for a moment: it is asked again.
std::string environment_text(const std::filesystem::path& process) {
  constexpr int kTries = 50;
  std::string text = read_all(process / "environ");
  for (int i = 1; i < kTries && text.empty() && has_executable(process); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    text = read_all(process / "environ");
  }
  return text;
}

std::vector<std::string> environment_of(const std::filesystem::path& process) {
  const std::string text = environment_text(process);
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
