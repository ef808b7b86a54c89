#include "launch/problem_options.h"

#include "src/error.h"

namespace ringattn::launch {
namespace {

constexpr index_t kDefaultHeads = 8, kDefaultHeadDim = 128;

Mask make_mask(const ProblemOptions& options, index_t seqlen_q, index_t seqlen_k) {
  constexpr Window everything{.left = -1, .right = -1}, causal{.left = -1, .right = 0};
  if (options.cu_seqlens) {
    // One list of offsets serves queries and keys, so both sequences hold the same documents.
    if (seqlen_q != seqlen_k) {
      throw UsageError("--cu-seqlens needs as many queries as keys; seqlen_q is " + std::to_string(seqlen_q) +
                       " and seqlen_k is " + std::to_string(seqlen_k));
    }
    const Window window = options.window.value_or(options.causal ? causal : everything);
    return Mask::documents(seqlen_q, seqlen_k, *options.cu_seqlens, *options.cu_seqlens, window);
  }
  if (options.window) return Mask::window(seqlen_q, seqlen_k, *options.window);
  return options.causal ? Mask::causal(seqlen_q, seqlen_k) : Mask::full(seqlen_q, seqlen_k);
}

}  // namespace

Shapes shapes_of(const ProblemOptions& options) {
  Shapes shapes;
  shapes.seqlen_q = options.seqlen_q.value_or(0);
  shapes.seqlen_k = options.seqlen_k.value_or(0);
  HeadShape& heads = shapes.heads;
  heads.batch = options.batch.value_or(1);
  heads.num_heads = options.num_heads.value_or(kDefaultHeads);
  heads.num_heads_kv = options.num_heads_kv.value_or(heads.num_heads);
  heads.head_dim = options.head_dim.value_or(kDefaultHeadDim);
  heads.head_dim_v = options.head_dim_v.value_or(heads.head_dim);
  shapes.dtype = options.dtype.value_or(DType::f32);
  return shapes;
}

Problem make_problem(const ProblemOptions& options, const Shapes& shapes) {
  Problem problem{.shape = shapes.heads,
                  .dtype = shapes.dtype,
                  .mask = make_mask(options, shapes.seqlen_q, shapes.seqlen_k),
                  .rope = options.rope,
                  .softmax_scale = options.softmax_scale};
  validate(problem);
  return problem;
}

std::vector<Field> program_fields(const Options& options) {
  const auto text = [](auto number) { return std::to_string(number); };
  return {{"help", text(options.help)},
          {"version", text(options.version)},
          {"subcommand", std::string(name_of(options.command))},
          {"communicator", std::to_string(static_cast<int>(options.communicator))},
          {"ranks", options.ranks ? text(*options.ranks) : "not given"},
          {"backend", std::array{"auto", "cpu", "cuda"}[static_cast<std::size_t>(options.backend)]},
          {"isa", options.isa},
          {"link_gbps", text(options.link_gbps)},
          {"link_latency_us", text(options.link_latency_us)},
          {"deadline_ms", text(options.deadline.count())},
          {"direction", std::string(name_of(options.direction))},
          {"mode", std::string(name_of(options.mode))},
          {"iterations", text(options.iterations)},
          {"warmup", text(options.warmup)},
          {"seed", text(options.seed)},
          {"check_rows", text(options.check_rows)},
          {"out", options.files.out},
          {"lse", options.files.lse},
          {"dout", options.files.dout},
          {"dq", options.files.dq},
          {"dk", options.files.dk},
          {"dv", options.files.dv}};
}

}  // namespace ringattn::launch
