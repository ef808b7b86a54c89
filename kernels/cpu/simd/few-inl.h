// Few queries: lanes are the 8 keys of a K panel, or the 8 columns of a V panel, so that nothing is padding
// and each byte of a block is read once for all queries of a task. Both products are the same one,
// PanelProduct.
//
// A vector is 8 lanes on AVX-512, too. One query of fp32 needs a multiply-add for every 32 bytes read, which
// is 117 GB/s a core at two a cycle; and 16 lanes would be two rows of a panel, whose queries had to be held
// eight times over.
#if defined(RINGATTN_CPU_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGATTN_CPU_FEW_INL_H_
#undef RINGATTN_CPU_FEW_INL_H_
#else
#define RINGATTN_CPU_FEW_INL_H_
#endif

#include <cstring>

#include "kernels/convert.h"
#include "kernels/cpu/simd/softmax-inl.h"
#include "kernels/cpu/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringattn::cpu::HWY_NAMESPACE {

using Columns = hn::CappedTag<float, kPanel>;
using ColumnsVec = hn::Vec<Columns>;

// A panel is one vector of columns, or two where vectors have 4 lanes. Called a unit below.
inline constexpr int kColumns = kLanes < kPanel ? kLanes : kPanel;
inline constexpr int kUnitsOfPanel = kPanel / kColumns;

// A register tile is up to kTileQueries queries by kUnits units: 24 accumulators of 32 registers, or 12
// of 16.
inline constexpr int kUnits = 4;
#if RINGATTN_AVX512
inline constexpr int kTileQueries = 6;
#else
inline constexpr int kTileQueries = 3;
#endif

// The one place that knows how elements lie in a panel: `unit` points to the columns of row 0, two rows take
// kTwoRows bytes, and those of one vector are kColumnBytes wide. 16-bit elements lie in pairs of rows.
template <DType kType>
struct PanelReader {
  static constexpr int kTwoRows = 2 * kPanel * sizeof(std::uint16_t), kColumnBytes = 4;
  static_assert(kType != DType::f32);

  // Row `row`, which is even, and the next one.
  static HWY_INLINE void Rows(const std::byte* unit, index_t row, ColumnsVec& even, ColumnsVec& odd) {
    const std::byte* at = unit + (row >> 1) * kTwoRows;
    const Columns d;
    const hn::RebindToSigned<Columns> bits;
    if constexpr (kType == DType::bf16) {
      const auto cells = hn::LoadU(bits, reinterpret_cast<const std::int32_t*>(at));
      even = hn::BitCast(d, hn::ShiftLeft<16>(cells));
      odd = hn::BitCast(d, hn::And(cells, hn::Set(bits, static_cast<int>(0xFFFF0000u))));
    } else {
#if RINGATTN_AVX512 || RINGATTN_AVX2
      const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
      const __m256i cells = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
      const __m256i halves = _mm256_shuffle_epi8(cells, _mm256_broadcastsi128_si256(order));
      const __m256i rows = _mm256_permute4x64_epi64(halves, 0xD8);
      even = ColumnsVec{_mm256_cvtph_ps(_mm256_castsi256_si128(rows))};
      odd = ColumnsVec{_mm256_cvtph_ps(_mm256_extracti128_si256(rows, 1))};
#else
      // See WidenF16: other targets' PromoteTo is not exact.
      std::uint16_t cells[2 * kColumns];
      alignas(16) float wide[2][kColumns];
      std::memcpy(cells, at, sizeof(cells));
      for (int i = 0; i < 2 * kColumns; ++i) wide[i % 2][i / 2] = f32_from_f16(cells[i]);
      even = hn::Load(d, wide[0]);
      odd = hn::Load(d, wide[1]);
#endif
    }
  }
};

template <>
struct PanelReader<DType::f32> {
  static constexpr int kTwoRows = 2 * kPanel * sizeof(float), kColumnBytes = 4;

  static HWY_INLINE void Rows(const std::byte* unit, index_t row, ColumnsVec& even, ColumnsVec& odd) {
    const auto* at = reinterpret_cast<const float*>(unit + (row >> 1) * kTwoRows);
    even = hn::LoadU(Columns(), at);
    odd = hn::LoadU(Columns(), at + kPanel);
  }
};

