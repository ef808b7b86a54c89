#include "src/plan.h"

#include "src/c_api/convert.h"
#include "src/c_api/growing_struct.h"
#include "src/c_api/handles.h"
#include "src/cost.h"

using namespace ringattn;
using namespace ringattn::c_api;

namespace {

ringattn_cost cost_of(const PlanObject& object, Pass pass) {
  const KernelConfig config{.shape = object.problem.heads(), .dtype = object.problem.dtype};
  const auto block = [&](index_t rows) { return block_bytes(object.backend, config, rows); };
  const auto gradient = [&](index_t rows) { return gradient_bytes(object.backend, config, rows); };
  const bool forward = pass == Pass::forward;
  const Traffic traffic =
      forward ? forward_traffic(object.plan, block) : backward_traffic(object.plan, block, gradient);
  const index_t pairs = object.plan.pairs();
  return {.struct_size = 0,
          .flops = forward ? forward_flops(object.problem, pairs) : backward_flops(object.problem, pairs),
          .bytes_sent = traffic.bytes_sent,
          .messages_sent = traffic.messages_sent};
}

const Hop& hop_of(const Plan& plan, std::size_t index, const char* name) {
  if (index >= plan.hops().size())
    refuse(name, std::to_string(index), "the plan has " + std::to_string(plan.hops().size()) + " hops");
  return plan.hops()[index];
}

}  // namespace

ringattn_status ringattn_plan_create(const ringattn_problem* problem, const ringattn_mask* mask,
                                     const ringattn_layout* layout, int32_t rank, ringattn_plan** plan) {
  return ringattn_plan_create_for(problem, mask, layout, rank, RINGATTN_CPU, plan);
}

ringattn_status ringattn_plan_create_for(const ringattn_problem* problem, const ringattn_mask* mask,
                                         const ringattn_layout* layout, int32_t rank,
                                         ringattn_backend backend, ringattn_plan** plan) {
  return create(plan, "plan", [&] {
    const Problem planned = problem_of(problem, *object_of(mask, "mask"));
    const Sharding sharding = *object_of(layout, "layout");
    return PlanObject{.problem = planned,
                      .sharding = sharding,
                      .plan = Plan(planned, sharding, rank),
                      .backend = backend_of(backend, "backend")};
  });
}

ringattn_status ringattn_plan_rows(const ringattn_plan* plan, ringattn_side side, int64_t* rows) {
  return guarded([&] {
    const auto object = object_of(plan, "plan");
    require_pointer(rows, "rows");
    *rows = side_of(object->sharding, side).rows(object->plan.rank());
  });
}

ringattn_status ringattn_plan_pairs(const ringattn_plan* plan, int64_t* pairs) {
  return guarded([&] {
    const auto object = object_of(plan, "plan");
    require_pointer(pairs, "pairs");
    *pairs = object->plan.pairs();
  });
}

ringattn_status ringattn_plan_hop_count(const ringattn_plan* plan, size_t* hops) {
  return guarded([&] {
    const auto object = object_of(plan, "plan");
    require_pointer(hops, "hops");
    *hops = object->plan.hops().size();
  });
}

ringattn_status ringattn_plan_hop(const ringattn_plan* plan, size_t index, ringattn_hop* hop) {
  return guarded([&] {
    const auto object = object_of(plan, "plan");
    require_pointer(hop, "hop");
    const Hop& planned = hop_of(object->plan, index, "index");
    *hop = {.owner = planned.owner,
            .k_rows = planned.k_rows,
            .pairs = planned.pairs,
            .tiles = planned.tile_count};
  });
}

ringattn_status ringattn_plan_tiles(const ringattn_plan* plan, size_t hop, ringattn_tile* tiles,
                                    size_t capacity, size_t* count) {
  return guarded([&] {
    const auto object = object_of(plan, "plan");
    const auto planned = static_cast<std::size_t>(hop_of(object->plan, hop, "hop").tile_count);
    give_list(planned, tiles, "tiles", capacity, count, [&] {
      std::vector<ringattn_tile> list;
      for (const Tile& tile : object->plan.tiles(hop)) list.push_back(c_tile(tile));
      return list;
    });
  });
}

ringattn_status ringattn_plan_cost(const ringattn_plan* plan, ringattn_pass pass, ringattn_cost* cost) {
  return guarded([&] {
    const auto object = object_of(plan, "plan");
    const std::size_t size = size_of_callers(cost, "cost");
    write_struct(cost_of(*object, pass_of(pass)), cost, size);
  });
}

ringattn_status ringattn_plan_workspace(const ringattn_plan* plan, int32_t threads, ringattn_pass pass,
                                        ringattn_workspace* out) {
  return guarded([&] {
    const auto object = object_of(plan, "plan");
    const std::size_t size = size_of_callers(out, "workspace");
    const int counted = thread_count({.threads = threads});
    write_struct(c_workspace(workspace(object->problem, object->sharding, object->plan.rank(), counted,
                                       pass_of(pass), object->backend)),
                 out, size);
  });
}

ringattn_status ringattn_plan_destroy(ringattn_plan* plan) { return destroy(plan, "plan"); }
