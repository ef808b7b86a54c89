// What happens to rows on their way between the caller's tensors and the packed layouts: widening, turning,
// scaling, transposing, rounding. Most of it is plain loops that the compiler vectorises for the target.
#if defined(RINGATTN_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGATTN_CPU_ROWS_INL_H_
#undef RINGATTN_CPU_ROWS_INL_H_
#else
#define RINGATTN_CPU_ROWS_INL_H_
#endif

#include <cstring>

#include "hwy/cache_control.h"
#include "kernels/convert.h"
#include "kernels/cpu/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringattn::cpu::HWY_NAMESPACE {

// Copies in vectors of this target's width rather than by memcpy: a wide load from two narrower stores, as
// the next pass over a row would do, cannot be forwarded and waits for the cache.
void WidenF32(const float* from, index_t n, float factor, float* to) {
  const Floats d;
  index_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, from + i), hn::Set(d, factor)), d, to + i);
  for (; i < n; ++i) to[i] = from[i] * factor;
}

void WidenBf16(const std::uint16_t* from, index_t n, float factor, float* to) {
  for (index_t i = 0; i < n; ++i) to[i] = f32_from_bf16(from[i]) * factor;
}

void WidenF16(const std::uint16_t* from, index_t n, float factor, float* to) {
  index_t i = 0;
#if RINGATTN_AVX512 || RINGATTN_AVX2
  // vcvtph2ps is exact, subnormals included, and keeps NaN; Highway's form for other targets does not.
  const Floats d;
  const hn::Rebind<hwy::float16_t, Floats> half;
  for (; i + kLanes <= n; i += kLanes) {
    const auto x = hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(from + i));
    hn::StoreU(hn::Mul(hn::PromoteTo(d, x), hn::Set(d, factor)), d, to + i);
  }
#endif
  for (; i < n; ++i) to[i] = f32_from_f16(from[i]) * factor;
}

void Widen(const void* from, DType dtype, index_t n, double factor, float* to) {
  const auto narrow = static_cast<float>(factor);
  const bool fits = static_cast<double>(narrow) == factor;
  const float applied = fits ? narrow : 1.0f;
  if (dtype == DType::f32) {
    WidenF32(static_cast<const float*>(from), n, applied, to);
  } else if (dtype == DType::bf16) {
    WidenBf16(static_cast<const std::uint16_t*>(from), n, applied, to);
  } else {
    WidenF16(static_cast<const std::uint16_t*>(from), n, applied, to);
  }
  if (fits) return;
  // A factor that fp32 cannot hold, such as 2^-200, may still give results that it can.
  for (index_t i = 0; i < n; ++i) to[i] = static_cast<float>(static_cast<double>(to[i]) * factor);
}

// Of [(n + 1) / 2][8] cells, neighbours in n as pairs, to [n][8] floats.
void WidenPairs(const void* from, DType dtype, index_t n, float* to) {
  const auto* pairs = static_cast<const std::uint16_t*>(from);
  constexpr index_t kRowsAtATime = 64;
  std::uint16_t rows[kRowsAtATime * kPanel];
  for (index_t first = 0; first < n; first += kRowsAtATime) {
    const index_t count = n - first < kRowsAtATime ? n - first : kRowsAtATime;
    for (index_t i = 0; i < count; ++i) {
      const std::uint16_t* row = pairs + (first + i) / 2 * 2 * kPanel + i % 2;
      for (index_t r = 0; r < kPanel; ++r) rows[i * kPanel + r] = row[2 * r];
    }
    Widen(rows, dtype, count * kPanel, 1.0, to + first * kPanel);
  }
}

// Eight columns at a time; those past the last one become 0.
void InterleaveRows(const std::uint16_t* even, const std::uint16_t* odd, index_t n, std::uint16_t* to,
                    index_t to_step) {
  index_t c = 0;
#if HWY_MAX_BYTES >= 16
  const hn::FixedTag<std::uint16_t, kPanel> d;
  for (; c + kPanel <= n; c += kPanel, to += to_step) {
    const auto x = hn::LoadU(d, even + c), y = hn::LoadU(d, odd + c);
    hn::StoreU(hn::InterleaveLower(d, x, y), d, to);
    hn::StoreU(hn::InterleaveUpper(d, x, y), d, to + kPanel);
  }
#endif
  for (; c < n; c += kPanel, to += to_step) {
    for (index_t i = 0; i < kPanel; ++i) {
      to[2 * i] = c + i < n ? even[c + i] : std::uint16_t{0};
      to[2 * i + 1] = c + i < n ? odd[c + i] : std::uint16_t{0};
    }
  }
}

