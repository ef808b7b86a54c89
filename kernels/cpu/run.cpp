#include "kernels/cpu/run.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "kernels/cpu/parallel.h"

namespace ringattn::cpu {
namespace {

// Groups of a task share each block of K and V while it is in L2: 8 of them, 0.4 MiB at head_dim 128, keep
// the stream from memory below 1 GB/s a core.
constexpr index_t kTaskGroups = 8;

// Sums are formed in three levels, so that what is small is not lost in what is large: 64 keys in registers,
// those of a span of 2,048 keys in scratch, spans in the carried state. A rank of a ring sees its own keys
// first, and a head that looks nearby gives them nearly all the weight; thousands of far keys, each below
// half an ulp of that, would be lost if they were added to it one by one (4.5e-5 of the sum in
// Forward.a_heavy_first_block_does_not_drown_many_light_keys). An add costs 1/64 of the FLOPs of an output.
//
// The first span of all is summed in place, to the same bits: the state it would be added to is 0.
struct Member {
  GroupView whole;                // the carried state
  GroupView part;                 // the same queries, and the state of this span: in scratch, or `whole`
  float* scratch;                 // part_floats of it
  std::span<const Piece> pieces;  // not yet seen
  bool seen = false;              // something of this span
};

// The following spans of a member are summed in scratch.
void sum_apart(Member& member, index_t o_floats) {
  member.part = {.q = member.whole.q,
                 .o = member.scratch,
                 .rows = reinterpret_cast<RowState*>(member.scratch + o_floats)};
  *member.part.rows = *member.whole.rows;
  std::fill_n(member.part.rows->sum, kGroup, 0.0f);
  std::fill_n(member.part.rows->weight, kGroup, 0.0f);
}

Member make_member(const GroupView& whole, float* scratch, const StateLayout& layout,
                   std::span<const Piece> pieces) {
  Member member{.whole = whole, .part = whole, .scratch = scratch, .pieces = pieces};
  if (whole.rows->empty) {
    std::fill_n(whole.o, layout.o_floats, 0.0f);
  } else {
    sum_apart(member, layout.o_floats);
  }
  return member;
}

void end_span(const AttendRun& run, Member& member) {
  if (std::exchange(member.whole.rows->empty, false)) {
    sum_apart(member, run.state_layout.o_floats);
  } else {
    run.target.fold(member.part, member.whole, static_cast<int>(run.block_layout.dim_v), run.slope);
  }
}

// Of one group in scratch; its o is 0 whenever no task is at work.
index_t part_floats(index_t o_floats) { return o_floats + index_t{sizeof(RowState) / sizeof(float)}; }

// How the rows and heads of one (batch, KV head) are cut into tasks: `heads` query heads by `rows` groups of
// rows each.
struct Deal {
  index_t heads, rows, head_parts;
};

Deal deal(const AttendRun& run) {
  const index_t group = run.shape.group();
  const index_t total = run.shape.batch * run.shape.num_heads * run.schedule.groups();
  // With few groups, smaller tasks keep every thread busy.
  const index_t size = std::clamp<index_t>(total / (4 * index_t{run.threads}), 1, kTaskGroups);
  const index_t heads = std::min(group, size);
  return {
      .heads = heads, .rows = std::max<index_t>(size / heads, 1), .head_parts = (group + heads - 1) / heads};
}

// Scratch of a thread, in floats: the parts of a task's groups; but for f32, 64 keys widened; and for bf16,
// the queries of a group that holds pairs, widened.
index_t wide_keys_at(const HeadShape& shape) {
  return kTaskGroups * part_floats(kGroup * round_up(shape.head_dim_v, kPanel));
}
index_t wide_queries_at(const HeadShape& shape) {
  return wide_keys_at(shape) + kKeyBlock * (shape.head_dim + round_up(shape.head_dim_v, kPanel));
}

// Keys of a step. Their number depends on dtype and instruction set alone, since it shows in the sums.
index_t step_keys(const AttendRun& run) {
  return run.dtype == DType::bf16 && run.target.pairs ? kPairKeys : kKeyBlock;
}

// What a piece shows to a group of the `rows` keys from `first` on.
GroupStep make_step(const AttendRun& run, const GroupView& group, const Piece& piece, index_t first,
                    index_t rows) {
  // Relative to these keys and group all distances that matter are below 304; a band's ends may not even fit
  // 32 bits, so they are clamped while still 64 wide.
  const auto near = [&](index_t x) { return static_cast<int>(std::clamp<index_t>(x - first, -1024, 1024)); };
  return {.group = group,
          .head_dim = static_cast<int>(run.block_layout.head_dim),
          .dim_v = static_cast<int>(run.block_layout.dim_v),
          .v_rows = static_cast<int>(rows),
          .slope = run.slope,
          .key_begin = static_cast<int>(std::max<index_t>(piece.k.begin - first, 0)),
          .key_end = static_cast<int>(std::min(piece.k.end - first, rows)),
          .lane_begin = piece.lane_begin,
          .lane_end = piece.lane_end,
          .lo = near(piece.lo),
          .hi = near(piece.hi)};
}

// K and V of up to 64 keys in fp32, and whether V is finite; both found out when first needed.
class KeyBlock {
 public:
  KeyBlock(const AttendRun& run, index_t batch, index_t head, index_t first, int thread)
      : run_(run), layout_(run.block_layout), first_(first), rows_(layout_.v_rows(first)) {
    const std::byte* k = run.block + layout_.k_panel(batch, head, first);
    const std::byte* v = run.block + layout_.v_panels(batch, head, first);
    if (run.dtype == DType::f32) {
      k_ = reinterpret_cast<const float*>(k);
      v_ = reinterpret_cast<const float*>(v);
      return;
    }
    float* scratch = run.scratch + thread * scratch_floats(run.shape, run.dtype) + wide_keys_at(run.shape);
    k_ = scratch;
    for (index_t row = 0; row < rows_; row += kPanel)
      run.target.widen_pairs(k + row * layout_.k_dim * layout_.element, run.dtype, layout_.head_dim,
                             scratch + row * layout_.head_dim);
    v_ = scratch + kKeyBlock * layout_.head_dim;
    run.target.widen_pairs(v, run.dtype, rows_ * layout_.dim_v / kPanel,
                           scratch + kKeyBlock * layout_.head_dim);
  }

