/* A case of the list of faults through the C interface: the whole tensors, what one rank does with its rows,
 * and what must come out. C99, so that the C compiler has a say. */
#ifndef RINGATTN_TESTS_RING_CASE_H
#define RINGATTN_TESTS_RING_CASE_H

#include <ringattn.h>
#include <stddef.h>
#include <stdint.h>

enum { kHeads = 2, kDim = 8, kLongest = 16, kElements = kLongest * kHeads * kDim };

/* Whole tensors [1, length, 2, 8], from the generator G of the cases. */
struct ring_case {
  int64_t length;
  int causal;
  ringattn_layout_kind layout;
  float q[kElements], k[kElements], v[kElements], dout[kElements];
};
/* Every rank writes the rows that it owns; lse is [2, length]. */
struct answer {
  float out[kElements], dq[kElements], dk[kElements], dv[kElements], lse[kHeads * kLongest];
};

void make_case(struct ring_case* c, int64_t length, int causal, ringattn_layout_kind layout);

/* Forward, then backward, of this rank. 0, or 1 after a line on stderr. */
int run_rank(ringattn_comm* comm, const struct ring_case* c, struct answer* answer);

/* Case A9: test 1 (16 tokens, full), test 2 (12 tokens, causal). 0, or 1 after a line for every wrong value.
 */
int check_a9(const struct ring_case* c, const struct answer* answer, const char* where);

#endif
