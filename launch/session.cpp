#include "launch/session.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "comm/throttled.h"
#include "kernels/cuda/devices.h"
#include "launch/backend.h"
#include "launch/check.h"
#include "launch/problem_options.h"
#include "launch/ring_link.h"
#include "launch/steps.h"
#include "launch/tensors.h"

namespace ringattn::launch {
namespace {

void warn(const std::string& text) { std::fprintf(stderr, "ringattn: warning: %s\n", text.c_str()); }

// Collective. The GPU of this rank, and its way to the others. `bare`: the host's communicator without the
// link and the faults that session.comm may have.
void take_gpu(Session& session, const CudaMachine& machine, const Seat& seat,
              const std::shared_ptr<Communicator>& bare) {
  const std::chrono::milliseconds patience = session.options.deadline;
  shared_step(*session.comm, patience,
              [&] { session.gpu = std::make_unique<GpuSeat>(device_of_rank(machine, seat.local_rank)); });
  session.gpu->placement = place_gpus(*session.comm, session.gpu->device, patience);
  LinkChoice choice;
  shared_step(*session.comm, patience, [&] {
    choice = choose_link(session.options, session.faults, session.gpu->placement, seat.ranks_are_threads);
  });
  session.ring_why = choice.why;
  void* const stream = session.gpu->stream.get();
  if (choice.kind == LinkKind::staged && session.comm == bare && seat.another) {
    session.ring = make_mpi_link(seat, *session.comm, stream, patience, session.ring_why);
    session.ring_name = session.ring->name();
    return;
  }
  session.ring = make_link(choice.kind, session.comm, stream, patience);
  session.ring_name = choice.kind == LinkKind::host     ? bare->name()
                      : choice.kind == LinkKind::staged ? "staged(" + bare->name() + ")"
                                                        : session.ring->name();
}

// This rank's part of what is free on its GPU.
MemoryRoom gpu_room(const GpuSeat& gpu, int rank) {
  return {.bytes = static_cast<double>(free_device_bytes()) / gpu.placement.ranks_on_gpu(rank),
          .limit = "free on GPU " + std::to_string(gpu.device.index) + ", " + gpu.device.name};
}

}  // namespace

RingOptions Session::ring_options(Mode mode) const {
  return {.threads = threads(),
          .deadline = options.deadline,
          .mode = mode,
          .isa = options.isa,
          .backend = backend(),
          .stream = gpu ? gpu->stream.get() : nullptr};
}

Sharding Session::sharding(const Problem& problem) const {
  return Sharding::make(options.problem.layout, problem.seqlen_q(), problem.seqlen_k(), ranks());
}

Session open_session(const std::shared_ptr<Communicator>& comm, const Options& options, const Seat& seat) {
  Session session{.options = options,
                  .comm = comm,
                  .placement = {},
                  .faults = {},
                  .gpu = nullptr,
                  .ring = nullptr,
                  .ring_name = comm->name(),
                  .ring_why = ""};
  // The driver is woken only where GPUs may be meant.
  CudaMachine machine;
  if (options.backend != BackendChoice::cpu) machine = find_cuda_devices();
  const Backend backend = choose_backend(*comm, options, machine, options.deadline);
  shared_step(*comm, options.deadline,
              [&] { session.faults = parse_test_faults(std::getenv("RINGATTN_TEST_FAULT")); });
  session.placement = place_ranks(*comm, options.threads, seat.ranks_are_threads, options.deadline);
  // Faults below, the link above: a message that is lost on purpose is lost on the slow link as well.
  session.comm = with_faults(session.comm, session.faults);
  // The placement has gathered over the bare communicator: small talk is not slowed down.
  if (options.link_gbps > 0 || options.link_latency_us > 0) {
    session.comm = make_throttled(
        session.comm, Link{.gigabits_per_second = options.link_gbps, .latency_us = options.link_latency_us});
  }
  session.ring = session.comm;
  if (backend == Backend::cuda) take_gpu(session, machine, seat, comm);
  if (comm->rank() == 0) {
    for (const std::string& warning : session.placement.warnings()) warn(warning);
    if (!session.faults.text.empty()) warn("RINGATTN_TEST_FAULT is on: " + session.faults.text);
  }
  return session;
}

void agree_on_problem(Session& session, const Problem& problem, const Sharding& sharding) {
  // The problem comes first, so that a different length is reported as that and not as its consequence.
  std::vector<Field> fields = fingerprint(problem, sharding);
  for (Field& field : program_fields(session.options)) fields.push_back(std::move(field));
  shared_call([&] { agree_on_fields(*session.comm, fields, Clock::now() + session.options.deadline); });
}

void require_shard_memory(Session& session, const Problem& problem, const Sharding& sharding,
                          double reader_bytes) {
  const int ranks_in_process = session.placement.ranks_are_threads ? session.ranks() : 1;
  shared_step(*session.comm, session.options.deadline, [&] {
    const Pass pass = pass_of(session.options.direction);
    const Workspace ring =
        workspace(problem, sharding, session.rank(), session.threads(), pass, session.backend());
    double needed = shard_bytes(problem, sharding, session.rank(), pass);
    const double with_ring = needed + static_cast<double>(ring.total());
    if (session.gpu) {
      require_memory(with_ring, gpu_room(*session.gpu, session.rank()));
    } else {
      needed = with_ring;
    }
    if (session.options.check_rows > 0) {
      // The gradients' check comes after the output's.
      const double gradients = pass == Pass::backward ? gradient_check_bytes(problem) : 0;
      needed += std::max(check_bytes(problem), gradients) + reader_bytes;
    }
    require_memory(needed, memory_room(session.placement.ranks_on_node(session.rank()), ranks_in_process));
  });
}

}  // namespace ringattn::launch
