// Few queries against bf16 by the dot-product instruction. What multiplies a panel is split into two bf16
// whose sum has 16 bits, so that nothing is rounded to the 8 of one: probabilities keep their sum, turned
// queries their precision, and a key costs one or two instructions for 16 elements instead of four.
//
// The instruction takes and returns denormals as 0, and 0, as a lower half may be, times infinity is NaN. So
// a tile with a result that is not finite, or whose sums are all tiny where that matters, is formed once more
// by widening.
#if defined(RINGATTN_CPU_FEW_PAIRS_INL_H_) == defined(RINGATTN_CELL_TOGGLE)
#ifdef RINGATTN_CPU_FEW_PAIRS_INL_H_
#undef RINGATTN_CPU_FEW_PAIRS_INL_H_
#else
#define RINGATTN_CPU_FEW_PAIRS_INL_H_
#endif

#include <cstring>

#include "kernels/cpu/simd/cell-inl.h"
#include "kernels/cpu/simd/few-inl.h"

RINGATTN_BEFORE_CELLS();
namespace ringattn::cpu::RINGATTN_CELLS {

// 64 keys lose two products of less than 2^-126 each, which is 2^-39 of this.
inline constexpr float kTrusted = 0x1p-80f;

// high + low = x but for 2^-16 of it; neighbours are pairs. Whether any of `low` is not 0.
bool SplitFew(const float* x, index_t n, std::uint16_t* high, std::uint16_t* low) {
  const Floats d;
  hn::Mask<Floats> any = hn::Ne(hn::Zero(d), hn::Zero(d));
  for (index_t i = 0; i < n; i += 2 * kLanes) {
    __m512i halves[2];
    Vec rest[2];
    const __m512 from[2] = {_mm512_loadu_ps(x + i), _mm512_loadu_ps(x + i + kLanes)};
    halves[0] = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(from[1], from[0]));
    for (int part = 0; part < 2; ++part) {
      const __m256i narrow =
          part == 0 ? _mm512_castsi512_si256(halves[0]) : _mm512_extracti64x4_epi64(halves[0], 1);
      const __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16);
      rest[part] = Vec{_mm512_sub_ps(from[part], _mm512_castsi512_ps(wide))};
      any = hn::Or(any, hn::Ne(rest[part], hn::Zero(d)));
    }
    halves[1] = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(rest[1].raw, rest[0].raw));
    _mm512_storeu_si512(high + i, halves[0]);
    _mm512_storeu_si512(low + i, halves[1]);
  }
  return !hn::AllFalse(d, any);
}

// As Widened (few-inl.h), with kHalves of job.halves for x.
template <int kHalves>
struct Paired {
  static constexpr bool kWide = true;

