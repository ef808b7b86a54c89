#include "kernels/cpu/few.h"

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/cpu/few_halves.h"
#include "kernels/cpu/parallel.h"

namespace ringattn::cpu {
namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();

constexpr index_t kQueries = 24;  // of a task: 12 KiB at head_dim 128, which stay in L1
constexpr index_t kStep = 256;    // keys between two looks at the maxima
// Keys of a task. Four of them are merged into a span of run.cpp, so that sums are formed in levels as there.
constexpr index_t kSlice = 512;
constexpr index_t kSlices = kKeySpan / kSlice;
// Spans whose slices are in scratch at a time; then they are merged in the order of keys. So scratch does not
// grow with the block, and 64 slices keep many threads busy.
constexpr index_t kWave = 16;
// Blocks of more bytes come from memory: the last-level cache of a few cores. Not asked of the machine, since
// the order of sums depends on it.
constexpr index_t kCached = index_t{32} << 20;
constexpr index_t kVector = 16;  // floats, or a multiple, of every instruction set
static_assert(kStep <= kFewStride && kStep % kVector == 0 && kSlice % kStep == 0 && kStep % kKeyBlock == 0);

// Of the queries (rows x heads) of a KV head, those that one task works on.
index_t task_queries(const HeadShape& shape, index_t rows) {
  return std::min(rows * shape.group(), kQueries);
}

// Queries of a slice: their outputs so far, then their FewRows.
index_t slice_floats(index_t queries, index_t dim_v) {
  return round_up(queries * (dim_v + index_t{sizeof(FewRow) / sizeof(float)}), kVector);
}

// Of a thread: queries, their probabilities, and each of those once more in two halves.
index_t thread_floats(index_t queries) { return 4 * queries * kFewStride; }

struct Slice {
  float* o;      // [queries][dim_v]
  FewRow* rows;  // [queries]
};

// What all tasks of a call share.
struct FewRun {
  const AttendRun& run;
  const std::vector<FewKeys>& rows;
  index_t queries;  // of a KV head, row by row
  index_t chunks;   // in which tasks take them, of about the same size
  index_t most;     // queries of the largest chunk
  Range spans;      // that any row sees something of
  float* scratch;   // of threads, then of slices
  index_t threads;

  index_t dim_v() const { return run.block_layout.dim_v; }
  index_t units() const { return run.shape.batch * run.shape.num_heads_kv * chunks * spans.count(); }
  // Whether panels are read in the order of memory.
  bool ordered() const {
    return queries == 1 && run.shape.batch * run.shape.num_heads_kv * run.block_layout.head_bytes > kCached;
  }
  float* queries_of(int thread) const { return scratch + thread_floats(most) * thread; }
  Slice slice(index_t index) const {
    float* o = scratch + thread_floats(most) * threads + slice_floats(most, dim_v()) * index;
    return {.o = o, .rows = reinterpret_cast<FewRow*>(o + most * dim_v())};
  }
};

// Some queries of a KV head against a span of keys.
struct Unit {
  index_t batch, head_kv, first_query, last_query, span;
};

Unit unit_at(const FewRun& few, index_t index) {
  const index_t spans = few.spans.count();
  const index_t chunk = index / spans % few.chunks, head = index / spans / few.chunks;
  return {.batch = head / few.run.shape.num_heads_kv,
          .head_kv = head % few.run.shape.num_heads_kv,
          .first_query = few.queries * chunk / few.chunks,
          .last_query = few.queries * (chunk + 1) / few.chunks,
          .span = few.spans.begin + index % spans};
}

// Which row of which head a query is.
struct Query {
  index_t head, group;
  int lane;
};
Query query_at(const FewRun& few, const Unit& unit, index_t query) {
  const index_t group = few.run.shape.group();
  const FewKeys& row = few.rows[static_cast<std::size_t>(query / group)];
  return {.head = unit.head_kv * group + query % group, .group = row.group, .lane = row.lane};
}

// The parts of ascending ranges that lie in [begin, end), relative to `begin`.
class Shown {
 public:
  void cut(std::span<const Range> keys, index_t begin, index_t end) {
    count_ = 0;
    const auto first =
        std::partition_point(keys.begin(), keys.end(), [&](const Range& r) { return r.end <= begin; });
    for (auto r = first; r != keys.end() && r->begin < end; ++r)
      list_[count_++] = {.begin = static_cast<int>(std::max(r->begin, begin) - begin),
                         .end = static_cast<int>(std::min(r->end, end) - begin)};
  }
  std::span<const PanelRows> rows() const { return std::span(list_).first(count_); }
  bool empty() const { return count_ == 0; }

