#include "tests/cuda/support.h"

#include <gtest/gtest.h>

#include <deque>
#include <limits>
#include <stdexcept>
#include <string>

namespace ringattn::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

// Rows of a dense tensor's copy on the device.
template <class View>
View rows_of(View view, const DeviceCopy& copy, const Range& rows) {
  view.data = static_cast<std::byte*>(copy.data()) +
              rows.begin * view.stride[1] * static_cast<index_t>(size_of(view.dtype));
  view.shape[1] = rows.count();
  return view;
}

Rotation from_row(const Rotation& rotation, index_t first) {
  Rotation shifted = rotation;
  if (rotation.dim > 0)
    shifted.angles = [angles = rotation.angles, first](index_t row, std::span<float> cos,
                                                       std::span<float> sin) {
      angles(row + first, cos, sin);
    };
  return shifted;
}

Blocks all_or(const Blocks& blocks, index_t k_rows) { return blocks.empty() ? Blocks{{0, k_rows}} : blocks; }

// Full of NaN in every dtype, in the order of the stream.
Buffer poisoned(const Kernel& kernel, std::size_t bytes, const DeviceStream& stream) {
  Buffer buffer = kernel.allocate(bytes);
  if (bytes > 0) check(cudaMemsetAsync(buffer.data.get(), 0xFF, bytes, stream.get()));
  return buffer;
}

// Sums of another rank.
std::unique_ptr<DeviceCopy> some_sums(std::size_t bytes) {
  std::vector<float> sums(bytes / sizeof(float));
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = static_cast<float>(i % 17) / 8 - 1;
  return std::make_unique<DeviceCopy>(sums.data(), bytes);
}

}  // namespace

DeviceStream::DeviceStream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
DeviceStream::~DeviceStream() {
  try {
    cudaStreamSynchronize(stream_);  // what a kernel's end left in it: memory to be freed
  } catch (...) {
    // A fault of the harness that has been thrown already.
  }
  cudaStreamDestroy(stream_);
}
void DeviceStream::wait() const { check(cudaStreamSynchronize(stream_)); }

DeviceCopy::DeviceCopy(const void* host, std::size_t bytes) : bytes_(bytes) {
  check(cudaMalloc(&data_, std::max<std::size_t>(bytes, 1)));
  if (bytes > 0) check(cudaMemcpy(data_, host, bytes, cudaMemcpyHostToDevice));
}
DeviceCopy::~DeviceCopy() { cudaFree(data_); }
void DeviceCopy::read(void* host) const {
  if (bytes_ > 0) check(cudaMemcpy(host, data_, bytes_, cudaMemcpyDeviceToHost));
}

std::unique_ptr<Kernel> cuda_kernel(const Problem& problem, const DeviceStream& stream,
                                    const std::string& isa) {
  return make_cuda_kernel(config_of(problem, isa), stream.get());
}

Result run_cuda(const std::string& isa, const Problem& problem, const Inputs& inputs, const Blocks& blocks,
                Ending ending) {
  return run_made([&](const DeviceStream& stream) { return cuda_kernel(problem, stream, isa); }, problem,
                  inputs, blocks, ending);
}

Result run_made(const MakeKernel& make, const Problem& problem, const Inputs& inputs, const Blocks& blocks,
                Ending ending) {
  const HeadShape& shape = problem.shape;
  const auto lse_size = static_cast<std::size_t>(shape.batch * shape.num_heads * problem.q_rows);
  Result result{filled(problem.dtype, problem.out_shape(), kNan), std::vector<float>(lse_size, kNan)};
  const DeviceCopy q(inputs.q.bytes.data(), inputs.q.bytes.size());
  const DeviceCopy k(inputs.k.bytes.data(), inputs.k.bytes.size());
  const DeviceCopy v(inputs.v.bytes.data(), inputs.v.bytes.size());
  const DeviceCopy out(result.out.bytes.data(), result.out.bytes.size());
  const DeviceCopy lse(result.lse.data(), lse_size * sizeof(float));
  const TensorView out_view = moved(result.out.view(), out);
  const LseView lse_view =
      dense_lse(static_cast<float*>(lse.data()), shape.batch, shape.num_heads, problem.q_rows);
  const DeviceStream stream;
  const auto kernel = make(stream);
  kernel->load_queries(moved(std::as_const(inputs.q).view(), q), problem.q_rotation);
  const Blocks all = all_or(blocks, problem.k_rows);
  for (const Range& keys : all) {
    const Buffer block = poisoned(*kernel, kernel->block_bytes(keys.count()), stream);
    kernel->load_block(rows_of(inputs.k.view(), k, keys), rows_of(inputs.v.view(), v, keys),
                       from_row(problem.k_rotation, keys.begin), block.bytes());
    const std::vector<Tile> tiles = tiles_of_keys(problem.tiles, keys.begin, keys.end);
    if (ending == Ending::last_block && keys == all.back())
      kernel->attend_last(tiles, block.bytes(), keys.count(), out_view, lse_view, {});
    else
      kernel->attend(tiles, block.bytes(), keys.count(), {});
  }
  if (ending == Ending::finish) kernel->finish(out_view, lse_view);
  stream.wait();
  out.read(result.out.bytes.data());
  lse.read(result.lse.data());
  return result;
}

