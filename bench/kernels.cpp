// The CPU kernel from load_queries to finish, and from load_rows to finish_gradients, as a fraction of the
// FMA peak measured in the same run, and its parts. The table in bench/README.md comes from
//   build/bench/bench_kernels --benchmark_repetitions=5 --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <ctime>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cpu/cpu.h"

namespace ringattn {
namespace {

struct Setting {
  std::string isa = "auto";
  DType dtype = DType::f32;
  index_t rows = 8192;
  bool causal = false;
  int threads = 1;
  index_t heads = 8, heads_kv = 8, head_dim = 128;
  bool backward = false;
};

std::string name_of(const Setting& s) {
  const char* dtype = s.dtype == DType::f32 ? "f32" : s.dtype == DType::bf16 ? "bf16" : "f16";
  return s.isa + "/" + dtype + "/L" + std::to_string(s.rows) + "/H" + std::to_string(s.heads) + "-" +
         std::to_string(s.heads_kv) + "/D" + std::to_string(s.head_dim) + (s.causal ? "/causal" : "/full") +
         "/t" + std::to_string(s.threads) + (s.backward ? "/backward" : "");
}

// Random bits in a safe range: the exponent field is near the middle for all three dtypes.
std::vector<std::byte> random_elements(DType dtype, index_t count) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size_of(dtype));
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    if (dtype == DType::f32) {
      reinterpret_cast<float*>(bytes.data())[i] = normal(generator);
    } else {
      // +-1 .. 2 in either 16-bit format.
      const unsigned r = static_cast<unsigned>(generator());
      const unsigned one = dtype == DType::bf16 ? 0x3F80 : 0x3C00,
                     mantissa = dtype == DType::bf16 ? 0x7F : 0x3FF;
      reinterpret_cast<std::uint16_t*>(bytes.data())[i] =
          static_cast<std::uint16_t>((r & 0x8000) | one | (r & mantissa));
    }
  }
  return bytes;
}

// The tensors of a setting, and a kernel for them.
struct Case {
  explicit Case(const Setting& s)
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

  ConstTensorView queries(const std::vector<std::byte>& x) const {
    return dense_view(x.data(), setting.dtype, {1, setting.rows, setting.heads, setting.head_dim});
  }
  ConstTensorView keys(const std::vector<std::byte>& x) const {
    return dense_view(x.data(), setting.dtype, {1, setting.rows, setting.heads_kv, setting.head_dim});
  }

  void forward() {
    kernel->load_queries(queries(q), {});
    kernel->load_block(keys(k), keys(v), {}, block.bytes());
    kernel->attend({&tile, 1}, block.bytes(), setting.rows, {});
    kernel->finish(dense_view(out.data(), setting.dtype, queries(q).shape),
                   dense_lse(lse.data(), 1, setting.heads, setting.rows));
  }

  // The gradient dout is q: its values do not matter.
  void backward(Buffer& sums, std::vector<std::byte>& dq, std::vector<std::byte>& dk,
                std::vector<std::byte>& dv) {
    std::memset(sums.data.get(), 0, sums.size);
    kernel->load_rows(queries(q), {}, queries(q), queries(out),
                      as_const(dense_lse(lse.data(), 1, setting.heads, setting.rows)), {});
    kernel->load_block(keys(k), keys(v), {}, block.bytes());
    kernel->attend_backward({&tile, 1}, block.bytes(), setting.rows, {.bytes = sums.bytes()}, {});
    kernel->finish_rows(dense_view(dq.data(), setting.dtype, queries(q).shape), {});
    kernel->finish_gradients(sums.bytes(), dense_view(dk.data(), setting.dtype, keys(k).shape),
                             dense_view(dv.data(), setting.dtype, keys(k).shape), {});
  }

  Setting setting;
  std::vector<std::byte> q, k, v, out;
  std::vector<float> lse;
  std::unique_ptr<Kernel> kernel;
  Buffer block;
  Tile tile;
};

void whole_kernel(benchmark::State& state, const Setting& s) {
  Case c(s);
  Buffer sums;
  std::vector<std::byte> dq, dk, dv;
  if (s.backward) {
    c.forward();  // out and lse are what backward takes
    c.kernel->reserve(Pass::backward);
    sums = c.kernel->allocate(c.kernel->gradient_bytes(s.rows));
    dq.resize(c.q.size()), dk.resize(c.k.size()), dv.resize(c.v.size());
  }
  const double peak =
      measure_product_peak(s.dtype, s.threads, s.isa, 0.2);  // of this case: a machine's clock drifts
  const std::clock_t cpu_start = std::clock();
  for (auto _ : state) {
    if (s.backward) {
      c.backward(sums, dq, dk, dv);
    } else {
      c.forward();
    }
  }
  const double cpu = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC / s.threads;
  const double rows = static_cast<double>(s.rows);
  const double pairs = s.causal ? rows * (rows + 1) / 2 : rows * rows;
  const double flops = (s.backward ? 10 : 4) * pairs * static_cast<double>(s.head_dim * s.heads);
  using benchmark::Counter;
  state.counters["GFLOP/s"] = Counter(flops * 1e-9, Counter::kIsIterationInvariantRate);
  state.counters["peak"] = peak * 1e-9;
  state.counters["of_peak"] = Counter(flops / peak, Counter::kIsIterationInvariantRate);
  // By the time that the threads really ran: on a busy machine the wall clock measures the others too.
  state.counters["of_peak_cpu"] = flops * static_cast<double>(state.iterations()) / cpu / peak;
}

