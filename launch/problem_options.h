// From the options to the problem: shapes with their defaults, the mask through Mask's own constructors, and
// the fields of the program that ranks have to agree on.
#pragma once
#include <vector>

#include "launch/options.h"
#include "src/problem.h"

namespace ringattn::launch {

struct Shapes {
  index_t seqlen_q = 0, seqlen_k = 0;
  HeadShape heads;
  DType dtype = DType::f32;
};

// Shapes of synthetic tensors: the options and, where they are silent, the defaults that --help states.
Shapes shapes_of(const ProblemOptions& options);

// Throws UsageError if the shapes and options make no problem.
Problem make_problem(const ProblemOptions& options, const Shapes& shapes);

// What ranks compare before they work together, besides the problem. The same names in every subcommand.
std::vector<Field> program_fields(const Options& options);

}  // namespace ringattn::launch
