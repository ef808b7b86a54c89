// What the register tiles multiply: cells of 32 bits. A cell is one float, or two bf16 that are neighbours
// along the dimension that is summed, even one in the lower half. The files that work on cells are included
// once for floats and, where the compiler knows the dot-product instruction, once more for pairs, in a
// namespace of their own and with the instruction among their attributes (RINGATTN_PAIRS, see targets.cpp).
//
// vdpbf16ps rounds to nearest even whatever MXCSR says, and takes and returns denormals as 0. What that means
// for queries and values is in pairs-inl.h and run.cpp.
#if defined(RINGATTN_CPU_CELL_INL_H_) == defined(RINGATTN_CELL_TOGGLE)
#ifdef RINGATTN_CPU_CELL_INL_H_
#undef RINGATTN_CPU_CELL_INL_H_
#else
#define RINGATTN_CPU_CELL_INL_H_
#endif

#include "kernels/cpu/simd/vectors-inl.h"

#undef RINGATTN_BEFORE_CELLS
#undef RINGATTN_CELLS
#undef RINGATTN_CELL_ATTR  // of a lambda, which clang does not give the attributes around it
#if RINGATTN_PAIRS
#define RINGATTN_BEFORE_CELLS() HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16") static_assert(true, "")
#define RINGATTN_CELLS HWY_NAMESPACE::pairs
#define RINGATTN_CELL_ATTR __attribute__((target(HWY_TARGET_STR ",avx512bf16")))
#else
#define RINGATTN_BEFORE_CELLS() HWY_BEFORE_NAMESPACE()
#define RINGATTN_CELLS HWY_NAMESPACE
#define RINGATTN_CELL_ATTR HWY_ATTR
#endif

RINGATTN_BEFORE_CELLS();
namespace ringattn::cpu::RINGATTN_CELLS {

#if RINGATTN_PAIRS
inline constexpr int kCell = 2;  // elements of a cell
inline constexpr int kRowCells = kGroup / kCell;
// Of exp2. Forward's probabilities are summed to lse before they are rounded, backward's are not summed.
inline constexpr int kForwardDegree = 4, kBackwardDegree = 3;

// acc += a.even * b.even + a.odd * b.odd
HWY_INLINE Vec AddProduct(Vec a, Vec b, Vec acc) {
  return Vec{_mm512_dpbf16_ps(acc.raw, reinterpret_cast<__m512bh>(a.raw), reinterpret_cast<__m512bh>(b.raw))};
}

// Rounds to nearest even; denormals become 0, NaN stays NaN.
HWY_INLINE Vec MakeCell(const Vec (&x)[kCell]) {
  alignas(64) static constexpr std::uint16_t kInterleave[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                                21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                                11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const auto halves = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(x[1].raw, x[0].raw));
  const __m512i cells = _mm512_permutexvar_epi16(_mm512_load_si512(kInterleave), halves);
  return Vec{_mm512_castsi512_ps(cells)};
}

// sum + even + odd
HWY_INLINE Vec AddElements(Vec cell, Vec sum) {
  const Ints bits;
  return AddProduct(cell, hn::BitCast(Floats(), hn::Set(bits, 0x3F803F80)), sum);  // times (1, 1)
}

// Two rows of plain elements, kRowCells apart, rounded as in MakeCell; and one row widened.
HWY_INLINE void StoreRows(const Vec (&x)[kCell], float* rows) {
  const auto halves = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(x[1].raw, x[0].raw));
  _mm256_store_si256(reinterpret_cast<__m256i*>(rows), _mm512_castsi512_si256(halves));
  _mm256_store_si256(reinterpret_cast<__m256i*>(rows + kRowCells), _mm512_extracti64x4_epi64(halves, 1));
}
HWY_INLINE Vec LoadRow(const float* row) {
  const __m256i narrow = _mm256_load_si256(reinterpret_cast<const __m256i*>(row));
  return Vec{_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16))};
}

HWY_INLINE void SplitCell(Vec cell, Vec (&x)[kCell]) {
  const Floats d;
  const Ints bits;
  x[0] = hn::BitCast(d, hn::ShiftLeft<16>(hn::BitCast(bits, cell)));
  x[1] = hn::BitCast(d, hn::And(hn::BitCast(bits, cell), hn::Set(bits, static_cast<int>(0xFFFF0000u))));
}

// The cell with elements of other lanes than those of their mask replaced by 0.
HWY_INLINE Vec KeepShown(const hn::Mask<Floats> (&shown)[kCell], Vec cell) {
  const Floats d;
  const Ints bits;
  const auto whole = hn::BitCast(bits, cell);
  const Vec even = hn::BitCast(d, hn::And(whole, hn::Set(bits, 0xFFFF)));
  const Vec odd = hn::BitCast(d, hn::And(whole, hn::Set(bits, static_cast<int>(0xFFFF0000u))));
  return hn::Or(hn::IfThenElseZero(shown[0], even), hn::IfThenElseZero(shown[1], odd));
}
// Likewise for all lanes.
HWY_INLINE Vec KeepShown(const bool (&shown)[kCell], Vec cell) {
  const Ints bits;
  const unsigned mask = (shown[0] ? 0xFFFFu : 0u) | (shown[1] ? 0xFFFF0000u : 0u);
  return hn::BitCast(Floats(), hn::And(hn::BitCast(bits, cell), hn::Set(bits, static_cast<int>(mask))));
}
#else
inline constexpr int kCell = 1;
inline constexpr int kRowCells = kGroup;
inline constexpr int kForwardDegree = 5, kBackwardDegree = 5;

HWY_INLINE Vec AddProduct(Vec a, Vec b, Vec acc) { return hn::MulAdd(a, b, acc); }
HWY_INLINE Vec AddElements(Vec cell, Vec sum) { return hn::Add(sum, cell); }
HWY_INLINE Vec MakeCell(const Vec (&x)[kCell]) { return x[0]; }
HWY_INLINE void StoreRows(const Vec (&x)[kCell], float* rows) { hn::Store(x[0], Floats(), rows); }
HWY_INLINE Vec LoadRow(const float* row) { return hn::Load(Floats(), row); }
HWY_INLINE void SplitCell(Vec cell, Vec (&x)[kCell]) { x[0] = cell; }
HWY_INLINE Vec KeepShown(const hn::Mask<Floats> (&shown)[kCell], Vec cell) {
  return hn::IfThenElseZero(shown[0], cell);
}
HWY_INLINE Vec KeepShown(const bool (&shown)[kCell], Vec cell) {
  return shown[0] ? cell : hn::Zero(Floats());
}
#endif
static_assert(kPanel % kCell == 0 && kRows % kCell == 0);

// Of a row of n elements; the last one of an odd row is filled up with 0.
HWY_INLINE int Cells(int n) { return (n + kCell - 1) / kCell; }

}  // namespace ringattn::cpu::RINGATTN_CELLS
HWY_AFTER_NAMESPACE();
#endif  // include guard
