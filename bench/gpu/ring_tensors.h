// One rank's tensors on the device: cut out of the whole ones, and put back.
#pragma once
#include <memory>

#include "bench/gpu/device.h"
#include "bench/gpu/rings.h"

namespace ringattn::acceptance {

class RingTensors {
 public:
  RingTensors(const RingCase& ring, const Inputs& whole, int rank);

  void poison();  // NaN in all that forward and backward write
  Timing forward(RingAttention& attention) const { return attention.forward(q_, k_, v_, out_, lse_); }
  Timing backward(RingAttention& attention) const {
    return attention.backward({dout_, q_, k_, v_, as_const(out_), as_const(lse_)}, {dq_, dk_, dv_});
  }
  // Writes this rank's rows into the whole tensors. The stream has to be done.
  void collect(RingResult& whole) const;

 private:
  // Device memory that lives as long as this does.
  void* keep(std::vector<std::byte> bytes);
  ConstTensorView input(const Numbers& whole, const std::array<index_t, 4>& shape,
                        const std::vector<index_t>& rows);
  TensorView output(const std::array<index_t, 4>& shape, const std::vector<index_t>& rows);

  DType dtype_;
  std::array<index_t, 4> q_shape_, k_shape_, v_shape_, out_shape_;  // of the whole tensors
  std::vector<index_t> q_rows_, k_rows_;                            // global positions of this rank's rows
  std::vector<std::unique_ptr<DeviceBytes>> memory_{};
  ConstTensorView q_, k_, v_, dout_;
  TensorView out_, dq_, dk_, dv_;
  LseView lse_;
};

}  // namespace ringattn::acceptance
