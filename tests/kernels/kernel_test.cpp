// The CPU kernel as an object: carried state, threads, polling, sizes, and what it refuses.
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include "src/error.h"
#include "tests/kernels/every_isa.h"
#include "tests/support/sanitized.h"

namespace ringattn::test {
namespace {

// Carried state: blocks whose ends are multiples of a span of 2,048 keys give the bits of one block.
TEST_P(EveryIsa, SplittingAtSpansChangesNoBit) {
  const index_t keys = 4219;
  for (const DType dtype : kDtypes)
    for (const auto& tiles : {full_tiles(53, keys), causal_tiles(53, keys), window_tiles(53, keys, 90, 2100)})
      for (const double deviation : {1.0, 30.0}) {
        const Problem p = problem_of({1, 2, 1, 4, 12}, dtype, 53, keys, tiles);
        const Inputs in = random_inputs(p, 41, deviation);
        const Result once = run_cpu(p, in, GetParam());
        EXPECT_TRUE(same_bits(once, run_cpu(p, in, GetParam(), {{0, 2048}, {2048, 4096}, {4096, keys}})));
        EXPECT_TRUE(same_bits(once, run_cpu(p, in, GetParam(), {{0, 4096}, {4096, keys}})));
      }
}

TEST_P(EveryIsa, BlocksOfAnySizeInAnyOrderAreAccurate) {
  const Problem p = problem_of({1, 2, 1, 20, 36}, DType::f32, 101, 211, causal_tiles(101, 211));
  const Inputs in = random_inputs(p, 43);
  for (const Blocks& blocks : {Blocks{{0, 1}, {1, 211}}, Blocks{{150, 211}, {0, 0}, {0, 37}, {37, 150}},
                               Blocks{{1, 3}, {3, 211}, {0, 1}}, blocks_of(5, 211)})
    expect_accurate(run_cpu(p, in, GetParam(), blocks), p, in);
}

TEST_P(EveryIsa, ThreadsChangeNoBit) {
  struct Heads {
    index_t q, kv;
  };
  for (const Heads h : {Heads{1, 1}, {6, 2}, {12, 1}}) {
    Problem p = problem_of({2, h.q, h.kv, 12, 20}, DType::bf16, 151, 163, causal_tiles(151, 163));
    p.q_rotation = test_rotation(12, true, 12);
    p.k_rotation = test_rotation(12, true, 0);
    const Inputs in = random_inputs(p, 17);
    const Result one = run_cpu(p, in, GetParam(), blocks_of(80, 163), 1);
    for (const int threads : {2, 3, 7})
      EXPECT_TRUE(same_bits(one, run_cpu(p, in, GetParam(), blocks_of(80, 163), threads)))
          << threads << " threads";
    expect_accurate(one, p, in);
  }
}

TEST_P(EveryIsa, TheOrderOfTilesChangesNoBit) {
  Problem p = problem_of({1, 1, 1, 8, 8}, DType::f32, 90, 130, {});
  for (index_t a = 0; a < 3; ++a)
    for (index_t b = 0; b < 5; ++b) p.tiles.push_back({{a * 30, a * 30 + 30}, {b * 26, b * 26 + 26}, {}});
  const Inputs in = random_inputs(p, 19);
  const Result forward = run_cpu(p, in, GetParam());
  std::reverse(p.tiles.begin(), p.tiles.end());
  EXPECT_TRUE(same_bits(forward, run_cpu(p, in, GetParam())));
}

TEST_P(EveryIsa, PollRunsOnTheCallersThreadAndChangesNoBit) {
  const Problem p = problem_of({1, 4, 2, 16, 16}, DType::f32, 200, 300, full_tiles(200, 300));
  const Inputs in = random_inputs(p, 23);
  for (const int threads : {1, 3}) {
    const auto kernel = make_cpu_kernel(config_of(p, GetParam(), threads));
    const Result quiet = run(*kernel, p, in);
    std::atomic<int> calls = 0;
    const Inputs& c = in;
    const Result polled =
        run(*kernel, p, c.q.view(), c.k.view(), c.v.view(), {}, [&, caller = std::this_thread::get_id()] {
          EXPECT_EQ(std::this_thread::get_id(), caller);
          ++calls;
        });
    EXPECT_TRUE(same_bits(quiet, polled));
    EXPECT_GE(calls, threads == 1 ? 5 : 0);  // 300 keys are 5 blocks of 64
  }
}

TEST_P(EveryIsa, WhatPollThrowsReachesTheCaller) {
  const Problem p = problem_of({1, 2, 1, 16, 16}, DType::f32, 200, 300, full_tiles(200, 300));
  const Inputs in = random_inputs(p, 23);
  const auto kernel = make_cpu_kernel(config_of(p, GetParam(), 2));
  const Inputs& c = in;
  const Result clean = run(*kernel, p, in);
  EXPECT_THROW(run(*kernel, p, c.q.view(), c.k.view(), c.v.view(), {}, [] { throw CommError("peer lost"); }),
               CommError);
  EXPECT_TRUE(same_bits(run(*kernel, p, in), clean));  // load_queries starts afresh
}

TEST_P(EveryIsa, AnglesAreAskedForOnceARow) {
  Problem p = problem_of({1, 6, 3, 8, 8}, DType::f32, 53, 71, full_tiles(53, 71));
  std::mutex mutex;
  std::multiset<index_t> q_rows, k_rows;
  const auto counting = [&](std::multiset<index_t>& rows) {
    return [&](index_t row, std::span<float> cos, std::span<float> sin) {
      EXPECT_EQ(cos.size(), 3u);
      EXPECT_EQ(sin.size(), 3u);
      std::fill(cos.begin(), cos.end(), 1.0f);
      std::fill(sin.begin(), sin.end(), 0.0f);
      const std::lock_guard lock(mutex);
      rows.insert(row);
    };
  };
  p.q_rotation = {.dim = 6, .interleaved = false, .angles = counting(q_rows)};
  p.k_rotation = {.dim = 6, .interleaved = true, .angles = counting(k_rows)};
  const Inputs in = random_inputs(p, 3);
  const Result turned = run_cpu(p, in, GetParam(), {}, 3);
  ASSERT_EQ(q_rows.size(), 53u);
  ASSERT_EQ(k_rows.size(), 71u);
  for (index_t i = 0; i < 53; ++i) EXPECT_EQ(q_rows.count(i), 1u);
  for (index_t j = 0; j < 71; ++j) EXPECT_EQ(k_rows.count(j), 1u);
  p.q_rotation = p.k_rotation = {};
  EXPECT_TRUE(same_bits(turned, run_cpu(p, in, GetParam())));  // turned by 0
}

TEST_P(EveryIsa, WhatAnglesThrowReachesTheCaller) {
  Problem p = problem_of({1, 1, 1, 8, 8}, DType::f32, 100, 100, full_tiles(100, 100));
  p.k_rotation = {.dim = 8, .interleaved = false, .angles = [](index_t row, auto, auto) {
                    if (row == 70) throw DataError("no position");
                  }};
  EXPECT_THROW(run_cpu(p, random_inputs(p, 1), GetParam(), {}, 2), DataError);
}

TEST_P(EveryIsa, NameAndSizes) {
  const Problem p = problem_of({2, 6, 3, 20, 9}, DType::f16, 97, 50, {});
  const KernelConfig config = config_of(p, GetParam(), 2);
  const auto kernel = make_cpu_kernel(config);
  EXPECT_EQ(kernel->name(), "cpu/" + GetParam());
  EXPECT_EQ(kernel->workspace_bytes(), cpu_workspace_bytes(config));
  EXPECT_EQ(kernel->block_bytes(50), cpu_block_bytes(p.shape, p.dtype, 50));
  EXPECT_EQ(kernel->block_bytes(0), 0u);
  const Buffer buffer = kernel->allocate(1000);
  EXPECT_EQ(buffer.size, 1000u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data.get()) % 64, 0u);
  for (const std::byte b : buffer.bytes()) ASSERT_EQ(b, std::byte{0});
  EXPECT_EQ(kernel->allocate(0).size, 0u);
}

// The same bytes whatever packs them, so that ranks with different instruction sets can share a ring.
TEST(Blocks, AreTheSameOnEveryInstructionSet) {
  for (const DType dtype : kDtypes) {
    const Problem p = problem_of({2, 2, 2, 21, 13}, dtype, 10, 150, causal_tiles(10, 150));
    const Inputs in = random_inputs(p, 5);
    std::vector<std::vector<std::byte>> blocks;
    for (const std::string& isa : cpu_isas()) {
      const auto kernel = make_cpu_kernel(config_of(p, isa));
      std::vector<std::byte> bytes(kernel->block_bytes(150), std::byte{0xFF});
      kernel->load_block(std::as_const(in.k).view(), std::as_const(in.v).view(), {}, bytes);
      blocks.push_back(bytes);
    }
    for (const auto& block : blocks) EXPECT_EQ(block, blocks.front());
  }
}

// Rows are padded to 8 and columns of V to 8; nothing else travels but alignment.
TEST(Blocks, SizeIsAFunctionOfShapeDtypeAndRows) {
  const HeadShape shape{2, 6, 3, 20, 9};
  EXPECT_EQ(cpu_block_bytes(shape, DType::f32, 50), 2u * 3 * 56 * (20 + 16) * 4);
  EXPECT_EQ(cpu_block_bytes(shape, DType::bf16, 64), 2u * 3 * 64 * (20 + 16) * 2);
  EXPECT_EQ(cpu_block_bytes(shape, DType::bf16, 1), 2u * 3 * 576);  // 8 x 36 x 2, already a multiple of 64
  EXPECT_EQ(cpu_block_bytes(shape, DType::f16, 0), 0u);
}

TEST(Memory, SizesBeyondTheAddressSpaceAreRefusedBeforeAllocating) {
  KernelConfig config{.shape = {1, 8, 8, 128, 128}, .q_rows = index_t{1} << 60};
  EXPECT_THROW(cpu_workspace_bytes(config), OutOfMemory);
  EXPECT_THROW(make_cpu_kernel(config), OutOfMemory);
  EXPECT_THROW(cpu_block_bytes(config.shape, DType::f32, index_t{1} << 58), OutOfMemory);
}

TEST(Memory, FailedAllocationNamesTheSize) {
  if (kSanitized) GTEST_SKIP() << "sanitizers end the process on such a request";
  const auto kernel = make_cpu_kernel({.shape = {1, 1, 1, 8, 8}, .q_rows = 1});
  try {
    kernel->allocate(std::size_t{1} << 50);
    FAIL() << "a pebibyte was allocated";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("1125899906842624"), std::string::npos) << error.what();
  }
}

