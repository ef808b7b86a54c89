// The CPU kernel and its parts, each as a fraction of the FMA peak measured in the same run, or in bytes or
// elements a second. bench/README.md says how to run it and what it found.
#include "bench/kernels/setting.h"

int main(int argc, char** argv) {
  ringattn::register_whole_kernels();
  ringattn::register_hop_pairs();
  ringattn::register_tiles();
  ringattn::register_exp2();
  ringattn::register_packing();
  ringattn::register_masks();
  ringattn::register_few_queries();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
