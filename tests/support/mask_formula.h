// The mask conventions as formulas of (i, j), written from shared conventions and not from tiles: what the
// oracle of the ring tests believes.
#pragma once
#include <vector>

#include "src/problem.h"
#include "tests/support/ring_case.h"

namespace ringattn::test {

// A mask and the formula that it must equal.
struct MaskCase {
  Mask mask;
  Visible visible;
};

inline MaskCase full_case(index_t lq, index_t lk) {
  return {Mask::full(lq, lk), [](index_t, index_t) { return true; }};
}

inline MaskCase window_case(index_t lq, index_t lk, Window w) {
  return {Mask::window(lq, lk, w), [=](index_t i, index_t j) {
            const index_t beside = i + lk - lq;
            return (w.left < 0 || j >= beside - w.left) && (w.right < 0 || j <= beside + w.right);
          }};
}

inline MaskCase causal_case(index_t lq, index_t lk) {
  return {Mask::causal(lq, lk), [=](index_t i, index_t j) { return j <= i + lk - lq; }};
}

inline MaskCase document_case(index_t lq, index_t lk, std::vector<index_t> cu_q, std::vector<index_t> cu_k,
                              Window w) {
  Mask mask = Mask::documents(lq, lk, cu_q, cu_k, w);
  return {std::move(mask), [=](index_t i, index_t j) {
            for (std::size_t d = 0; d + 1 < cu_q.size(); ++d) {
              if (i < cu_q[d] || i >= cu_q[d + 1] || j < cu_k[d] || j >= cu_k[d + 1]) continue;
              const index_t beside = j - cu_k[d + 1] + cu_q[d + 1] - i;  // 0: the key that i is aligned with
              return (w.left < 0 || beside >= -w.left) && (w.right < 0 || beside <= w.right);
            }
            return false;
          }};
}

}  // namespace ringattn::test
