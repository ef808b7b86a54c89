// The ring that the fault cases of tests/attention are run on here: the same names as in
// tests/support/thread_rings.cpp, and every ring a different one.
#include <gtest/gtest.h>

#include <iostream>

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
