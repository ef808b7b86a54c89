// From load_queries to finish, and from load_rows to finish_gradients.
#include "bench/kernels/setting.h"

namespace ringattn {
namespace {

void whole_kernel(benchmark::State& state, const Setting& s) {
  Case c(s);
  if (s.backward) {
    c.forward();  // out and lse are what backward takes
    c.reserve_backward();
  }
  Stopwatch watch;
  watch.start();
  for (auto _ : state) {
    if (s.backward) {
      c.backward();
    } else {
      c.forward();
    }
  }
  watch.stop();
  count_flops(state, s, c.flops(), watch.cpu());
}

void add(Setting s) {
  for (const bool backward : {false, true}) {
    s.backward = backward;
    benchmark::RegisterBenchmark(("whole/" + name_of(s)).c_str(),
                                 [s](benchmark::State& state) { whole_kernel(state, s); })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond)
        ->MinTime(0.5);
  }
}

}  // namespace

void register_whole_kernels() {
  const int all = 2;
  for (const std::string& isa : cpu_isas()) {
    if (isa == cpu_isas().back() && cpu_isas().size() > 1) continue;  // the baseline takes minutes
    if (cpu_product(DType::bf16, isa) != "FMA") continue;  // differs from the next one in bf16 alone
    for (const int threads : {1, all})
      for (const index_t rows : {512, 1024, 2048, 8192})
        for (const bool causal : {false, true})
          add({.isa = isa, .rows = rows, .causal = causal, .threads = threads});
  }
  for (const bool causal : {false, true}) {
    for (const index_t rows : {512, 1024, 2048, 4096, 8192})
      add({.dtype = DType::bf16, .rows = rows, .causal = causal});
    add({.dtype = DType::f16, .rows = 4096, .causal = causal});
  }
  for (const index_t head_dim : {64, 80, 256})
    for (const bool causal : {false, true}) add({.rows = 4096, .causal = causal, .head_dim = head_dim});
  add({.rows = 4096, .causal = true, .heads = 16, .heads_kv = 4, .head_dim = 64});
}

}  // namespace ringattn
