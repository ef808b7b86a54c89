// A block that a diagonal crosses against one that is visible as a whole: seconds of attend per visible pair,
// the two taking turns. 1 would mean that edges are free. One thread, by its CPU time: the two differ in
// length, and on a busy machine the longer one is interrupted more often.
#include "bench/kernels/setting.h"

#include <algorithm>

namespace ringattn {
namespace {

double median_of(std::vector<double>& x) {
  const auto middle = x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2);
  std::nth_element(x.begin(), middle, x.end());
  return *middle;
}

void diagonal(benchmark::State& state, Setting s) {
  Case full(s);
  s.causal = true;
  Case causal(s);
  std::vector<double> full_seconds, causal_seconds;
  Stopwatch watch;
  for (Case* c : {&full, &causal}) {
    c->forward();
    if (!s.backward) continue;
    c->reserve_backward();
    c->load_rows();
  }
  const auto timed = [&](Case& c, std::vector<double>& seconds) {
    const double before = watch.cpu();
    watch.start();
    if (s.backward) {
      c.attend_backward(c.block);
    } else {
      c.attend(c.block);
    }
    const double wall = watch.stop();
    seconds.push_back((watch.cpu() - before) / c.pairs());
    return wall;
  };
  for (auto _ : state) {
    timed(full, full_seconds);
    state.SetIterationTime(timed(causal, causal_seconds));
  }
  const double whole = median_of(full_seconds), cut = median_of(causal_seconds);
  state.counters["full ps/pair"] = whole * 1e12;
  state.counters["diagonal ps/pair"] = cut * 1e12;
  state.counters["diagonal/full"] = cut / whole;
}

}  // namespace

void register_masks() {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool backward : {false, true}) {
      for (const index_t rows : {64, 256, 512, 2048}) {
        const Setting s{.dtype = dtype, .rows = rows, .heads = 2, .heads_kv = 2, .backward = backward};
        benchmark::RegisterBenchmark(("diagonal/" + name_of(s)).c_str(),
                                     [s](benchmark::State& state) { diagonal(state, s); })
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond)
            ->MinTime(0.2);
      }
    }
  }
}

}  // namespace ringattn
