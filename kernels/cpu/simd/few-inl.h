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

// The one place that knows how elements lie in a panel. `unit` points to the columns of row 0.
template <class Element>
struct PanelReader;

template <>
struct PanelReader<float> {
  static HWY_INLINE ColumnsVec Row(const float* unit, index_t row) {
    return hn::LoadU(Columns(), unit + row * kPanel);
  }
};

template <>
struct PanelReader<hwy::bfloat16_t> {
  static HWY_INLINE ColumnsVec Row(const hwy::bfloat16_t* unit, index_t row) {
    const Columns d;
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::bfloat16_t, Columns>(), unit + row * kPanel));
  }
};

template <>
struct PanelReader<hwy::float16_t> {
  static HWY_INLINE ColumnsVec Row(const hwy::float16_t* unit, index_t row) {
    const Columns d;
#if RINGATTN_AVX512 || RINGATTN_AVX2
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::float16_t, Columns>(), unit + row * kPanel));
#else
    // See WidenF16: other targets' PromoteTo is not exact.
    alignas(16) float wide[kColumns];
    for (int c = 0; c < kColumns; ++c) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, unit + row * kPanel + c, sizeof(bits));
      wide[c] = f32_from_f16(bits);
    }
    return hn::Load(d, wide);
#endif
  }
};

// Distance in bytes of what is fetched ahead, line by line in the order of memory, although a tile reads
// several panels side by side: memory and its own prefetcher are fastest so. Half of L1, and 500 cycles at
// the rate of the last-level cache.
inline constexpr index_t kFewAhead = 16384;

// Units [unit, unit + kWidth) for queries [query, query + kQueries).
template <class Element, int kQueries, int kWidth>
HWY_NOINLINE void ProductTile(const PanelProduct& job, int unit, int query) {
  using Reader = PanelReader<Element>;
  const Columns d;
  const float* HWY_RESTRICT x = job.x + query * kFewStride;
  const Element* at[kWidth];
  RINGATTN_UNROLL for (int u = 0; u < kWidth; ++u) {
    const int panel = (unit + u) / kUnitsOfPanel, half = (unit + u) % kUnitsOfPanel;
    at[u] = reinterpret_cast<const Element*>(job.panels + panel * job.panel_bytes) + half * kColumns;
  }
  constexpr int kBytes = 2 * kWidth * kColumns * static_cast<int>(sizeof(Element));  // of two rows
  constexpr int kLines = (kBytes + 63) / 64;
  const char* ahead = reinterpret_cast<const char*>(at[0]) + kFewAhead;
  ColumnsVec acc[kQueries][kWidth];
  RINGATTN_UNROLL for (int n = 0; n < kQueries; ++n) {
    RINGATTN_UNROLL for (int u = 0; u < kWidth; ++u) acc[n][u] = hn::Zero(d);
  }
  const auto add_row = [&](index_t i) HWY_ATTR {
    ColumnsVec y[kWidth];
    RINGATTN_UNROLL for (int u = 0; u < kWidth; ++u) y[u] = Reader::Row(at[u], i);
    RINGATTN_UNROLL for (int n = 0; n < kQueries; ++n) {
      const ColumnsVec factor = hn::Set(d, x[n * kFewStride + i]);
      RINGATTN_UNROLL for (int u = 0; u < kWidth; ++u) acc[n][u] = hn::MulAdd(y[u], factor, acc[n][u]);
    }
  };
  for (const PanelRows& rows : job.rows) {
    index_t i = rows.begin;
    for (; i + 2 <= rows.end; i += 2) {
      RINGATTN_UNROLL for (int line = 0; line < kLines; ++line) __builtin_prefetch(ahead + line * 64);
      ahead += kBytes;
      add_row(i);
      add_row(i + 1);
    }
    if (i < rows.end) add_row(i);
  }
  RINGATTN_UNROLL for (int n = 0; n < kQueries; ++n) {
    float* y = job.y + (query + n) * job.y_stride + unit * kColumns;
    RINGATTN_UNROLL for (int u = 0; u < kWidth; ++u) {
      float* to = y + u * kColumns;
      hn::StoreU(job.add ? hn::Add(hn::LoadU(d, to), acc[n][u]) : acc[n][u], d, to);
    }
  }
}

template <class Element, int kWidth, int kQueries = kTileQueries>
HWY_INLINE void TileOf(const PanelProduct& job, int unit, int query, int queries) {
  if constexpr (kQueries > 0) {
    if (queries == kQueries) {
      ProductTile<Element, kQueries, kWidth>(job, unit, query);
    } else {
      TileOf<Element, kWidth, kQueries - 1>(job, unit, query, queries);
    }
  }
}

// All queries of some units, in tiles of about the same size.
template <class Element, int kWidth>
HWY_INLINE void TilesOf(const PanelProduct& job, int unit) {
  const int tiles = (job.queries + kTileQueries - 1) / kTileQueries;
  for (int tile = 0; tile < tiles; ++tile) {
    const int first = job.queries * tile / tiles, last = job.queries * (tile + 1) / tiles;
    TileOf<Element, kWidth>(job, unit, first, last - first);
  }
}

template <class Element>
void ProductOf(const PanelProduct& job) {
  const int units = job.count * kUnitsOfPanel;
  int unit = 0;
  // One query alone has too few chains in four units to keep both multiply-adders busy, as 16-bit elements
  // need.
  if (sizeof(Element) == 2 && job.queries == 1)
    for (; unit + 2 * kUnits <= units; unit += 2 * kUnits) ProductTile<Element, 1, 2 * kUnits>(job, unit, 0);
  for (; unit + kUnits <= units; unit += kUnits) TilesOf<Element, kUnits>(job, unit);
  for (; unit + 2 <= units; unit += 2) TilesOf<Element, 2>(job, unit);
  if (unit < units) TilesOf<Element, 1>(job, unit);
}

void Product(const PanelProduct& job) {
  if (job.dtype == DType::f32) {
    ProductOf<float>(job);
  } else if (job.dtype == DType::bf16) {
    ProductOf<hwy::bfloat16_t>(job);
  } else {
    ProductOf<hwy::float16_t>(job);
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
