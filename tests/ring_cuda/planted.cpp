// Runs a whole ring, forward and backward, over sources with a planted fault, and says whether it is found in
// every seed: planted CARRIER EXPECTED, where EXPECTED is the kind of fault that the harness names,
// "wrong numbers", "something" for any of these or an error, or "nothing" for the sources as they are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "tests/ring_cuda/device_rings.h"
#include "tests/simt/fault.h"

namespace ringattn::test {
namespace {

constexpr int kRanks = 4;
constexpr std::uint64_t kSeeds = 5;

// Uneven shards, a KV head that is read by two query heads, rotations (whose cosines are uploaded), and two
// calls without a wait between them: every slot is used again, and every upload.
Problem problem() {
  return {.shape = {.num_heads = 2, .num_heads_kv = 1, .head_dim = 8},
          .mask = Mask::causal(19, 19),
          .rope = {.pairing = Rope::Pairing::half}};
}

std::string outcome(const Carrier& carrier, std::uint64_t seed, const GradientAnswer& exact) {
  const Problem p = problem();
  const DeviceRing ring{.carrier = carrier, .seed = seed, .calls = 2, .late_inputs = true};
  try {
    const GradientAnswer got = run_ring_gradients(
        ring, p, Sharding::make(LayoutKind::contiguous, 19, 19, kRanks), random_inputs(p, 1));
    double worst = max_error(got.forward.out.data, exact.forward.out.data);
    for (const auto& [mine, right] :
         {std::pair{&got.dq, &exact.dq}, {&got.dk, &exact.dk}, {&got.dv, &exact.dv}})
      worst = std::max(worst, max_error(mine->data, right->data));
    // fp32 at magnitudes of about 3; a fault is off by much more, or NaN, which is infinitely far.
    return worst < 1e-4 ? "nothing" : "wrong numbers";
  } catch (const simt::Fault& fault) {
    return simt::name(fault.kind);
  } catch (const std::exception& error) {
    return error.what();
  }
}

int run(const std::string& name, const std::string& expected) {
  const auto all = carriers();
  const auto carrier = std::ranges::find(all, name, &Carrier::name);
  if (carrier == all.end()) return 2;
  const Problem p = problem();
  const GradientAnswer exact =
      oracle_gradients(p, random_inputs(p, 1), [](index_t i, index_t j) { return j <= i; });
  int missed = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const std::string found = outcome(*carrier, seed, exact);
    std::printf("seed %d: %s\n", static_cast<int>(seed), found.c_str());
    missed += found == expected || (expected == "something" && found != "nothing") ? 0 : 1;
  }
  std::printf("%d of %d seeds without '%s'\n", missed, static_cast<int>(kSeeds), expected.c_str());
  return missed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ringattn::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return argc == 3 ? ringattn::test::run(argv[1], argv[2]) : 2;
}
