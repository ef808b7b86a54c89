// Few queries: at what share of the read bandwidth they pass over K and V.
#include <array>
#include <cmath>

#include "bench/kernels/setting.h"

namespace ringattn {
namespace {

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

}  // namespace

void register_few_queries() {
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

}  // namespace ringattn
