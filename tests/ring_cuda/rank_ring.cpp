#include "tests/ring_cuda/rank_ring.h"

#include <gtest/gtest.h>

#include "kernels/cuda/cuda.h"
#include "src/cost.h"

namespace ringattn::test {
namespace {

using std::chrono::milliseconds;

// Longer than a machine that runs everything at once stands still.
constexpr milliseconds kPatience{60'000};

std::size_t bytes_of(const ConstTensorView& view) {
  return static_cast<std::size_t>(view.shape[0] * view.stride[0]) * size_of(view.dtype);
}
std::size_t bytes_of(const LseView& lse) {
  return static_cast<std::size_t>(lse.shape[0] * lse.stride[0]) * sizeof(float);
}

void upload(const DeviceBlock& to, const void* from) {
  if (!to.bytes().empty()) cudaMemcpy(to.bytes().data(), from, to.bytes().size(), cudaMemcpyHostToDevice);
}
void download(void* to, const DeviceBlock& from) {
  if (!from.bytes().empty()) cudaMemcpy(to, from.bytes().data(), from.bytes().size(), cudaMemcpyDeviceToHost);
}

// The same view of device memory.
template <class View>
View moved(View view, const DeviceBlock& to) {
  view.data = reinterpret_cast<decltype(view.data)>(to.bytes().data());
  return view;
}

}  // namespace

DeviceTensors::DeviceTensors(const RankTensors& host)
    : q_(bytes_of(host.q)),
      k_(bytes_of(host.k)),
      v_(bytes_of(host.v)),
      dout_(bytes_of(host.dout)),
      out_(bytes_of(as_const(host.out))),
      dq_(bytes_of(as_const(host.dq))),
      dk_(bytes_of(as_const(host.dk))),
      dv_(bytes_of(as_const(host.dv))),
      lse_(bytes_of(host.lse)) {
  const auto take = [](auto& view, const auto& from, const DeviceBlock& to) {
    upload(to, from.data);
    view = moved(from, to);
  };
  take(q, host.q, q_);
  take(k, host.k, k_);
  take(v, host.v, v_);
  take(dout, host.dout, dout_);
  take(out, host.out, out_);
  take(dq, host.dq, dq_);
  take(dk, host.dk, dk_);
  take(dv, host.dv, dv_);
  take(lse, host.lse, lse_);
}

void DeviceTensors::read(const RankTensors& host) const {
  // Inputs, too: RankTensors owns all of these bytes, and what was only to be read must come back unchanged.
  download(const_cast<void*>(host.q.data), q_);
  download(const_cast<void*>(host.k.data), k_);
  download(const_cast<void*>(host.v.data), v_);
  download(const_cast<void*>(host.dout.data), dout_);
  download(host.out.data, out_);
  download(host.dq.data, dq_);
  download(host.dk.data, dk_);
  download(host.dv.data, dv_);
  download(host.lse.data, lse_);
}

RankRing::RankRing(const RankThread& me, DeviceCommunicator& comm, const DeviceRing& ring,
                   const Problem& problem, const Sharding& sharding, const Inputs& in)
    : me_(me),
      comm_(comm),
      problem_(problem),
      sharding_(sharding),
      mode_(ring.mode),
      late_inputs_(ring.late_inputs),
      plan_(problem, sharding, me.rank),
      host_(problem, sharding, me.rank, in),
      host_inputs_(host_.input_bytes()),
      device_(host_),
      kernel_(make_cuda_kernel({.shape = problem.heads(),
                                .dtype = problem.dtype,
                                .softmax_scale = problem.scale(),
                                .q_rows = plan_.q_rows(),
                                .isa = ring.chapter},
                               me.stream)) {
  make_slots(slots_.block, 2, kernel_->block_bytes(sharding.k.max_rows()), *kernel_, comm_,
             Clock::now() + kPatience, {});
  poison(slots_.block);
  end_of_call();
}

// Full of NaN: what an earlier call has left must not pass for anything.
void RankRing::poison(std::span<const Buffer> slots) const {
  for (const Buffer& slot : slots)
    if (slot.size > 0) cudaMemsetAsync(slot.data.get(), 0xFF, slot.size, me_.stream);
}

Rotation RankRing::rotation(const Layout& layout, index_t shift) const {
  if (problem_.rope.pairing == Rope::Pairing::none) return {};
  const RotaryAngles angles(problem_.rope, problem_.shape.head_dim);
  return {.dim = rotary_dim(problem_.rope, problem_.shape.head_dim),
          .interleaved = problem_.rope.pairing == Rope::Pairing::interleaved,
          .angles = [=, &layout, rank = me_.rank](index_t row, std::span<float> cos, std::span<float> sin) {
            angles.at(layout.position(rank, row) + shift, cos, sin);
          }};
}

void RankRing::expect_traffic(const SentCount& before, const Traffic& planned) const {
  EXPECT_EQ(comm_.sent().bytes - before.bytes, planned.bytes_sent);
  EXPECT_EQ(comm_.sent().messages - before.messages, planned.messages_sent);
}

void RankRing::make_inputs() {
  const auto inputs = device_.inputs();
  for (std::size_t i = 0; i < inputs.size(); ++i)
    on_stream(
        me_.stream, inputs[i], simt::Access::write,
        [from = host_inputs_[i]](std::span<std::byte> bytes) { std::ranges::copy(from, bytes.begin()); });
}

void RankRing::end_of_call() {
  if (!late_inputs_) return;
  for (const std::span<std::byte> bytes : device_.inputs()) write_poison(me_.stream, bytes);
}

void RankRing::forward() {
  if (late_inputs_) make_inputs();
  const SentCount before = comm_.sent();
  Timing timing;
  kernel_->load_queries(device_.q, rotation(sharding_.q, problem_.query_position(0)));
  kernel_->load_block(device_.k, device_.v, rotation(sharding_.k, 0), own_block());
  run_forward(plan_, *kernel_, comm_, slots_, device_.out, device_.lse, mode_, kPatience, timing);
  expect_traffic(before, forward_traffic(plan_, [&](index_t r) { return kernel_->block_bytes(r); }));
}

void RankRing::backward() {
  if (slots_.gradient[0].data == nullptr) {
    kernel_->reserve(Pass::backward);
    make_slots(slots_.gradient, 2, kernel_->gradient_bytes(sharding_.k.max_rows()), *kernel_, comm_,
               Clock::now() + kPatience, {});
    poison(slots_.gradient);
  }
  const SentCount before = comm_.sent();
  const Rotation q_rotation = rotation(sharding_.q, problem_.query_position(0)),
                 k_rotation = rotation(sharding_.k, 0);
  const BackwardRows rows{
      .load_rows =
          [&](const Poll& poll) {
            kernel_->load_rows(device_.q, q_rotation, device_.dout, as_const(device_.out),
                               as_const(device_.lse), poll);
          },
      .load_block =
          [&](std::span<std::byte> block) { kernel_->load_block(device_.k, device_.v, k_rotation, block); }};
  Timing timing;
  rows.load_block(own_block());
  const auto own = run_backward(plan_, *kernel_, comm_, slots_, rows, mode_, kPatience, timing);
  kernel_->finish_rows(device_.dq, q_rotation);
  kernel_->finish_gradients(own, device_.dk, device_.dv, k_rotation);
  expect_traffic(before, backward_traffic(
                             plan_, [&](index_t r) { return kernel_->block_bytes(r); },
                             [&](index_t r) { return kernel_->gradient_bytes(r); }));
}

void RankRing::collect(GradientAnswer& answer) {
  comm_.settle(Clock::now() + kPatience);
  cudaStreamSynchronize(me_.stream);
  device_.read(host_);
  const auto now = host_.input_bytes();
  for (std::size_t i = 0; i < 4 && !late_inputs_;
       ++i)  // q, k, v and dout; out and lse are written by forward
    EXPECT_TRUE(now[i] == host_inputs_[i]) << "input " << i << " of rank " << me_.rank << " was overwritten";
  host_.collect(answer);
}

}  // namespace ringattn::test