 private:
  std::array<PanelRows, kStep / 2 + 1> list_;  // neighbouring ranges are one
  std::size_t count_ = 0;
};

bool same(const Shown& a, const Shown& b) { return std::ranges::equal(a.rows(), b.rows()); }

// One slice of keys for the queries of a unit.
class SliceTask {
 public:
  SliceTask(const FewRun& few, const Unit& unit, const Slice& slice, int thread)
      : few_(few),
        unit_(unit),
        slice_(slice),
        x_(few.queries_of(thread)),
        p_(x_ + few.most * kFewStride),
        x_halves_(p_ + few.most * kFewStride, few.most),
        p_halves_(p_ + 2 * few.most * kFewStride, few.most),
        first_row_(unit.first_query / few.run.shape.group()),
        last_row_((unit.last_query - 1) / few.run.shape.group() + 1) {
    for (index_t n = 0; n < queries(); ++n)
      slice_.rows[n] = {.shift = 0, .limit = kNegInf, .sum = 0, .seen = false};
  }

  // Begins and goes through keys [begin, end). `begin` is a multiple of kStep.
  void run(index_t begin, index_t end) {
    if (begin >= end) return;
    for (index_t n = 0; n < queries(); ++n) {
      const Query query = query_at(few_, unit_, unit_.first_query + n);
      few_.run.queries.load_row(unit_.batch, query.head, query.group * kGroup + query.lane,
                                x_ + n * kFewStride);
    }
    std::fill_n(slice_.o, queries() * few_.dim_v(), 0.0f);
    for (index_t first = begin; first < end; first += kStep) step(first, std::min(first + kStep, end));
  }

 private:
  index_t queries() const { return unit_.last_query - unit_.first_query; }
  const Shown& shown(index_t row) const { return shown_[static_cast<std::size_t>(row - first_row_)]; }
  // The queries of rows [row, last), counted from the first of the unit.
  Range queries_of(index_t row, index_t last) const {
    const index_t group = few_.run.shape.group();
    return {std::max(row * group, unit_.first_query) - unit_.first_query,
            std::min(last * group, unit_.last_query) - unit_.first_query};
  }
  void cut(index_t begin, index_t end) {
    for (index_t row = first_row_; row < last_row_; ++row)
      shown_[static_cast<std::size_t>(row - first_row_)].cut(few_.rows[static_cast<std::size_t>(row)].keys,
                                                             begin, end);
  }
  // Calls body(queries, shown) for neighbouring rows that are shown the same, or, if `any`, something.
  template <class Body>
  void for_runs(bool any, const Body& body) const {
    for (index_t row = first_row_, last = row; row < last_row_; row = last) {
      for (last = row + 1; last < last_row_; ++last)
        if (any ? shown(row).empty() != shown(last).empty() : !same(shown(row), shown(last))) break;
      if (!shown(row).empty()) body(queries_of(row, last), shown(row));
    }
  }

  // Pairs of bf16 are multiplied where that is as good as multiplying them widened.
  void split_queries() {
    const Target& target = few_.run.target;
    const index_t dim = few_.run.shape.head_dim;
    pairs_ = few_.run.dtype == DType::bf16 ? target.pairs : nullptr;
    for (index_t n = 0; n < queries() && pairs_; ++n)
      if (!target.within_magnitudes(x_ + n * kFewStride, dim, DotRange::kLowestSplit, DotRange::kHighest))
        pairs_ = nullptr;
    for (index_t n = 0; n < queries() && pairs_; ++n) {
      float* x = x_ + n * kFewStride;
      std::fill(x + dim, x + round_up(dim, 32), 0.0f);
      x_halves_.split(*pairs_, x, n, dim);
    }
  }

  void multiply(const PanelProduct& product) const {
    if (pairs_)
      pairs_->few_product(product);
    else
      few_.run.target.panel_product(product);
  }

