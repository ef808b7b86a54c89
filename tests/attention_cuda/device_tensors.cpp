#include "tests/attention_cuda/device_tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace ringattn::test {
namespace {

constexpr std::byte kPoison{0xFF};  // all ones is a NaN in every dtype

}  // namespace

DeviceRows::DeviceRows(std::byte* host, const Shape& shape)
    : host_(host), shape_(shape), block_(shape.rows * (shape.row_bytes + shape.gap)) {
  std::vector<std::byte> all(block_.bytes().size(), kPoison);
  if (all.empty()) return;  // there may be no host memory either
  for (std::size_t row = 0; row < shape.rows; ++row)
    std::memcpy(all.data() + row * (shape.row_bytes + shape.gap), host + row * shape.row_bytes,
                shape.row_bytes);
  cudaMemcpy(data(), all.data(), all.size(), cudaMemcpyHostToDevice);
}

void DeviceRows::download() const {
  std::vector<std::byte> all(block_.bytes().size());
  if (all.empty()) return;
  cudaMemcpy(all.data(), data(), all.size(), cudaMemcpyDeviceToHost);
  for (std::size_t row = 0; row < shape_.rows; ++row) {
    const std::byte* const from = all.data() + row * (shape_.row_bytes + shape_.gap);
    std::memcpy(host_ + row * shape_.row_bytes, from, shape_.row_bytes);
    EXPECT_EQ(std::count(from + shape_.row_bytes, from + shape_.row_bytes + shape_.gap, kPoison),
              static_cast<std::ptrdiff_t>(shape_.gap))
        << "written behind row " << row;
  }
}

DeviceTensors::DeviceTensors(const RankTensors& host, index_t gap) {
  q = upload(host.q, gap, inputs_);
  k = upload(host.k, gap, inputs_);
  v = upload(host.v, gap, inputs_);
  dout = upload(host.dout, gap, inputs_);
  out = upload(host.out, gap, outputs_);
  dq = upload(host.dq, gap, outputs_);
  dk = upload(host.dk, gap, outputs_);
  dv = upload(host.dv, gap, outputs_);
  lse = host.lse;
  lse.space = MemorySpace::cuda;
  outputs_.emplace_back(
      reinterpret_cast<std::byte*>(host.lse.data),
      DeviceRows::Shape{.rows = 1,
                        .row_bytes = static_cast<std::size_t>(lse.shape[0] * lse.stride[0]) * sizeof(float)});
  lse.data = static_cast<float*>(outputs_.back().data());
}

template <class View>
View DeviceTensors::upload(const View& host, index_t gap, std::vector<DeviceRows>& to) {
  const index_t step = host.dim() + gap;
  const std::size_t element = size_of(host.dtype);
  to.emplace_back(
      static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(host.data))),
      DeviceRows::Shape{.rows = static_cast<std::size_t>(host.batch() * host.rows() * host.heads()),
                        .row_bytes = static_cast<std::size_t>(host.dim()) * element,
                        .gap = static_cast<std::size_t>(gap) * element});
  View view = host;
  view.data = to.back().data();
  view.stride = {host.rows() * host.heads() * step, host.heads() * step, step, 1};
  view.space = MemorySpace::cuda;
  return view;
}

void DeviceTensors::download() const {
  for (const DeviceRows& rows : outputs_) rows.download();
}

}  // namespace ringattn::test
