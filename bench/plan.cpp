// How long planning takes: one rank of 4,096 over 100 million tokens (the target is under a second), the
// balance of a whole ring, and the check of a long list of tiles.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/cost.h"
#include "src/plan.h"

namespace {

using namespace ringattn;

constexpr index_t kTokens = 100'000'000;
constexpr int kRanks = 4096;
constexpr LayoutKind kLayouts[] = {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped};

Mask causal() { return Mask::causal(kTokens, kTokens); }

// 10,000 documents of 1,000 to 18,998 tokens.
Mask documents() {
  std::vector<index_t> cu{0};
  for (index_t d = 0; d < 10'000; ++d) {
    cu.push_back(std::min(kTokens, cu.back() + 1000 + (d * 7919) % 17'999));
  }
  return Mask::documents(kTokens, kTokens, cu, cu, {-1, 0});
}

Problem problem_of(Mask mask) {
  return {.shape = {.num_heads = 32, .num_heads_kv = 8, .head_dim = 128}, .mask = std::move(mask)};
}

void one_rank(benchmark::State& state, const Mask& mask, LayoutKind kind) {
  const Problem problem = problem_of(mask);
  const Sharding sharding = Sharding::make(kind, kTokens, kTokens, kRanks);
  for (auto _ : state) benchmark::DoNotOptimize(Plan(problem, sharding, 2047).pairs());
}

void tiles_of_all_hops(benchmark::State& state, const Mask& mask, LayoutKind kind) {
  const Problem problem = problem_of(mask);
  const Plan plan(problem, Sharding::make(kind, kTokens, kTokens, kRanks), 2047);
  for (auto _ : state) {
    for (std::size_t s = 0; s < plan.hops().size(); ++s) benchmark::DoNotOptimize(plan.tiles(s).data());
  }
}

void whole_ring(benchmark::State& state, LayoutKind kind, int ranks) {
  const Problem problem = problem_of(causal());
  const Sharding sharding = Sharding::make(kind, kTokens, kTokens, ranks);
  for (auto _ : state) benchmark::DoNotOptimize(ring_balance(problem, sharding).critical_pairs);
}

// A window and every other block behind it: 250,000 tiles.
void many_tiles(benchmark::State& state) {
  constexpr index_t n = 10'000, block = 10;
  std::vector<Tile> tiles{{{0, n}, {0, n}, {-block, 0}}};
  for (index_t q = 3 * block; q < n; q += block) {
    for (index_t k = q % (2 * block); k <= q - 2 * block; k += 2 * block) {
      tiles.push_back({{q, q + block}, {k, k + block}, {}});
    }
  }
  for (auto _ : state) benchmark::DoNotOptimize(Mask::tiles(n, n, tiles).tiles().data());
}

}  // namespace

int main(int argc, char** argv) {
  for (const Mask& mask : {causal(), documents()}) {
    for (const LayoutKind kind : kLayouts) {
      const std::string name = mask.name() + "/" + std::string(name_of(kind));
      benchmark::RegisterBenchmark(("one_rank_of_4096/" + name).c_str(), one_rank, mask, kind)
          ->Unit(benchmark::kMillisecond);
      benchmark::RegisterBenchmark(("tiles_of_all_hops/" + name).c_str(), tiles_of_all_hops, mask, kind)
          ->Unit(benchmark::kMillisecond);
    }
  }
  for (const LayoutKind kind : kLayouts) {
    benchmark::RegisterBenchmark(("balance_of_512/" + std::string(name_of(kind))).c_str(), whole_ring, kind,
                                 512)
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RegisterBenchmark("mask_of_250000_tiles", many_tiles)->Unit(benchmark::kMillisecond);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
