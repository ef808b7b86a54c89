// The C interface in device memory: the same ring by its handles, and what it refuses.
#include <gtest/gtest.h>

#include "comm/threads.h"
#include "tests/attention_cuda/device_ring.h"
#include "tests/c_api/c_objects.h"
#include "tests/support/gradient_case.h"

namespace ringattn::test {
namespace {

// GQA, primes and an uneven last shard.
Problem gqa_problem() {
  return {.shape = {.num_heads = 4, .num_heads_kv = 2, .head_dim = 8}, .mask = Mask::causal(23, 23)};
}

template <class View>
ringattn_tensor c_tensor(const View& view) {
  ringattn_tensor t{};
  t.data = const_cast<void*>(static_cast<const void*>(view.data));
  t.dtype = RINGATTN_F32;
  std::ranges::copy(view.shape, t.shape);
  std::ranges::copy(view.stride, t.stride);
  return t;
}

ringattn_lse c_lse(const LseView& view) {
  ringattn_lse t{};
  t.data = view.data;
  std::ranges::copy(view.shape, t.shape);
  std::ranges::copy(view.stride, t.stride);
  return t;
}

Attention c_attention(ringattn_comm* comm, int ranks, void* stream) {
  const ringattn_problem problem = problem_with(4, 2, 8);
  ringattn_options options = options_with(1, 30'000);
  options.backend = RINGATTN_CUDA;
  options.stream = stream;
  const MaskHandle mask = made<MaskHandle>(ringattn_mask_create_causal, 23, 23);
  const LayoutHandle layout = made<LayoutHandle>(ringattn_layout_create, RINGATTN_ZIGZAG, 23, 23, ranks);
  return made<Attention>(ringattn_attention_create, comm, &problem, mask.get(), layout.get(), &options);
}

void call_both(ringattn_attention* attention, const DeviceTensors& t) {
  ringattn_forward_args forward;
  EXPECT_TRUE(ok(ringattn_forward_args_init(&forward, sizeof forward)));
  forward.q = c_tensor(t.q);
  forward.k = c_tensor(t.k);
  forward.v = c_tensor(t.v);
  forward.out = c_tensor(t.out);
  forward.lse = c_lse(t.lse);
  forward.space = RINGATTN_CUDA_MEMORY;
  EXPECT_TRUE(ok(ringattn_forward(attention, &forward)));
  ringattn_backward_args backward;
  EXPECT_TRUE(ok(ringattn_backward_args_init(&backward, sizeof backward)));
  backward.dout = c_tensor(t.dout);
  backward.q = forward.q;
  backward.k = forward.k;
  backward.v = forward.v;
  backward.out = forward.out;
  backward.lse = forward.lse;
  backward.dq = c_tensor(t.dq);
  backward.dk = c_tensor(t.dk);
  backward.dv = c_tensor(t.dv);
  backward.space = RINGATTN_CUDA_MEMORY;
  EXPECT_TRUE(ok(ringattn_backward(attention, &backward)));
  EXPECT_TRUE(ok(ringattn_settle(attention)));
}

using MakeHandle = std::function<ringattn_status(ringattn_comm* host, void* stream, ringattn_comm** comm)>;

void expect_twin(const MakeHandle& make) {
  constexpr int kRanks = 3;
  const Problem problem = gqa_problem();
  const Inputs in = case_inputs(problem);
  const GradientAnswer twin = run_device_ranks(transports()[1], kRanks, problem, LayoutKind::zigzag, in);
  GradientAnswer answer = empty_gradients(problem);
  ringattn_comm* hosts[kRanks] = {};
  ASSERT_TRUE(ok(ringattn_comm_create_threads(kRanks, hosts)));
  on_ranks(kRanks, [&](RankThread& me) {
    const Sharding sharding = Sharding::make(LayoutKind::zigzag, 23, 23, kRanks);
    const RankTensors host(problem, sharding, me.rank, in);
    const DeviceTensors device(host, 0);
    const Comm threads(hosts[me.rank]);
    ringattn_comm* comm = nullptr;
    ASSERT_TRUE(ok(make(threads.get(), me.stream, &comm)));
    const Comm owner(comm);
    const Attention attention = c_attention(comm, kRanks, me.stream);
    char name[32] = {};
    EXPECT_TRUE(ok(ringattn_attention_backend(attention.get(), name, sizeof name)));
    EXPECT_EQ(std::string(name).substr(0, 5), "cuda/");
    call_both(attention.get(), device);
    device.download();
    host.collect(answer);
  });
  EXPECT_TRUE(same_bits(answer.forward.out.data, twin.forward.out.data));
  EXPECT_TRUE(same_bits(answer.forward.lse, twin.forward.lse));
  EXPECT_TRUE(same_gradients(answer, twin));
}

TEST(DeviceCInterface, has_the_bits_of_the_cpp_object_over_every_transport) {
  expect_twin(ringattn_comm_create_device_ranks);
  expect_twin(ringattn_comm_create_staged);
  expect_twin([](ringattn_comm* host, void* stream, ringattn_comm** comm) {
    return ringattn_comm_create_nccl(host, stream, nullptr, 30'000, comm);
  });
}

TEST(DeviceCInterface, refuses_wrong_arguments_by_name) {
  on_ranks(1, [](RankThread& me) {
    const Comm self = made<Comm>(ringattn_comm_create_self);
    ringattn_comm* comm = nullptr;
    EXPECT_TRUE(refused(ringattn_comm_create_nccl(self.get(), me.stream, nullptr, 0, &comm),
                        "patience_ms is 0; allowed are 1 to 1000000000000"));
    EXPECT_TRUE(refused(ringattn_comm_create_staged(nullptr, me.stream, &comm), "host is a null handle"));
    EXPECT_TRUE(refused(ringattn_comm_create_device_ranks(self.get(), nullptr, &comm), "stream is null"));
    EXPECT_TRUE(refused(ringattn_settle(nullptr), "attention is a null handle"));

    const Attention attention = c_attention(self.get(), 1, me.stream);
    const Problem problem = gqa_problem();
    const RankTensors host(problem, Sharding::make(LayoutKind::zigzag, 23, 23, 1), 0, case_inputs(problem));
    const DeviceTensors t(host, 0);
    ringattn_forward_args args;
    EXPECT_TRUE(ok(ringattn_forward_args_init(&args, sizeof args)));
    args.q = c_tensor(t.q);
    args.k = c_tensor(t.k);
    args.v = c_tensor(t.v);
    args.out = c_tensor(t.out);
    EXPECT_TRUE(refused(ringattn_forward(attention.get(), &args),
                        "q is in host memory, this object computes in cuda memory"));
    args.space = 2;
    EXPECT_TRUE(refused(ringattn_forward(attention.get(), &args), "args.space is 2"));
    args.space = RINGATTN_CUDA_MEMORY;
    EXPECT_TRUE(ok(ringattn_forward(attention.get(), &args)));
    // A caller built against the first header ends before `space`, and has host memory.
    args.struct_size = offsetof(ringattn_forward_args, space);
    EXPECT_TRUE(refused(ringattn_forward(attention.get(), &args), "q is in host memory"));
    EXPECT_TRUE(ok(ringattn_settle(attention.get())));
  });
}

TEST(DeviceCInterface, plans_for_the_backend_that_it_is_asked_about) {
  const ringattn_problem problem = problem_with(4, 2, 8);
  const MaskHandle mask = made<MaskHandle>(ringattn_mask_create_causal, 23, 23);
  const LayoutHandle layout = made<LayoutHandle>(ringattn_layout_create, RINGATTN_ZIGZAG, 23, 23, 3);
  const PlanHandle plan =
      made<PlanHandle>(ringattn_plan_create_for, &problem, mask.get(), layout.get(), 1, RINGATTN_CUDA);
  ringattn_workspace got{};
  got.struct_size = sizeof got;
  EXPECT_TRUE(ok(ringattn_plan_workspace(plan.get(), 1, RINGATTN_BACKWARD, &got)));
  const Workspace right = workspace(gqa_problem(), Sharding::make(LayoutKind::zigzag, 23, 23, 3), 1, 1,
                                    Pass::backward, Backend::cuda);
  EXPECT_EQ(got.kernel, right.kernel);
  EXPECT_EQ(got.slots, right.slots);
  EXPECT_EQ(got.gradients, right.gradients);
  ringattn_plan* none = nullptr;
  EXPECT_TRUE(refused(ringattn_plan_create_for(&problem, mask.get(), layout.get(), 1, 2, &none),
                      "backend is 2; allowed are RINGATTN_CPU and RINGATTN_CUDA"));
}

}  // namespace
}  // namespace ringattn::test
