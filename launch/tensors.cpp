#include "launch/tensors.h"

#include <limits>

#include "launch/units.h"
#include "src/error.h"

namespace ringattn::launch {
namespace {

constexpr std::byte kPoison{0xFF};  // all bits set is a NaN in f32, bf16 and f16

double elements(double batch, double rows, double heads, double dim) { return batch * rows * heads * dim; }

}  // namespace

double shard_bytes(const Problem& problem, const Sharding& sharding, int rank, Pass pass) {
  const HeadShape heads = problem.heads();
  const auto batch = static_cast<double>(heads.batch), h = static_cast<double>(heads.num_heads),
             h_kv = static_cast<double>(heads.num_heads_kv), d = static_cast<double>(heads.head_dim),
             d_v = static_cast<double>(heads.head_dim_v);
  const auto q_rows = static_cast<double>(sharding.q.rows(rank)),
             k_rows = static_cast<double>(sharding.k.rows(rank));
  const double in_dtype = elements(batch, q_rows, h, d + d_v) + elements(batch, k_rows, h_kv, d + d_v);
  // Every tensor but lse has a gradient of its shape, that of out being given.
  const double times = pass == Pass::backward ? 2 : 1;
  return times * in_dtype * static_cast<double>(size_of(problem.dtype)) +
         elements(batch, q_rows, h, sizeof(float));
}

void require_memory(double needed, const MemoryRoom& room) {
  if (needed <= room.bytes) return;
  throw OutOfMemory("needs " + bytes_text(needed) + " per rank, " + bytes_text(room.bytes) + " available (" +
                    room.limit + ")");
}

ShardTensors allocate_shard(const Problem& problem, const Sharding& sharding, int rank, Pass pass) {
  const HeadShape heads = problem.heads();
  const index_t q_rows = sharding.q.rows(rank), k_rows = sharding.k.rows(rank);
  const auto bytes = [&](index_t rows, index_t h, index_t dim) {
    return static_cast<std::size_t>(heads.batch * rows * h * dim) * size_of(problem.dtype);
  };
  ShardTensors t;
  t.q.resize(bytes(q_rows, heads.num_heads, heads.head_dim));
  t.k.resize(bytes(k_rows, heads.num_heads_kv, heads.head_dim));
  t.v.resize(bytes(k_rows, heads.num_heads_kv, heads.head_dim_v));
  t.out.assign(bytes(q_rows, heads.num_heads, heads.head_dim_v), kPoison);
  t.lse.assign(static_cast<std::size_t>(heads.batch * heads.num_heads * q_rows),
               std::numeric_limits<float>::quiet_NaN());
  // Views of the vectors' memory stay valid when the vectors are moved.
  const auto view = [&](std::vector<std::byte>& data, index_t rows, index_t h, index_t dim) {
    return dense_view(static_cast<void*>(data.data()), problem.dtype, {heads.batch, rows, h, dim});
  };
  t.views.q = as_const(view(t.q, q_rows, heads.num_heads, heads.head_dim));
  t.views.k = as_const(view(t.k, k_rows, heads.num_heads_kv, heads.head_dim));
  t.views.v = as_const(view(t.v, k_rows, heads.num_heads_kv, heads.head_dim_v));
  t.views.out = view(t.out, q_rows, heads.num_heads, heads.head_dim_v);
  t.views.lse = dense_lse(t.lse.data(), heads.batch, heads.num_heads, q_rows);
  if (pass == Pass::forward) return t;
  t.dout.resize(t.out.size());
  t.dq.assign(t.q.size(), kPoison);
  t.dk.assign(t.k.size(), kPoison);
  t.dv.assign(t.v.size(), kPoison);
  t.views.dout = as_const(view(t.dout, q_rows, heads.num_heads, heads.head_dim_v));
  t.views.gradients = {.dq = view(t.dq, q_rows, heads.num_heads, heads.head_dim),
                       .dk = view(t.dk, k_rows, heads.num_heads_kv, heads.head_dim),
                       .dv = view(t.dv, k_rows, heads.num_heads_kv, heads.head_dim_v)};
  return t;
}

}  // namespace ringattn::launch
