#include "src/attention.h"

#include <cstring>

#include "src/agreement.h"
#include "src/c_api/convert.h"
#include "src/c_api/growing_struct.h"
#include "src/c_api/handles.h"

using namespace ringattn;
using namespace ringattn::c_api;

namespace {

// Translates this rank's arguments for a collective call. If they are wrong, the other ranks are already in
// the agreement that begins the call: they are told, so that every rank fails with the same text.
template <class Translate>
auto translated(Communicator& comm, std::chrono::milliseconds patience, const Operation& operation,
                Translate&& translate) {
  try {
    return translate();
  } catch (...) {
    agree_all_well(comm, std::current_exception(), Clock::now() + patience, operation);
    throw;
  }
}

struct Construction {
  Problem problem;
  Sharding sharding;
  RingOptions options;
};

struct ForwardCall {
  ringattn_forward_args args;
  ConstTensorView q, k, v;
  TensorView out;
  LseView lse;
  Positions positions;
  std::size_t timing_size;
};

struct BackwardCall {
  ringattn_backward_args args;
  BackwardInputs in;
  Gradients gradients;
  Positions positions;
  std::size_t timing_size;
};

// As many positions as this rank has rows; the caller's own count is not asked for.
Positions positions_of(const int64_t* q, const int64_t* k, const Plan& plan) {
  Positions positions;
  if (q != nullptr) positions.q = {q, static_cast<std::size_t>(plan.q_rows())};
  if (k != nullptr) positions.k = {k, static_cast<std::size_t>(plan.k_rows())};
  return positions;
}

std::size_t timing_size_of(const ringattn_timing* timing) {
  return timing == nullptr ? 0 : size_of_callers(timing, "args.timing");
}

void give_timing(const Timing& timing, ringattn_timing* out, std::size_t size) {
  if (out == nullptr) return;
  write_struct({.struct_size = size,
                .load = timing.load,
                .compute = timing.compute(),
                .wait = timing.wait(),
                .finish = timing.finish},
               out, size);
}

ForwardCall forward_call(const ringattn_forward_args* callers, const Plan& plan) {
  const ringattn_forward_args args = read_struct(callers, "args", ringattn_forward_args{});
  const MemorySpace space = space_of(args.space);
  return {.args = args,
          .q = as_const(view_of(args.q, "q", space)),
          .k = as_const(view_of(args.k, "k", space)),
          .v = as_const(view_of(args.v, "v", space)),
          .out = view_of(args.out, "out", space),
          .lse = view_of(args.lse, space),
          .positions = positions_of(args.q_positions, args.k_positions, plan),
          .timing_size = timing_size_of(args.timing)};
}

BackwardCall backward_call(const ringattn_backward_args* callers, const Plan& plan) {
  const ringattn_backward_args args = read_struct(callers, "args", ringattn_backward_args{});
  const MemorySpace space = space_of(args.space);
  return {.args = args,
          .in = {.dout = as_const(view_of(args.dout, "dout", space)),
                 .q = as_const(view_of(args.q, "q", space)),
                 .k = as_const(view_of(args.k, "k", space)),
                 .v = as_const(view_of(args.v, "v", space)),
                 .out = as_const(view_of(args.out, "out", space)),
                 .lse = as_const(view_of(args.lse, space))},
          .gradients = {.dq = view_of(args.dq, "dq", space),
                        .dk = view_of(args.dk, "dk", space),
                        .dv = view_of(args.dv, "dv", space)},
          .positions = positions_of(args.q_positions, args.k_positions, plan),
          .timing_size = timing_size_of(args.timing)};
}

// How long the others may be waited for if the options themselves cannot be read.
std::chrono::milliseconds patience_of(const ringattn_options* options) {
  try {
    return options_of(options).deadline;
  } catch (const std::exception&) {
    return RingOptions{}.deadline;
  }
}

}  // namespace

ringattn_status ringattn_attention_create(ringattn_comm* comm, const ringattn_problem* problem,
                                          const ringattn_mask* mask, const ringattn_layout* layout,
                                          const ringattn_options* options, ringattn_attention** attention) {
  return guarded([&] {
    if (attention != nullptr) *attention = nullptr;
    const auto communicator = object_of(comm, "comm");
    Construction made =
        translated(*communicator, patience_of(options), RingAttention::construction(), [&]() -> Construction {
          require_pointer(attention, "attention");
          return {.problem = problem_of(problem, *object_of(mask, "mask")),
                  .sharding = *object_of(layout, "layout"),
                  .options = options_of(options)};
        });
    RingAttention ring(communicator, std::move(made.problem), made.sharding, made.options);
    *attention = handle_of<ringattn_attention>(
        std::make_shared<AttentionObject>(AttentionObject{.comm = communicator,
                                                          .ring = std::move(ring),
                                                          .sharding = std::move(made.sharding),
                                                          .deadline = made.options.deadline,
                                                          .backend = made.options.backend}));
  });
}

ringattn_status ringattn_forward(ringattn_attention* attention, const ringattn_forward_args* args) {
  return guarded([&] {
    const auto object = object_of(attention, "attention");
    RingAttention& ring = object->ring;
    const ForwardCall call = translated(*object->comm, object->deadline, ring.operation("forward"),
                                        [&] { return forward_call(args, ring.plan()); });
    const Timing timing = ring.forward(call.q, call.k, call.v, call.out, call.lse, call.positions);
    give_timing(timing, call.args.timing, call.timing_size);
  });
}

ringattn_status ringattn_backward(ringattn_attention* attention, const ringattn_backward_args* args) {
  return guarded([&] {
    const auto object = object_of(attention, "attention");
    RingAttention& ring = object->ring;
    const BackwardCall call = translated(*object->comm, object->deadline, ring.operation("backward"),
                                         [&] { return backward_call(args, ring.plan()); });
    const Timing timing = ring.backward(call.in, call.gradients, call.positions);
    give_timing(timing, call.args.timing, call.timing_size);
  });
}

ringattn_status ringattn_settle(ringattn_attention* attention) {
  return guarded([&] { object_of(attention, "attention")->ring.settle(); });
}

ringattn_status ringattn_attention_workspace(const ringattn_attention* attention, ringattn_workspace* out) {
  return guarded([&] {
    const auto object = object_of(attention, "attention");
    const std::size_t size = size_of_callers(out, "workspace");
    write_struct(c_workspace(object->ring.workspace()), out, size);
  });
}

ringattn_status ringattn_attention_plan(const ringattn_attention* attention, ringattn_plan** plan) {
  return create(plan, "plan", [&] {
    const auto object = object_of(attention, "attention");
    return PlanObject{.problem = object->ring.problem(),
                      .sharding = object->sharding,
                      .plan = object->ring.plan(),
                      .backend = object->backend};
  });
}

ringattn_status ringattn_attention_threads(const ringattn_attention* attention, int32_t* threads) {
  return guarded([&] {
    const auto object = object_of(attention, "attention");
    require_pointer(threads, "threads");
    *threads = object->ring.threads();
  });
}

ringattn_status ringattn_attention_backend(const ringattn_attention* attention, char* name, size_t capacity) {
  return guarded([&] {
    const auto object = object_of(attention, "attention");
    require_pointer(name, "name");
    const std::string backend = object->ring.backend();
    if (capacity <= backend.size())
      refuse("capacity", std::to_string(capacity),
             "the name takes " + std::to_string(backend.size() + 1) + " bytes with its NUL");
    std::memcpy(name, backend.c_str(), backend.size() + 1);
  });
}

ringattn_status ringattn_attention_destroy(ringattn_attention* attention) {
  return destroy(attention, "attention");
}
