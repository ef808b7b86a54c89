// Knobs of the harness, read once from the environment; tests may also set them directly.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace simt {

struct Config {
  std::uint64_t seed = 1;       // SIMT_SEED: decides every scheduling choice, so a failure replays
  bool race_check = true;       // SIMT_RACE=0: off; finds a missing barrier or event whatever the schedule
  bool trap_poison = false;     // SIMT_TRAP=1: fault where ldmatrix first reads unwritten memory
  unsigned workers = 1;         // SIMT_WORKERS: OS threads that share the blocks of a launch
  unsigned resident = 4;        // SIMT_RESIDENT: blocks of a launch that are at work at once, at most
  int devices = 8;              // SIMT_DEVICES: that cudaGetDeviceCount finds
  int compute_capability = 90;  // SIMT_CAPABILITY: of each of them, 80 or 90
  std::size_t device_bytes = std::size_t{4} << 30;  // memory of each
  bool peer_access = true;  // SIMT_PEERS=0: no device can be let touch another one's memory
  bool driver = true;       // SIMT_DRIVER=0: as on a machine without one, where the runtime finds nothing
};

inline Config& config() {
  static Config c = [] {
    Config v;
    if (const char* s = std::getenv("SIMT_SEED")) v.seed = std::strtoull(s, nullptr, 10);
    if (const char* s = std::getenv("SIMT_RACE")) v.race_check = *s != '0';
    if (const char* s = std::getenv("SIMT_TRAP")) v.trap_poison = *s != '0';
    if (const char* s = std::getenv("SIMT_WORKERS"))
      v.workers = static_cast<unsigned>(std::strtoul(s, nullptr, 10));
    if (const char* s = std::getenv("SIMT_RESIDENT"))
      v.resident = static_cast<unsigned>(std::strtoul(s, nullptr, 10));
    if (const char* s = std::getenv("SIMT_DEVICES")) v.devices = std::atoi(s);
    if (const char* s = std::getenv("SIMT_CAPABILITY")) v.compute_capability = std::atoi(s);
    if (const char* s = std::getenv("SIMT_PEERS")) v.peer_access = *s != '0';
    if (const char* s = std::getenv("SIMT_DRIVER")) v.driver = *s != '0';
    return v;
  }();
  return c;
}

// xorshift64*: small, seedable, the same on every machine (std:: distributions are not).
struct Random {
  std::uint64_t state;
  explicit Random(std::uint64_t seed) : state(seed * 0x9E3779B97F4A7C15ull + 0x1234567ull) {
    if (state == 0) state = 1;
    next(), next(), next();
  }
  std::uint32_t next() {
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return static_cast<std::uint32_t>((state * 0x2545F4914F6CDD1Dull) >> 32);
  }
  std::uint32_t below(std::uint32_t n) { return next() % n; }
};

}  // namespace simt