Gradients run_backward_cuda(const std::string& isa, const Problem& problem, const BackwardInputs& in,
                            const Blocks& blocks, First first) {
  const HeadShape& shape = problem.shape;
  Gradients result{filled(problem.dtype, problem.q_shape(), kNan),
                   filled(problem.dtype, problem.k_shape(), kNan),
                   filled(problem.dtype, problem.v_shape(), kNan)};
  const auto copy = [](const Tensor& tensor) { return DeviceCopy(tensor.bytes.data(), tensor.bytes.size()); };
  const DeviceCopy q = copy(in.q), k = copy(in.k), v = copy(in.v), dout = copy(in.dout), out = copy(in.out);
  const DeviceCopy lse(in.lse.data(), in.lse.size() * sizeof(float));
  const DeviceCopy dq = copy(result.dq), dk = copy(result.dk), dv = copy(result.dv);
  const DeviceStream stream;
  const auto kernel = cuda_kernel(problem, stream, isa);
  kernel->reserve(Pass::backward);
  const ConstLseView lse_view{static_cast<const float*>(lse.data()),
                              {shape.batch, shape.num_heads, problem.q_rows},
                              {shape.num_heads * problem.q_rows, problem.q_rows, 1}};
  kernel->load_rows(moved(in.q.view(), q), problem.q_rotation, moved(in.dout.view(), dout),
                    moved(in.out.view(), out), lse_view, {});
  std::vector<std::unique_ptr<DeviceCopy>> sums;  // until the stream is done
  for (const Range& keys : all_or(blocks, problem.k_rows)) {
    const Rotation rotation = from_row(problem.k_rotation, keys.begin);
    const Buffer block = poisoned(*kernel, kernel->block_bytes(keys.count()), stream);
    const std::size_t bytes = kernel->gradient_bytes(keys.count());
    const Buffer gradients =
        first == First::zero ? kernel->allocate(bytes) : poisoned(*kernel, bytes, stream);
    sums.push_back(some_sums(bytes));
    const auto come = [&gradients, bytes, &stream, from = sums.back()->data()] {
      check(cudaMemcpyAsync(gradients.data.get(), from, bytes, cudaMemcpyDeviceToDevice, stream.get()));
      return bytes;
    };
    GradientBlock block_gradients{.bytes = gradients.bytes(), .fresh = first == First::fresh};
    if (first == First::given) come();
    if (first == First::late) block_gradients.arrived = come;
    kernel->load_block(rows_of(in.k.view(), k, keys), rows_of(in.v.view(), v, keys), rotation, block.bytes());
    kernel->attend_backward(tiles_of_keys(problem.tiles, keys.begin, keys.end), block.bytes(), keys.count(),
                            block_gradients, {});
    kernel->finish_gradients(gradients.bytes(), rows_of(result.dk.view(), dk, keys),
                             rows_of(result.dv.view(), dv, keys), rotation);
  }
  kernel->finish_rows(moved(result.dq.view(), dq), problem.q_rotation);
  stream.wait();
  dq.read(result.dq.bytes.data());
  dk.read(result.dk.bytes.data());
  dv.read(result.dv.bytes.data());
  return result;
}

}  // namespace ringattn::test
