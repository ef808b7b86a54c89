// One rank's tensors in device memory of the harness: copies of those of tests/support, exactly as large, so
// that what lies beside them is guarded, with outputs that are poisoned.
#pragma once
#include <vector>

#include "tests/comm_cuda/stream_work.h"
#include "tests/support/rank_tensors.h"

namespace ringattn::test {

// Dense rows of the host on the device, each with `gap` bytes of poison behind it.
class DeviceRows {
 public:
  struct Shape {
    std::size_t rows = 0, row_bytes = 0, gap = 0;
  };
  DeviceRows(std::byte* host, const Shape& shape);
  void* data() const { return block_.bytes().data(); }
  // Over the host's rows; the stream has to be done. Expects the gaps to be as they were.
  void download() const;

 private:
  std::byte* host_;
  Shape shape_;
  DeviceBlock block_;
};

class DeviceTensors {
 public:
  // `gap`: elements behind every row of a head, which no call may write, nor read without being found out.
  DeviceTensors(const RankTensors& host, index_t gap);

  Timing forward(RingAttention& ring) const { return ring.forward(q, k, v, out, lse); }
  Timing backward(RingAttention& ring) const { return ring.backward(inputs(), gradients()); }
  BackwardInputs inputs() const { return {dout, q, k, v, as_const(out), as_const(lse)}; }
  Gradients gradients() const { return {dq, dk, dv}; }
  // All but q, k and v, which nothing but the test writes.
  void download() const;

  ConstTensorView q, k, v, dout;
  TensorView out, dq, dk, dv;
  LseView lse;

 private:
  template <class View>
  View upload(const View& host, index_t gap, std::vector<DeviceRows>& to);
  std::vector<DeviceRows> inputs_{}, outputs_{};
};

}  // namespace ringattn::test
