// What a test of the harness asks: the same answer under every schedule.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/simt/config.h"
#include "tests/simt/fault.h"

namespace simt {

inline constexpr std::uint64_t kSeeds = 20;

// Runs f under seeds 1 to kSeeds.
template <class F>
void in_every_seed(F f) {
  const Config before = config();
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    config().seed = seed;
    f();
  }
  config() = before;
}

// f must end in a fault of this kind whose report holds `text`, under every seed.
template <class F>
void expect_fault(FaultKind kind, const std::string& text, F f) {
  in_every_seed([&] {
    try {
      f();
      ADD_FAILURE() << "no fault; expected " << name(kind) << ": ..." << text;
    } catch (const Fault& fault) {
      EXPECT_EQ(name(fault.kind), std::string(name(kind))) << fault.what();
      EXPECT_NE(std::string(fault.what()).find(text), std::string::npos) << fault.what();
    }
  });
}

// A mistake that shows as one thing or another, as the schedule has it, but always shows.
template <class F>
void expect_some_fault(F f) {
  in_every_seed([&] { EXPECT_THROW(f(), Fault); });
}

}  // namespace simt
