// The second hop of a ring of two: a block of another rank's keys, all of them visible, with the state of the
// own block carried in. Its attend alone is timed, so nothing is packed, unpacked or merged.
#include "bench/kernels/setting.h"

namespace ringattn {
namespace {

void hop_pair(benchmark::State& state, const Setting& s) {
  Case c(s);
  Buffer other = c.kernel->allocate(c.kernel->block_bytes(s.rows));
  c.load_block(c.block);
  c.load_block(other);
  if (s.backward) {
    c.load_queries();
    c.attend(c.block);
    c.attend(other);
    c.finish();
    c.reserve_backward();
    c.load_rows();
    c.attend_backward(c.block);
  }
  Stopwatch watch;
  for (auto _ : state) {
    if (!s.backward) {
      c.load_queries();
      c.attend(c.block);
    }
    watch.start();
    if (s.backward) {
      c.attend_backward(other);
    } else {
      c.attend(other);
    }
    state.SetIterationTime(watch.stop());
  }
  count_flops(state, s, c.flops(), watch.cpu());
}

}  // namespace

void register_hop_pairs() {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int threads : {1, 2}) {
      for (const bool backward : {false, true}) {
        const Setting s{.dtype = dtype, .rows = 2048, .threads = threads, .backward = backward};
        benchmark::RegisterBenchmark(("hop_pair/" + name_of(s)).c_str(),
                                     [s](benchmark::State& state) { hop_pair(state, s); })
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond)
            ->MinTime(0.5);
      }
    }
  }
}

}  // namespace ringattn
