// What NaN in an input may touch.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/cuda/support.h"

namespace ringattn::test {

// Whether an element of row `row` and head `head` must be NaN; all others must have the bits of the clean
// run.
using Spoilt = std::function<bool(index_t head, index_t row, index_t e)>;

inline void expect_rows(const char* what, const Tensor& clean, const Tensor& dirty, const Spoilt& spoilt) {
  for (index_t row = 0; row < clean.shape[1]; ++row)
    for (index_t head = 0; head < clean.shape[2]; ++head)
      for (index_t e = 0; e < clean.shape[3]; ++e) {
        const std::size_t at = clean.index(0, row, head, e);
        if (spoilt(head, row, e)) {
          ASSERT_TRUE(std::isnan(dirty.get(at))) << what << " row " << row << " head " << head << " " << e;
        } else {
          ASSERT_EQ(dirty.get(at), clean.get(at)) << what << " row " << row << " head " << head << " " << e;
        }
      }
}

}  // namespace ringattn::test
