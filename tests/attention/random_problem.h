// Random attention problems for the ring tests: primes, uneven shards, shards without rows, every mask and
// dtype.
#pragma once
#include <algorithm>
#include <random>

#include "tests/support/mask_formula.h"
#include "tests/support/ring_case.h"

namespace ringattn::test {

struct RandomProblem {
  Problem problem;
  Visible visible;
  LayoutKind layout;
};

inline RandomProblem random_problem(unsigned seed) {
  std::mt19937 g(seed);
  const auto pick = [&](auto... values) {
    const std::common_type_t<decltype(values)...> list[] = {values...};
    return list[g() % sizeof...(values)];
  };
  const index_t lengths[] = {1, 2, 3, 7, 29, 53, 97, 131, 197};
  const index_t lq = lengths[g() % std::size(lengths)];
  const index_t lk = g() % 2 != 0 ? lq : lengths[g() % std::size(lengths)];
  const auto cuts = [&](index_t length) {  // 3 documents, possibly empty, possibly not up to the end
    std::vector<index_t> cu{0, static_cast<index_t>(g() % static_cast<unsigned>(length + 1)),
                            static_cast<index_t>(g() % static_cast<unsigned>(length + 1)),
                            length - (g() % 4 == 0)};
    std::sort(cu.begin() + 1, cu.begin() + 3);
    cu[1] = std::min(cu[1], cu[3]);
    cu[2] = std::min(cu[2], cu[3]);
    return cu;
  };
  const auto mask = [&]() -> MaskCase {
    switch (g() % 5) {
      case 0:
        return full_case(lq, lk);
      case 1:
        return window_case(lq, lk, {pick(-1, 0, 2, 17), pick(-1, 0, 1, 5)});
      case 2: {
        const auto cu = cuts(lq);
        const auto cu_k = lq == lk ? cu : cuts(lk);
        return document_case(lq, lk, cu, cu_k, {pick(-1, 3), pick(-1, 0)});
      }
      default:
        return causal_case(lq, lk);
    }
  }();
  const index_t kv_heads = pick(1, 2, 3);
  Problem problem{.shape = {.batch = pick(1, 1, 2),
                            .num_heads = kv_heads * pick(1, 1, 2, 3),
                            .num_heads_kv = kv_heads,
                            .head_dim = pick(1, 8, 20, 63, 64, 80, 100, 128, 256),
                            .head_dim_v = pick(0, 0, 0, 5, 72)},
                  .dtype = pick(DType::f32, DType::f32, DType::bf16, DType::f16),
                  .mask = mask.mask};
  if (problem.shape.head_dim % 2 == 0 && mask.mask.positions_align() && g() % 2 != 0)
    problem.rope = {.pairing = pick(Rope::Pairing::half, Rope::Pairing::interleaved),
                    .base = pick(10000.0, 100000.0),
                    .dim = problem.shape.head_dim >= 20 ? pick(index_t{0}, index_t{16}) : index_t{0},
                    .position_offset = pick(0, 131064)};
  if (g() % 5 == 0) problem.softmax_scale = pick(0.0, -0.3, 1.0);
  return {std::move(problem), mask.visible,
          pick(LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped)};
}

// A list of disjoint tiles: both sequences are cut in up to four, and half of the rectangles are there, some
// with a band of their own.
inline MaskCase random_tiles(unsigned seed, index_t lq, index_t lk) {
  std::mt19937 g(seed);
  const auto below = [&](index_t n) { return static_cast<index_t>(g() % static_cast<unsigned>(n + 1)); };
  const auto cut = [&](index_t length) {
    std::vector<index_t> cuts{0, below(length), below(length), below(length), length};
    std::sort(cuts.begin(), cuts.end());
    return cuts;
  };
  const auto rows = cut(lq), columns = cut(lk);
  std::vector<Tile> tiles;
  for (std::size_t r = 0; r + 1 < rows.size(); ++r)
    for (std::size_t c = 0; c + 1 < columns.size(); ++c) {
      if (g() % 2 == 0 || rows[r] == rows[r + 1] || columns[c] == columns[c + 1]) continue;
      const index_t diagonal = columns[c] - rows[r];
      const Band band = g() % 2 == 0 ? Band{} : Band{diagonal - below(9), diagonal + below(5)};
      tiles.push_back({{rows[r], rows[r + 1]}, {columns[c], columns[c + 1]}, band});
    }
  return {Mask::tiles(lq, lk, tiles), [tiles](index_t i, index_t j) {
            return std::any_of(tiles.begin(), tiles.end(), [&](const Tile& t) {
              return t.q.begin <= i && i < t.q.end && t.k.begin <= j && j < t.k.end && t.band.contains(j - i);
            });
          }};
}

inline std::string describe(const RandomProblem& p, int ranks) {
  std::string text = std::to_string(ranks) + " ranks";
  for (const Field& f :
       fingerprint(p.problem, Sharding::make(p.layout, p.problem.seqlen_q(), p.problem.seqlen_k(), ranks)))
    text += ", " + f.name + " " + f.value;
  return text;
}

// The accuracy rule of the design: at most twice the error of a naive implementation in the same dtype. The
// floor is for problems so small that the naive one happens to be exact.
struct Bound {
  double out, lse;
};
inline Bound error_bound(const RandomProblem& p, const Inputs& in, const Answer& exact) {
  const Answer simple = naive(p.problem, in, p.visible);
  const double ulp = p.problem.dtype == DType::f32 ? 1e-6 : p.problem.dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
  return {
      2 * max_error(simple.out.data, exact.out.data) + ulp * std::max(1e-3, max_magnitude(exact.out.data)),
      2 * max_error(simple.lse, exact.lse) + 2e-6 * std::max(1.0, max_magnitude(exact.lse))};
}

}  // namespace ringattn::test
