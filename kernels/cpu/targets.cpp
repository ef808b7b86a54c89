// Compiles the SIMD code once for every instruction set and lists the results. Built without -march:
// Highway sets the instruction set by attributes, so that nothing else of the program depends on it.

// Half the build time for no machine of interest: what has SSE4 and no AVX2 is slow whatever we do. Bits 4
// and 6 are AVX-512 variants of later Highway versions, which gain nothing here. Arrays of vectors rule out
// SVE.
#define HWY_DISABLED_TARGETS                                                                         \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | (1LL << 4) | (1LL << 6) | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | \
   HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/targets.cpp"
#include "hwy/foreach_target.h"  // includes this file again for each instruction set; stays before highway.h
#include "hwy/highway.h"
#include "kernels/cpu/target.h"

#include "kernels/cpu/simd/attend-inl.h"
#include "kernels/cpu/simd/checks-inl.h"
#include "kernels/cpu/simd/few-inl.h"
#include "kernels/cpu/simd/fold-inl.h"
#include "kernels/cpu/simd/key_gradients-inl.h"
#include "kernels/cpu/simd/magnitudes-inl.h"
#include "kernels/cpu/simd/probabilities-inl.h"
#include "kernels/cpu/simd/query_gradients-inl.h"
#include "kernels/cpu/simd/rows-inl.h"

// Each inclusion of the files that work on cells flips this.
#ifdef RINGATTN_CELL_TOGGLE
#undef RINGATTN_CELL_TOGGLE
#else
#define RINGATTN_CELL_TOGGLE
#endif

// Highway 1.0.3 has no target that implies the dot-product instruction, so AVX3 carries a second compilation.
#if HWY_ARCH_X86 && HWY_TARGET == HWY_AVX3
#define RINGATTN_PAIRS 1
#include "kernels/cpu/simd/attend-inl.h"
#include "kernels/cpu/simd/few_pairs-inl.h"
#include "kernels/cpu/simd/key_gradients-inl.h"
#include "kernels/cpu/simd/pairs-inl.h"
#include "kernels/cpu/simd/probabilities-inl.h"
#include "kernels/cpu/simd/query_gradients-inl.h"
#undef RINGATTN_PAIRS
#ifdef RINGATTN_CELL_TOGGLE
#undef RINGATTN_CELL_TOGGLE
#else
#define RINGATTN_CELL_TOGGLE
#endif
#endif

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "fast-math removes the rules for NaN and -inf that this kernel keeps (case A11)"
#endif

HWY_BEFORE_NAMESPACE();
namespace ringattn::cpu::HWY_NAMESPACE {

const Target& ThisTarget() {
  static const Target target{
      .name = hwy::TargetName(HWY_TARGET),
      .step_keys = kTargetStepKeys,
      .attend = Attend,
      .fold = Fold,
      .all_finite = AllFinite,
      .panel_product = Product,
      .few_softmax = FewSoftmax,
      .probabilities = Probabilities,
      .key_gradients = KeyGradients,
      .query_gradients = QueryGradients,
      .move_sum = MoveSum,
      .dot = Dot,
      .widen = Widen,
      .narrow = Narrow,
      .widen_pairs = WidenPairs,
      .interleave_rows = InterleaveRows,
      .magnitude_bf16 = MagnitudeBf16,
      .largest_finite = LargestFinite,
      .within_magnitudes = WithinMagnitudes,
      .rotate = Rotate,
      .rows_to_columns = RowsToColumns,
      .columns_to_rows = ColumnsToRows,
      .rows_to_panel = RowsToPanel,
      .rows_to_panels = RowsToPanels,
      .quotients_to_rows = QuotientsToRows,
      .flush_stream = FlushStream,
      .transpose_blocks = TransposeBlocks,
      .fma_chains = FmaChains,
      .fma_flops = kFmaFlops,
      .read_all = ReadAll,
      .exp2 = Exp2Array,
      .self_test = SelfTest,
  };
  return target;
}

#if HWY_ARCH_X86 && HWY_TARGET == HWY_AVX3
// The same table with the products of bf16 beside it.
const Target& PairsTarget() {
  static const PairTarget pairs_target{.attend = pairs::Attend,
                                       .probabilities = pairs::Probabilities,
                                       .key_gradients = pairs::KeyGradients,
                                       .query_gradients = pairs::QueryGradients,
                                       .pair_rows = pairs::PairRows,
                                       .split_rows = pairs::SplitRows,
                                       .regroup = pairs::Regroup,
                                       .split_few = pairs::SplitFew,
                                       .few_product = pairs::FewProduct,
                                       .dot_chains = pairs::DotChains};
  static const Target target = [] {
    Target copy = ThisTarget();
    copy.name = "AVX3_BF16";
    copy.pairs = &pairs_target;
    return copy;
  }();
  return target;
}
#endif

}  // namespace ringattn::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE  // the last inclusion, which is the baseline that every machine of this architecture runs
#include <algorithm>
#include <vector>

#include "src/error.h"

namespace ringattn::cpu {
namespace {

std::vector<const Target*> supported_targets() {
  std::vector<const Target*> list;
  [[maybe_unused]] const std::int64_t supported = hwy::SupportedTargets();
#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX3)
  // Highway asks the operating system about the registers; the processor says what it does with them.
  if ((supported & HWY_AVX3) && __builtin_cpu_supports("avx512bf16")) list.push_back(&N_AVX3::PairsTarget());
#endif
#if (HWY_TARGETS & HWY_AVX3) && HWY_STATIC_TARGET != HWY_AVX3
  if (supported & HWY_AVX3) list.push_back(&N_AVX3::ThisTarget());
#endif
#if (HWY_TARGETS & HWY_AVX2) && HWY_STATIC_TARGET != HWY_AVX2
  if (supported & HWY_AVX2) list.push_back(&N_AVX2::ThisTarget());
#endif
  list.push_back(&HWY_NAMESPACE::ThisTarget());
  return list;
}

}  // namespace

std::span<const Target* const> targets() {
  static const std::vector<const Target*> list = supported_targets();
  return list;
}

const Target& target_named(const std::string& isa) {
  if (isa == "auto") return *targets().front();
  std::string allowed = "auto";
  for (const Target* target : targets()) {
    if (isa == target->name) return *target;
    allowed += std::string(", ") + target->name;
  }
  throw UsageError("isa: '" + isa + "' is not an instruction set of this build and machine; allowed are " +
                   allowed);
}

}  // namespace ringattn::cpu
#endif
