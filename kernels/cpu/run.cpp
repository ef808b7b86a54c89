#include "kernels/cpu/run.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "kernels/cpu/pack.h"
#include "kernels/cpu/parallel.h"

namespace ringattn::cpu {
namespace {

// Groups of a task share each block of K and V while it is in L2: 8 of them, 0.4 MiB at head_dim 128, keep
// the stream from memory below 1 GB/s a core.
constexpr index_t kTaskGroups = 8;

// Sums are formed in three levels, so that what is small is not lost in what is large: the keys of a step in
// registers, those of a span of 2,048 keys in scratch, spans in the carried state. A rank of a ring sees its
// own keys first, and a head that looks nearby gives them nearly all the weight; thousands of far keys, each
// below half an ulp of that, would be lost if they were added to it one by one (4.5e-5 of the sum in
// Forward.a_heavy_first_block_does_not_drown_many_light_keys).
struct Member {
  index_t batch, head, group;
  GroupView whole;                // the carried state
  GroupView part;                 // in scratch: the queries, and the state of this span
  std::span<const Piece> pieces;  // not yet seen
  bool seen = false;              // something of this span
  bool touched = false;           // anything at all, so that it is in the L2 cache
};

// Makes the queries and a state that has seen nothing but begins with the maxima so far.
void touch(const AttendRun& run, Member& member) {
  if (std::exchange(member.touched, true)) return;
  if (member.whole.rows->seen == Seen::nothing) {
    begin_rows(*member.part.rows);
  } else {
    *member.part.rows = *member.whole.rows;
    std::fill_n(member.part.rows->sum, kGroup, 0.0f);
    std::fill_n(member.part.rows->weight, kGroup, 0.0f);
  }
  member.part.rows->pairs = run.queries.load_group(member.batch, member.head, member.group, member.part.q);
}

void write(const AttendRun& run, const Member& member, const GroupView& from) {
  unpack_group(run.target, *from.rows, from.o, run.slope,
               {.out = run.outputs->out,
                .lse = run.outputs->lse,
                .batch = member.batch,
                .head = member.head,
                .group = member.group,
                .stream = run.outputs->stream});
  member.whole.rows->seen = Seen::written;
}

// Adds the part to the whole and leaves it with o = sum = weight = 0. `last`: nothing will follow.
void end_span(const AttendRun& run, Member& member, bool last) {
  const index_t o_floats = run.state_layout.o_floats;
  const bool first = member.whole.rows->seen == Seen::nothing;
  if (first && last) {
    write(run, member, member.part);
    std::fill_n(member.part.o, o_floats, 0.0f);
    return;
  }
  if (first) {
    std::copy_n(member.part.o, o_floats, member.whole.o);
    std::fill_n(member.part.o, o_floats, 0.0f);
    *member.whole.rows = *member.part.rows;
    std::fill_n(member.part.rows->sum, kGroup, 0.0f);
    std::fill_n(member.part.rows->weight, kGroup, 0.0f);
  } else {
    run.target.fold(member.part, member.whole, static_cast<int>(run.block_layout.dim_v), run.slope);
  }
  if (last) write(run, member, member.whole);
}

// Scratch of one member, in floats: o, which is 0 whenever no task is at work, the queries and the rows.
index_t member_floats(const HeadShape& shape) {
  return kGroup * (round_up(shape.head_dim_v, kPanel) + shape.head_dim) +
         index_t{sizeof(RowState) / sizeof(float)};
}
GroupView part_at(const HeadShape& shape, float* scratch) {
  float* const q = scratch + kGroup * round_up(shape.head_dim_v, kPanel);
  return {.q = q, .o = scratch, .rows = reinterpret_cast<RowState*>(q + kGroup * shape.head_dim)};
}

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
index_t wide_keys_at(const HeadShape& shape) { return kTaskGroups * member_floats(shape); }
index_t wide_queries_at(const HeadShape& shape) {
  return wide_keys_at(shape) + kKeyBlock * (shape.head_dim + round_up(shape.head_dim_v, kPanel));
}

// Keys of a step: more of them save passes over the output, fewer leave the L2 cache to the groups, and only
// 64 are widened at a time. Depends on shape, dtype and instruction set alone, since it shows in the sums.
index_t step_keys(const AttendRun& run) {
  if (run.dtype == DType::f16 || (run.dtype == DType::bf16 && !run.target.pairs)) return kKeyBlock;
  const index_t dims = run.shape.head_dim + run.shape.head_dim_v;
  return std::min(run.target.step_keys, dims <= 256   ? kStepKeys
                                        : dims <= 512 ? kStepKeys / 2
                                                      : kStepKeys / 4);
}

struct Task {
  index_t batch, head_kv, first_head, first_group;
};

// The keys of a step. 16-bit ones are multiplied as they are where that is possible, and widened, 64 at a
// time, where it is not.
class KeyStep {
 public:
  KeyStep(const AttendRun& run, const Task& task, index_t first, int thread)
      : run_(run),
        keys_(run.block + run.block_layout.k_panel(task.batch, task.head_kv, first)),
        values_(run.block + run.block_layout.v_panels(task.batch, task.head_kv, first)),
        first_(first),
        rows_(std::min(step_keys(run), run.block_layout.padded_rows - first)),
        scratch_(run.scratch + thread * scratch_floats(run.shape, run.dtype)) {
    if (run.target.pairs && run.dtype == DType::bf16)
      magnitude_ = run.target.magnitude_bf16(values_, rows_ * run.block_layout.dim_v);
  }