// The text of the UsageError that `action` throws.
template <class Action>
std::string refusal(const Action& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

void expect_named(const std::string& text, const std::string& argument, const std::string& value) {
  EXPECT_NE(text.find(argument), std::string::npos) << text << " does not name " << argument;
  EXPECT_NE(text.find(value), std::string::npos) << text << " does not give " << value;
}

TEST(Refusals, OfConfigurations) {
  const KernelConfig good{.shape = {1, 4, 2, 8, 8}, .q_rows = 10};
  const auto with = [&](auto change) {
    KernelConfig config = good;
    change(config);
    return refusal([&] { make_cpu_kernel(config); });
  };
  EXPECT_EQ(with([](KernelConfig&) {}), "accepted");
  expect_named(with([](KernelConfig& c) { c.isa = "MMX"; }), "isa", "MMX");
  expect_named(with([](KernelConfig& c) { c.threads = 0; }), "threads", "0");
  expect_named(with([](KernelConfig& c) { c.q_rows = -3; }), "q_rows", "-3");
  expect_named(with([](KernelConfig& c) { c.shape.head_dim = 513; }), "head_dim", "513");
  expect_named(with([](KernelConfig& c) { c.shape.head_dim_v = 0; }), "head_dim_v", "0");
  expect_named(with([](KernelConfig& c) { c.shape.num_heads = 3; }), "num_heads", "3");
  expect_named(with([](KernelConfig& c) { c.shape.batch = 0; }), "batch", "0");
  expect_named(with([](KernelConfig& c) { c.softmax_scale = std::nan(""); }), "softmax_scale", "nan");
}

TEST(Refusals, OfTensorsBlocksAndTiles) {
  const Problem p = problem_of({1, 2, 1, 8, 6}, DType::f32, 10, 12, full_tiles(10, 12));
  const Inputs in = random_inputs(p, 1);
  const auto kernel = make_cpu_kernel(config_of(p));
  const Buffer block = kernel->allocate(kernel->block_bytes(12));
  const ConstTensorView q = in.q.view(), k = in.k.view(), v = in.v.view();
  const auto load_q = [&](ConstTensorView view, Rotation rotation = {}) {
    return refusal([&] { kernel->load_queries(view, rotation); });
  };
  const auto load_kv = [&](ConstTensorView a, ConstTensorView b) {
    return refusal([&] { kernel->load_block(a, b, {}, block.bytes()); });
  };
  EXPECT_EQ(load_q(q), "accepted");
  EXPECT_EQ(load_kv(k, v), "accepted");

  ConstTensorView bad = q;
  bad.shape[1] = 9;
  expect_named(load_q(bad), "q shape", "9");
  bad = q;
  bad.stride[3] = 2;
  expect_named(load_q(bad), "q stride", "2");
  bad = q;
  bad.dtype = DType::bf16;
  expect_named(load_q(bad), "q dtype", "bf16");
  bad = q;
  bad.data = nullptr;
  expect_named(load_q(bad), "q", "null");
  expect_named(load_q(q, test_rotation(10, false, 0)), "rotation dim", "10");
  expect_named(load_q(q, {.dim = 4, .interleaved = false, .angles = {}}), "rotation angles", "empty");
  bad = v;
  bad.shape[1] = 11;
  expect_named(load_kv(k, bad), "v shape", "11");
  bad = k;
  bad.shape[3] = 7;
  expect_named(load_kv(bad, v), "k shape", "7");

  const auto attend = [&](Tile tile, std::span<const std::byte> bytes) {
    return refusal([&] { kernel->attend({&tile, 1}, bytes, 12, {}); });
  };
  EXPECT_EQ(attend({{0, 10}, {0, 12}, {}}, block.bytes()), "accepted");
  EXPECT_EQ(attend({{50, 50}, {0, 12}, {}}, block.bytes()), "accepted");  // shows nothing
  expect_named(attend({{0, 11}, {0, 12}, {}}, block.bytes()), "tiles", "[0, 11)");
  expect_named(attend({{0, 10}, {-1, 12}, {}}, block.bytes()), "tiles", "[-1, 12)");
  expect_named(attend({{0, 10}, {0, 12}, {}}, block.bytes().first(100)), "block size", "100");
  Tensor out(DType::f32, {1, 10, 2, 5});
  expect_named(refusal([&] { kernel->finish(out.view(), {}); }), "out shape", "5");
}

}  // namespace
}  // namespace ringattn::test
