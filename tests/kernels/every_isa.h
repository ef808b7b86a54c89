// Tests that run once on each instruction set of this machine.
#pragma once
#include <gtest/gtest.h>

#include "kernels/cpu/cpu.h"
#include "tests/kernels/support.h"

namespace ringattn::test {

class EveryIsa : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cpu, EveryIsa, testing::ValuesIn(cpu_isas()), [](const auto& i) { return i.param; });

inline constexpr DType kDtypes[] = {DType::f32, DType::bf16, DType::f16};

}  // namespace ringattn::test
