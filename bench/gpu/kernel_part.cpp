#include "bench/gpu/kernel_part.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "src/error.h"

namespace ringattn::acceptance {
namespace {

// Rows of a dense tensor on the device.
template <class Void>
BasicTensorView<Void> rows_of(const DeviceBytes& bytes, DType dtype, const std::array<index_t, 4>& shape,
                              const Range& rows) {
  BasicTensorView<Void> view{bytes.data(), dtype, shape, dense_strides(shape)};
  view.data = static_cast<std::byte*>(bytes.data()) +
              rows.begin * view.stride[1] * static_cast<index_t>(size_of(dtype));
  view.shape[1] = rows.count();
  return view;
}

// The tiles as seen by a block that holds those keys.
std::vector<Tile> tiles_of(const std::vector<Tile>& tiles, const Range& keys) {
  std::vector<Tile> local;
  for (const Tile& t : tiles) {
    const Range k{std::max(t.k.begin, keys.begin) - keys.begin, std::min(t.k.end, keys.end) - keys.begin};
    if (!k.empty()) local.push_back({t.q, k, {t.band.lo - keys.begin, t.band.hi - keys.begin}});
  }
  return local;
}

// Full of NaN in every dtype, in the order of the stream.
Buffer poisoned(const Kernel& kernel, std::size_t bytes, const Stream& stream) {
  Buffer buffer = kernel.allocate(bytes);
  if (bytes > 0) check(cudaMemsetAsync(buffer.data.get(), 0xFF, bytes, stream.get()), "cudaMemsetAsync");
  return buffer;
}

std::size_t lse_count(const KernelCase& p) {
  return static_cast<std::size_t>(p.shape.batch * p.shape.num_heads * p.q_rows);
}

// Ratios of errors to bounds, named; empty detail if all are at most 1.
struct Judgement {
  std::string detail{};
  std::map<std::string, double> numbers{};
  void add(const std::string& what, const std::vector<std::byte>& bytes, DType dtype, const Expected& truth) {
    const double ratio = error_over_bound(doubles_of(bytes, dtype), truth);
    numbers[what + " error/bound"] = ratio;
    if (ratio <= 1) return;
    detail += (detail.empty() ? "" : "; ") + what + " is off by " +
              (std::isfinite(ratio) ? json_number(ratio) + " of its bound"
                                    : std::string("NaN, infinity or what was never written"));
  }
};

KernelConfig config_of(const KernelCase& p, const std::string& chapter) {
  return {.shape = p.shape,
          .dtype = p.dtype,
          .softmax_scale = p.scale(),
          .q_rows = p.q_rows,
          .threads = 1,
          .isa = chapter};
}

// Runs one pass twice; what it throws becomes the check's detail.
template <class Run, class Judge>
Check judged(const KernelCase& p, const std::string& chapter, const char* pass, const MakeKernel& make,
             const Run& run, const Judge& judge) {
  Check result{
      .part = "kernels", .name = p.name, .facts = {{"chapter", chapter}, {"pass", pass}}, .numbers = {}};
  try {
    const Stream stream;
    const auto kernel = make(config_of(p, chapter), stream.get());
    result.facts["kernel"] = kernel->name();
    const auto first = run(*kernel, stream);
    Judgement judgement = judge(first);
    if (!(run(*kernel, stream) == first))
      judgement.detail += (judgement.detail.empty() ? "" : "; ") + std::string("a second run has other bits");
    result.detail = std::move(judgement.detail);
    result.numbers = std::move(judgement.numbers);
    result.status = result.detail.empty() ? Status::ok : Status::failed;
  } catch (const UsageError& error) {
    result.status = may_refuse(chapter, p) ? Status::refused : Status::failed;
    result.detail = error.what();
  } catch (const std::exception& error) {
    result.status = Status::failed;
    result.detail = error.what();
  }
  return result;
}

}  // namespace

ForwardResult run_forward(Kernel& kernel, const KernelCase& p, const Inputs& in, const Stream& stream) {
  const DeviceBytes q(in.q.bytes), k(in.k.bytes), v(in.v.bytes);
  const DeviceBytes out(in.dout.bytes.size()), lse(lse_count(p) * sizeof(float));
  const auto out_view = dense_view(out.data(), p.dtype, p.out_shape());
  const auto lse_view =
      dense_lse(static_cast<float*>(lse.data()), p.shape.batch, p.shape.num_heads, p.q_rows);
  kernel.load_queries(rows_of<const void>(q, p.dtype, p.q_shape(), {0, p.q_rows}), {});
  for (const Range& keys : p.blocks) {
    const Buffer block = poisoned(kernel, kernel.block_bytes(keys.count()), stream);
    kernel.load_block(rows_of<const void>(k, p.dtype, p.k_shape(), keys),
                      rows_of<const void>(v, p.dtype, p.v_shape(), keys), {}, block.bytes());
    if (keys == p.blocks.back())
      kernel.attend_last(tiles_of(p.tiles, keys), block.bytes(), keys.count(), out_view, lse_view, {});
    else
      kernel.attend(tiles_of(p.tiles, keys), block.bytes(), keys.count(), {});
  }
  stream.wait();
  return {.out = out.host(), .lse = lse.host()};
}

BackwardResult run_backward(Kernel& kernel, const KernelCase& p, const Inputs& in, const Truth& truth,
                            const Stream& stream) {
  const DeviceBytes q(in.q.bytes), k(in.k.bytes), v(in.v.bytes), dout(in.dout.bytes);
  const DeviceBytes out(rounded(truth.out.values, p.dtype).bytes),
      lse(rounded(truth.lse.values, DType::f32).bytes);
  const DeviceBytes dq(q.size()), dk(k.size()), dv(v.size());
  const Range queries{0, p.q_rows};
  kernel.reserve(Pass::backward);
  const ConstLseView lse_view{static_cast<const float*>(lse.data()),
                              {p.shape.batch, p.shape.num_heads, p.q_rows},
                              {p.shape.num_heads * p.q_rows, p.q_rows, 1}};
  kernel.load_rows(rows_of<const void>(q, p.dtype, p.q_shape(), queries), {},
                   rows_of<const void>(dout, p.dtype, p.out_shape(), queries),
                   rows_of<const void>(out, p.dtype, p.out_shape(), queries), lse_view, {});
  for (const Range& keys : p.blocks) {
    const Buffer block = poisoned(kernel, kernel.block_bytes(keys.count()), stream);
    const Buffer gradients = poisoned(kernel, kernel.gradient_bytes(keys.count()), stream);
    kernel.load_block(rows_of<const void>(k, p.dtype, p.k_shape(), keys),
                      rows_of<const void>(v, p.dtype, p.v_shape(), keys), {}, block.bytes());
    kernel.attend_backward(tiles_of(p.tiles, keys), block.bytes(), keys.count(),
                           {.bytes = gradients.bytes(), .fresh = true}, {});
    kernel.finish_gradients(gradients.bytes(), rows_of<void>(dk, p.dtype, p.k_shape(), keys),
                            rows_of<void>(dv, p.dtype, p.v_shape(), keys), {});
  }
  kernel.finish_rows(rows_of<void>(dq, p.dtype, p.q_shape(), queries), {});
  stream.wait();
  return {.dq = dq.host(), .dk = dk.host(), .dv = dv.host()};
}

void check_kernel(const KernelCase& p, const std::vector<std::string>& chapters, const MakeKernel& make,
                  Lines& lines) {
  const Inputs in = random_inputs(p, 1);
  const Truth truth = truth_of(p, in);
  for (const std::string& chapter : chapters) {
    lines.write(judged(
        p, chapter, "forward", make,
        [&](Kernel& kernel, const Stream& stream) { return run_forward(kernel, p, in, stream); },
        [&](const ForwardResult& result) {
          Judgement judgement;
          judgement.add("out", result.out, p.dtype, truth.out);
          judgement.add("lse", result.lse, DType::f32, truth.lse);
          return judgement;
        }));
    lines.write(judged(
        p, chapter, "backward", make,
        [&](Kernel& kernel, const Stream& stream) { return run_backward(kernel, p, in, truth, stream); },
        [&](const BackwardResult& result) {
          Judgement judgement;
          judgement.add("dq", result.dq, p.dtype, truth.dq);
          judgement.add("dk", result.dk, p.dtype, truth.dk);
          judgement.add("dv", result.dv, p.dtype, truth.dv);
          return judgement;
        }));
  }
}

void check_kernels(Extent extent, const std::vector<std::string>& chapters, const MakeKernel& make,
                   Lines& lines) {
  for (const KernelCase& problem : kernel_cases(extent)) {
    check_kernel(problem, chapters, make, lines);
    if (device_lost()) throw DeviceError("the device is lost since " + problem.name);
  }
}

}  // namespace ringattn::acceptance
