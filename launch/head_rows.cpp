#include "launch/head_rows.h"

#include <algorithm>
#include <cmath>

namespace ringattn::launch {
namespace {

constexpr index_t kPieceRows = 256;

}  // namespace

Float64Rotation::Float64Rotation(const Rope& rope, index_t head_dim)
    : rope_(rope), dim_(rope.pairing == Rope::Pairing::none ? 0 : rotary_dim(rope, head_dim)) {
  for (index_t p = 0; p < dim_ / 2; ++p) {
    frequency_.push_back(std::pow(rope.base, -2.0 * static_cast<double>(p) / static_cast<double>(dim_)));
  }
}

void Float64Rotation::turn(index_t position, std::span<double> row) const { turn(position, row, 1); }
void Float64Rotation::turn_back(index_t position, std::span<double> row) const { turn(position, row, -1); }

void Float64Rotation::turn(index_t position, std::span<double> row, double direction) const {
  const auto place = static_cast<double>(position + rope_.position_offset);
  const bool interleaved = rope_.pairing == Rope::Pairing::interleaved;
  for (std::size_t p = 0; p < frequency_.size(); ++p) {
    const double cosine = std::cos(place * frequency_[p]), sine = direction * std::sin(place * frequency_[p]);
    double& x = row[interleaved ? 2 * p : p];
    double& y = row[interleaved ? 2 * p + 1 : p + frequency_.size()];
    const double turned = x * cosine - y * sine;
    y = x * sine + y * cosine;
    x = turned;
  }
}

HeadRows::HeadRows(ReadHead read, index_t count, index_t dim, Float64Rotation rotation,
                   std::size_t budget_bytes)
    : read_(std::move(read)),
      count_(count),
      dim_(dim),
      rotation_(std::move(rotation)),
      most_pieces_(std::max<std::size_t>(
          2, budget_bytes / (static_cast<std::size_t>(kPieceRows * dim) * sizeof(double)))) {}

void HeadRows::select(index_t batch, index_t head) {
  if (batch != batch_ || head != head_) pieces_.clear();
  batch_ = batch;
  head_ = head;
}

std::span<const double> HeadRows::at(index_t position) {
  const std::vector<double>& rows = piece(position / kPieceRows);
  return std::span(rows).subspan(static_cast<std::size_t>(position % kPieceRows * dim_),
                                 static_cast<std::size_t>(dim_));
}

const std::vector<double>& HeadRows::piece(index_t number) {
  if (const auto found = pieces_.find(number); found != pieces_.end()) return found->second;
  // Rows are asked for in ascending order, over and over: what was read longest ago is wanted next, so when
  // the pieces do not all fit, no choice of what to keep is much better than starting again.
  if (pieces_.size() >= most_pieces_) pieces_.clear();
  const Range positions{.begin = number * kPieceRows, .end = std::min((number + 1) * kPieceRows, count_)};
  std::vector<float> raw(static_cast<std::size_t>(positions.count() * dim_));
  read_(batch_, head_, positions, raw);
  std::vector<double> rows(raw.begin(), raw.end());
  for (index_t i = 0; i < positions.count(); ++i) {
    const std::size_t begin = static_cast<std::size_t>(i * dim_);
    rotation_.turn(positions.begin + i, std::span(rows).subspan(begin, static_cast<std::size_t>(dim_)));
  }
  return pieces_.emplace(number, std::move(rows)).first->second;
}

}  // namespace ringattn::launch