  // `next`: the group that comes after this one, if it is not in the L2 cache yet; may be null.
  void attend(const GroupView& group, const Piece& piece, const Member* next) {
    next_ = next;
    if (run_.dtype == DType::f32) {
      GroupStep step = step_of(group, piece, first_, rows_, keys_, values_);
      step.v_finite = all_shown(step) || finite(step.v, rows_, first_);
      return run_.target.attend(step);
    }
    if (group.rows->pairs && DotRange::outputs(magnitude_.largest)) {
      GroupStep step = step_of(group, piece, first_, rows_, keys_, values_);
      step.v_finite = magnitude_.finite;
      return run_.target.pairs->attend(step);
    }
    GroupView wide = group;
    if (group.rows->pairs) {
      wide.q = scratch_ + wide_queries_at(run_.shape);
      run_.target.pairs->split_rows(group.q, run_.shape.head_dim, wide.q);
    }
    const index_t begin = std::max(first_, piece.k.begin / kKeyBlock * kKeyBlock);
    for (index_t key = begin; key < std::min(first_ + rows_, piece.k.end); key += kKeyBlock)
      attend_widened(wide, piece, key);
  }

 private:
  // What the piece shows to the group of `rows` keys from `first` on.
  GroupStep step_of(const GroupView& group, const Piece& piece, index_t first, index_t rows, const void* k,
                    const void* v) const {
    // Relative to these keys and group all distances that matter are below 304; a band's ends may not even
    // fit 32 bits, so they are clamped while still 64 wide.
    const auto near = [&](index_t x) {
      return static_cast<int>(std::clamp<index_t>(x - first, -1024, 1024));
    };
    GroupStep step{.group = group,
                   .k = static_cast<const float*>(k),
                   .v = static_cast<const float*>(v),
                   .head_dim = static_cast<int>(run_.block_layout.head_dim),
                   .dim_v = static_cast<int>(run_.block_layout.dim_v),
                   .v_rows = static_cast<int>(rows),
                   .slope = run_.slope,
                   .key_begin = static_cast<int>(std::max<index_t>(piece.k.begin - first, 0)),
                   .key_end = static_cast<int>(std::min(piece.k.end - first, rows)),
                   .lane_begin = piece.lane_begin,
                   .lane_end = piece.lane_end,
                   .lo = near(piece.lo),
                   .hi = near(piece.hi),
                   .next = {}};
    if (!next_) return step;
    step.next[0] = run_.queries.rows_of(next_->batch, next_->head, next_->group);
    if (next_->whole.rows->seen != Seen::nothing)
      step.next[1] = {.at = reinterpret_cast<const std::byte*>(next_->whole.o),
                      .stride = kGroup * sizeof(float),
                      .rows = step.dim_v,
                      .row_bytes = kGroup * sizeof(float)};
    return step;
  }

