// What carries the blocks of a ring whose tensors are on GPUs.
#pragma once
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "launch/fault_hook.h"
#include "launch/gpus.h"
#include "launch/options.h"
#include "launch/ranks.h"

namespace ringattn::launch {

enum class LinkKind : std::uint8_t {
  host,          // nothing travels: there is one rank
  nccl,          // GPU to GPU
  staged,        // by way of pinned host memory, over the host's communicator
  device_ranks,  // copies between the GPUs, or inside the one GPU, of one process
};

struct LinkChoice {
  LinkKind kind = LinkKind::host;
  std::string why;  // in words that follow the communicator's name in the report; "" if it was asked for
};

// The same on every rank. Throws UsageError naming the option if what was asked for cannot be: nccl for ranks
// that share a GPU or in a build without it, and a link or a fault of a transfer (RINGATTN_TEST_FAULT) where
// the host does not carry the blocks.
LinkChoice choose_link(const Options& options, const TestFaults& faults, const GpuPlacement& gpus,
                       bool ranks_are_threads);

// Collective. `host` carries what is small, and the blocks of LinkKind::staged; `stream` is this rank's.
std::shared_ptr<Communicator> make_link(LinkKind kind, const std::shared_ptr<Communicator>& host,
                                        void* stream, std::chrono::milliseconds patience);

// Collective, in place of make_link for LinkKind::staged where ranks are MPI's: blocks are given to MPI as
// they are, if it can carry them. Otherwise `why` grows by the reason.
std::shared_ptr<Communicator> make_mpi_link(const Seat& seat, Communicator& host, void* stream,
                                            std::chrono::milliseconds patience, std::string& why);

}  // namespace ringattn::launch
