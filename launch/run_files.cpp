#include "launch/run_files.h"

#include <array>

#include "src/error.h"

namespace ringattn::launch {
namespace {

// "q.npy [1, 1021, 9, 64]": a message about a shape shows all of it.
std::string shape_text(const TensorFile& file) {
  std::string text;
  for (const index_t n : file.shape()) text += (text.empty() ? "[" : ", ") + std::to_string(n);
  return file.spec() + " " + text + "]";
}

void require_four_dimensions(const TensorFile& file, const char* axes) {
  if (file.shape().size() == 4) return;
  throw DataError(shape_text(file) + ": a tensor " + axes + " of 4 dimensions is needed");
}

// Both files are named: which of them is wrong is for the user to say.
void require_same(const TensorFile& a, std::size_t axis_a, const TensorFile& b, std::size_t axis_b,
                  const char* name) {
  if (a.shape()[axis_a] == b.shape()[axis_b]) return;
  throw DataError(std::string(name) + " differs: " + shape_text(a) + " and " + shape_text(b));
}

// An option that repeats what the file says is a promise kept; one that does not is an error, not an
// override.
void require_option(const char* option, const std::optional<index_t>& value, const TensorFile& file,
                    std::size_t axis) {
  if (!value || *value == file.shape()[axis]) return;
  throw UsageError("--" + std::string(option) + " is '" + std::to_string(*value) + "', and " +
                   shape_text(file) + " has " + std::to_string(file.shape()[axis]));
}

// Of out and of lse.
std::array<std::vector<index_t>, 2> output_shapes(const Shapes& s) {
  return {std::vector{s.heads.batch, s.seqlen_q, s.heads.num_heads, s.heads.head_dim_v},
          std::vector{s.heads.batch, s.heads.num_heads, s.seqlen_q}};
}

}  // namespace

InputFiles open_inputs(const Files& files, std::optional<DType> dtype) {
  return {.q = TensorFile::open(files.q, dtype),
          .k = TensorFile::open(files.k, dtype),
          .v = TensorFile::open(files.v, dtype)};
}

Shapes shapes_of(const ProblemOptions& options, const InputFiles& files) {
  const auto& [q, k, v] = files;
  require_four_dimensions(q, "[batch, seqlen_q, num_heads, head_dim]");
  require_four_dimensions(k, "[batch, seqlen_k, num_heads_kv, head_dim]");
  require_four_dimensions(v, "[batch, seqlen_k, num_heads_kv, head_dim_v]");
  require_same(q, 0, k, 0, "batch");
  require_same(q, 3, k, 3, "head_dim");
  require_same(k, 0, v, 0, "batch");
  require_same(k, 1, v, 1, "seqlen_k");
  require_same(k, 2, v, 2, "num_heads_kv");
  for (const TensorFile* other : {&k, &v}) {
    if (other->dtype() == q.dtype()) continue;
    throw DataError("dtype differs: " + q.spec() + " is " + std::string(name_of(q.dtype())) + ", " +
                    other->spec() + " is " + std::string(name_of(other->dtype())));
  }
  require_option("batch", options.batch, q, 0);
  require_option("seqlen-q", options.seqlen_q, q, 1);
  require_option("num-heads", options.num_heads, q, 2);
  require_option("head-dim", options.head_dim, q, 3);
  require_option("seqlen-k", options.seqlen_k, k, 1);
  require_option("num-heads-kv", options.num_heads_kv, k, 2);
  require_option("head-dim-v", options.head_dim_v, v, 3);
  return {.seqlen_q = q.shape()[1],
          .seqlen_k = k.shape()[1],
          .heads = {.batch = q.shape()[0],
                    .num_heads = q.shape()[2],
                    .num_heads_kv = k.shape()[2],
                    .head_dim = q.shape()[3],
                    .head_dim_v = v.shape()[3]},
          .dtype = q.dtype()};
}

std::string temporary_names(const OutputFiles& files) {
  return files.out.temporary().string() + "\n" + (files.lse ? files.lse->temporary().string() : "");
}

OutputFiles create_outputs(const Files& files, const Shapes& shapes) {
  const auto [out, lse] = output_shapes(shapes);
  OutputFiles outputs{.out = PendingFile::create(files.out, out, shapes.dtype), .lse = std::nullopt};
  if (!files.lse.empty()) outputs.lse = PendingFile::create(files.lse, lse, DType::f32);
  return outputs;
}

OutputFiles attach_outputs(const Files& files, const Shapes& shapes, const std::string& names) {
  const auto [out, lse] = output_shapes(shapes);
  // The newline is always there, also without lse.
  const std::size_t line = names.find('\n');
  OutputFiles outputs{.out = PendingFile::attach(files.out, names.substr(0, line), out, shapes.dtype),
                      .lse = std::nullopt};
  if (!files.lse.empty())
    outputs.lse = PendingFile::attach(files.lse, names.substr(line + 1), lse, DType::f32);
  return outputs;
}

}  // namespace ringattn::launch
