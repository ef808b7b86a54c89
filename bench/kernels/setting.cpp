#include "bench/kernels/setting.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "kernels/cpu/target.h"

namespace ringattn {

std::string name_of(const Setting& s) {
  return s.isa + "/" + std::string(name_of(s.dtype)) + "/L" + std::to_string(s.rows) + "/H" +
         std::to_string(s.heads) + "-" + std::to_string(s.heads_kv) + "/D" + std::to_string(s.head_dim) +
         (s.causal ? "/causal" : "/full") + "/t" + std::to_string(s.threads) +
         (s.backward ? "/backward" : "");
}

std::vector<float> random_floats(index_t count) {
  std::vector<float> x(static_cast<std::size_t>(count));
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  for (float& value : x) value = normal(generator);
  return x;
}

std::vector<std::byte> random_elements(DType dtype, index_t count) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size_of(dtype));
  if (dtype == DType::f32) {
    const std::vector<float> x = random_floats(count);
    std::memcpy(bytes.data(), x.data(), bytes.size());
    return bytes;
  }
  std::mt19937 generator(1);
  // +-1 .. 2 in either 16-bit format.
  const unsigned one = dtype == DType::bf16 ? 0x3F80 : 0x3C00, mantissa = dtype == DType::bf16 ? 0x7F : 0x3FF;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const auto r = static_cast<unsigned>(generator());
    const auto bits = static_cast<std::uint16_t>((r & 0x8000) | one | (r & mantissa));
    std::memcpy(bytes.data() + i * sizeof bits, &bits, sizeof bits);
  }
  return bytes;
}

Case::Case(const Setting& s)
    : setting(s),
      q(random_elements(s.dtype, s.rows * s.heads * s.head_dim)),
      k(random_elements(s.dtype, s.rows * s.heads_kv * s.head_dim)),
      v(k),
      out(q.size()),
      lse(static_cast<std::size_t>(s.rows * s.heads)),
      kernel(make_cpu_kernel({.shape = {1, s.heads, s.heads_kv, s.head_dim, s.head_dim},
                              .dtype = s.dtype,
                              .softmax_scale = 1 / std::sqrt(static_cast<double>(s.head_dim)),
                              .q_rows = s.rows,
                              .threads = s.threads,
                              .isa = s.isa})),
      block(kernel->allocate(kernel->block_bytes(s.rows))),
      tile{{0, s.rows}, {0, s.rows}, {.hi = s.causal ? 0 : kUnbounded}} {}

void Case::forward() {
  load_queries();
  load_block(block);
  attend(block);
  finish();
}

void Case::reserve_backward() {
  kernel->reserve(Pass::backward);
  sums = kernel->allocate(kernel->gradient_bytes(setting.rows));
  dq.resize(q.size()), dk.resize(k.size()), dv.resize(v.size());
}

void Case::backward() {
  std::memset(sums.data.get(), 0, sums.size);
  load_rows();
  load_block(block);
  attend_backward(block);
  finish_rows();
  finish_gradients();
}

double Case::pairs() const {
  const auto rows = static_cast<double>(setting.rows);
  return (setting.causal ? rows * (rows + 1) / 2 : rows * rows) * static_cast<double>(setting.heads);
}

double Case::flops() const {
  return (setting.backward ? 10 : 4) * pairs() * static_cast<double>(setting.head_dim);
}

namespace {

// FLOP/s of one thread by its CPU time: also on a busy machine what the core can do.
double peak_by_cpu_time(const std::string& isa) {
  const cpu::Target& target = cpu::target_named(isa);
  constexpr index_t kIterations = index_t{1} << 18;
  double best = 0;
  for (int i = 0; i < 20; ++i) {
    const std::clock_t start = std::clock();
    benchmark::DoNotOptimize(target.fma_chains(kIterations, 1.0f));
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    best = std::max(best, static_cast<double>(kIterations) * target.fma_flops / seconds);
  }
  return best;
}

}  // namespace

void count_flops(benchmark::State& state, const Setting& setting, double flops, double cpu_seconds) {
  using benchmark::Counter;
  // Here and now: a machine's clock drifts.
  const double peak = measure_product_peak(setting.dtype, setting.threads, setting.isa, 0.1);
  state.counters["GFLOP/s"] = Counter(flops * 1e-9, Counter::kIsIterationInvariantRate);
  state.counters["peak"] = peak * 1e-9;
  state.counters["of_peak"] = Counter(flops / peak, Counter::kIsIterationInvariantRate);
  state.counters["of_peak_cpu"] =
      flops * static_cast<double>(state.iterations()) / cpu_seconds / peak_by_cpu_time(setting.isa);
}

void count_bytes(benchmark::State& state, double bytes) {
  using benchmark::Counter;
  state.counters["GB/s"] = Counter(bytes * 1e-9, Counter::kIsIterationInvariantRate);
}

}  // namespace ringattn
