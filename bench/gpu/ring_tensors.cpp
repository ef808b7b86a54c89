#include "bench/gpu/ring_tensors.h"

#include <cstring>

namespace ringattn::acceptance {
namespace {

std::array<index_t, 4> of_rows(std::array<index_t, 4> shape, const std::vector<index_t>& rows) {
  shape[1] = std::ssize(rows);
  return shape;
}

std::size_t bytes_of(const std::array<index_t, 4>& shape, DType dtype) {
  return static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]) * size_of(dtype);
}

// Calls move(place of a row in the whole tensor, place in the shard, bytes) for each row of each batch.
template <class Move>
void each_row(const std::array<index_t, 4>& whole, const std::vector<index_t>& rows, DType dtype,
              const Move& move) {
  const std::size_t bytes = static_cast<std::size_t>(whole[2] * whole[3]) * size_of(dtype);
  std::size_t place = 0;
  for (index_t b = 0; b < whole[0]; ++b)
    for (const index_t row : rows) {
      move(static_cast<std::size_t>(b * whole[1] + row) * bytes, place, bytes);
      place += bytes;
    }
}

void spread(const void* device, std::size_t size, const std::array<index_t, 4>& shape,
            const std::vector<index_t>& rows, DType dtype, std::vector<std::byte>& whole) {
  std::vector<std::byte> shard(size);
  if (size > 0) check(cudaMemcpy(shard.data(), device, size, cudaMemcpyDeviceToHost), "cudaMemcpy");
  each_row(shape, rows, dtype, [&](std::size_t to, std::size_t from, std::size_t bytes) {
    std::memcpy(&whole[to], &shard[from], bytes);
  });
}

}  // namespace

void* RingTensors::keep(std::vector<std::byte> bytes) {
  memory_.push_back(std::make_unique<DeviceBytes>(bytes));
  return memory_.back()->data();
}

ConstTensorView RingTensors::input(const Numbers& whole, const std::array<index_t, 4>& shape,
                                   const std::vector<index_t>& rows) {
  std::vector<std::byte> shard(bytes_of(of_rows(shape, rows), dtype_));
  each_row(shape, rows, dtype_, [&](std::size_t from, std::size_t to, std::size_t bytes) {
    std::memcpy(&shard[to], &whole.bytes[from], bytes);
  });
  return dense_view(static_cast<const void*>(keep(std::move(shard))), dtype_, of_rows(shape, rows),
                    MemorySpace::cuda);
}

TensorView RingTensors::output(const std::array<index_t, 4>& shape, const std::vector<index_t>& rows) {
  const auto mine = of_rows(shape, rows);
  return dense_view(keep(std::vector<std::byte>(bytes_of(mine, dtype_), std::byte{0xFF})), dtype_, mine,
                    MemorySpace::cuda);
}

RingTensors::RingTensors(const RingCase& ring, const Inputs& whole, int rank)
    : dtype_(ring.whole.dtype),
      q_shape_(ring.whole.q_shape()),
      k_shape_(ring.whole.k_shape()),
      v_shape_(ring.whole.v_shape()),
      out_shape_(ring.whole.out_shape()) {
  const Sharding sharding = ring.sharding();
  q_rows_ = sharding.q.positions(rank);
  k_rows_ = sharding.k.positions(rank);
  q_ = input(whole.q, q_shape_, q_rows_);
  k_ = input(whole.k, k_shape_, k_rows_);
  v_ = input(whole.v, v_shape_, k_rows_);
  dout_ = input(whole.dout, out_shape_, q_rows_);
  out_ = output(out_shape_, q_rows_);
  dq_ = output(q_shape_, q_rows_);
  dk_ = output(k_shape_, k_rows_);
  dv_ = output(v_shape_, k_rows_);
  const index_t rows = std::ssize(q_rows_), heads = q_shape_[2];
  const auto lse_bytes = static_cast<std::size_t>(q_shape_[0] * heads * rows) * sizeof(float);
  lse_ = dense_lse(static_cast<float*>(keep(std::vector<std::byte>(lse_bytes, std::byte{0xFF}))), q_shape_[0],
                   heads, rows, MemorySpace::cuda);
}

void RingTensors::poison() {
  const auto fill = [](void* data, std::size_t bytes) {
    const std::vector<std::byte> nan(bytes, std::byte{0xFF});
    if (bytes > 0) copy_to_device(data, nan.data(), bytes);
  };
  for (const TensorView& view : {out_, dq_, dk_, dv_}) fill(view.data, bytes_of(view.shape, dtype_));
  fill(lse_.data, static_cast<std::size_t>(lse_.shape[0] * lse_.stride[0]) * sizeof(float));
}

void RingTensors::collect(RingResult& whole) const {
  const auto put = [&](const TensorView& view, const std::array<index_t, 4>& shape,
                       const std::vector<index_t>& rows, std::vector<std::byte>& to) {
    spread(view.data, bytes_of(view.shape, dtype_), shape, rows, dtype_, to);
  };
  put(out_, out_shape_, q_rows_, whole.out);
  put(dq_, q_shape_, q_rows_, whole.dq);
  put(dk_, k_shape_, k_rows_, whole.dk);
  put(dv_, v_shape_, k_rows_, whole.dv);
  // lse is [batch, heads, rows]: a tensor whose "batch" is every head and whose rows are single numbers.
  const index_t all_heads = lse_.shape[0] * lse_.shape[1];
  spread(lse_.data, static_cast<std::size_t>(all_heads * lse_.shape[2]) * sizeof(float),
         {all_heads, q_shape_[1], 1, 1}, q_rows_, DType::f32, whole.lse);
}

}  // namespace ringattn::acceptance