void Narrow(const float* from, DType dtype, index_t n, void* to) {
  if (dtype == DType::f32) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
    return;
  }
  auto* bits = static_cast<std::uint16_t*>(to);
  if (dtype == DType::bf16) {
    for (index_t i = 0; i < n; ++i) bits[i] = bf16_from_f32(from[i]);
  } else {
    for (index_t i = 0; i < n; ++i) bits[i] = f16_from_f32(from[i]);
  }
}

// (x1, x2) -> (x1 cos - x2 sin, x1 sin + x2 cos) for each pair of the leading `dim` elements
// (RoFormer, arXiv:2104.09864, eq. 15).
void Rotate(float* HWY_RESTRICT row, const float* HWY_RESTRICT cos, const float* HWY_RESTRICT sin,
            index_t dim, bool interleaved) {
  const index_t pairs = dim / 2;
  if (interleaved) {
    for (index_t e = 0; e < pairs; ++e) {
      const float x1 = row[2 * e], x2 = row[2 * e + 1];
      row[2 * e] = x1 * cos[e] - x2 * sin[e];
      row[2 * e + 1] = x1 * sin[e] + x2 * cos[e];
    }
  } else {
    for (index_t e = 0; e < pairs; ++e) {
      const float x1 = row[e], x2 = row[e + pairs];
      row[e] = x1 * cos[e] - x2 * sin[e];
      row[e + pairs] = x1 * sin[e] + x2 * cos[e];
    }
  }
}

#if HWY_MAX_BYTES >= 32
using Eight = hn::FixedTag<float, 8>;
using EightVec = hn::Vec<Eight>;

struct Unchanged {
  HWY_INLINE EightVec operator()(EightVec x) const { return x; }
};

// to[c][r] = change(from[r][c]) of an 8 x 8 block, in registers; `change` is given rows of `from`.
template <class Change = Unchanged>
HWY_INLINE void Transpose8x8(const float* HWY_RESTRICT from, index_t from_stride, float* HWY_RESTRICT to,
                             index_t to_stride, const Change& change = {}) {
  const Eight d;
  const hn::RepartitionToWide<Eight> pairs;
  EightVec in[8], mixed[8], quads[8];
  RINGATTN_UNROLL for (int r = 0; r < 8; ++r) in[r] = change(hn::LoadU(d, from + r * from_stride));
  RINGATTN_UNROLL for (int r = 0; r < 8; r += 2) {
    mixed[r] = hn::InterleaveLower(d, in[r], in[r + 1]);
    mixed[r + 1] = hn::InterleaveUpper(d, in[r], in[r + 1]);
  }
  // Within 128-bit halves: quads[4 g + c] holds column c (and c + 4 in its upper half) of rows 4 g .. 4 g
  // + 3.
  RINGATTN_UNROLL for (int g = 0; g < 2; ++g) {
    RINGATTN_UNROLL for (int h = 0; h < 2; ++h) {
      const auto upper_rows = hn::BitCast(pairs, mixed[4 * g + h]);
      const auto lower_rows = hn::BitCast(pairs, mixed[4 * g + 2 + h]);
      quads[4 * g + 2 * h] = hn::BitCast(d, hn::InterleaveLower(pairs, upper_rows, lower_rows));
      quads[4 * g + 2 * h + 1] = hn::BitCast(d, hn::InterleaveUpper(pairs, upper_rows, lower_rows));
    }
  }
  RINGATTN_UNROLL for (int c = 0; c < 4; ++c) {
    hn::StoreU(hn::ConcatLowerLower(d, quads[4 + c], quads[c]), d, to + c * to_stride);
    hn::StoreU(hn::ConcatUpperUpper(d, quads[4 + c], quads[c]), d, to + (c + 4) * to_stride);
  }
}
// x / divisors: the product with the reciprocal, and one correction from the exact remainder (Markstein, IBM
// J. Res. Dev. 34, 1990), which costs a third of a division. A remainder of infinities is NaN: then the
// product is the quotient.
class Quotient {
 public:
  HWY_INLINE explicit Quotient(const float* divisors)
      : divisor_(hn::LoadU(Eight(), divisors)), inverse_(hn::Div(hn::Set(Eight(), 1.0f), divisor_)) {}
  HWY_INLINE EightVec operator()(EightVec x) const {
    const EightVec product = hn::Mul(x, inverse_);
    const EightVec rest = hn::NegMulAdd(product, divisor_, x);
    return hn::IfThenElse(hn::Eq(rest, rest), hn::MulAdd(rest, inverse_, product), product);
  }

