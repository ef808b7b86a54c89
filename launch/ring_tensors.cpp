#include "launch/ring_tensors.h"

namespace ringattn::launch {

RingTensors::RingTensors(ShardTensors& shard, DeviceStream* stream) : stream_(stream), views_(shard.views) {
  if (stream == nullptr) return;
  const auto move = [&](auto& view, auto& host, bool computed) {
    using Pointer = decltype(view.data);
    view.data = static_cast<Pointer>(place(std::as_writable_bytes(std::span(host)), computed));
    view.space = MemorySpace::cuda;
  };
  constexpr bool kGiven = false, kComputed = true;
  move(views_.q, shard.q, kGiven);
  move(views_.k, shard.k, kGiven);
  move(views_.v, shard.v, kGiven);
  move(views_.out, shard.out, kComputed);
  move(views_.lse, shard.lse, kComputed);
  move(views_.dout, shard.dout, kGiven);
  move(views_.gradients.dq, shard.dq, kComputed);
  move(views_.gradients.dk, shard.dk, kComputed);
  move(views_.gradients.dv, shard.dv, kComputed);
}

void* RingTensors::place(std::span<std::byte> host, bool computed) {
  Tensor tensor{.host = host, .device = stream_->allocate(host.size()), .computed = computed};
  stream_->upload(host, tensor.device.bytes());
  tensors_.push_back(std::move(tensor));
  return tensors_.back().device.data.get();
}

void RingTensors::fetch() {
  for (const Tensor& tensor : tensors_) {
    if (tensor.computed) stream_->download(tensor.device.bytes(), tensor.host);
  }
}

}  // namespace ringattn::launch
