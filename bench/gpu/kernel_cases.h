// The problems that every chapter of the CUDA kernels is checked with.
#pragma once
#include <string>
#include <vector>

#include "bench/gpu/problem.h"

namespace ringattn::acceptance {

// tiny: a few rows, for a machine that executes kernels a thread at a time; small: for compute-sanitizer,
// which slows a kernel down by 10 to 100 times; full: several tiles of every kernel in each direction.
enum class Extent { tiny, small, full };
Extent extent_from_name(const std::string& name);  // throws UsageError

std::vector<KernelCase> kernel_cases(Extent extent);

// Whether that chapter may say no: the tensor cores of chapters 2 and 3 take bf16 and f16, head_dim a
// multiple of 16 up to 256, as issue and README promise; whatever else they take is welcome.
bool may_refuse(const std::string& chapter, const KernelCase& problem);

// Chapters that a device of this compute capability (10 major + minor) has to run.
std::vector<std::string> chapters_of(int capability);

}  // namespace ringattn::acceptance