  // Only where some pair of the register tiles is hidden can a hidden key touch a row.
  static bool all_shown(const GroupStep& step) {
    return step.lane_begin == 0 && step.lane_end == kGroup && step.key_begin % kPanel == 0 &&
           step.key_end % kPanel == 0 && step.key_end - 1 <= step.hi &&
           step.key_begin - (kGroup - 1) >= step.lo;
  }

  // Whether V of `rows` keys from `first` on is; found out when first needed.
  bool finite(const float* v, index_t rows, index_t first) {
    if (checked_ != first) finite_ = run_.target.all_finite(v, rows * run_.block_layout.dim_v);
    checked_ = first;
    return finite_;
  }

  void attend_widened(const GroupView& group, const Piece& piece, index_t key) {
    const BlockLayout& layout = run_.block_layout;
    const index_t rows = layout.v_rows(key), from = key - first_;
    float* const k = scratch_ + wide_keys_at(run_.shape);
    float* const v = k + kKeyBlock * layout.head_dim;
    if (widened_ != key) {
      for (index_t row = 0; row < rows; row += kPanel)
        run_.target.widen_pairs(keys_ + (from + row) * layout.k_dim * layout.element, run_.dtype,
                                layout.head_dim, k + row * layout.head_dim);
      run_.target.widen_pairs(values_ + from * layout.dim_v * layout.element, run_.dtype,
                              rows * layout.dim_v / kPanel, v);
      widened_ = key;
    }
    GroupStep step = step_of(group, piece, key, rows, k, v);
    step.v_finite = all_shown(step) || finite(v, rows, key);
    run_.target.attend(step);
  }

  const AttendRun& run_;
  const std::byte *keys_, *values_;  // K and V of the first key
  index_t first_, rows_;
  float* scratch_;
  const Member* next_ = nullptr;
  index_t widened_ = -1, checked_ = -1;  // by their first key
  bool finite_ = false;
  Magnitude magnitude_{.finite = true, .largest = 0};
};

// The groups of a task, and the keys that they see between them.
struct Members {
  std::array<Member, kTaskGroups> list;
  std::size_t count = 0;
  Range keys;

  std::span<Member> all() { return std::span(list).first(count); }
  // The member after this one, if its turn has not come yet.
  const Member* next_untouched(const Member& member) const {
    const Member* next = &member + 1;
    return next < list.data() + count && !next->touched ? next : nullptr;
  }
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
      members.list[members.count++] = {
          .batch = task.batch,
          .head = head,
          .group = group,
          .whole = group_view(run.state_layout, run.state, task.batch, head, group),
          .part = part_at(run.shape, scratch),
          .pieces = pieces};
      scratch += member_floats(run.shape);
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
    const bool span_ends = (first + step) % kKeySpan == 0;
    for (Member& member : members.all()) {
      while (!member.pieces.empty() && member.pieces.front().k.end <= first)
        member.pieces = member.pieces.subspan(1);
      for (const Piece& piece : member.pieces) {
        if (piece.k.begin >= first + step) break;
        if (piece.k.end <= first) continue;
        if (!block) block.emplace(run, task, first, thread);
        touch(run, member);
        block->attend(member.part, piece, members.next_untouched(member));
        member.seen = true;
      }
      const bool member_ends =
          std::ranges::all_of(member.pieces, [&](const Piece& piece) { return piece.k.end <= first + step; });
      if ((span_ends || member_ends) && std::exchange(member.seen, false))
        end_span(run, member, member_ends && run.outputs);
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