 private:
  EightVec divisor_, inverse_;
};

void RowsToColumns(const float* rows, index_t row_stride, float factor, index_t n, float* to,
                   index_t to_stride) {
  index_t c = 0;
  if (factor == 1.0f) {  // the rows may be pairs of bf16
    for (; c + 8 <= n; c += 8) Transpose8x8(rows + c, row_stride, to + c * to_stride, to_stride);
    for (; c < n; ++c)
      for (int r = 0; r < 8; ++r)
        std::memcpy(to + c * to_stride + r, rows + r * row_stride + c, sizeof(float));
    return;
  }
  const auto times = [factor](EightVec x) HWY_ATTR { return hn::Mul(x, hn::Set(Eight(), factor)); };
  for (; c + 8 <= n; c += 8) Transpose8x8(rows + c, row_stride, to + c * to_stride, to_stride, times);
  for (; c < n; ++c)
    for (int r = 0; r < 8; ++r) to[c * to_stride + r] = factor * rows[r * row_stride + c];
}

HWY_INLINE bool WholeLines(const float* to, index_t stride) {
  return reinterpret_cast<std::uintptr_t>(to) % 64 == 0 && stride % 16 == 0;
}

// n floats from aligned memory past the caches.
HWY_INLINE void StreamLines(const float* from, int n, float* to) {
  const Floats d;
  for (int i = 0; i < n; i += kLanes) hn::Stream(hn::Load(d, from + i), d, to + i);
}

void RowsToPanel(const float* rows, index_t row_stride, index_t n, float* to, bool stream) {
  index_t c = 0;
  if (stream && WholeLines(to, 0)) {
    for (; c + 8 <= n; c += 8) {
      alignas(64) float block[64];
      Transpose8x8(rows + c, row_stride, block, 8);
      StreamLines(block, 64, to + c * 8);
    }
  }
  RowsToColumns(rows + c, row_stride, 1.0f, n - c, to + c * 8, 8);
}

void QuotientsToRows(const float* from, index_t from_stride, index_t n, const float* divisors, float* rows,
                     index_t row_stride, bool stream) {
  const Quotient quotient(divisors);
  index_t c = 0;
  if (stream && WholeLines(rows, row_stride)) {
    for (; c + 16 <= n; c += 16) {
      alignas(64) float lines[8 * 16];
      for (index_t half = 0; half < 16; half += 8)
        Transpose8x8(from + (c + half) * from_stride, from_stride, lines + half, 16, quotient);
      for (index_t r = 0; r < 8; ++r) StreamLines(lines + r * 16, 16, rows + r * row_stride + c);
    }
  }
  for (; c + 8 <= n; c += 8)
    Transpose8x8(from + c * from_stride, from_stride, rows + c, row_stride, quotient);
  for (; c < n; ++c)
    for (int r = 0; r < 8; ++r) rows[r * row_stride + c] = from[c * from_stride + r] / divisors[r];
}
#else
HWY_INLINE void Transpose8x8(const float* HWY_RESTRICT from, index_t from_stride, float* HWY_RESTRICT to,
                             index_t to_stride) {
  for (int r = 0; r < 8; ++r)
    for (int c = 0; c < 8; ++c) to[c * to_stride + r] = from[r * from_stride + c];
}

void RowsToColumns(const float* rows, index_t row_stride, float factor, index_t n, float* to,
                   index_t to_stride) {
  for (index_t c = 0; c < n; ++c)
    for (int r = 0; r < 8; ++r) {
      float* x = to + c * to_stride + r;
      std::memcpy(x, rows + r * row_stride + c, sizeof(float));
      if (factor != 1.0f) *x *= factor;  // otherwise the rows may be pairs of bf16
    }
}

void RowsToPanel(const float* rows, index_t row_stride, index_t n, float* to, bool /*stream*/) {
  RowsToColumns(rows, row_stride, 1.0f, n, to, 8);
}

