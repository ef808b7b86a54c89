// Where the ring finds a rank's tensors: the shard's own memory, or a copy of it on the rank's GPU. The one
// place that knows; everything before and after the ring works on the shard.
#pragma once
#include <array>

#include "kernels/cuda/device_stream.h"
#include "launch/tensors.h"

namespace ringattn::launch {

class RingTensors {
 public:
  // `shard` outlives this. With a stream the shard is copied to its device, what is to be computed included,
  // so that what nobody writes is NaN there, too. Throws OutOfMemory and DeviceError.
  RingTensors(ShardTensors& shard, DeviceStream* stream);

  const ShardViews& views() const { return views_; }
  // Copies what the ring has computed back into the shard. The stream's work has ended, see
  // RingAttention::settle.
  void fetch();

 private:
  struct Tensor {
    std::span<std::byte> host;
    Buffer device{};
    bool computed = false;  // by the ring, so that it has to come back
  };
  void* place(std::span<std::byte> host, bool computed);

  DeviceStream* stream_;
  std::vector<Tensor> tensors_;
  ShardViews views_;
};

}  // namespace ringattn::launch