  bool v_finite() {
    if (!checked_) finite_ = run_.target.all_finite(v_, rows_ * layout_.dim_v);
    checked_ = true;
    return finite_;
  }

  void attend(const GroupView& group, const Piece& piece) {
    GroupStep step = make_step(run_, group, piece, first_, rows_);
    step.k = k_;
    step.v = v_;
    // Only where some pair of the register tiles is hidden can a hidden key touch a row.
    const bool whole = step.lane_begin == 0 && step.lane_end == kGroup && step.key_begin % kPanel == 0 &&
                       step.key_end % kPanel == 0 && step.key_end - 1 <= step.hi &&
                       step.key_begin - (kGroup - 1) >= step.lo;
    step.v_finite = whole || v_finite();
    run_.target.attend(step);
  }

 private:
  const AttendRun& run_;
  const BlockLayout& layout_;
  index_t first_, rows_;
  const float *k_ = nullptr, *v_ = nullptr;
  bool checked_ = false, finite_ = false;
};

struct Task {
  index_t batch, head_kv, first_head, first_group;
};

// The keys of a step, for groups that hold their queries either way.
class KeyStep {
 public:
  KeyStep(const AttendRun& run, const Task& task, index_t first, int thread)
      : run_(run), task_(task), first_(first), thread_(thread) {
    const BlockLayout& layout = run.block_layout;
    rows_ = std::min(step_keys(run), layout.padded_rows - first);
    if (step_keys(run) == kKeyBlock) return;
    const std::byte* v = run.block + layout.v_panels(task.batch, task.head_kv, first);
    k_ = reinterpret_cast<const float*>(run.block + layout.k_panel(task.batch, task.head_kv, first));
    v_ = reinterpret_cast<const float*>(v);
    values_ = run.target.magnitude_bf16(v, rows_ * layout.dim_v);
  }

  void attend(const GroupView& group, const Piece& piece) {
    if (group.rows->pairs && DotRange::outputs(values_.largest)) {
      GroupStep step = make_step(run_, group, piece, first_, rows_);
      step.k = k_;
      step.v = v_;
      step.v_finite = values_.finite;
      return run_.target.pairs->attend(step);
    }
    GroupView wide = group;
    if (group.rows->pairs) {
      wide.q = run_.scratch + thread_ * scratch_floats(run_.shape, run_.dtype) + wide_queries_at(run_.shape);
      run_.target.pairs->split_rows(group.q, run_.shape.head_dim, wide.q);
    }
    const index_t begin = std::max(first_, piece.k.begin / kKeyBlock * kKeyBlock);
    for (index_t key = begin; key < std::min(first_ + rows_, piece.k.end); key += kKeyBlock) {
      if (!wide_ || wide_first_ != key) wide_.emplace(run_, task_.batch, task_.head_kv, key, thread_);
      wide_first_ = key;
      wide_->attend(wide, piece);
    }
  }

