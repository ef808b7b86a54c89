// The ring that the fault cases of tests/attention are run on here: the same names as in
// tests/support/thread_rings.cpp, and every ring a different one.
#include <gtest/gtest.h>

#include <iostream>

#include "src/cost.h"
#include "src/error.h"
#include "tests/ring_cuda/device_rings.h"

namespace ringattn::test {
namespace {

// By the number of ranks and the layout, so that a failure can be run again: each case, which runs on 1 to 5
// ranks in 3 layouts, meets each carrier several times, and both modes.
DeviceRing ring_for(const Sharding& sharding, const RingOptions& options) {
  if (options.mode != Mode::overlap || options.isa != "auto")
    throw UsageError("the cases' ring on the harness has neither modes nor instruction sets");
  const auto all = carriers();
  const auto number =
      static_cast<std::size_t>(sharding.ranks()) * 3 + static_cast<std::size_t>(sharding.q.kind());
  return {.carrier = all[number % all.size()],
          .mode = number / all.size() % 2 == 0 ? Mode::overlap : Mode::blocking,
          .seed = number};
}

}  // namespace

// All numbers of ranks and layouts, but not each with each: what is small costs as much as its ranks squared,
// since a hop is a launch of at least one block of threads a head. A large one (1 MFLOP takes about a second)
// has two rings, of which one is that of case A3.
std::vector<RingShape> ring_shapes(const Problem& problem) {
  using enum LayoutKind;
  if (forward_flops(problem) > 1e6) return {{3, striped}, {4, zigzag}};
  return {{1, contiguous}, {2, zigzag},  {2, striped},   {3, contiguous},
          {3, zigzag},     {4, striped}, {5, contiguous}};
}

Answer run_threads(const Problem& problem, const Sharding& sharding, const Inputs& in,
                   const RingOptions& options) {
  const DeviceRing ring = ring_for(sharding, options);
  SCOPED_TRACE(text(ring));
  return run_ring(ring, problem, sharding, in);
}

GradientAnswer run_threads_gradients(const Problem& problem, const Sharding& sharding, const Inputs& in,
                                     const RingOptions& options) {
  const DeviceRing ring = ring_for(sharding, options);
  SCOPED_TRACE(text(ring));
  return run_ring_gradients(ring, problem, sharding, in);
}

}  // namespace ringattn::test
