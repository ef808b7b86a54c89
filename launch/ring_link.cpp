#include "launch/ring_link.h"

#include <stdexcept>

#include "comm/device_ranks.h"
#include "comm/mpi_device.h"
#include "comm/nccl.h"
#include "comm/staged.h"
#include "launch/steps.h"
#include "src/error.h"

namespace ringattn::launch {
namespace {

// What only the host's communicator can imitate: the option or variable that asks for it, or "".
std::string imitation(const Options& options, const TestFaults& faults) {
  if (options.link_gbps > 0) return "--link-gbps";
  if (options.link_latency_us > 0) return "--link-latency-us";
  if (!faults.transfers.empty() || !faults.actions.empty())
    return "RINGATTN_TEST_FAULT '" + faults.text + "'";
  return "";
}

// Why NCCL cannot connect these ranks, or "".
std::string obstacle_to_nccl(const GpuPlacement& gpus) {
  if (!nccl_built()) return "this build has no NCCL";
  const auto shared = gpus.first_shared();
  if (!shared) return "";
  const RankGpu& gpu = gpus.ranks[static_cast<std::size_t>(shared->second)];
  return "ranks " + std::to_string(shared->first) + " and " + std::to_string(shared->second) +
         " compute on one GPU (" + gpu.name + ", " + gpu.uuid + " of " + gpu.host + "), which NCCL refuses";
}

void refuse_imitation(const std::string& imitation, const std::string& name) {
  if (imitation.empty()) return;
  throw UsageError(imitation + " means nothing to --communicator " + name +
                   ", where GPUs carry the blocks; with --backend cuda it needs --communicator mpi");
}

}  // namespace

LinkChoice choose_link(const Options& options, const TestFaults& faults, const GpuPlacement& gpus,
                       bool ranks_are_threads) {
  const std::string imitated = imitation(options, faults);
  const std::string obstacle = obstacle_to_nccl(gpus);
  switch (options.communicator) {
    case CommunicatorKind::nccl:
      refuse_imitation(imitated, "nccl");
      if (!obstacle.empty())
        throw UsageError("--communicator is 'nccl', and " + obstacle +
                         "; use --communicator mpi, or a rank for each GPU");
      return {.kind = LinkKind::nccl, .why = ""};
    case CommunicatorKind::mpi:
      return {.kind = LinkKind::staged, .why = ""};
    case CommunicatorKind::threads:
      refuse_imitation(imitated, "threads");
      return {.kind = LinkKind::device_ranks, .why = ""};
    case CommunicatorKind::self:
      return {.kind = LinkKind::host, .why = ""};
    case CommunicatorKind::automatic:
      break;
  }
  if (ranks_are_threads) throw std::logic_error("ranks are threads, and the communicator is automatic");
  if (gpus.ranks.size() == 1) return {.kind = LinkKind::host, .why = ""};
  if (!imitated.empty()) return {.kind = LinkKind::staged, .why = imitated + " needs the host"};
  if (!obstacle.empty()) return {.kind = LinkKind::staged, .why = obstacle};
  return {.kind = LinkKind::nccl, .why = "a GPU for each rank"};
}

std::shared_ptr<Communicator> make_link(LinkKind kind, const std::shared_ptr<Communicator>& host,
                                        void* stream, std::chrono::milliseconds patience) {
  switch (kind) {
    case LinkKind::nccl:
      return make_nccl_communicator(host, stream, {.comm = nullptr, .patience = patience});
    case LinkKind::staged:
      return make_staged(host, stream);
    case LinkKind::device_ranks:
      return make_device_ranks(host, stream);
    case LinkKind::host:
      break;
  }
  return host;
}

std::shared_ptr<Communicator> make_mpi_link(const Seat& seat, Communicator& host, void* stream,
                                            std::chrono::milliseconds patience, std::string& why) {
  bool claimed = false;
  shared_step(host, patience, [&] { claimed = seat.claims_device_memory(); });
  MpiDevice made = make_mpi_device(seat.another, stream, {.claimed = claimed, .patience = patience});
  if (!made.why_staged.empty()) why.append(why.empty() ? "" : "; ").append(made.why_staged);
  return std::move(made.comm);
}

}  // namespace ringattn::launch
