// The oracle: attention in float64 as the formula states it. Knows nothing of tiles, plans, blocks or SIMD,
// so that it cannot share a mistake with what it judges.
//
//   s_ij = softmax_scale * sum_e q_ie k_je,   out_i = sum_j exp(s_ij - m_i) v_j / sum_j exp(s_ij - m_i),
//   lse_i = m_i + log(sum_j exp(s_ij - m_i)),   m_i = max_j s_ij,   j over the keys that query i sees.
//
// NaN and infinity follow IEEE: a NaN that a row sees makes its out NaN (a NaN in v only that column); a
// score of +inf makes it NaN; a score of -inf has weight 0. A row that sees nothing, or only scores of -inf:
// out 0 (0 * v, to be exact), lse -inf.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "src/types.h"

namespace ringattn {

struct ReferenceResult {
  std::vector<double> out;  // [batch, seqlen_q, num_heads, head_dim_v]
  std::vector<double> lse;  // [batch, num_heads, seqlen_q]
};

// Dense, two passes over all keys for each row: O(batch * num_heads * seqlen_q * seqlen_k * head_dim).
// q [batch, seqlen_q, num_heads, head_dim], k [batch, seqlen_k, num_heads_kv, head_dim] and
// v [.., head_dim_v] are dense. visible(i, j): whether query i sees key j, in every batch and head.
// Throws UsageError naming a span whose size does not fit.
ReferenceResult reference_attention(const HeadShape& shape, index_t seqlen_q, index_t seqlen_k,
                                    double softmax_scale,
                                    const std::function<bool(index_t i, index_t j)>& visible,
                                    std::span<const double> q, std::span<const double> k,
                                    std::span<const double> v);

struct ReferenceGradients {
  std::vector<double> dq, dk, dv;  // shapes of q, k and v
};

// Gradients of sum(dout * out) with respect to q, k and v, from the definition, with a softmax of its own:
//   p_ij = exp(s_ij - m_i) / sum_j exp(s_ij - m_i),   dp_ij = dout_i v_j,
//   ds_ij = p_ij (dp_ij - sum_j p_ij dp_ij),
//   dq_i = softmax_scale * sum_j ds_ij k_j,  dk_j = softmax_scale * sum_i ds_ij q_i,  dv_j = sum_i p_ij
//   dout_i,
// dk and dv summed over the query heads that read a KV head. dout [batch, seqlen_q, num_heads, head_dim_v];
// the rest, cost and errors as reference_attention. NaN follows IEEE: it reaches all that the row's sums
// reach. A row that sees nothing, or only scores of -inf, has dq 0 and adds nothing.
ReferenceGradients reference_gradients(const HeadShape& shape, index_t seqlen_q, index_t seqlen_k,
                                       double softmax_scale,
                                       const std::function<bool(index_t i, index_t j)>& visible,
                                       std::span<const double> q, std::span<const double> k,
                                       std::span<const double> v, std::span<const double> dout);

struct ReferenceRow {
  std::vector<double> out;  // [head_dim_v]
  double lse = 0;
};

// One query row of one head over long sequences: keys are asked for one at a time, once each, in the order of
// `keys` (disjoint ranges of key positions, usually one), so that they may be made on the fly. `fetch` fills
// k [head_dim] and v [head_dim_v] of key j.
// Example, row i of a causal mask: reference_row(q, scale, dim_v, {{{0, i + 1}}}, fetch).
ReferenceRow reference_row(
    std::span<const double> q, double softmax_scale, index_t head_dim_v, std::span<const Range> keys,
    const std::function<void(index_t j, std::span<double> k, std::span<double> v)>& fetch);

}  // namespace ringattn
