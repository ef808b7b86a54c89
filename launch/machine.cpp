#include "launch/machine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>

namespace ringattn::launch {
namespace {

namespace fs = std::filesystem;

// The first number of a file, or nothing: "max" of a cgroup without a limit is not a number.
std::optional<double> number_in(const fs::path& path) {
  std::ifstream file(path);
  double number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// "MemAvailable:  1234 kB" of a proc file, in bytes.
std::optional<double> kib_line(const fs::path& path, const std::string& name) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    double kib = 0;
    if (word == name + ":" && file >> kib) return kib * 1024;
  }
  return std::nullopt;
}

struct CgroupFiles {
  fs::path mount;
  const char* limit;
  const char* usage;
};

// A limit of any group above a process binds it: every folder from its own up to the mount is asked.
double cgroup_room(const CgroupFiles& files, const fs::path& group) {
  double room = std::numeric_limits<double>::infinity();
  for (fs::path folder = group;; folder = folder.parent_path()) {
    const fs::path here = files.mount / folder.relative_path();
    if (const auto limit = number_in(here / files.limit)) {
      room = std::min(room, std::max(0.0, *limit - number_in(here / files.usage).value_or(0)));
    }
    if (folder == folder.parent_path()) return room;
  }
}

double cgroup_room(const fs::path& root) {
  const CgroupFiles v2{root / "sys/fs/cgroup", "memory.max", "memory.current"};
  const CgroupFiles v1{root / "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"};
  double room = std::numeric_limits<double>::infinity();
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "0::/path" (v2), "4:memory:/path" (v1)
    const std::size_t colon = line.find(':');
    const std::size_t second = colon == std::string::npos ? colon : line.find(':', colon + 1);
    if (second == std::string::npos) continue;
    std::string controllers(1, ',');
    controllers.append(line, colon + 1, second - colon - 1).push_back(',');
    const fs::path group = line.substr(second + 1);
    if (controllers == ",,") room = std::min(room, cgroup_room(v2, group));
    if (controllers.find(",memory,") != std::string::npos) room = std::min(room, cgroup_room(v1, group));
  }
  return room;
}

}  // namespace

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

MemoryRoom memory_room(int ranks_on_node, int ranks_in_process, const fs::path& root) {
  MemoryRoom room{.bytes = std::numeric_limits<double>::infinity(), .limit = "no limit known"};
  const auto bound = [&](double bytes, const char* limit) {
    if (bytes < room.bytes) room = {.bytes = bytes, .limit = limit};
  };
  if (const auto available = kib_line(root / "proc/meminfo", "MemAvailable")) {
    bound(*available / ranks_on_node, "MemAvailable");
  }
  bound(cgroup_room(root) / ranks_on_node, "cgroup limit");
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
    const double used = kib_line(root / "proc/self/status", "VmSize").value_or(0);
    const double left = std::max(0.0, static_cast<double>(space.rlim_cur) - used);
    bound(left / ranks_in_process, "address space limit (ulimit -v)");
  }
  return room;
}

std::size_t peak_rss_bytes(const fs::path& root) {
  return static_cast<std::size_t>(kib_line(root / "proc/self/status", "VmHWM").value_or(0));
}

}  // namespace ringattn::launch
