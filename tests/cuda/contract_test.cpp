// What kernels/kernel.h and kernels/cuda/cuda.h promise besides numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/error.h"
#include "tests/cuda/support.h"

namespace ringattn::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Problem small_problem(DType dtype = DType::f32) {
  return problem_of({2, 4, 2, 12, 20}, dtype, 21, 43, causal_tiles(21, 43));
}

template <class Error, class Action>
void expect_refused(const Action& action, const std::string& words) {
  try {
    action();
    ADD_FAILURE() << "accepted: " << words;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

// Rows and heads with gaps between them, which hold NaN.
struct Strided {
  explicit Strided(const Tensor& dense)
      : wide(filled(dense.dtype, {dense.shape[0], dense.shape[1] + 2, dense.shape[2] + 1, dense.shape[3] + 3},
                    kNan)),
        shape(dense.shape) {
    for (index_t b = 0; b < shape[0]; ++b)
      for (index_t i = 0; i < shape[1]; ++i)
        for (index_t h = 0; h < shape[2]; ++h)
          for (index_t e = 0; e < shape[3]; ++e)
            wide.set(wide.index(b, i + 1, h, e + 1), dense.get(dense.index(b, i, h, e)));
  }
  TensorView view(const DeviceCopy& copy) {
    TensorView result = moved(wide.view(), copy);
    result.data = static_cast<std::byte*>(copy.data()) + wide.index(0, 1, 0, 1) * size_of(wide.dtype);
    result.shape = shape;
    return result;
  }
  DeviceCopy copy() const { return {wide.bytes.data(), wide.bytes.size()}; }

  Tensor wide;
  std::array<index_t, 4> shape;
};

TEST(CudaContract, StridesAreFreeButTheLast) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Problem p = small_problem(dtype);
    const Inputs in = random_inputs(p, 3);
    const Result dense = run_cuda("auto", p, in);
    Strided q(in.q), k(in.k), v(in.v), out(filled(dtype, p.out_shape(), 0));
    const DeviceCopy q_copy = q.copy(), k_copy = k.copy(), v_copy = v.copy(), out_copy = out.copy();
    const DeviceStream stream;
    const auto kernel = cuda_kernel(p, stream);
    const Buffer block = kernel->allocate(kernel->block_bytes(p.k_rows));
    kernel->load_queries(as_const(q.view(q_copy)), {});
    kernel->load_block(as_const(k.view(k_copy)), as_const(v.view(v_copy)), {}, block.bytes());
    kernel->attend_last(p.tiles, block.bytes(), p.k_rows, out.view(out_copy), {}, {});  // lse is not wanted
    stream.wait();
    out_copy.read(out.wide.bytes.data());
    // Gaps still hold NaN, and rows what they hold in dense tensors.
    Strided expected(dense.out);
    EXPECT_EQ(out.wide.bytes, expected.wide.bytes) << text(dtype);
  }
}

TEST(CudaContract, OutputsMayHaveAnotherDtype) {
  const Problem p = small_problem(DType::bf16);
  const Inputs in = random_inputs(p, 3);
  const Result same = run_cuda("auto", p, in);
  Tensor out = filled(DType::f32, p.out_shape(), kNan);
  const DeviceCopy q(in.q.bytes.data(), in.q.bytes.size()), k(in.k.bytes.data(), in.k.bytes.size()),
      v(in.v.bytes.data(), in.v.bytes.size()), out_copy(out.bytes.data(), out.bytes.size());
  const DeviceStream stream;
  const auto kernel = cuda_kernel(p, stream);
  const Buffer block = kernel->allocate(kernel->block_bytes(p.k_rows));
  kernel->load_queries(moved(in.q.view(), q), {});
  kernel->load_block(moved(in.k.view(), k), moved(in.v.view(), v), {}, block.bytes());
  kernel->attend(p.tiles, block.bytes(), p.k_rows, {});
  kernel->finish(moved(out.view(), out_copy), {});
  stream.wait();
  out_copy.read(out.bytes.data());
  for (std::size_t i = 0; i < out.size(); ++i)
    ASSERT_EQ(rounded(out.get(i), DType::bf16), same.out.get(i));  // rounded once, at the end
}

