#include "launch/row_statistics.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "kernels/reference/attention.h"
#include "launch/checked_rows.h"
#include "launch/steps.h"

namespace ringattn::launch {
namespace {

// Rows of keys and of values that are kept while rows are recomputed.
constexpr std::size_t kCacheBytes = std::size_t{64} << 20;

// The rows of one rank, for one KV head and its group of query heads.
class OwnRows {
 public:
  OwnRows(const StatisticsOf& what, int rank, index_t batch, index_t kv_head)
      : what_(what),
        heads_(what.problem.heads()),
        rank_(rank),
        batch_(batch),
        rotation_(what.problem.rope, heads_.head_dim),
        k_(what.inputs.k, what.problem.seqlen_k(), heads_.head_dim, rotation_, kCacheBytes),
        v_(what.inputs.v, what.problem.seqlen_k(), heads_.head_dim_v, Float64Rotation({}, heads_.head_dim_v),
           kCacheBytes) {
    k_.select(batch, kv_head);
    v_.select(batch, kv_head);
  }

  RowStatistics at(index_t local, index_t head) {
    const index_t position = what_.sharding.q.position(rank_, local);
    std::vector<float> dout(static_cast<std::size_t>(heads_.head_dim_v));
    what_.inputs.dout(batch_, head, {position, position + 1}, dout);
    RowStatistics row;
    if (what_.recompute) {
      const ReferenceRow exact = recomputed(position, head);
      row.lse = exact.lse;
      for (std::size_t e = 0; e < dout.size(); ++e) row.delta += dout[e] * exact.out[e];
    } else {
      const LseView& lse = what_.output.lse;
      row.lse = lse.data[batch_ * lse.stride[0] + head * lse.stride[1] + local * lse.stride[2]];
      for (std::size_t e = 0; e < dout.size(); ++e) {
        row.delta += dout[e] * element_of(what_.output.out, batch_, local, head, static_cast<index_t>(e));
      }
    }
    return row;
  }

 private:
  ReferenceRow recomputed(index_t position, index_t head) {
    std::vector<float> raw(static_cast<std::size_t>(heads_.head_dim));
    what_.inputs.q(batch_, head, {position, position + 1}, raw);
    std::vector<double> q(raw.begin(), raw.end());
    rotation_.turn(what_.problem.query_position(position), q);
    return reference_row(q, what_.problem.scale(), heads_.head_dim_v,
                         visible_keys(what_.problem.mask, position),
                         [&](index_t j, std::span<double> k, std::span<double> v) {
                           std::ranges::copy(k_.at(j), k.begin());
                           std::ranges::copy(v_.at(j), v.begin());
                         });
  }

  const StatisticsOf& what_;
  const HeadShape heads_;
  const int rank_;
  const index_t batch_;
  const Float64Rotation rotation_;
  HeadRows k_, v_;
};

}  // namespace

double row_statistics_bytes(const Problem& problem) {
  return 2.0 * sizeof(RowStatistics) * static_cast<double>(problem.seqlen_q()) *
         static_cast<double>(problem.heads().group());
}

std::vector<std::vector<RowStatistics>> gather_row_statistics(Communicator& comm, const StatisticsOf& what,
                                                              index_t batch, index_t kv_head,
                                                              std::chrono::milliseconds patience) {
  const index_t group = what.problem.heads().group();
  const Layout& layout = what.sharding.q;
  std::vector<RowStatistics> mine;
  shared_step(comm, patience, [&] {
    OwnRows rows(what, comm.rank(), batch, kv_head);
    for (index_t h = 0; h < group; ++h) {
      for (index_t local = 0; local < layout.rows(comm.rank()); ++local)
        mine.push_back(rows.at(local, kv_head * group + h));
    }
  });
  const auto blobs = comm.all_gather(std::as_bytes(std::span(mine)), Clock::now() + patience);
  std::vector<std::vector<RowStatistics>> all(
      static_cast<std::size_t>(group),
      std::vector<RowStatistics>(static_cast<std::size_t>(what.problem.seqlen_q())));
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto& blob = blobs[static_cast<std::size_t>(rank)];
    const index_t rows = layout.rows(rank);
    if (blob.size() != static_cast<std::size_t>(group * rows) * sizeof(RowStatistics))
      throw std::logic_error("row statistics of the wrong size");
    const std::byte* from = blob.data();
    for (auto& head : all) {
      for (index_t local = 0; local < rows; ++local, from += sizeof(RowStatistics)) {
        std::memcpy(&head[static_cast<std::size_t>(layout.position(rank, local))], from,
                    sizeof(RowStatistics));
      }
    }
  }
  return all;
}

}  // namespace ringattn::launch
