// The register tiles, through the functions that are compiled for each instruction set, on data of one step
// of one group: 48 queries against 64 keys (forward) or a task's keys (backward), all visible.
//
// Forward has one function for both products. At dim_v 8 nearly all of its FLOPs are scores, with the
// softmax; at head_dim 8 nearly all are output, with a softmax that 8 + 128 FLOPs a pair have to carry.
#include <algorithm>

#include "bench/kernels/setting.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/target.h"

namespace ringattn {
namespace {

using namespace cpu;

// 64-byte aligned, as the kernel's own arrays.
class Floats {
 public:
  explicit Floats(index_t count, float factor = 1)
      : buffer_(allocate_zeroed(static_cast<std::size_t>(count) * sizeof(float), 1)) {
    const std::vector<float> x = random_floats(count);
    std::transform(x.begin(), x.end(), data(), [=](float value) { return value * factor; });
  }
  float* data() { return reinterpret_cast<float*>(buffer_.data.get()); }

 private:
  Buffer buffer_;
};

// The scores of what is scaled by this have a standard deviation of about 1.
constexpr float kSmall = 0.1f;

struct Dims {
  int head_dim, dim_v;
};

struct Forward {
  explicit Forward(Dims dims)
      : q(kGroup * dims.head_dim, kSmall),
        o(kGroup * dims.dim_v, 0),
        k(kKeyBlock * dims.head_dim),
        v(kKeyBlock * dims.dim_v),
        step{.group = {.q = q.data(), .o = o.data(), .rows = &rows},
             .k = k.data(),
             .v = v.data(),
             .head_dim = dims.head_dim,
             .dim_v = dims.dim_v,
             .v_rows = kKeyBlock,
             .key_end = kKeyBlock,
             .lane_end = kGroup,
             .lo = -1024,
             .hi = 1024} {
    std::fill_n(rows.shift, kGroup, 0.0f);
    std::fill_n(rows.limit, kGroup, 16.0f);
    std::fill_n(rows.sum, kGroup, 0.0f);
  }
  double flops() const { return 2.0 * kGroup * kKeyBlock * (step.head_dim + step.dim_v); }

  Floats q, o, k, v;
  RowState rows{};
  GroupStep step;
};

struct Backward {
  explicit Backward(Dims dims)
      : shape{.batch = 1,
              .num_heads = 1,
              .num_heads_kv = 1,
              .head_dim = dims.head_dim,
              .head_dim_v = dims.dim_v},
        layout(shape, DType::f32),
        q(kGroup * dims.head_dim, kSmall),
        dout(kGroup * dims.dim_v),
        dq(kGroup * dims.head_dim, 0),
        k(layout.keys * dims.head_dim),
        scratch(layout.floats) {
    std::fill_n(rows.hi, kGroup, 8.0f);
    std::fill_n(rows.alive, kGroup, 1.0f);
    rows.all_alive = rows.q_finite = rows.dout_finite = true;
    float* const s = scratch.data();
    step = {.q = q.data(),
            .dout = dout.data(),
            .q_rows = s + layout.q_rows,
            .dout_rows = s + layout.dout_rows,
            .rows = &rows,
            .k = k.data(),
            .v = s + layout.v_panels,
            .k_columns = s + layout.k_columns,
            .p = s,
            .ds = s + layout.keys * kGroup,
            .dk = s + layout.dk,
            .dv = s + layout.dv,
            .dq = dq.data(),
            .head_dim = dims.head_dim,
            .dim_v = dims.dim_v,
            .k_stride = static_cast<int>(layout.k_stride),
            .v_stride = static_cast<int>(layout.v_stride),
            .keys = static_cast<int>(layout.keys),
            .key_end = static_cast<int>(layout.keys),
            .lane_end = kGroup,
            .lo = -1024,
            .hi = 1024};
  }
  double pairs() const { return static_cast<double>(kGroup) * step.keys; }

  HeadShape shape;
  ScratchLayout layout;
  Floats q, dout, dq, k, scratch;
  RowsState rows{};
  GradientStep step;
};

template <class Body>
void run(benchmark::State& state, const Target& target, double flops, const Body& body) {
  Stopwatch watch;
  watch.start();
  for (auto _ : state) {
    body();
    benchmark::ClobberMemory();
  }
  watch.stop();
  count_flops(state, {.isa = target.name}, flops, watch.cpu());
}

void add(const Target& target, const std::string& name, Dims dims,
         void (*body)(benchmark::State&, const Target&, Dims)) {
  benchmark::RegisterBenchmark(("tile/" + name + "/" + target.name + "/D" + std::to_string(dims.head_dim) +
                                "-" + std::to_string(dims.dim_v))
                                   .c_str(),
                               [=, &target](benchmark::State& state) { body(state, target, dims); })
      ->Unit(benchmark::kMicrosecond)
      ->MinTime(0.1);
}

void attend(benchmark::State& state, const Target& target, Dims dims) {
  Forward f(dims);
  run(state, target, f.flops(), [&] { target.attend(f.step); });
}

// Of weights around 2^-135: whether denormal numbers are slow here.
void attend_tiny(benchmark::State& state, const Target& target, Dims dims) {
  Forward f(dims);
  std::fill_n(f.rows.shift, kGroup, 135.0f);
  std::fill_n(f.rows.limit, kGroup, 151.0f);
  run(state, target, f.flops(), [&] { target.attend(f.step); });
}

// S and dP.
void probabilities(benchmark::State& state, const Target& target, Dims dims) {
  Backward b(dims);
  run(state, target, 2 * b.pairs() * (dims.head_dim + dims.dim_v), [&] { target.probabilities(b.step); });
}

// dK and dV.
void key_gradients(benchmark::State& state, const Target& target, Dims dims) {
  Backward b(dims);
  run(state, target, 2 * b.pairs() * (dims.head_dim + dims.dim_v), [&] { target.key_gradients(b.step); });
}

void query_gradients(benchmark::State& state, const Target& target, Dims dims) {
  Backward b(dims);
  run(state, target, 2 * b.pairs() * dims.head_dim, [&] { target.query_gradients(b.step); });
}

}  // namespace

void register_tiles() {
  for (const Target* target : targets()) {
    if (target == targets().back() && targets().size() > 1) continue;  // the baseline has no tile to speak of
    for (const int dim : {64, 128, 256}) {
      add(*target, "scores", {dim, kPanel}, attend);
      add(*target, "output", {kPanel, dim}, attend);
      add(*target, "scores_and_output", {dim, dim}, attend);
      add(*target, "scores_and_output_tiny", {dim, dim}, attend_tiny);
      add(*target, "probabilities", {dim, dim}, probabilities);
      add(*target, "key_gradients", {dim, dim}, key_gradients);
      add(*target, "query_gradients", {dim, dim}, query_gradients);
    }
  }
}

}  // namespace ringattn
