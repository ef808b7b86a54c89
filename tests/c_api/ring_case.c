#include "ring_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* G(t): z=((i+1+t*1000003)*2654435761) mod 2^32; z^=z>>16; z=(z*2246822519) mod 2^32; z^=z>>13;
 * ((z&127)-64)/64. */
static void generate(float* x, int64_t count, uint32_t t) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t z = ((uint32_t)i + 1u + t * 1000003u) * 2654435761u;
    z ^= z >> 16;
    z *= 2246822519u;
    z ^= z >> 13;
    x[i] = (float)((int)(z & 127u) - 64) / 64.0f;
  }
}

void make_case(struct ring_case* c, int64_t length, int causal, ringattn_layout_kind layout) {
  memset(c, 0, sizeof *c);
  c->length = length;
  c->causal = causal;
  c->layout = layout;
  const int64_t count = length * kHeads * kDim;
  generate(c->q, count, 0);
  generate(c->k, count, 1);
  generate(c->v, count, 2);
  generate(c->dout, count, 3);
}

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, ringattn_last_error());
  return 1;
}
#define TRY(call)                                    \
  do {                                               \
    if ((call) != RINGATTN_OK) return failed(#call); \
  } while (0)

enum { kRow = kHeads * kDim };

/* Local rows of one rank: inputs are copied in, outputs are NaN until they are written. */
struct local {
  float q[kElements], k[kElements], v[kElements], dout[kElements];
  float out[kElements], dq[kElements], dk[kElements], dv[kElements], lse[kHeads * kLongest];
  int64_t positions[kLongest];
  size_t rows;
};

static void take_rows(float* local, const float* whole, const struct local* l) {
  for (size_t r = 0; r < l->rows; ++r)
    memcpy(local + r * kRow, whole + l->positions[r] * kRow, kRow * sizeof(float));
}
static void give_rows(const float* local, float* whole, const struct local* l) {
  for (size_t r = 0; r < l->rows; ++r)
    memcpy(whole + l->positions[r] * kRow, local + r * kRow, kRow * sizeof(float));
}

static int forward_and_backward(ringattn_attention* attention, struct local* l) {
  const int64_t rows = (int64_t)l->rows;
  ringattn_forward_args f;
  TRY(ringattn_forward_args_init(&f, sizeof f));
  f.q = ringattn_tensor_dense(l->q, RINGATTN_F32, 1, rows, kHeads, kDim);
  f.k = ringattn_tensor_dense(l->k, RINGATTN_F32, 1, rows, kHeads, kDim);
  f.v = ringattn_tensor_dense(l->v, RINGATTN_F32, 1, rows, kHeads, kDim);
  f.out = ringattn_tensor_dense(l->out, RINGATTN_F32, 1, rows, kHeads, kDim);
  f.lse = ringattn_lse_dense(l->lse, 1, kHeads, rows);
  TRY(ringattn_forward(attention, &f));

  ringattn_backward_args b;
  TRY(ringattn_backward_args_init(&b, sizeof b));
  b.dout = ringattn_tensor_dense(l->dout, RINGATTN_F32, 1, rows, kHeads, kDim);
  b.q = f.q;
  b.k = f.k;
  b.v = f.v;
  b.out = f.out;
  b.lse = f.lse;
  b.dq = ringattn_tensor_dense(l->dq, RINGATTN_F32, 1, rows, kHeads, kDim);
  b.dk = ringattn_tensor_dense(l->dk, RINGATTN_F32, 1, rows, kHeads, kDim);
  b.dv = ringattn_tensor_dense(l->dv, RINGATTN_F32, 1, rows, kHeads, kDim);
  TRY(ringattn_backward(attention, &b));
  return 0;
}

int run_rank(ringattn_comm* comm, const struct ring_case* c, struct answer* answer) {
  static const struct local kEmpty;
  struct local l = kEmpty;
  for (size_t i = 0; i < kElements; ++i) l.out[i] = l.dq[i] = l.dk[i] = l.dv[i] = (float)NAN;

  int32_t rank = -1, size = 0;
  TRY(ringattn_comm_rank(comm, &rank));
  TRY(ringattn_comm_size(comm, &size));
  ringattn_mask* mask = NULL;
  if (c->causal)
    TRY(ringattn_mask_create_causal(c->length, c->length, &mask));
  else
    TRY(ringattn_mask_create_full(c->length, c->length, &mask));
  ringattn_layout* layout = NULL;
  TRY(ringattn_layout_create(c->layout, c->length, c->length, size, &layout));
  TRY(ringattn_layout_positions(layout, RINGATTN_QUERIES, rank, l.positions, kLongest, &l.rows));
  take_rows(l.q, c->q, &l);
  take_rows(l.k, c->k, &l);
  take_rows(l.v, c->v, &l);
  take_rows(l.dout, c->dout, &l);

  ringattn_problem problem;
  TRY(ringattn_problem_init(&problem, sizeof problem));
  problem.num_heads = kHeads;
  problem.num_heads_kv = kHeads;
  problem.head_dim = kDim;
  ringattn_options options;
  TRY(ringattn_options_init(&options, sizeof options));
  options.threads = 1;
  options.deadline_ms = 20000;
  ringattn_attention* attention = NULL;
  TRY(ringattn_attention_create(comm, &problem, mask, layout, &options, &attention));
  TRY(ringattn_mask_destroy(mask)); /* the attention has its own */
  TRY(ringattn_layout_destroy(layout));
  if (forward_and_backward(attention, &l)) return 1;
  TRY(ringattn_attention_destroy(attention));

  give_rows(l.out, answer->out, &l);
  give_rows(l.dq, answer->dq, &l);
  give_rows(l.dk, answer->dk, &l);
  give_rows(l.dv, answer->dv, &l);
  for (int h = 0; h < kHeads; ++h)
    for (size_t r = 0; r < l.rows; ++r)
      answer->lse[h * c->length + l.positions[r]] = l.lse[(size_t)h * l.rows + r];
  return 0;
}

static int differs(double got, double right, double tolerance, const char* what, const char* where) {
  if (fabs(got - right) <= tolerance) return 0; /* false for NaN */
  fprintf(stderr, "%s is %.9g, expected %.9g (%s)\n", what, got, right, where);
  return 1;
}

static int digest_differs(const float* x, int64_t count, double sum, double sum_abs, const char* what,
                          const char* where) {
  double s = 0, a = 0;
  for (int64_t i = 0; i < count; ++i) {
    s += x[i];
    a += fabs((double)x[i]);
  }
  const double tolerance = 1e-4 * sqrt((double)count); /* cases.md section 0: gradients */
  return differs(s, sum, tolerance, what, where) + differs(a, sum_abs, tolerance, what, where);
}

static int row_differs(const float* x, const double* right, int count, const char* what, const char* where) {
  int wrong = 0;
  for (int i = 0; i < count; ++i) wrong += differs(x[i], right[i], 2e-5, what, where);
  return wrong;
}

/* out and lse of every row against the definition, in double. */
static int rows_differ(const struct ring_case* c, const struct answer* a, const char* where) {
  int wrong = 0;
  for (int64_t i = 0; i < c->length; ++i)
    for (int h = 0; h < kHeads; ++h) {
      double sum = 0, out[kDim] = {0};
      const int64_t visible = c->causal ? i + 1 : c->length;
      for (int64_t j = 0; j < visible; ++j) {
        double dot = 0;
        for (int d = 0; d < kDim; ++d)
          dot += (double)c->q[i * kRow + h * kDim + d] * (double)c->k[j * kRow + h * kDim + d];
        const double weight = exp(dot / sqrt((double)kDim));
        sum += weight;
        for (int d = 0; d < kDim; ++d) out[d] += weight * (double)c->v[j * kRow + h * kDim + d];
      }
      wrong += differs(a->lse[h * c->length + i], log(sum), 2e-5, "lse", where);
      for (int d = 0; d < kDim; ++d)
        wrong += differs(a->out[i * kRow + h * kDim + d], out[d] / sum, 2e-5, "out", where);
    }
  return wrong;
}

static double absolute_sum(const float* x, int64_t count) {
  double a = 0;
  for (int64_t i = 0; i < count; ++i) a += fabs((double)x[i]);
  return a;
}

int check_a9(const struct ring_case* c, const struct answer* a, const char* where) {
  const int64_t count = c->length * kRow;
  const double tolerance = 1e-4 * sqrt((double)count);
  int wrong = 0;
  if (!c->causal) { /* test 1 */
    const double dq0[] = {-0.036385535848, 0.037200262839, -0.050485620878, 0.064220734333};
    const double dv15[] = {-0.002751504923, -0.164221467178, -0.174155379687, 0.185958572592};
    wrong += differs(absolute_sum(a->dq, count), 10.341137209664, tolerance, "A9.1 sum |dq|", where);
    wrong += row_differs(a->dq, dq0, 4, "A9.1 dq[0, head 0]", where);
    wrong += digest_differs(a->dk, count, 0, 10.364823782113, "A9.1 dk", where);
    wrong += digest_differs(a->dv, count, -9.9375, 32.935960027524, "A9.1 dv", where);
    wrong += row_differs(a->dv + 15 * kRow + kDim, dv15, 4, "A9.1 dv[15, head 1]", where);
  } else { /* test 2 */
    const double dv0[] = {-0.956713290446, -0.029627015553, -1.6082848954};
    const double dv3[] = {-0.209261143038, -0.108673182928, -0.313513581527};
    const double dv11[] = {0.033223661656, 0.019543330386, -0.035177994695};
    const double dk5[] = {0.009206303762, 0.006939557447, -0.013816208387};
    double out_sum = 0;
    for (int64_t i = 0; i < count; ++i) out_sum += a->out[i];
    wrong += differs(out_sum, 3.116377645944, tolerance, "A9.2 sum of out", where);
    wrong += differs(absolute_sum(a->dq, count), 10.012187107371, tolerance, "A9.2 sum |dq|", where);
    wrong += differs(absolute_sum(a->dk, count), 8.470247533223, tolerance, "A9.2 sum |dk|", where);
    wrong += digest_differs(a->dv, count, -7.546875, 39.030320102804, "A9.2 dv", where);
    wrong += row_differs(a->dv, dv0, 3, "A9.2 dv[0, head 0]", where);
    wrong += row_differs(a->dv + 3 * kRow, dv3, 3, "A9.2 dv[3, head 0]", where);
    wrong += row_differs(a->dv + 11 * kRow, dv11, 3, "A9.2 dv[11, head 0]", where);
    wrong += row_differs(a->dk + 5 * kRow, dk5, 3, "A9.2 dk[5, head 0]", where);
  }
  return wrong + rows_differ(c, a, where) > 0;
}
