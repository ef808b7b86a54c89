// What a check looks at: the tensors as they were given, and this rank's rows of what came out.
#pragma once
#include "launch/head_rows.h"

namespace ringattn::launch {

// By global position; any rank can have any row.
struct CheckInputs {
  ReadHead q, k, v;
  ReadHead dout{};  // needed to check gradients only
};

struct CheckedOutput {
  ConstTensorView out;
  LseView lse;
};

struct CheckedGradients {
  ConstTensorView dq, dk, dv;
};

// One element as it is in memory.
double element_of(const ConstTensorView& tensor, index_t batch, index_t local_row, index_t head,
                  index_t element);

}  // namespace ringattn::launch
