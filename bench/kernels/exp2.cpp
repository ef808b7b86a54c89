// exp2 of an array in the L1 cache. Where the results lie decides whether some machine takes a slow path:
// what is below 2^-126 might be denormal.
#include <random>

#include "bench/kernels/setting.h"
#include "kernels/cpu/target.h"

namespace ringattn {
namespace {

struct Inputs {
  const char* name;
  float low, high;
};

void exp2(benchmark::State& state, const cpu::Target& target, const Inputs& inputs, float slope) {
  constexpr index_t kCount = 2048;  // 8 KiB in, 8 KiB out
  std::vector<float> x(kCount), y(kCount);
  std::mt19937 generator(1);
  std::uniform_real_distribution<float> among(inputs.low / slope, inputs.high / slope);
  for (float& value : x) value = among(generator);
  for (auto _ : state) {
    target.exp2(x.data(), kCount, slope, y.data());
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  state.counters["Gelements/s"] =
      benchmark::Counter(kCount * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace

void register_exp2() {
  static constexpr Inputs kInputs[] = {
      {"normal", -100, 0}, {"below", -149, -126.5}, {"far_below", -2000, -160}};
  for (const cpu::Target* target : cpu::targets()) {
    for (const float slope : {1.0f, 1.4426951f}) {
      for (const Inputs& inputs : kInputs) {
        const std::string name =
            std::string("exp2/") + target->name + "/" + inputs.name + (slope == 1 ? "/slope1" : "/slope1.44");
        benchmark::RegisterBenchmark(name.c_str(), [=, &inputs](benchmark::State& state) {
          exp2(state, *target, inputs, slope);
        })->MinTime(0.1);
      }
    }
  }
}

}  // namespace ringattn
