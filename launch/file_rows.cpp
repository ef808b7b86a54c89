#include "launch/file_rows.h"

#include <algorithm>
#include <unordered_map>

#include "launch/element.h"

namespace ringattn::launch {
namespace {

// [batch, rows, heads, dim] in pieces of rows.
class FileRows {
 public:
  FileRows(const TensorFile& file, std::size_t budget_bytes) : file_(file) {
    const auto& shape = file.shape();
    batch_ = shape[0];
    rows_ = shape[1];
    heads_ = shape[2];
    dim_ = shape[3];
    const auto row_bytes = static_cast<std::size_t>(batch_ * heads_ * dim_) * size_of(file.dtype());
    piece_rows_ = std::clamp<index_t>(
        static_cast<index_t>((std::size_t{4} << 20) / std::max<std::size_t>(1, row_bytes)), 1,
        std::max<index_t>(1, rows_));
    most_pieces_ =
        std::max<std::size_t>(1, budget_bytes / (row_bytes * static_cast<std::size_t>(piece_rows_)));
  }

  void read(index_t batch, index_t head, Range positions, std::span<float> to) {
    const DType type = file_.dtype();
    auto at = to.begin();
    for (index_t i = positions.begin; i < positions.end; ++i) {
      const index_t number = i / piece_rows_;
      const std::vector<std::byte>& bytes = piece(number);
      const index_t rows = std::min(piece_rows_, rows_ - number * piece_rows_);
      const index_t first = ((batch * rows + i % piece_rows_) * heads_ + head) * dim_;
      for (index_t e = 0; e < dim_; ++e) {
        *at++ = load_element(type, bytes.data() + static_cast<std::size_t>(first + e) * size_of(type));
      }
    }
  }

 private:
  const std::vector<std::byte>& piece(index_t number) {
    if (const auto found = pieces_.find(number); found != pieces_.end()) return found->second;
    if (pieces_.size() >= most_pieces_) pieces_.clear();
    const Segment rows{.begin = number * piece_rows_,
                       .count = std::min(piece_rows_, rows_ - number * piece_rows_)};
    std::vector<std::byte> bytes(static_cast<std::size_t>(batch_ * rows.count * heads_ * dim_) *
                                 size_of(file_.dtype()));
    file_.read(std::span(&rows, 1), bytes);
    return pieces_.emplace(number, std::move(bytes)).first->second;
  }

  const TensorFile& file_;
  index_t batch_ = 0, rows_ = 0, heads_ = 0, dim_ = 0, piece_rows_ = 1;
  std::size_t most_pieces_ = 1;
  std::unordered_map<index_t, std::vector<std::byte>> pieces_;
};

}  // namespace

ReadHead head_reader(const TensorFile& file, std::size_t budget_bytes) {
  const auto rows = std::make_shared<FileRows>(file, budget_bytes);
  return [rows](index_t batch, index_t head, Range positions, std::span<float> to) {
    rows->read(batch, head, positions, to);
  };
}

}  // namespace ringattn::launch
