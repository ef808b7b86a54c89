// One tensor against its float64 reference: how far it is off, how far it may be.
#pragma once
#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "src/types.h"

namespace ringattn::launch {

// The element that is farthest from the reference.
struct Deviation {
  double error = -1;  // |got - want|; infinite if only one of them is NaN or infinite; below 0: none compared
  double got = 0, want = 0;
  index_t batch = 0, position = 0, head = 0, element = 0;
};

// One tensor, judged over all ranks.
struct Judgement {
  Deviation worst;
  double rms_error = 0;        // over what was compared; infinite if an error is
  double naive_error = 0;      // largest error of the naive evaluation of the same elements
  double naive_rms_error = 0;  // over those of them that are finite
  double largest = 0;          // largest |want|
  double bound = 0;
  bool passed = false;
};

// |got - want|, 0 if they are the same infinity or both NaN, infinite if that cannot be said: never NaN, so
// that no comparison with it passes by accident.
double difference(double got, double want);

// What one rank saw of one tensor. Plain numbers: gathered as bytes.
struct Seen {
  Deviation worst;
  double naive_error = 0, largest = 0, terms = 0;
  double squares = 0, naive_squares = 0;
  index_t count = 0, naive_count = 0;

  // Sets here.error. `naive`: the same element evaluated naively. `terms`: root of the sum of squares of what
  // was added up to `want`, where sums may cancel; 0 if that is no concern.
  void add(Deviation here, double naive, double terms = 0);
};

// How much of the naive error, and of the type, a tensor is allowed.
struct Tolerance {
  DType type = DType::f32;
  double naive_errors = 2;  // 3 for gradients
};

// bound = max(naive_errors * naive_error, half a unit in the last place of `largest` in the output's type)
//         + 1e-6 * max(largest |want|, terms): what the type itself cannot hold is no error of the algorithm,
//         nor is what fp32 loses where terms cancel. An example is a query that sees one key: its dq is 0,
//         the difference of two equal numbers that are rounded apart.
double error_bound(const Tolerance& tolerance, double naive_error, double largest, double terms = 0);

// All ranks' parts as one.
Judgement judge(const Tolerance& tolerance, std::span<const Seen> ranks);

// One tensor of ranks that saw several.
template <class Sight>
Judgement judge(const Tolerance& tolerance, const std::vector<Sight>& ranks, Seen Sight::*tensor) {
  std::vector<Seen> parts(ranks.size());
  std::transform(ranks.begin(), ranks.end(), parts.begin(), std::mem_fn(tensor));
  return judge(tolerance, parts);
}

// "out[batch 0, row 3, head 1, element 2] is nan, float64 reference 0.5: error inf, bound 1e-05".
std::string wrong_text(const char* name, const Judgement& judgement, bool with_element = true);

}  // namespace ringattn::launch
