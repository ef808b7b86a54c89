#include "bench/gpu/bridge.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "kernels/cuda/cuda.h"
#include "src/error.h"
#include "src/mask.h"

using ringattn::DType, ringattn::index_t, ringattn::Mask;

struct ringattn_bridge {
  ringattn_bridge_shape shape;
  DType dtype;
  Mask mask;
  std::unique_ptr<ringattn::Kernel> kernel;
  std::string name;
  ringattn::Buffer block, gradients;
  std::string error{};
};

namespace {

DType dtype_of(int32_t code) {
  switch (code) {
    case 0:
      return DType::f32;
    case 1:
      return DType::bf16;
    case 2:
      return DType::f16;
    default:
      throw ringattn::UsageError("dtype is " + std::to_string(code) + ", allowed are 0, 1 and 2");
  }
}

template <class Pointer>
auto q_view(const ringattn_bridge& b, Pointer q) {
  return ringattn::dense_view(q, b.dtype,
                              {b.shape.batch, b.shape.seqlen_q, b.shape.num_heads, b.shape.head_dim});
}
template <class Pointer>
auto out_view(const ringattn_bridge& b, Pointer out) {
  return ringattn::dense_view(out, b.dtype,
                              {b.shape.batch, b.shape.seqlen_q, b.shape.num_heads, b.shape.head_dim_v});
}
template <class Pointer>
auto k_view(const ringattn_bridge& b, Pointer k) {
  return ringattn::dense_view(k, b.dtype,
                              {b.shape.batch, b.shape.seqlen_k, b.shape.num_heads_kv, b.shape.head_dim});
}
template <class Pointer>
auto v_view(const ringattn_bridge& b, Pointer v) {
  return ringattn::dense_view(v, b.dtype,
                              {b.shape.batch, b.shape.seqlen_k, b.shape.num_heads_kv, b.shape.head_dim_v});
}

std::unique_ptr<ringattn_bridge> opened(const char* chapter, const ringattn_bridge_shape& s, void* stream) {
  auto bridge = std::unique_ptr<ringattn_bridge>(new ringattn_bridge{
      .shape = s,
      .dtype = dtype_of(s.dtype),
      .mask = Mask::window(s.seqlen_q, s.seqlen_k, {.left = s.window_left, .right = s.window_right}),
      .kernel = nullptr,
      .name = "",
      .block = {},
      .gradients = {}});
  bridge->kernel =
      ringattn::make_cuda_kernel({.shape = {.batch = s.batch,
                                            .num_heads = s.num_heads,
                                            .num_heads_kv = s.num_heads_kv,
                                            .head_dim = s.head_dim,
                                            .head_dim_v = s.head_dim_v},
                                  .dtype = bridge->dtype,
                                  .softmax_scale = 1 / std::sqrt(static_cast<double>(s.head_dim)),
                                  .q_rows = s.seqlen_q,
                                  .threads = 1,
                                  .isa = chapter},
                                 stream);
  bridge->name = bridge->kernel->name();
  bridge->block = bridge->kernel->allocate(bridge->kernel->block_bytes(s.seqlen_k));
  if (s.backward != 0) {
    bridge->kernel->reserve(ringattn::Pass::backward);
    bridge->gradients = bridge->kernel->allocate(bridge->kernel->gradient_bytes(s.seqlen_k));
  }
  return bridge;
}

// Nothing may be thrown through C.
template <class Work>
int guarded(ringattn_bridge& bridge, const Work& work) {
  try {
    work();
    return 0;
  } catch (const std::exception& error) {
    bridge.error = error.what();
    return 1;
  }
}

}  // namespace

ringattn_bridge* ringattn_bridge_open(const char* chapter, const ringattn_bridge_shape* shape, void* stream,
                                      char* why, int64_t why_size) {
  try {
    return opened(chapter, *shape, stream).release();
  } catch (const std::exception& error) {
    if (why_size > 0) {
      const std::size_t length = std::min(std::strlen(error.what()), static_cast<std::size_t>(why_size) - 1);
      std::memcpy(why, error.what(), length);
      why[length] = 0;
    }
    return nullptr;
  }
}

const char* ringattn_bridge_name(const ringattn_bridge* bridge) { return bridge->name.c_str(); }
int64_t ringattn_bridge_pairs(const ringattn_bridge* bridge) { return bridge->mask.visible_pairs(); }
const char* ringattn_bridge_error(const ringattn_bridge* bridge) { return bridge->error.c_str(); }
void ringattn_bridge_close(ringattn_bridge* bridge) { delete bridge; }

int ringattn_bridge_forward(ringattn_bridge* bridge, const void* q, const void* k, const void* v, void* out,
                            float* lse) {
  const ringattn_bridge& b = *bridge;
  return guarded(*bridge, [&] {
    b.kernel->load_queries(q_view(b, q), {});
    b.kernel->load_block(k_view(b, k), v_view(b, v), {}, b.block.bytes());
    b.kernel->attend_last(b.mask.tiles(), b.block.bytes(), b.shape.seqlen_k, out_view(b, out),
                          ringattn::dense_lse(lse, b.shape.batch, b.shape.num_heads, b.shape.seqlen_q), {});
  });
}

int ringattn_bridge_backward(ringattn_bridge* bridge, const void* dout, const void* q, const void* k,
                             const void* v, const void* out, const float* lse, void* dq, void* dk, void* dv) {
  const ringattn_bridge& b = *bridge;
  const index_t heads = b.shape.num_heads, rows = b.shape.seqlen_q;
  return guarded(*bridge, [&] {
    b.kernel->load_rows(q_view(b, q), {}, out_view(b, dout), out_view(b, out),
                        {lse, {b.shape.batch, heads, rows}, {heads * rows, rows, 1}}, {});
    b.kernel->load_block(k_view(b, k), v_view(b, v), {}, b.block.bytes());
    b.kernel->attend_backward(b.mask.tiles(), b.block.bytes(), b.shape.seqlen_k,
                              {.bytes = b.gradients.bytes(), .fresh = true}, {});
    b.kernel->finish_rows(q_view(b, dq), {});
    b.kernel->finish_gradients(b.gradients.bytes(), k_view(b, dk), v_view(b, dv), {});
  });
}