  template <int kQueries, int kWidth, int kChains = 1>
  static HWY_NOINLINE void Tile(const PanelProduct& job, int unit, int query) {
    using Reader = PanelReader<DType::bf16>;
    constexpr int kBytes = kWidth * Reader::kTwoRows, kLines = (kBytes + 63) / 64;
    constexpr int kSums = kQueries == 1 ? kHalves : 1;  // one query alone has too few chains
    const float* x = job.x + query * kFewStride;
    const std::uint16_t* halves[kHalves];
    for (int h = 0; h < kHalves; ++h) halves[h] = job.halves[h] + query * kFewStride;
    const std::byte* panels = job.panels + unit * job.panel_bytes;
    const std::byte* ahead = panels + kFewAhead;
    __m256 acc[kQueries][kWidth][kChains * kSums];
    RINGATTN_UNROLL for (int n = 0; n < kQueries; ++n) {
      RINGATTN_UNROLL for (int u = 0; u < kWidth; ++u) {
        RINGATTN_UNROLL for (int s = 0; s < kChains * kSums; ++s) acc[n][u][s] = _mm256_setzero_ps();
      }
    }
    const auto cells_at = [&](int u, index_t row) HWY_ATTR {
      const std::byte* at = panels + u * job.panel_bytes + (row >> 1) * Reader::kTwoRows;
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    };
    // The other row of its pair is hidden, and may hold a NaN.
    const auto add_alone = [&](index_t row) HWY_ATTR {
      RINGATTN_UNROLL for (int u = 0; u < kWidth; ++u) {
        const __m256i cells = cells_at(u, row);
        const __m256i element =
            row % 2 == 0 ? _mm256_slli_epi32(cells, 16)
                         : _mm256_and_si256(cells, _mm256_set1_epi32(static_cast<int>(0xFFFF0000u)));
        RINGATTN_UNROLL for (int n = 0; n < kQueries; ++n) {
          acc[n][u][0] = _mm256_fmadd_ps(_mm256_castsi256_ps(element),
                                         _mm256_set1_ps(x[n * kFewStride + row]), acc[n][u][0]);
        }
      }
    };
    const auto add_pair = [&](index_t row, int chain) RINGATTN_CELL_ATTR {
      __m256bh cells[kWidth];
      RINGATTN_UNROLL for (int u = 0; u < kWidth; ++u) cells[u] =
          reinterpret_cast<__m256bh>(cells_at(u, row));
      RINGATTN_UNROLL for (int n = 0; n < kQueries; ++n) {
        RINGATTN_UNROLL for (int h = 0; h < kHalves; ++h) {
          std::int32_t pair;
          std::memcpy(&pair, halves[h] + n * kFewStride + row, sizeof(pair));
          const auto factor = reinterpret_cast<__m256bh>(_mm256_set1_epi32(pair));
          const int sum = chain * kSums + h % kSums;
          RINGATTN_UNROLL for (int u = 0; u < kWidth; ++u) acc[n][u][sum] =
              _mm256_dpbf16_ps(acc[n][u][sum], cells[u], factor);
        }
      }
    };
    for (const PanelRows& rows : job.rows) {
      index_t row = rows.begin;
      if (row % 2 != 0) add_alone(row++);
      if constexpr (kChains > 1) {
        for (; row + 2 * kChains <= rows.end; row += 2 * kChains) {
          RINGATTN_UNROLL for (int c = 0; c < kChains; ++c) add_pair(row + 2 * c, c);
        }
      }
      for (; row + 2 <= rows.end; row += 2) {
        if constexpr (kChains == 1) {
          RINGATTN_UNROLL for (int line = 0; line < kLines; ++line)
              __builtin_prefetch(ahead + line * 64, 0, 2);
          ahead += kBytes;
        }
        add_pair(row, 0);
      }
      if (row < rows.end) add_alone(row);
    }
    const Columns d;
    ColumnsVec sums[kQueries][kWidth];
    bool good = true;
    RINGATTN_UNROLL for (int n = 0; n < kQueries; ++n) {
      ColumnsVec largest = hn::Zero(d);
      auto finite = hn::Eq(largest, largest);
      RINGATTN_UNROLL for (int u = 0; u < kWidth; ++u) {
        sums[n][u] = ColumnsVec{acc[n][u][0]};
        RINGATTN_UNROLL for (int s = 1; s < kChains * kSums; ++s) sums[n][u] =
            hn::Add(sums[n][u], ColumnsVec{acc[n][u][s]});
        const ColumnsVec size = hn::Abs(sums[n][u]);
        finite = hn::And(finite, hn::Le(size, hn::Set(d, std::numeric_limits<float>::max())));
        largest = hn::Max(largest, size);
      }
      good = good && hn::AllTrue(d, finite) &&
             (!job.tiny_matters || !hn::AllFalse(d, hn::Ge(largest, hn::Set(d, kTrusted))));
    }
    if (HWY_UNLIKELY(!good))
      return Widened<DType::bf16>::template Tile<kQueries, kWidth, kChains>(job, unit, query);
    RINGATTN_UNROLL for (int n = 0; n < kQueries; ++n) {
      float* y = job.y + (query + n) * job.y_stride + unit * kColumns;
      RINGATTN_UNROLL for (int u = 0; u < kWidth; ++u) {
        float* to = y + u * kColumns;
        hn::StoreU(job.add ? hn::Add(hn::LoadU(d, to), sums[n][u]) : sums[n][u], d, to);
      }
    }
  }
};

void FewProduct(const PanelProduct& job) {
  if (job.halves[1])
    ProductBy<Paired<2>>(job);
  else
    ProductBy<Paired<1>>(job);
}

}  // namespace ringattn::cpu::RINGATTN_CELLS
HWY_AFTER_NAMESPACE();
#endif  // include guard
