// Checks of rings against the oracle.
#include <algorithm>
#include <array>
#include <map>

#include "bench/gpu/ring_tensors.h"
#include "bench/gpu/rings.h"
#include "comm/device_ranks.h"
#include "src/error.h"

namespace ringattn::acceptance {
namespace {

constexpr std::chrono::seconds kPatience{60};

struct Setting {
  DType dtype;
  HeadShape shape;
};

Mask mask_of(int kind, index_t lq, index_t lk) {
  if (kind == 0) return Mask::causal(lq, lk);
  if (kind == 1) return Mask::full(lq, lk);
  if (kind == 2) return Mask::window(lq, lk, {.left = lk / 5, .right = 0});
  const std::array<index_t, 4> q{0, lq / 7, lq / 7, lq - 3},
      k{0, lk / 3, lk / 2, lk};  // the second has no query
  return Mask::documents(lq, lk, q, k, {.left = -1, .right = 0});
}

RingResult empty_result(const KernelCase& p) {
  const auto poisoned = [&](const std::array<index_t, 4>& shape, DType dtype) {
    return std::vector<std::byte>(
        static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]) * size_of(dtype),
        std::byte{0xFF});
  };
  return {.out = poisoned(p.out_shape(), p.dtype),
          .lse = poisoned({p.shape.batch, p.shape.num_heads, p.q_rows, 1}, DType::f32),
          .dq = poisoned(p.q_shape(), p.dtype),
          .dk = poisoned(p.k_shape(), p.dtype),
          .dv = poisoned(p.v_shape(), p.dtype)};
}

}  // namespace

std::string RingCase::name() const {
  return std::to_string(ranks) + (ranks == 1 ? " rank, " : " ranks, ") + std::string(name_of(layout)) + ", " +
         whole.name;
}

Problem RingCase::problem() const { return {.shape = whole.shape, .dtype = whole.dtype, .mask = mask}; }

Sharding RingCase::sharding() const { return Sharding::make(layout, whole.q_rows, whole.k_rows, ranks); }

std::vector<RingCase> ring_cases(Extent extent) {
  const index_t lq = extent == Extent::tiny ? 13 : extent == Extent::small ? 101 : 307;
  const index_t lk = extent == Extent::tiny ? 17 : extent == Extent::small ? 113 : 331;
  const std::array<Setting, 4> usual{{{DType::bf16, {1, 2, 1, 64, 64}},
                                      {DType::f16, {2, 4, 2, 128, 128}},
                                      {DType::bf16, {1, 1, 1, 192, 128}},
                                      {DType::f32, {1, 3, 3, 64, 64}}}};
  const std::array<Setting, 4> light{{{DType::bf16, {1, 2, 1, 32, 32}},
                                      {DType::f16, {2, 1, 1, 32, 16}},
                                      {DType::bf16, {1, 1, 1, 64, 64}},
                                      {DType::f32, {1, 3, 3, 16, 16}}}};
  const auto& settings = extent == Extent::tiny ? light : usual;
  std::vector<RingCase> cases;
  for (const int ranks : {1, 2, 4})
    for (const LayoutKind layout : {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped})
      for (int kind = 0; kind < 4; ++kind) {
        if (extent == Extent::small && kind % 2 == 1 && ranks != 4) continue;
        if (extent == Extent::tiny && kind % 3 != 0) continue;
        // Two settings a mask: a truth is computed once for each pair of them, and takes its time.
        const Setting& s = settings[static_cast<std::size_t>(kind + (ranks == 2 ? 1 : 0)) % settings.size()];
        Mask mask = mask_of(kind, lq, lk);
        KernelCase whole{.name = std::string(name_of(s.dtype)) + " head_dim " +
                                 std::to_string(s.shape.head_dim) + " " + std::to_string(lq) + "x" +
                                 std::to_string(lk) + " " + mask.name(),
                         .shape = s.shape,
                         .dtype = s.dtype,
                         .q_rows = lq,
                         .k_rows = lk,
                         .tiles = {mask.tiles().begin(), mask.tiles().end()},
                         .blocks = {{0, lk}}};
        cases.push_back(
            {.whole = std::move(whole), .mask = std::move(mask), .layout = layout, .ranks = ranks});
      }
  return cases;
}

std::vector<RingResult> run_ring(const RingCase& ring, const Inputs& inputs, const std::string& chapter,
                                 int runs, const OnRanks& on_ranks) {
  std::vector<RingResult> results(static_cast<std::size_t>(runs), empty_result(ring.whole));
  on_ranks(ring.ranks, [&](const std::shared_ptr<Communicator>& comm) {
    const Stream stream;
    RingTensors mine(ring, inputs, comm->rank());
    RingAttention attention(make_device_ranks(comm, stream.get()), ring.problem(), ring.sharding(),
                            {.threads = 1,
                             .deadline = kPatience,
                             .isa = chapter,
                             .backend = Backend::cuda,
                             .stream = stream.get()});
    for (RingResult& result : results) {
      mine.poison();
      mine.forward(attention);
      mine.backward(attention);
      attention.settle();
      mine.collect(result);  // ranks have rows of their own
    }
  });
  return results;
}

void check_ring(const RingCase& ring, const Inputs& inputs, const Truth& truth, const std::string& chapter,
                const OnRanks& on_ranks, Lines& lines) {
  Check result{.part = "rings", .name = ring.name(), .facts = {{"chapter", chapter}}};
  const auto judge = [&](const char* what, const std::vector<std::byte>& bytes, DType dtype,
                         const Expected& expected) {
    const double ratio = error_over_bound(doubles_of(bytes, dtype), expected);
    result.numbers[std::string(what) + " error/bound"] = ratio;
    if (!(ratio <= 1)) result.detail += std::string(result.detail.empty() ? "" : "; ") + what + " is wrong";
  };
  try {
    const std::vector<RingResult> results = run_ring(ring, inputs, chapter, 2, on_ranks);
    const DType dtype = ring.whole.dtype;
    judge("out", results[0].out, dtype, truth.out);
    judge("lse", results[0].lse, DType::f32, truth.lse);
    judge("dq", results[0].dq, dtype, truth.dq);
    judge("dk", results[0].dk, dtype, truth.dk);
    judge("dv", results[0].dv, dtype, truth.dv);
    if (!(results[1] == results[0]))
      result.detail += std::string(result.detail.empty() ? "" : "; ") + "a second run has other bits";
    result.status = result.detail.empty() ? Status::ok : Status::failed;
  } catch (const UsageError& error) {
    result.detail = error.what();
    result.status = may_refuse(chapter, ring.whole) ? Status::refused : Status::failed;
  } catch (const std::exception& error) {
    result.detail = error.what();
    result.status = Status::failed;
  }
  lines.write(result);
}

void check_rings(Extent extent, const std::string& chapter, const OnRanks& on_ranks, Lines& lines) {
  struct Known {
    Inputs inputs;
    Truth truth;
  };
  std::map<std::string, Known> known;  // what is right depends on neither ranks nor layout
  for (const RingCase& ring : ring_cases(extent)) {
    const auto [place, fresh] = known.try_emplace(ring.whole.name);
    Known& whole = place->second;
    if (fresh) {
      whole.inputs = random_inputs(ring.whole, 1);
      whole.truth = truth_of(ring.whole, whole.inputs);
    }
    check_ring(ring, whole.inputs, whole.truth, chapter, on_ranks, lines);
  }
}

}  // namespace ringattn::acceptance
