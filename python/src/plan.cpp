// The plan of a rank and what it costs, as plain Python data.
#include <nanobind/nanobind.h>

#include <nanobind/stl/string.h>

#include "module.h"
#include "problem.h"
#include "src/attention.h"
#include "src/cost.h"

namespace ringattn::python {

namespace nb = nanobind;

namespace {

nb::list pair(index_t a, index_t b) {
  nb::list list;
  list.append(a);
  list.append(b);
  return list;
}

nb::dict tile_data(const Tile& tile) {
  nb::list band;
  band.append(tile.band.lo <= -kUnbounded ? nb::object(nb::none()) : nb::object(nb::int_(tile.band.lo)));
  band.append(tile.band.hi >= kUnbounded ? nb::object(nb::none()) : nb::object(nb::int_(tile.band.hi)));
  nb::dict data;
  data["q"] = pair(tile.q.begin, tile.q.end);
  data["k"] = pair(tile.k.begin, tile.k.end);
  data["band"] = band;
  return data;
}

nb::list hop_data(const Plan& plan) {
  nb::list hops;
  for (std::size_t s = 0; s < plan.hops().size(); ++s) {
    const Hop& hop = plan.hops()[s];
    nb::dict data;
    data["owner"] = hop.owner;
    data["k_rows"] = hop.k_rows;
    data["pairs"] = hop.pairs;
    nb::list tiles;
    for (const Tile& tile : plan.tiles(s)) tiles.append(tile_data(tile));
    data["tiles"] = tiles;
    hops.append(data);
  }
  return hops;
}

nb::dict traffic_data(const Traffic& traffic) {
  nb::dict data;
  data["bytes"] = traffic.bytes_sent;
  data["messages"] = traffic.messages_sent;
  return data;
}

nb::dict workspace_data(const Workspace& bytes) {
  nb::dict data;
  data["kernel"] = bytes.kernel;
  data["slots"] = bytes.slots;
  data["gradients"] = bytes.gradients;
  data["total"] = bytes.total();
  return data;
}

Data plan_data(const Configuration& configuration, int rank, int threads, const std::string& backend_name) {
  const Backend backend = backend_from_name(backend_name);
  const Problem& problem = configuration.problem;
  const Plan plan(problem, configuration.sharding, rank);
  const KernelConfig config{.shape = problem.heads(), .dtype = problem.dtype};
  const auto block = [&](index_t rows) -> std::uint64_t { return block_bytes(backend, config, rows); };
  const auto gradient = [&](index_t rows) -> std::uint64_t { return gradient_bytes(backend, config, rows); };
  const auto bytes = [&](Pass pass) {
    return workspace_data(workspace(problem, configuration.sharding, rank, threads, pass, backend));
  };
  nb::dict data;
  data["rank"] = rank;
  data["ranks"] = plan.ranks();
  data["mask"] = problem.mask.name().c_str();
  data["seqlen_q"] = problem.seqlen_q();
  data["seqlen_k"] = problem.seqlen_k();
  data["q_rows"] = plan.q_rows();
  data["k_rows"] = plan.k_rows();
  data["pairs"] = plan.pairs();
  data["hops"] = hop_data(plan);
  data["forward_flops"] = forward_flops(problem, plan.pairs());
  data["backward_flops"] = backward_flops(problem, plan.pairs());
  data["forward_traffic"] = traffic_data(forward_traffic(plan, block));
  data["backward_traffic"] = traffic_data(backward_traffic(plan, block, gradient));
  data["forward_workspace"] = bytes(Pass::forward);
  data["backward_workspace"] = bytes(Pass::backward);
  data["balance"] = ring_balance(problem, configuration.sharding).value();
  return data;
}

}  // namespace

void bind_plan(nb::module_& module) {
  using namespace nb::literals;
  module.def("plan", &plan_data, "configuration"_a, "rank"_a, "threads"_a, "backend"_a);
}

}  // namespace ringattn::python
