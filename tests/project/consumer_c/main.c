#include <ringattn.h>
#include <stdio.h>

/* q = k = 0 and v[j] = j: row i is the mean of the keys that it sees, i / 2. */
int main(void) {
  float zero[40] = {0}, v[40], out[40];
  for (int i = 0; i < 40; ++i) v[i] = (float)(i / 8);
  ringattn_comm* comm = NULL;
  ringattn_mask* mask = NULL;
  ringattn_layout* layout = NULL;
  ringattn_attention* attention = NULL;
  ringattn_problem problem;
  ringattn_forward_args args;
  ringattn_status status = ringattn_comm_create_self(&comm);
  if (!status) status = ringattn_mask_create_causal(5, 5, &mask);
  if (!status) status = ringattn_layout_create(RINGATTN_CONTIGUOUS, 5, 5, 1, &layout);
  if (!status) status = ringattn_problem_init(&problem, sizeof problem);
  if (!status) status = ringattn_forward_args_init(&args, sizeof args);
  if (!status) {
    problem.head_dim = 8;
    args.q = args.k = ringattn_tensor_dense(zero, RINGATTN_F32, 1, 5, 1, 8);
    args.v = ringattn_tensor_dense(v, RINGATTN_F32, 1, 5, 1, 8);
    args.out = ringattn_tensor_dense(out, RINGATTN_F32, 1, 5, 1, 8);
    status = ringattn_attention_create(comm, &problem, mask, layout, NULL, &attention);
  }
  if (!status) status = ringattn_forward(attention, &args);
  if (status) {
    fprintf(stderr, "%s: %s\n", ringattn_status_name(status), ringattn_last_error());
    return 1;
  }
  printf("%g %g\n", out[8], out[32]);
  return out[8] == 0.5f && out[32] == 2.0f ? 0 : 1;
}
