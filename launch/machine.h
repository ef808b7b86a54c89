// What this machine lets this process have: CPUs and memory.
#pragma once
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace ringattn::launch {

std::string host_name();

// What one rank may still allocate, and the limit that says so.
struct MemoryRoom {
  double bytes = 0;
  std::string limit;  // "MemAvailable", "cgroup limit", "address space limit (ulimit -v)"
};

// Smallest of the machine's available memory and this process's cgroup limits, each shared by the ranks on
// this machine, and RLIMIT_AS, shared by the ranks in this process. `root` is where proc and sys are mounted.
MemoryRoom memory_room(int ranks_on_node, int ranks_in_process, const std::filesystem::path& root = "/");

// Largest resident size of this process so far; 0 if the system does not tell.
std::size_t peak_rss_bytes(const std::filesystem::path& root = "/");

}  // namespace ringattn::launch
