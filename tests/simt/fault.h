// What the harness throws when a kernel does something a GPU would not forgive
// (or, worse, would forgive most of the time).
#pragma once
#include <stdexcept>
#include <string>

namespace simt {

// std::source_location in small: clang before 16 has no such thing with libstdc++.
struct Where {
  const char* file = "?";
  unsigned source_line = 0;
  static constexpr Where current(const char* f = __builtin_FILE(), unsigned l = __builtin_LINE()) {
    return {f, l};
  }
  unsigned line() const { return source_line; }
};

enum class FaultKind { deadlock, out_of_bounds, misaligned, divergence, race, poison, usage };

inline const char* name(FaultKind k) {
  switch (k) {
    case FaultKind::deadlock:
      return "deadlock";
    case FaultKind::out_of_bounds:
      return "out of bounds";
    case FaultKind::misaligned:
      return "misaligned";
    case FaultKind::divergence:
      return "divergence";
    case FaultKind::race:
      return "race";
    case FaultKind::poison:
      return "poison";
    case FaultKind::usage:
      return "usage";
  }
  return "?";
}

struct Fault : std::runtime_error {
  FaultKind kind;
  Fault(FaultKind k, const std::string& text)
      : std::runtime_error(std::string(name(k)) + ": " + text), kind(k) {}
};

// Thrown into every other fiber of a block that has already failed, so that each one
// unwinds its own stack and its fiber can be used again. Kernels never catch it.
struct Cancelled {};

inline std::string at(const Where& w) {
  const std::string file = w.file;
  return file.substr(file.find_last_of('/') + 1) + ":" + std::to_string(w.line());
}

// Appends " (block 0,0,0 thread 5 = warp 0 lane 5, file:line)"; defined in block.cpp.
[[noreturn]] void raise(FaultKind kind, const std::string& text, const Where& where);

}  // namespace simt