 private:
  const AttendRun& run_;
  const Task& task_;
  index_t first_, rows_ = 0, wide_first_ = 0;
  int thread_;
  const float *k_ = nullptr, *v_ = nullptr;  // pairs
  Magnitude values_{.finite = true, .largest = 0};
  std::optional<KeyBlock> wide_;
};

// The groups of a task, and the keys that they see between them.
struct Members {
  std::array<Member, kTaskGroups> list;
  std::size_t count = 0;
  Range keys;

  std::span<Member> all() { return std::span(list).first(count); }
};

Members members_of(const AttendRun& run, const Deal& deal, const Task& task, int thread) {
  Members members{.list = {}, .keys = {run.k_rows, 0}};
  float* scratch = run.scratch + thread * scratch_floats(run.shape, run.dtype);
  const index_t end_head = std::min(task.first_head + deal.heads, (task.head_kv + 1) * run.shape.group());
  const index_t end_group = std::min(task.first_group + deal.rows, run.schedule.groups());
  for (index_t group = task.first_group; group < end_group; ++group) {
    const std::span<const Piece> pieces = run.schedule.pieces(group);
    if (pieces.empty()) continue;
    for (const Piece& piece : pieces)
      members.keys = {std::min(members.keys.begin, piece.k.begin), std::max(members.keys.end, piece.k.end)};
    for (index_t head = task.first_head; head < end_head; ++head) {
      const GroupView whole = group_view(run.state_layout, run.state, task.batch, head, group);
      members.list[members.count++] = make_member(whole, scratch, run.state_layout, pieces);
      scratch += part_floats(run.state_layout.o_floats);
    }
  }
  return members;
}

void run_task(const AttendRun& run, const Deal& deal, const Task& task, int thread, const Poll& poll) {
  Members members = members_of(run, deal, task, thread);
  const Range keys = members.keys;
  const index_t step = step_keys(run);
  for (index_t first = keys.begin / step * step; first < keys.end; first += step) {
    std::optional<KeyStep> block;  // made when a group needs it: sparse masks skip many
    const bool span_ends = (first + step) % kKeySpan == 0 || first + step >= keys.end;
    for (Member& member : members.all()) {
      while (!member.pieces.empty() && member.pieces.front().k.end <= first)
        member.pieces = member.pieces.subspan(1);
      for (const Piece& piece : member.pieces) {
        if (piece.k.begin >= first + step) break;
        if (piece.k.end <= first) continue;
        if (!block) block.emplace(run, task, first, thread);
        block->attend(member.part, piece);
        member.seen = true;
      }
      if (span_ends && std::exchange(member.seen, false)) end_span(run, member);
    }
    if (block && thread == 0 && poll) poll();
  }
}

}  // namespace

index_t scratch_floats(const HeadShape& shape, DType dtype) {
  if (dtype == DType::f32) return wide_keys_at(shape);
  return wide_queries_at(shape) + (dtype == DType::bf16 ? kGroup * shape.head_dim : 0);
}

void attend_block(const AttendRun& run, const Poll& poll) {
  const Deal parts = deal(run);
  const std::vector<index_t> runs = run.schedule.runs(parts.rows);
  // One head after the other, so that its keys and values stay in the last-level cache; the longest of a head
  // first, so that the last tasks of all are short ones.
  const index_t a_head = static_cast<index_t>(runs.size()) * parts.head_parts;
  const index_t heads_kv = run.shape.num_heads_kv;
  parallel_tasks(
      run.threads, run.shape.batch * heads_kv * a_head,
      [&](index_t index, int thread) {
        const index_t head_kv = index / a_head % heads_kv;
        const index_t part = index % parts.head_parts;
        const Task task{.batch = index / a_head / heads_kv,
                        .head_kv = head_kv,
                        .first_head = head_kv * run.shape.group() + part * parts.heads,
                        .first_group = runs[static_cast<std::size_t>(index % a_head / parts.head_parts)]};
        run_task(run, parts, task, thread, poll);
      },
      poll);
}

}  // namespace ringattn::cpu