// Distance in bytes of what is fetched ahead, line by line in the order of memory, although a tile reads
// several panels side by side: memory and its own prefetcher are fastest so. 500 cycles at the rate of the
// last-level cache. One query of fp32 passes so fast that lines may come to L1, of which this is half; where
// there is more to compute, L2 can have more of them on the way.
inline constexpr index_t kFewAhead = 16384;

// One query alone takes panels that come from memory one after the other, because memory fetches ahead by
// itself best so; rows then take turns in chains of sums, as one chain would wait for its multiply-adder.
inline constexpr int kChains = 4;

// How a tile is formed: elements of a panel are widened and multiplied in fp32.
template <DType kType>
struct Widened {
  // One query alone has too few chains in four units to keep both multiply-adders busy, as 16-bit elements
  // need.
  static constexpr bool kWide = kType != DType::f32;

  // Units [unit, unit + kWidth) for queries [query, query + kQueries), whose sums have kChains each.
  template <int kQueries, int kWidth, int kChains = 1>
  static HWY_NOINLINE void Tile(const PanelProduct& job, int unit, int query) {
    using Reader = PanelReader<kType>;
    constexpr int kBytes = kWidth * Reader::kTwoRows / kUnitsOfPanel, kLines = (kBytes + 63) / 64;
    constexpr int kLevel = kType == DType::f32 && kQueries == 1 ? 3 : 2;
    const Columns d;
    const float* HWY_RESTRICT x = job.x + query * kFewStride;
    const std::byte* at[kWidth];
    RINGATTN_UNROLL for (int u = 0; u < kWidth; ++u) {
      const int panel = (unit + u) / kUnitsOfPanel, part = (unit + u) % kUnitsOfPanel;
      at[u] = job.panels + panel * job.panel_bytes + part * kColumns * Reader::kColumnBytes;
    }
    const std::byte* ahead = at[0] + kFewAhead;
    ColumnsVec acc[kQueries][kWidth][kChains];
    RINGATTN_UNROLL for (int n = 0; n < kQueries; ++n) {
      RINGATTN_UNROLL for (int u = 0; u < kWidth; ++u) {
        RINGATTN_UNROLL for (int c = 0; c < kChains; ++c) acc[n][u][c] = hn::Zero(d);
      }
    }
    const auto add = [&](index_t row, const ColumnsVec(&y)[kWidth], int chain) HWY_ATTR {
      RINGATTN_UNROLL for (int n = 0; n < kQueries; ++n) {
        const ColumnsVec factor = hn::Set(d, x[n * kFewStride + row]);
        RINGATTN_UNROLL for (int u = 0; u < kWidth; ++u) acc[n][u][chain] =
            hn::MulAdd(y[u], factor, acc[n][u][chain]);
      }
    };
    ColumnsVec even[kWidth], odd[kWidth];
    const auto read = [&](index_t row) HWY_ATTR {
      RINGATTN_UNROLL for (int u = 0; u < kWidth; ++u) Reader::Rows(at[u], row, even[u], odd[u]);
    };
    for (const PanelRows& rows : job.rows) {
      index_t row = rows.begin;
      if (row % 2 != 0) {
        read(row - 1);
        add(row++, odd, 0);
      }
      if constexpr (kChains > 1) {
        for (; row + kChains <= rows.end; row += kChains) {
          RINGATTN_UNROLL for (int c = 0; c < kChains; c += 2) {
            read(row + c);
            add(row + c, even, c);
            add(row + c + 1, odd, c + 1);
          }
        }
      }
      for (; row + 2 <= rows.end; row += 2) {
        if constexpr (kChains == 1) {
          RINGATTN_UNROLL for (int line = 0; line < kLines; ++line)
              __builtin_prefetch(ahead + line * 64, 0, kLevel);
          ahead += kBytes;
        }
        read(row);
        add(row, even, 0);
        add(row + 1, odd, 0);
      }
      if (row < rows.end) {
        read(row);  // in the wire's pairs the row after it is there; of fp32, see Rows
        add(row, even, 0);
      }
    }
    RINGATTN_UNROLL for (int n = 0; n < kQueries; ++n) {
      float* y = job.y + (query + n) * job.y_stride + unit * kColumns;
      RINGATTN_UNROLL for (int u = 0; u < kWidth; ++u) {
        ColumnsVec sum = acc[n][u][0];
        RINGATTN_UNROLL for (int c = 1; c < kChains; ++c) sum = hn::Add(sum, acc[n][u][c]);
        float* to = y + u * kColumns;
        hn::StoreU(job.add ? hn::Add(hn::LoadU(d, to), sum) : sum, d, to);
      }
    }
  }
};