// load_queries forgets what a run before it left, backward included.
TEST(CudaContract, AKernelIsUsedAgain) {
  const Problem p = small_problem();
  const BackwardInputs in = random_backward_inputs(p, 3);
  const Inputs forward{in.q, in.k, in.v};
  const Result expected = run_cuda("auto", p, forward);
  const DeviceCopy q(in.q.bytes.data(), in.q.bytes.size()), k(in.k.bytes.data(), in.k.bytes.size()),
      v(in.v.bytes.data(), in.v.bytes.size()), dout(in.dout.bytes.data(), in.dout.bytes.size()),
      out(in.out.bytes.data(), in.out.bytes.size()), lse(in.lse.data(), in.lse.size() * sizeof(float));
  Result got{filled(p.dtype, p.out_shape(), kNan), std::vector<float>(in.lse.size())};
  const DeviceCopy got_out(got.out.bytes.data(), got.out.bytes.size());
  const DeviceCopy got_lse(got.lse.data(), got.lse.size() * sizeof(float));
  const DeviceStream stream;
  const auto kernel = cuda_kernel(p, stream);
  const std::size_t before = kernel->workspace_bytes();
  EXPECT_EQ(before, cuda_workspace_bytes(config_of(p)));
  kernel->reserve(Pass::backward);
  EXPECT_EQ(kernel->workspace_bytes(), cuda_workspace_bytes(config_of(p), Pass::backward));
  const Buffer block = kernel->allocate(kernel->block_bytes(p.k_rows));
  const Buffer gradients = kernel->allocate(kernel->gradient_bytes(p.k_rows));
  kernel->load_block(moved(in.k.view(), k), moved(in.v.view(), v), {}, block.bytes());
  kernel->load_rows(
      moved(in.q.view(), q), {}, moved(in.dout.view(), dout), moved(in.out.view(), out),
      as_const(dense_lse(static_cast<float*>(lse.data()), p.shape.batch, p.shape.num_heads, p.q_rows)), {});
  kernel->attend_backward(p.tiles, block.bytes(), p.k_rows, {.bytes = gradients.bytes()}, {});
  for (int repeat = 0; repeat < 2; ++repeat) {
    kernel->load_queries(moved(in.q.view(), q), {});
    kernel->attend(p.tiles, block.bytes(), p.k_rows, {});
    kernel->finish(moved(got.out.view(), got_out), dense_lse(static_cast<float*>(got_lse.data()),
                                                             p.shape.batch, p.shape.num_heads, p.q_rows));
    stream.wait();
    got_out.read(got.out.bytes.data());
    got_lse.read(got.lse.data());
    EXPECT_TRUE(same_bits(got, expected));
  }
}

// The stream is held up by another one, so what the calls put into it cannot have run when they return; more
// of them than there are tables under way must not spoil tables that are yet to be copied.
TEST(CudaContract, CallsReturnBeforeTheStreamHasRun) {
  Problem p = small_problem();
  p.q_rotation = test_rotation(12, false, 22);
  p.k_rotation = test_rotation(12, false, 0);
  const Inputs in = random_inputs(p, 3);
  Tensor out = filled(p.dtype, p.out_shape(), kNan);
  const DeviceCopy q(in.q.bytes.data(), in.q.bytes.size()), k(in.k.bytes.data(), in.k.bytes.size()),
      v(in.v.bytes.data(), in.v.bytes.size()), out_copy(out.bytes.data(), out.bytes.size());
  const DeviceStream stream, other;
  const DeviceCopy scratch(in.q.bytes.data(), 4);
  for (int i = 0; i < 20'000; ++i)
    ASSERT_EQ(cudaMemsetAsync(scratch.data(), i & 0xFF, 4, other.get()), cudaSuccess);
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, other.get()), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(stream.get(), event, 0), cudaSuccess);
  {
    const auto kernel = cuda_kernel(p, stream);
    const Buffer block = kernel->allocate(kernel->block_bytes(p.k_rows));
    kernel->load_queries(moved(in.q.view(), q), p.q_rotation);
    kernel->load_block(moved(in.k.view(), k), moved(in.v.view(), v), p.k_rotation, block.bytes());
    for (const Tile& tile : {Tile{{0, 9}, {0, 43}, p.tiles[0].band}, Tile{{9, 21}, {0, 43}, p.tiles[0].band}})
      kernel->attend(std::span(&tile, 1), block.bytes(), p.k_rows, {});
    kernel->finish(moved(out.view(), out_copy), {});
    EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  }
  stream.wait();
  other.wait();
  cudaEventDestroy(event);
  out_copy.read(out.bytes.data());
  expect_close("out", out.doubles(), oracle(p, in).out, 1e-5);
}

