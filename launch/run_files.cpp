#include "launch/run_files.h"

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

// One output: its name, its shape, its type and where it goes.
struct OutputRow {
  std::string name;
  std::vector<index_t> shape;
  DType dtype;
  std::optional<PendingFile> OutputFiles::*file;
};

// All but out, which is always there.
std::vector<OutputRow> optional_outputs(const Files& files, const Shapes& s) {
  const HeadShape& h = s.heads;
  std::vector<OutputRow> all{
      {files.lse, {h.batch, h.num_heads, s.seqlen_q}, DType::f32, &OutputFiles::lse},
      {files.dq, {h.batch, s.seqlen_q, h.num_heads, h.head_dim}, s.dtype, &OutputFiles::dq},
      {files.dk, {h.batch, s.seqlen_k, h.num_heads_kv, h.head_dim}, s.dtype, &OutputFiles::dk},
      {files.dv, {h.batch, s.seqlen_k, h.num_heads_kv, h.head_dim_v}, s.dtype, &OutputFiles::dv}};
  std::erase_if(all, [](const OutputRow& row) { return row.name.empty(); });
  return all;
}

std::vector<index_t> out_shape(const Shapes& s) {
  return {s.heads.batch, s.seqlen_q, s.heads.num_heads, s.heads.head_dim_v};
}

// dout stands beside out, which no file has yet: q and v say its shape.
void require_shape_of_out(const TensorFile& dout, const InputFiles& files) {
  require_four_dimensions(dout, "[batch, seqlen_q, num_heads, head_dim_v]");
  require_same(files.q, 0, dout, 0, "batch");
  require_same(files.q, 1, dout, 1, "seqlen_q");
  require_same(files.q, 2, dout, 2, "num_heads");
  require_same(files.v, 3, dout, 3, "head_dim_v");
}

}  // namespace

InputFiles open_inputs(const Files& files, std::optional<DType> dtype) {
  InputFiles inputs{.q = TensorFile::open(files.q, dtype),
                    .k = TensorFile::open(files.k, dtype),
                    .v = TensorFile::open(files.v, dtype)};
  if (files.gradients()) inputs.dout = TensorFile::open(files.dout, dtype);
  return inputs;
}

Shapes shapes_of(const ProblemOptions& options, const InputFiles& files) {
  const auto& [q, k, v, dout] = files;
  require_four_dimensions(q, "[batch, seqlen_q, num_heads, head_dim]");
  require_four_dimensions(k, "[batch, seqlen_k, num_heads_kv, head_dim]");
  require_four_dimensions(v, "[batch, seqlen_k, num_heads_kv, head_dim_v]");
  require_same(q, 0, k, 0, "batch");
  require_same(q, 3, k, 3, "head_dim");
  require_same(k, 0, v, 0, "batch");
  require_same(k, 1, v, 1, "seqlen_k");
  require_same(k, 2, v, 2, "num_heads_kv");
  if (dout) require_shape_of_out(*dout, files);
  for (const TensorFile* other : {&k, &v, dout ? &*dout : &v}) {
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

std::vector<PendingFile*> all_of(OutputFiles& files) {
  std::vector<PendingFile*> all{&files.out};
  for (auto* file : {&files.lse, &files.dq, &files.dk, &files.dv}) {
    if (*file) all.push_back(&**file);
  }
  return all;
}

std::string temporary_names(OutputFiles& files) {
  std::string names;
  for (const PendingFile* file : all_of(files)) names += file->temporary().string() + "\n";
  return names;
}

OutputFiles create_outputs(const Files& files, const Shapes& shapes) {
  OutputFiles outputs{.out = PendingFile::create(files.out, out_shape(shapes), shapes.dtype)};
  for (const OutputRow& row : optional_outputs(files, shapes))
    outputs.*row.file = PendingFile::create(row.name, row.shape, row.dtype);
  return outputs;
}

OutputFiles attach_outputs(const Files& files, const Shapes& shapes, const std::string& names) {
  std::size_t begin = 0;
  const auto next = [&] {
    const std::size_t end = names.find('\n', begin);
    std::string name = names.substr(begin, end - begin);
    begin = end + 1;
    return name;
  };
  OutputFiles outputs{.out = PendingFile::attach(files.out, next(), out_shape(shapes), shapes.dtype)};
  for (const OutputRow& row : optional_outputs(files, shapes))
    outputs.*row.file = PendingFile::attach(row.name, next(), row.shape, row.dtype);
  return outputs;
}

}  // namespace ringattn::launch