void QuotientsToRows(const float* from, index_t from_stride, index_t n, const float* divisors, float* rows,
                     index_t row_stride, bool /*stream*/) {
  for (index_t c = 0; c < n; ++c)
    for (int r = 0; r < 8; ++r) rows[r * row_stride + c] = from[c * from_stride + r] / divisors[r];
}
#endif

void ColumnsToRows(const float* from, index_t from_stride, index_t n, float* rows, index_t row_stride) {
  index_t c = 0;
  for (; c + 8 <= n; c += 8) Transpose8x8(from + c * from_stride, from_stride, rows + c, row_stride);
  for (; c < n; ++c)
    for (int r = 0; r < 8; ++r) rows[r * row_stride + c] = from[c * from_stride + r];
}

// A panel after the other: eight rows of one cache line each stay in the L1 cache even if they lie a power of
// two apart.
void RowsToPanels(const float* rows, index_t row_stride, index_t n, float* to, index_t panel, bool stream) {
  const hn::CappedTag<float, 8> d;
  const int step = static_cast<int>(hn::Lanes(d));
  const auto copy = [&](index_t c, const auto& store) HWY_ATTR {
    for (int r = 0; r < 8; ++r)
      for (int e = 0; e < 8; e += step)
        store(hn::LoadU(d, rows + r * row_stride + c + e), to + c / 8 * panel + 8 * r + e);
  };
  index_t c = 0;
  if (stream && reinterpret_cast<std::uintptr_t>(to) % 64 == 0 && panel % 16 == 0) {
    for (; c + 8 <= n; c += 8) copy(c, [&](auto x, float* at) HWY_ATTR { hn::Stream(x, d, at); });
  } else {
    for (; c + 8 <= n; c += 8) copy(c, [&](auto x, float* at) HWY_ATTR { hn::StoreU(x, d, at); });
  }
  to += c / 8 * panel;
  if (c == n) return;
  for (int r = 0; r < 8; ++r)
    for (index_t e = 0; e < 8; ++e) to[8 * r + e] = c + e < n ? rows[r * row_stride + c + e] : 0.0f;
}

void FlushStream() { hwy::FlushStream(); }

// A group's [n][48] in rows, in parts that may be turned one by one: each is 8 lanes by up to 16 columns, a
// cache line of each row.
HWY_INLINE int TurnParts(int n) { return (n + 15) / 16 * (kGroup / 8); }
HWY_INLINE void TurnPart(const float* from, int n, int part, float* rows, int row_stride) {
  const int lane = part % (kGroup / 8) * 8, first = part / (kGroup / 8) * 16;
  const int last = Least(first + 16, n);
  int c = first;
  for (; c + 8 <= last; c += 8)
    Transpose8x8(from + c * kGroup + lane, kGroup, rows + lane * row_stride + c, row_stride);
  for (; c < last; ++c)
    for (int r = 0; r < 8; ++r) rows[(lane + r) * row_stride + c] = from[c * kGroup + lane + r];
}

void TransposeBlocks(const float* from, index_t from_step, index_t count, float* to, index_t to_step) {
  for (index_t i = 0; i < count; ++i) Transpose8x8(from + i * from_step, 8, to + i * to_step, 8);
}

// In eight partial sums, which the compiler keeps in vectors.
double Dot(const float* a, const float* b, index_t n) {
  double part[8] = {};
  index_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int lane = 0; lane < 8; ++lane) part[lane] += double{a[i + lane]} * double{b[i + lane]};
  for (; i < n; ++i) part[0] += double{a[i]} * double{b[i]};
  return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

// Sums are kept in levels, the lower of which is added to the upper one now and then.
void MoveSum(float* from, float* to, index_t n) {
  const Floats d;
  index_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, from + i)), d, to + i);
    hn::StoreU(hn::Zero(d), d, from + i);
  }
  for (; i < n; ++i) {
    to[i] += from[i];
    from[i] = 0.0f;
  }
}

// NaN and infinity both give NaN when multiplied by 0.
bool AllFinite(const float* x, index_t n) {
  const Floats d;
  Vec sum = hn::Zero(d);
  index_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sum = hn::MulAdd(hn::LoadU(d, x + i), hn::Zero(d), sum);
  bool finite = hn::AllTrue(d, hn::Eq(sum, sum));
  for (; i < n; ++i) finite &= x[i] * 0.0f == 0.0f;
  return finite;
}

}  // namespace ringattn::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard
