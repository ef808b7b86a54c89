#include "src/c_api/convert.h"

#include <cmath>
#include <limits>

#include "src/c_api/growing_struct.h"

namespace ringattn::c_api {
namespace {

// The numbers of ringattn.h are those of the library's enumerations, in the same order; a number that is none
// of them is refused before it is taken for one.
template <class Enum>
Enum enum_of(int32_t number, Enum last, const std::string& name, const char* allowed) {
  if (number < 0 || number > static_cast<int32_t>(last)) refuse(name, std::to_string(number), allowed);
  return static_cast<Enum>(number);
}

static_assert(RINGATTN_F32 == int(DType::f32) && RINGATTN_BF16 == int(DType::bf16) &&
              RINGATTN_F16 == int(DType::f16));
static_assert(RINGATTN_CONTIGUOUS == int(LayoutKind::contiguous) &&
              RINGATTN_ZIGZAG == int(LayoutKind::zigzag) && RINGATTN_STRIPED == int(LayoutKind::striped));
static_assert(RINGATTN_ROPE_NONE == int(Rope::Pairing::none) &&
              RINGATTN_ROPE_HALF == int(Rope::Pairing::half) &&
              RINGATTN_ROPE_INTERLEAVED == int(Rope::Pairing::interleaved));
static_assert(RINGATTN_OVERLAP == int(Mode::overlap) && RINGATTN_BLOCKING == int(Mode::blocking) &&
              RINGATTN_COMPUTE_ONLY == int(Mode::compute_only) && RINGATTN_COMM_ONLY == int(Mode::comm_only));
static_assert(RINGATTN_FORWARD == int(Pass::forward) && RINGATTN_BACKWARD == int(Pass::backward));
static_assert(RINGATTN_CPU == int(Backend::cpu) && RINGATTN_CUDA == int(Backend::cuda));
static_assert(RINGATTN_HOST_MEMORY == int(MemorySpace::host) &&
              RINGATTN_CUDA_MEMORY == int(MemorySpace::cuda));
static_assert(RINGATTN_UNBOUNDED == kUnbounded);

// About 31 years: a point in time that far away still fits the clock.
constexpr index_t kLongestDeadline = 1'000'000'000'000;

}  // namespace

ringattn_problem default_problem() {
  return {.struct_size = sizeof(ringattn_problem),
          .batch = 1,
          .num_heads = 1,
          .num_heads_kv = 1,
          .head_dim = 0,
          .head_dim_v = 0,
          .dtype = RINGATTN_F32,
          .rope_pairing = RINGATTN_ROPE_NONE,
          .rope_base = Rope{}.base,
          .rope_dim = 0,
          .rope_position_offset = 0,
          .softmax_scale = std::numeric_limits<double>::quiet_NaN()};
}

ringattn_options default_options() {
  return {.struct_size = sizeof(ringattn_options),
          .deadline_ms = RingOptions{}.deadline.count(),
          .threads = 0,
          .mode = RINGATTN_OVERLAP,
          .isa = nullptr,
          .backend = RINGATTN_CPU,
          .stream = nullptr};
}

DType dtype_of(ringattn_dtype dtype, const char* name) {
  return enum_of(dtype, DType::f16, std::string(name) + ".dtype",
                 "allowed are RINGATTN_F32, RINGATTN_BF16 and RINGATTN_F16");
}

LayoutKind layout_kind_of(ringattn_layout_kind kind) {
  return enum_of(kind, LayoutKind::striped, "kind",
                 "allowed are RINGATTN_CONTIGUOUS, RINGATTN_ZIGZAG and RINGATTN_STRIPED");
}

Pass pass_of(ringattn_pass pass) {
  return enum_of(pass, Pass::backward, "pass", "allowed are RINGATTN_FORWARD and RINGATTN_BACKWARD");
}

Backend backend_of(ringattn_backend backend, const char* name) {
  return enum_of(backend, Backend::cuda, name, "allowed are RINGATTN_CPU and RINGATTN_CUDA");
}

MemorySpace space_of(ringattn_space space) {
  return enum_of(space, MemorySpace::cuda, "args.space",
                 "allowed are RINGATTN_HOST_MEMORY and RINGATTN_CUDA_MEMORY");
}

Problem problem_of(const ringattn_problem* callers, const Mask& mask) {
  const ringattn_problem p = read_struct(callers, "problem", default_problem());
  const auto pairing = enum_of(p.rope_pairing, Rope::Pairing::interleaved, "problem.rope_pairing",
                               "allowed are RINGATTN_ROPE_NONE, RINGATTN_ROPE_HALF and "
                               "RINGATTN_ROPE_INTERLEAVED");
  Problem problem{.shape = {.batch = p.batch,
                            .num_heads = p.num_heads,
                            .num_heads_kv = p.num_heads_kv,
                            .head_dim = p.head_dim,
                            .head_dim_v = p.head_dim_v},
                  .dtype = dtype_of(p.dtype, "problem"),
                  .mask = mask,
                  .rope = {.pairing = pairing,
                           .base = p.rope_base,
                           .dim = p.rope_dim,
                           .position_offset = p.rope_position_offset}};
  if (!std::isnan(p.softmax_scale)) problem.softmax_scale = p.softmax_scale;
  return problem;
}

std::chrono::milliseconds milliseconds_of(const char* name, int64_t milliseconds) {
  require_between(name, milliseconds, 1, kLongestDeadline);
  return std::chrono::milliseconds(milliseconds);
}

RingOptions options_of(const ringattn_options* callers) {
  if (callers == nullptr) return {};
  const ringattn_options o = read_struct(callers, "options", default_options());
  return {.threads = o.threads,
          .deadline = milliseconds_of("options.deadline_ms", o.deadline_ms),
          .mode = enum_of(o.mode, Mode::comm_only, "options.mode",
                          "allowed are RINGATTN_OVERLAP, RINGATTN_BLOCKING, RINGATTN_COMPUTE_ONLY and "
                          "RINGATTN_COMM_ONLY"),
          .isa = o.isa == nullptr ? "auto" : o.isa,
          .backend = backend_of(o.backend, "options.backend"),
          .stream = o.stream};
}

TensorView view_of(const ringattn_tensor& tensor, const char* name, MemorySpace space) {
  TensorView view{.data = tensor.data, .dtype = dtype_of(tensor.dtype, name), .space = space};
  std::ranges::copy(tensor.shape, view.shape.begin());
  std::ranges::copy(tensor.stride, view.stride.begin());
  return view;
}

ringattn_workspace c_workspace(const Workspace& workspace) {
  return {.struct_size = sizeof(ringattn_workspace),
          .kernel = workspace.kernel,
          .slots = workspace.slots,
          .gradients = workspace.gradients,
          .total = workspace.total()};
}

Tile tile_of(const ringattn_tile& t) {
  return {.q = {t.q_begin, t.q_end}, .k = {t.k_begin, t.k_end}, .band = {t.band_lo, t.band_hi}};
}

ringattn_tile c_tile(const Tile& t) {
  return {.q_begin = t.q.begin,
          .q_end = t.q.end,
          .k_begin = t.k.begin,
          .k_end = t.k.end,
          .band_lo = t.band.lo,
          .band_hi = t.band.hi};
}

const Layout& side_of(const Sharding& sharding, ringattn_side side) {
  if (side == RINGATTN_QUERIES) return sharding.q;
  if (side == RINGATTN_KEYS) return sharding.k;
  refuse("side", std::to_string(side), "allowed are RINGATTN_QUERIES and RINGATTN_KEYS");
}

}  // namespace ringattn::c_api
