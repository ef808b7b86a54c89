// What Python builds before it builds a RingAttention.
#pragma once
#include "src/problem.h"

namespace ringattn::python {

// A problem and how it is spread over the ranks: the arguments that are the same on every rank.
struct Configuration {
  Problem problem;
  Sharding sharding;
};

}  // namespace ringattn::python