  void step(index_t first, index_t last) {
    cut(first, last);
    int begin = kStep, end = 0;
    for (index_t row = first_row_; row < last_row_; ++row) {
      if (shown(row).empty()) continue;
      begin = std::min(begin, shown(row).rows().front().begin);
      end = std::max(end, shown(row).rows().back().end);
    }
    if (begin >= end) return;
    scores(first, begin / kPanel * kPanel, end);
    softmax(begin / static_cast<int>(kVector) * static_cast<int>(kVector),
            static_cast<int>(round_up(end, kVector)));
    for (index_t block = (first + begin) / kKeyBlock * kKeyBlock; block < first + end; block += kKeyBlock) {
      cut(block, std::min(block + kKeyBlock, last));
      output(block, block - first);
    }
  }

  // Of the panels from key `begin` of the step on, for every row that sees something of the step.
  void scores(index_t first, int begin, int end) {
    const BlockLayout& layout = few_.run.block_layout;
    const PanelRows whole{.begin = 0, .end = static_cast<int>(layout.head_dim)};
    PanelProduct product{.panels = few_.run.block + layout.k_panel(unit_.batch, unit_.head_kv, first + begin),
                         .dtype = few_.run.dtype,
                         .panel_bytes = kPanel * layout.k_dim * layout.element,
                         .count = (end - begin + kPanel - 1) / kPanel,
                         .ordered = few_.ordered(),
                         .rows = {&whole, 1},
                         .y_stride = kFewStride};
    for_runs(true, [&](const Range& n, const Shown&) {
      product.x = x_ + n.begin * kFewStride;
      product.queries = static_cast<int>(n.count());
      product.y = p_ + n.begin * kFewStride + begin;
      x_halves_.show(n.begin, 0, product);
      multiply(product);
    });
  }

  // Keys [begin, end) of the step, in whole vectors.
  void softmax(int begin, int end) {
    p_halves_.clear();
    for (index_t row = first_row_; row < last_row_; ++row) {
      if (shown(row).empty()) continue;
      const Range n = queries_of(row, row + 1);
      for (index_t query = n.begin; query < n.end; ++query) {
        float* p = p_ + query * kFewStride;
        int at = begin;
        for (const PanelRows& keys : shown(row).rows()) {
          std::fill(p + at, p + keys.begin, kNegInf);
          at = keys.end;
        }
        std::fill(p + at, p + end, kNegInf);
        slice_.rows[query].seen = true;
        few_.run.target.few_softmax(p + begin, end - begin, slice_.rows[query],
                                    slice_.o + query * few_.dim_v(), static_cast<int>(few_.dim_v()),
                                    few_.run.slope);
        if (pairs_) p_halves_.split(*pairs_, p, query, kStep);
      }
    }
  }

  // Adds the values of up to 64 keys, those shown and no others: 0 * NaN of a hidden one would reach the row.
  void output(index_t block, index_t in_step) {
    const BlockLayout& layout = few_.run.block_layout;
    PanelProduct product{.panels = few_.run.block + layout.v_panels(unit_.batch, unit_.head_kv, block),
                         .dtype = few_.run.dtype,
                         .panel_bytes = kPanel * layout.v_rows(block) * layout.element,
                         .count = static_cast<int>(layout.dim_v / kPanel),
                         .ordered = few_.ordered(),
                         .y_stride = layout.dim_v,
                         .add = true,
                         .tiny_matters = true};
    for_runs(false, [&](const Range& n, const Shown& keys) {
      product.rows = keys.rows();
      product.x = p_ + n.begin * kFewStride + in_step;
      product.queries = static_cast<int>(n.count());
      product.y = slice_.o + n.begin * layout.dim_v;
      p_halves_.show(n.begin, in_step, product);
      multiply(product);
    });
  }