template <class Form, int kWidth, int kQueries = kTileQueries>
HWY_INLINE void TileOf(const PanelProduct& job, int unit, int query, int queries) {
  if constexpr (kQueries > 0) {
    if (queries == kQueries) {
      Form::template Tile<kQueries, kWidth>(job, unit, query);
    } else {
      TileOf<Form, kWidth, kQueries - 1>(job, unit, query, queries);
    }
  }
}

// All queries of some units, in tiles of about the same size.
template <class Form, int kWidth>
HWY_INLINE void TilesOf(const PanelProduct& job, int unit) {
  const int tiles = (job.queries + kTileQueries - 1) / kTileQueries;
  for (int tile = 0; tile < tiles; ++tile) {
    const int first = job.queries * tile / tiles, last = job.queries * (tile + 1) / tiles;
    TileOf<Form, kWidth>(job, unit, first, last - first);
  }
}

template <class Form>
void ProductBy(const PanelProduct& job) {
  const int units = job.count * kUnitsOfPanel;
  int unit = 0;
  if (job.ordered) {
    for (; unit < units; ++unit) Form::template Tile<1, 1, kChains>(job, unit, 0);
    return;
  }
  if (Form::kWide && job.queries == 1)
    for (; unit + 2 * kUnits <= units; unit += 2 * kUnits) Form::template Tile<1, 2 * kUnits>(job, unit, 0);
  for (; unit + kUnits <= units; unit += kUnits) TilesOf<Form, kUnits>(job, unit);
  for (; unit + 2 <= units; unit += 2) TilesOf<Form, 2>(job, unit);
  if (unit < units) TilesOf<Form, 1>(job, unit);
}

void Product(const PanelProduct& job) {
  if (job.dtype == DType::f32) {
    ProductBy<Widened<DType::f32>>(job);
  } else if (job.dtype == DType::bf16) {
    ProductBy<Widened<DType::bf16>>(job);
  } else {
    ProductBy<Widened<DType::f16>>(job);
  }
}

HWY_INLINE float LargestLane(Vec v) {
  alignas(64) float lanes[kLanes];
  hn::Store(v, Floats(), lanes);
  float largest = lanes[0];
  for (int i = 1; i < kLanes; ++i) largest = largest < lanes[i] ? lanes[i] : largest;
  return largest;
}

// Keys are in lanes, so the maximum and the sum are formed across them; otherwise as SoftmaxTile and Rescale.
void FewSoftmax(float* scores, int keys, FewRow& row, float* o, int dim_v, float slope) {
  const Floats d;
  const Slope factor = MakeSlope(slope);
  // Max and the comparison may lose a NaN, whose exp2 makes the sum and o NaN all the same.
  Vec top = hn::Set(d, kNegInf);
  for (int j = 0; j < keys; j += kLanes) top = hn::Max(top, hn::LoadU(d, scores + j));
  const float largest = LargestLane(top);
  if (largest > row.limit) {
    const float old = row.limit == kNegInf ? kNegInf : row.shift;
    const Vec fall = Exp2Scaled(hn::Set(d, old - largest), factor);
    row.sum *= hn::GetLane(fall);
    // dim_v is a multiple of 8, and so may be half a vector.
    const Columns columns;
    const auto fall_of_column = hn::Set(columns, hn::GetLane(fall));
    for (int c = 0; c < dim_v; c += kColumns)
      hn::StoreU(hn::Mul(hn::LoadU(columns, o + c), fall_of_column), columns, o + c);
    row.shift = largest;
    row.limit = largest + kLag / slope;
  }
  const Vec shift = hn::Set(d, row.shift);
  Vec sum = hn::Zero(d);
  for (int j = 0; j < keys; j += kLanes) {
    const Vec p = Exp2Scaled(hn::Sub(hn::LoadU(d, scores + j), shift), factor);
    sum = hn::Add(sum, p);
    hn::StoreU(p, d, scores + j);
  }
  row.sum += hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace ringattn::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard
