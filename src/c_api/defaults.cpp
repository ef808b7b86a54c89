// The functions that set a struct's defaults.
#include "src/c_api/convert.h"
#include "src/c_api/growing_struct.h"

using namespace ringattn;
using namespace ringattn::c_api;

ringattn_status ringattn_problem_init(ringattn_problem* problem, size_t struct_size) {
  return initialise(problem, struct_size, "problem", default_problem());
}

ringattn_status ringattn_options_init(ringattn_options* options, size_t struct_size) {
  return initialise(options, struct_size, "options", default_options());
}

ringattn_status ringattn_forward_args_init(ringattn_forward_args* args, size_t struct_size) {
  return initialise(args, struct_size, "args", ringattn_forward_args{});
}

ringattn_status ringattn_backward_args_init(ringattn_backward_args* args, size_t struct_size) {
  return initialise(args, struct_size, "args", ringattn_backward_args{});
}

ringattn_tensor ringattn_tensor_dense(void* data, ringattn_dtype dtype, int64_t batch, int64_t rows,
                                      int64_t heads, int64_t dim) {
  // Unsigned, because a product that overflows must be a wrong stride and nothing worse: the shape it belongs
  // to is refused by the call that gets it.
  const auto product = [](int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  };
  const int64_t row = product(heads, dim);
  return {.data = data,
          .dtype = dtype,
          .shape = {batch, rows, heads, dim},
          .stride = {product(rows, row), row, dim, 1}};
}

ringattn_lse ringattn_lse_dense(float* data, int64_t batch, int64_t num_heads, int64_t rows) {
  const ringattn_tensor t = ringattn_tensor_dense(nullptr, RINGATTN_F32, 1, batch, num_heads, rows);
  return {.data = data, .shape = {batch, num_heads, rows}, .stride = {t.stride[1], rows, 1}};
}