// Few queries against many keys: what is reported is the rate at which K and V are read, in bytes of the
// wire, over the bandwidth measured with a buffer of the same size and as many threads.
struct FewSetting {
  DType dtype = DType::f32;
  index_t rows = 1, heads = 32, mib = 16;  // of K and V together
  int threads = 1;
  bool whole_call = false;  // with load and finish, otherwise attend on a packed block

  static constexpr index_t kHeadsKv = 8, kHeadDim = 128;
  index_t keys() const {
    return (mib << 20) / (2 * kHeadsKv * kHeadDim * static_cast<index_t>(size_of(dtype)));
  }
};

std::string name_of(const FewSetting& s) {
  return std::string("few/") + (s.dtype == DType::f32 ? "f32" : "bf16") + "/rows" + std::to_string(s.rows) +
         "/H" + std::to_string(s.heads) + "-8/" + std::to_string(s.mib) + "MiB/t" +
         std::to_string(s.threads) + (s.whole_call ? "/call" : "");
}

void few_queries(benchmark::State& state, const FewSetting& s) {
  const HeadShape shape{1, s.heads, FewSetting::kHeadsKv, FewSetting::kHeadDim, FewSetting::kHeadDim};
  const auto kernel = make_cpu_kernel({.shape = shape,
                                       .dtype = s.dtype,
                                       .softmax_scale = 1 / std::sqrt(128.0),
                                       .q_rows = s.rows,
                                       .threads = s.threads});
  const index_t keys = s.keys();
  const std::array<index_t, 4> q_shape{1, s.rows, s.heads, shape.head_dim};
  const std::array<index_t, 4> k_shape{1, keys, shape.num_heads_kv, shape.head_dim};
  const std::vector<std::byte> q = random_elements(s.dtype, s.rows * s.heads * shape.head_dim);
  const std::vector<std::byte> k = random_elements(s.dtype, keys * shape.num_heads_kv * shape.head_dim);
  std::vector<std::byte> out(q.size());
  const Buffer block = kernel->allocate(kernel->block_bytes(keys));
  const Tile tile{{0, s.rows}, {0, keys}, {}};
  const auto load_block = [&] {
    kernel->load_block(dense_view(k.data(), s.dtype, k_shape), dense_view(k.data(), s.dtype, k_shape), {},
                       block.bytes());
  };
  kernel->load_queries(dense_view(q.data(), s.dtype, q_shape), {});
  load_block();
  const double bandwidth = measure_read_bandwidth(s.threads, block.size, 0.2);
  const std::clock_t cpu_start = std::clock();
  for (auto _ : state) {
    if (s.whole_call) {
      kernel->load_queries(dense_view(q.data(), s.dtype, q_shape), {});
      load_block();
    }
    kernel->attend({&tile, 1}, block.bytes(), keys, {});
    if (s.whole_call) kernel->finish(dense_view(out.data(), s.dtype, q_shape), {});
  }
  const double cpu = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC / s.threads;
  const auto bytes = static_cast<double>(block.size);
  using benchmark::Counter;
  state.counters["GB/s"] = Counter(bytes * 1e-9, Counter::kIsIterationInvariantRate);
  state.counters["bandwidth"] = bandwidth * 1e-9;
  state.counters["of_bandwidth"] = Counter(bytes / bandwidth, Counter::kIsIterationInvariantRate);
  state.counters["of_bandwidth_cpu"] = bytes * static_cast<double>(state.iterations()) / cpu / bandwidth;
}

void register_few() {
  const auto add = [](const FewSetting& s) {
    benchmark::RegisterBenchmark(name_of(s).c_str(), [s](benchmark::State& state) { few_queries(state, s); })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond)
        ->MinTime(0.3);
  };
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const index_t heads : {8, 32})
      for (const index_t rows : {1, 4, 16})
        for (const index_t mib : {1, 16, 256})
          for (const int threads : {1, 2})
            add({.dtype = dtype, .rows = rows, .heads = heads, .mib = mib, .threads = threads});
  for (const int threads : {1, 2}) add({.threads = threads, .whole_call = true});
}

void register_all() {
  register_few();
  const auto add = [](Setting s) {
    for (const bool backward : {false, true}) {
      s.backward = backward;
      benchmark::RegisterBenchmark(name_of(s).c_str(),
                                   [s](benchmark::State& state) { whole_kernel(state, s); })
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond)
          ->MinTime(0.5);
    }
  };
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

}  // namespace
}  // namespace ringattn

int main(int argc, char** argv) {
  ringattn::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
