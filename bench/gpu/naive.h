// Attention as one writes it down with the whole matrix of probabilities stored: every matrix rounded to the
// dtype, sums in fp32. Its error is the measure of ours.
#pragma once
#include "bench/gpu/problem.h"

namespace ringattn::acceptance {

struct NaiveResult {
  std::vector<double> out, lse, dq, dk, dv;
  // Largest sums of the absolute values of what is added up to an element: what rounding refers to where
  // terms cancel.
  double dq_size = 0, dk_size = 0, dv_size = 0;
};
NaiveResult naive_attention(const KernelCase& problem, const Inputs& inputs);

// Largest finite magnitude.
double largest(const std::vector<double>& x);

}  // namespace ringattn::acceptance
