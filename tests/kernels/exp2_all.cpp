// exp2 of every instruction set over all floats up to 127 / slope: a minute a slope, so it is no test of
// every day. Prints a line for each; exit 1 if one is out of bounds.
//
//     build/tests/kernels/exp2_all [STEP]      every STEP-th float, default 1
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tests/kernels/exp2_sweep.h"

int main(int argc, char** argv) {
  char* end = nullptr;
  const long step = argc == 2 ? std::strtol(argv[1], &end, 10) : 1;
  if (argc > 2 || step < 1 || step > 1'000'000'000 || (end && *end != '\0')) {
    std::fprintf(stderr, "usage: exp2_all [STEP]; STEP is '%s', allowed is a number from 1 to 10^9\n",
                 argc > 1 ? argv[1] : "");
    return 2;
  }
  bool good = true;
  std::printf("%-8s %-10s %12s %12s %14s %14s %10s\n", "isa", "slope", "inputs", "error", "at",
              "denormal/2^-149", "denormals");
  for (const float slope : {1.0f, 1.4426951f, 1.999f}) {
    const auto start = std::chrono::steady_clock::now();
    for (const ringattn::test::Exp2Sweep& s :
         ringattn::test::sweep_exp2(slope, static_cast<std::uint32_t>(step))) {
      const bool passed =
          s.worst_relative <= ringattn::test::kExp2Error && s.worst_denormal <= 0.5 && s.junk == 0;
      good = good && passed;
      std::printf("%-8s %-10.8g %12llu %12.4g %14.9g %14.3f %10llu%s\n", s.target->name, double{slope},
                  static_cast<unsigned long long>(s.inputs), s.worst_relative, double{s.worst_at},
                  s.worst_denormal, static_cast<unsigned long long>(s.denormals), passed ? "" : "  FAILED");
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("  %.1f s\n", seconds.count());
    std::fflush(stdout);
  }
  return good ? 0 : 1;
}
