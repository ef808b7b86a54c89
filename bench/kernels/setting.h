// What the micro-benchmarks share: a shape, its tensors with a kernel for them, and counters.
#pragma once
#include <benchmark/benchmark.h>

#include <chrono>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu.h"

namespace ringattn {

struct Setting {
  std::string isa = "auto";
  DType dtype = DType::f32;
  index_t rows = 8192;  // of queries, and of a block of keys
  bool causal = false;
  int threads = 1;
  index_t heads = 8, heads_kv = 8, head_dim = 128;
  bool backward = false;
};
std::string name_of(const Setting& s);

// Numbers of the middle of the range of all three dtypes; the same ones at each call.
std::vector<std::byte> random_elements(DType dtype, index_t count);
std::vector<float> random_floats(index_t count);

// The tensors of a setting, and a kernel for them with one block of keys.
struct Case {
  explicit Case(const Setting& s);

  ConstTensorView queries(const std::vector<std::byte>& x) const {
    return dense_view(x.data(), setting.dtype, {1, setting.rows, setting.heads, setting.head_dim});
  }
  ConstTensorView keys(const std::vector<std::byte>& x) const {
    return dense_view(x.data(), setting.dtype, {1, setting.rows, setting.heads_kv, setting.head_dim});
  }

  // The steps of forward; attend takes any block of setting.rows keys.
  void load_queries() { kernel->load_queries(queries(q), {}); }
  void load_block(Buffer& to) { kernel->load_block(keys(k), keys(v), {}, to.bytes()); }
  void attend(const Buffer& from) { kernel->attend({&tile, 1}, from.bytes(), setting.rows, {}); }
  void finish() {
    kernel->finish(dense_view(out.data(), setting.dtype, queries(q).shape),
                   dense_lse(lse.data(), 1, setting.heads, setting.rows));
  }
  void forward();

  // Makes room for backward; out and lse are there. The gradient dout is q: its values do not matter.
  void reserve_backward();
  void load_rows() {
    kernel->load_rows(queries(q), {}, queries(q), queries(out),
                      as_const(dense_lse(lse.data(), 1, setting.heads, setting.rows)), {});
  }
  void attend_backward(const Buffer& from) {
    kernel->attend_backward({&tile, 1}, from.bytes(), setting.rows, {.bytes = sums.bytes()}, {});
  }
  void finish_rows() { kernel->finish_rows(dense_view(dq.data(), setting.dtype, queries(q).shape), {}); }
  void finish_gradients() {
    kernel->finish_gradients(sums.bytes(), dense_view(dk.data(), setting.dtype, keys(k).shape),
                             dense_view(dv.data(), setting.dtype, keys(k).shape), {});
  }
  void backward();

  // Of the tile, all heads; and the FLOPs that they are of the setting's direction.
  double pairs() const;
  double flops() const;

  Setting setting;
  std::vector<std::byte> q, k, v, out, dq, dk, dv;
  std::vector<float> lse;
  std::unique_ptr<Kernel> kernel;
  Buffer block, sums;
  Tile tile;
};

// Wall clock and CPU time of what was timed, for benchmarks that time a part of an iteration.
class Stopwatch {
 public:
  void start() {
    cpu_start_ = std::clock();
    start_ = std::chrono::steady_clock::now();
  }
  // Seconds since start().
  double stop() {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    cpu_ += static_cast<double>(std::clock() - cpu_start_) / CLOCKS_PER_SEC;
    return seconds;
  }
  double cpu() const { return cpu_; }  // seconds of all threads together

 private:
  std::chrono::steady_clock::time_point start_;
  std::clock_t cpu_start_ = 0;
  double cpu_ = 0;
};

// GFLOP/s, the peak measured here and now, and the fraction of it that an iteration of `flops` reached: by
// the wall clock, and by the CPU time of all threads (cpu_seconds, of all iterations) against a core's peak
// by its CPU time, since on a busy machine the wall clock measures the others too.
void count_flops(benchmark::State& state, const Setting& setting, double flops, double cpu_seconds);
// Bytes that an iteration read and wrote, by the wall clock.
void count_bytes(benchmark::State& state, double bytes);

// One for each file of this folder.
void register_whole_kernels();
void register_hop_pairs();
void register_tiles();
void register_exp2();
void register_packing();
void register_masks();
void register_few_queries();

}  // namespace ringattn
