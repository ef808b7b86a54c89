// What every rank of run and bench has before it starts on its tensors.
#pragma once
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "launch/fault_hook.h"
#include "launch/gpus.h"
#include "launch/options.h"
#include "launch/placement.h"
#include "launch/progress.h"
#include "launch/ranks.h"
#include "src/attention.h"
#include "src/problem.h"

namespace ringattn::launch {

struct Session {
  const Options& options;
  std::shared_ptr<Communicator> comm;  // of the host, with the options' link and the test faults
  Placement placement;
  TestFaults faults;
  std::unique_ptr<GpuSeat> gpu;        // null: the ranks compute on CPUs
  std::shared_ptr<Communicator> ring;  // carries the blocks; on CPUs it is comm. It ends before the stream
  std::string ring_name;               // without link and faults: "self", "mpi", "staged(mpi)", "nccl", ..
  std::string ring_why;                // why this one, where the program had a choice; may be empty

  int rank() const { return comm->rank(); }
  int ranks() const { return comm->size(); }
  int threads() const { return placement.ranks[static_cast<std::size_t>(rank())].threads; }
  DeviceStream* stream() const { return gpu ? &gpu->stream : nullptr; }
  Backend backend() const { return gpu ? Backend::cuda : Backend::cpu; }
  RingOptions ring_options(Mode mode) const;
  Sharding sharding(const Problem& problem) const;
  Switch progress() const { return rank() == 0 ? options.progress : Switch::off; }
};

// Collective. Chooses the backend and checks that it can be used, counts threads, CPUs and GPUs, connects the
// GPUs; rank 0 prints the warnings.
Session open_session(const std::shared_ptr<Communicator>& comm, const Options& options, const Seat& seat);

// Collective. Ranks compare the problem, the sharding and the program's own fields.
void agree_on_problem(Session& session, const Problem& problem, const Sharding& sharding);

// Collective. Throws SharedFailure if some rank has not the memory for its tensors and workspace, on the host
// or on its GPU, which has both besides the host's copy of the tensors.
// `reader_bytes`: what the check's inputs hold besides. The options' direction says whether gradients count.
void require_shard_memory(Session& session, const Problem& problem, const Sharding& sharding,
                          double reader_bytes = 0);

}  // namespace ringattn::launch
