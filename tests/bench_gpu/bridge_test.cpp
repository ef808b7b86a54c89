// The C functions that Python times, on the harness: they compute attention, and refuse by name.
#include "bench/gpu/bridge.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "bench/gpu/device.h"
#include "bench/gpu/problem.h"

namespace ringattn::acceptance {
namespace {

KernelCase causal_case(index_t left) {
  const index_t rows = 29;
  return {.name = "bridge",
          .shape = {.batch = 2, .num_heads = 2, .num_heads_kv = 1, .head_dim = 32, .head_dim_v = 16},
          .dtype = DType::bf16,
          .q_rows = rows,
          .k_rows = rows,
          .tiles = {{{0, rows}, {0, rows}, {.lo = left < 0 ? -kUnbounded : -left, .hi = 0}}},
          .blocks = {{0, rows}}};
}

ringattn_bridge_shape shape_of(const KernelCase& p, index_t left) {
  return {.batch = p.shape.batch,
          .seqlen_q = p.q_rows,
          .seqlen_k = p.k_rows,
          .num_heads = p.shape.num_heads,
          .num_heads_kv = p.shape.num_heads_kv,
          .head_dim = p.shape.head_dim,
          .head_dim_v = p.shape.head_dim_v,
          .window_left = left,
          .window_right = 0,
          .dtype = 1,
          .backward = 1};
}

TEST(BenchGpuBridge, ForwardAndBackwardAreNearTheOracle) {
  for (const index_t left : {-1, 5}) {
    const KernelCase p = causal_case(left);
    const Inputs in = random_inputs(p, 3);
    const Truth truth = truth_of(p, in);
    const Stream stream;
    const DeviceBytes q(in.q.bytes), k(in.k.bytes), v(in.v.bytes), dout(in.dout.bytes);
    const DeviceBytes out(dout.size()), dq(q.size()), dk(k.size()), dv(v.size());
    const DeviceBytes lse(truth.lse.values.size() * sizeof(float));
    const ringattn_bridge_shape shape = shape_of(p, left);
    std::array<char, 200> why{};
    ringattn_bridge* const bridge =
        ringattn_bridge_open("plain", &shape, stream.get(), why.data(), std::ssize(why));
    ASSERT_NE(bridge, nullptr) << why.data();
    EXPECT_EQ(ringattn_bridge_name(bridge), std::string("cuda/plain"));
    EXPECT_EQ(ringattn_bridge_pairs(bridge), visible_pairs(p.tiles[0]));
    auto* const lse_data = static_cast<float*>(lse.data());
    for (int call = 0; call < 2; ++call) {  // as often as one likes
      ASSERT_EQ(ringattn_bridge_forward(bridge, q.data(), k.data(), v.data(), out.data(), lse_data), 0)
          << ringattn_bridge_error(bridge);
      ASSERT_EQ(ringattn_bridge_backward(bridge, dout.data(), q.data(), k.data(), v.data(), out.data(),
                                         lse_data, dq.data(), dk.data(), dv.data()),
                0)
          << ringattn_bridge_error(bridge);
    }
    stream.wait();
    ringattn_bridge_close(bridge);
    EXPECT_LE(error_over_bound(doubles_of(out.host(), p.dtype), truth.out), 1);
    EXPECT_LE(error_over_bound(doubles_of(lse.host(), DType::f32), truth.lse), 1);
    EXPECT_LE(error_over_bound(doubles_of(dq.host(), p.dtype), truth.dq), 1);
    EXPECT_LE(error_over_bound(doubles_of(dk.host(), p.dtype), truth.dk), 1);
    EXPECT_LE(error_over_bound(doubles_of(dv.host(), p.dtype), truth.dv), 1);
  }
}

TEST(BenchGpuBridge, RefusalsAreNamedAndCutToTheRoomThereIs) {
  const Stream stream;
  const KernelCase p = causal_case(-1);
  std::array<char, 200> why{};
  const auto refused = [&](const char* chapter, const ringattn_bridge_shape& shape, std::size_t room) {
    EXPECT_EQ(
        ringattn_bridge_open(chapter, &shape, stream.get(), why.data(), static_cast<std::int64_t>(room)),
        nullptr);
    return std::string(why.data());
  };
  ringattn_bridge_shape shape = shape_of(p, -1);
  EXPECT_NE(refused("sm_17", shape, why.size()).find("sm_17"), std::string::npos);
  EXPECT_EQ(refused("sm_17", shape, 5).size(), 4U);
  shape.dtype = 7;
  EXPECT_NE(refused("plain", shape, why.size()).find("dtype is 7"), std::string::npos);
  shape = shape_of(p, -3);
  EXPECT_NE(refused("plain", shape, why.size()).find("-3"), std::string::npos);
  ringattn_bridge_close(nullptr);
}

TEST(BenchGpuBridge, AnErrorInACallIsACodeAndAText) {
  const Stream stream;
  const KernelCase p = causal_case(-1);
  const ringattn_bridge_shape shape = shape_of(p, -1);
  ringattn_bridge* const bridge = ringattn_bridge_open("plain", &shape, stream.get(), nullptr, 0);
  ASSERT_NE(bridge, nullptr);
  EXPECT_NE(ringattn_bridge_forward(bridge, nullptr, nullptr, nullptr, nullptr, nullptr), 0);
  EXPECT_NE(std::string(ringattn_bridge_error(bridge)).find("q "), std::string::npos);
  ringattn_bridge_close(bridge);
}

}  // namespace
}  // namespace ringattn::acceptance