// The gradient block is full of NaN until the last of its bytes has "arrived".
TEST(CudaContract, GradientsAreTouchedWhenTheyHaveArrived) {
  const Problem p = small_problem();
  const BackwardInputs in = random_backward_inputs(p, 5);
  const Gradients expected = run_backward_cuda("auto", p, in);
  const DeviceCopy q(in.q.bytes.data(), in.q.bytes.size()), k(in.k.bytes.data(), in.k.bytes.size()),
      v(in.v.bytes.data(), in.v.bytes.size()), dout(in.dout.bytes.data(), in.dout.bytes.size()),
      out(in.out.bytes.data(), in.out.bytes.size()), lse(in.lse.data(), in.lse.size() * sizeof(float));
  Gradients got = expected;
  for (Tensor* t : {&got.dk, &got.dv}) *t = filled(t->dtype, t->shape, kNan);
  const DeviceCopy dk(got.dk.bytes.data(), got.dk.bytes.size()), dv(got.dv.bytes.data(), got.dv.bytes.size());
  const DeviceStream stream;
  const auto kernel = cuda_kernel(p, stream);
  kernel->reserve(Pass::backward);
  const Buffer block = kernel->allocate(kernel->block_bytes(p.k_rows));
  const Buffer gradients = kernel->allocate(kernel->gradient_bytes(p.k_rows));
  ASSERT_EQ(cudaMemsetAsync(gradients.data.get(), 0xFF, gradients.size, stream.get()), cudaSuccess);
  kernel->load_rows(
      moved(in.q.view(), q), {}, moved(in.dout.view(), dout), moved(in.out.view(), out),
      as_const(dense_lse(static_cast<float*>(lse.data()), p.shape.batch, p.shape.num_heads, p.q_rows)), {});
  kernel->load_block(moved(in.k.view(), k), moved(in.v.view(), v), {}, block.bytes());
  int asked = 0, polled = 0;
  const auto arrived = [&]() -> std::size_t {
    if (++asked < 5) return gradients.size - 1;
    if (asked == 5) {
      EXPECT_EQ(cudaMemsetAsync(gradients.data.get(), 0, gradients.size, stream.get()), cudaSuccess);
    }
    return gradients.size;
  };
  kernel->attend_backward(p.tiles, block.bytes(), p.k_rows, {.bytes = gradients.bytes(), .arrived = arrived},
                          [&] { ++polled; });
  EXPECT_EQ(asked, 5);
  EXPECT_GE(polled, 4);
  kernel->finish_gradients(gradients.bytes(), moved(got.dk.view(), dk), moved(got.dv.view(), dv), {});
  stream.wait();
  dk.read(got.dk.bytes.data());
  dv.read(got.dv.bytes.data());
  EXPECT_TRUE(same_bits(got, expected));
}

TEST(CudaContract, AllocationsAreZeroed) {
  const DeviceStream stream;
  const auto kernel = cuda_kernel(small_problem(), stream);
  EXPECT_EQ(kernel->allocate(0).size, 0u);
  const Buffer buffer = kernel->allocate(1000);
  stream.wait();
  std::vector<unsigned char> bytes(1000, 1);
  ASSERT_EQ(cudaMemcpy(bytes.data(), buffer.data.get(), 1000, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(bytes, std::vector<unsigned char>(1000, 0));
}

// bf16, head_dim 80 and 13 rows: 16 rows of 160 bytes a head (kernels/cuda/layout.h); odd sizes are rounded
// up to 16 bytes.
TEST(CudaContract, SizesOfBlocks) {
  EXPECT_EQ(cuda_block_bytes({1, 6, 3, 80, 80}, DType::bf16, 13), 3u * 16 * (160 + 160));
  EXPECT_EQ(cuda_block_bytes({2, 6, 3, 5, 41}, DType::f32, 1), 2u * 3 * 8 * (32 + 176));
  EXPECT_EQ(cuda_gradient_bytes({2, 6, 3, 5, 41}, 9), 2u * 3 * 16 * (32 + 176));
  EXPECT_EQ(cuda_block_bytes({2, 6, 3, 5, 41}, DType::f16, 0), 0u);
  expect_refused<UsageError>([] { cuda_block_bytes({2, 6, 3, 5, 41}, DType::f16, -1); }, "k_rows is -1");
  expect_refused<OutOfMemory>(
      [] {
        cuda_block_bytes({1, 1, 1, 128, 128}, DType::f32, index_t{1} << 57);
      },
      "");
}

TEST(CudaContract, WrongArgumentsAreRefusedByName) {
  const Problem p = small_problem();
  const DeviceStream stream;
  KernelConfig config = config_of(p);
  config.isa = "AVX2";
  expect_refused<UsageError>([&] { make_cuda_kernel(config, stream.get()); }, "isa: 'AVX2'");
  config = config_of(p);
  config.softmax_scale = kNan;
  expect_refused<UsageError>([&] { make_cuda_kernel(config, stream.get()); }, "softmax_scale is nan");
  const auto kernel = cuda_kernel(p, stream);
  const Buffer block = kernel->allocate(kernel->block_bytes(p.k_rows));
  const Tile outside{{0, 22}, {0, 43}, {}};
  expect_refused<UsageError>([&] { kernel->attend(std::span(&outside, 1), block.bytes(), 43, {}); },
                             "queries [0, 22)");
  expect_refused<UsageError>([&] { kernel->attend(p.tiles, block.bytes().first(64), 43, {}); },
                             "block size is 64");
  const Buffer longer = kernel->allocate(block.size + 16);
  expect_refused<UsageError>([&] { kernel->attend(p.tiles, longer.bytes().subspan(16), 43, {}); },
                             "not aligned");
  expect_refused<UsageError>([&] { kernel->attend_backward(p.tiles, block.bytes(), 43, {}, {}); },
                             "reserve(Pass::backward)");
  stream.wait();
}

}  // namespace
}  // namespace ringattn::test