  const FewRun& few_;
  const Unit& unit_;
  Slice slice_;
  float *x_, *p_;  // [queries][kFewStride]: queries; scores, then probabilities of a step
  Halves x_halves_, p_halves_;
  const PairTarget* pairs_ = nullptr;  // null: elements are widened
  index_t first_row_, last_row_;
  std::array<Shown, kQueries> shown_;  // of the rows, in the step or block of 64 keys at hand
};

// A query's state, in a slice or in the lanes of a group.
struct State {
  float *shift, *limit, *sum, *o;
  float* weight;  // RowState::weight; null in a slice, where no probability is rounded and it is the sum
  index_t step;   // from one column of o to the next
};

State state_of(const FewRun& few, index_t batch, const Query& at) {
  const StateLayout& layout = few.run.state_layout;
  const GroupView group = group_view(layout, few.run.state, batch, at.head, at.group);
  RowState& rows = *group.rows;
  if (rows.seen == Seen::nothing) begin_group(layout, group);
  return {.shift = &rows.shift[at.lane],
          .limit = &rows.limit[at.lane],
          .sum = &rows.sum[at.lane],
          .o = group.o + at.lane,
          .weight = &rows.weight[at.lane],
          .step = kGroup};
}

// The state of some keys is added to that of keys before them. The larger of both shifts stays.
void merge(const FewRun& few, const FewRow& part, const float* o, const State& into) {
  const auto fall = [&](float from, float to) {
    const float difference = from - to;
    float factor = 1;
    few.run.target.exp2(&difference, 1, few.run.slope, &factor);
    return factor;
  };
  float keep = 1, add = 1;
  // A limit of -inf: sum and o are 0 or, from a NaN or from 0 * inf, NaN, whatever they are multiplied by.
  if (*into.limit == kNegInf) {
    *into.shift = part.shift;
    *into.limit = part.limit;
  } else if (part.limit != kNegInf) {
    const bool raise = part.shift > *into.shift;
    if (raise)
      keep = fall(*into.shift, part.shift);
    else
      add = fall(part.shift, *into.shift);
    if (raise) {
      *into.shift = part.shift;
      *into.limit = part.limit;
    }
  }
  *into.sum = *into.sum * keep + part.sum * add;
  if (into.weight) *into.weight = *into.weight * keep + part.sum * add;
  for (index_t c = 0; c < few.dim_v(); ++c) into.o[c * into.step] = into.o[c * into.step] * keep + o[c] * add;
}

// The slices of a unit, which begin at `first`, to one, and that to the state.
void merge_unit(const FewRun& few, const Unit& unit, index_t first) {
  for (index_t n = 0; n < unit.last_query - unit.first_query; ++n) {
    const Slice whole = few.slice(first);
    FewRow& row = whole.rows[n];
    float* o = whole.o + n * few.dim_v();
    const State state{
        .shift = &row.shift, .limit = &row.limit, .sum = &row.sum, .o = o, .weight = nullptr, .step = 1};
    for (index_t s = 1; s < kSlices; ++s) {
      const Slice slice = few.slice(first + s);
      if (!slice.rows[n].seen) continue;
      row.seen = true;
      merge(few, slice.rows[n], slice.o + n * few.dim_v(), state);
    }
    if (row.seen) merge(few, row, o, state_of(few, unit.batch, query_at(few, unit, unit.first_query + n)));
  }
}

}  // namespace

index_t few_scratch_floats(const HeadShape& shape, index_t q_rows, int threads) {
  const index_t queries = task_queries(shape, std::min(q_rows, kFewRows));
  return thread_floats(queries) * threads +
         kWave * kSlices * slice_floats(queries, round_up(shape.head_dim_v, kPanel));
}

void attend_few(const AttendRun& run, const std::vector<FewKeys>& rows, index_t q_rows, float* scratch,
                const Poll& poll) {
  if (rows.empty()) return;
  const index_t queries = static_cast<index_t>(rows.size()) * run.shape.group();
  Range keys{run.k_rows, 0};
  for (const FewKeys& row : rows)
    keys = {std::min(keys.begin, row.keys.front().begin), std::max(keys.end, row.keys.back().end)};
  const FewRun few{.run = run,
                   .rows = rows,
                   .queries = queries,
                   .chunks = (queries + kQueries - 1) / kQueries,
                   .most = task_queries(run.shape, std::min(q_rows, kFewRows)),
                   .spans = {keys.begin / kKeySpan, (keys.end - 1) / kKeySpan + 1},
                   .scratch = scratch,
                   .threads = run.threads};
  for (index_t wave = 0; wave < few.units(); wave += kWave) {
    const index_t units = std::min(kWave, few.units() - wave);
    parallel_tasks(
        run.threads, units * kSlices,
        [&](index_t task, int thread) {
          const Unit unit = unit_at(few, wave + task / kSlices);
          const index_t begin = unit.span * kKeySpan + task % kSlices * kSlice;
          SliceTask(few, unit, few.slice(task), thread)
              .run(std::max(begin, keys.begin / kStep * kStep), std::min(begin + kSlice, keys.end));
          if (thread == 0 && poll) poll();
        },
        poll);
    for (index_t u = 0; u < units; ++u) merge_unit(few, unit_at(few, wave + u), u * kSlices);
  }
}

}  // namespace ringattn::cpu
