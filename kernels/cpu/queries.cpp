#include "kernels/cpu/queries.h"

#include <algorithm>

#include "kernels/cpu/pack.h"
#include "kernels/cpu/parallel.h"

namespace ringattn::cpu {
namespace {

// Eight lanes of a group's queries as pairs. Returns whether they may be multiplied as such.
bool pack_query_pairs(const Target& target, const Stage& stage, index_t dim, float* q) {
  PairedRows rows;
  rows.take(target, stage, DType::bf16, dim);
  target.rows_to_columns(rows.cells, kStageStride, 1.0f, (dim + 1) / 2, q, kGroup);
  bool within = true;
  for (int r = 0; r < stage.valid(); ++r)
    within &= target.within_magnitudes(stage.row(r), dim, DotRange::kLowest, DotRange::kHighest);
  return within;
}

}  // namespace

void Queries::take(const ConstTensorView& q, const Rotation& rotation, double factor, std::span<float> angles,
                   int threads) {
  q_ = q;
  factor_ = factor;
  rotation_ = {.dim = rotation.dim, .interleaved = rotation.interleaved, .angles = {}};
  if (rotation.dim == 0) return;
  const auto pairs = static_cast<std::size_t>(rotation.dim / 2), dim = static_cast<std::size_t>(q.dim());
  const auto of_row = [angles, dim](index_t row) {
    return angles.subspan(static_cast<std::size_t>(row) * dim);
  };
  parallel_tasks(threads, (q.rows() + kGroup - 1) / kGroup, [&](index_t group, int) {
    for (index_t row = group * kGroup; row < std::min((group + 1) * kGroup, q.rows()); ++row)
      rotation.angles(row, of_row(row).first(pairs), of_row(row).subspan(pairs, pairs));
  });
  rotation_.angles = [of_row](index_t row, std::span<float> cos, std::span<float> sin) {
    std::ranges::copy(of_row(row).first(cos.size()), cos.begin());
    std::ranges::copy(of_row(row).subspan(cos.size(), sin.size()), sin.begin());
  };
}

bool Queries::load_group(index_t batch, index_t head, index_t group, float* to) const {
  Stage stage(target_, rotation_);
  const auto each_panel = [&](const auto& body) {
    for (index_t lane = 0; lane < kGroup; lane += kPanel) {
      stage.turn_to(group * kGroup + lane, q_.rows());
      stage.load(q_, batch, head, factor_);
      body(to + lane);
    }
  };
  if (target_.pairs && q_.dtype == DType::bf16) {
    bool pairs = true;
    each_panel([&](float* lanes) { pairs &= pack_query_pairs(target_, stage, q_.dim(), lanes); });
    if (pairs) return true;
  }
  each_panel([&](float* lanes) {
    target_.rows_to_columns(stage.row(0), stage.stride(), stage.factor(), q_.dim(), lanes, kGroup);
  });
  return false;
}

void Queries::load_row(index_t batch, index_t head, index_t row, float* to) const {
  if (rotation_.dim == 0)
    return target_.widen(element_at(q_, batch, row, head), q_.dtype, q_.dim(), factor_, to);
  Stage stage(target_, rotation_);
  stage.turn_to(row, row + 1);
  stage.load(q_, batch, head, factor_);
  std::copy_n(stage.row(0), q_.dim(), to);
}

MemoryRows Queries::rows_of(index_t batch, index_t head, index_t group) const {
  const index_t first = group * kGroup, element = static_cast<index_t>(size_of(q_.dtype));
  return {.at = element_at(q_, batch, first, head),
          .stride = q_.stride[1] * element,
          .rows = static_cast<int>(std::min<index_t>(q_.rows() - first, kGroup)),
          .row_bytes = static_cast<int>(q_.dim() * element)};
}

}  // namespace ringattn::cpu
