// Between the caller's tensors and the packed layouts: bytes read and written a second.
#include "bench/kernels/setting.h"

namespace ringattn {
namespace {

// A step of the kernel's interface, and the bytes that it reads and writes.
struct Step {
  const char* name;
  bool backward;
  void (*run)(Case&);
  double (*bytes)(const Case&);
};

double tensor_of_queries(const Case& c) { return static_cast<double>(c.q.size()); }
double tensor_of_keys(const Case& c) { return static_cast<double>(c.k.size()); }
double packed_rows(const Case& c) {  // fp32, as they stay
  return static_cast<double>(c.setting.rows * c.setting.heads * c.setting.head_dim) * sizeof(float);
}

constexpr Step kSteps[] = {
    // q -> packed q; o is set to 0
    {"load_queries", false, [](Case& c) { c.load_queries(); },
     [](const Case& c) { return tensor_of_queries(c) + 2 * packed_rows(c); }},
    {"load_block", false, [](Case& c) { c.load_block(c.block); },
     [](const Case& c) { return 2 * tensor_of_keys(c) + static_cast<double>(c.block.size); }},
    {"finish", false, [](Case& c) { c.finish(); },
     [](const Case& c) { return packed_rows(c) + tensor_of_queries(c); }},
    // q, dout and out -> q and dout packed; both sums of dq are set to 0
    {"load_rows", true, [](Case& c) { c.load_rows(); },
     [](const Case& c) { return 3 * tensor_of_queries(c) + 4 * packed_rows(c); }},
    {"finish_rows", true, [](Case& c) { c.finish_rows(); },
     [](const Case& c) { return 2 * packed_rows(c) + tensor_of_queries(c); }},
    {"finish_gradients", true, [](Case& c) { c.finish_gradients(); },
     [](const Case& c) { return static_cast<double>(c.sums.size) + 2 * tensor_of_keys(c); }},
};

void pack(benchmark::State& state, const Setting& s, const Step& step) {
  Case c(s);
  if (step.backward) {
    c.forward();
    c.reserve_backward();
    c.load_rows();
  }
  for (auto _ : state) step.run(c);
  count_bytes(state, step.bytes(c));
}

}  // namespace

void register_packing() {
  for (const Step& step : kSteps) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const index_t rows : {512, 8192}) {  // 2 MiB of fp32, which the caches hold, and 32 MiB
        const Setting s{.dtype = dtype, .rows = rows, .backward = step.backward};
        benchmark::RegisterBenchmark((std::string(step.name) + "/" + name_of(s)).c_str(),
                                     [s, &step](benchmark::State& state) { pack(state, s, step); })
            ->UseRealTime()
            ->Unit(benchmark::kMicrosecond)
            ->MinTime(0.2);
      }
    }
  }
}

}  // namespace ringattn
