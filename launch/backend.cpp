#include "launch/backend.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "kernels/cpu/cpu.h"
#include "launch/option_values.h"
#include "launch/steps.h"
#include "src/error.h"

namespace ringattn::launch {
namespace {

// Whether this build holds them all is the kernel's affair; that they are CUDA's is known in every build.
constexpr std::array<std::string_view, 3> kChapters{"plain", "sm_80", "sm_90a"};

template <class Names>
std::string listed(const Names& names) {
  std::string list = "auto";
  for (const auto& name : names) list += ", " + std::string(name);
  return list;
}

// Why all ranks compute on CPUs although some could do better; empty if none could.
std::string warning_of(const std::vector<std::string>& reasons) {
  std::string without, why;
  for (std::size_t rank = 0; rank < reasons.size(); ++rank) {
    if (reasons[rank].empty()) continue;
    without += (without.empty() ? "" : ", ") + std::to_string(rank);
    why = reasons[rank];
  }
  const bool all = std::ranges::none_of(reasons, &std::string::empty);
  if (all) return "";
  return "all ranks compute on CPUs, since no GPU can be used by rank " + without + " (" + why +
         "); --backend says otherwise";
}

}  // namespace

BackendChoice backend_of_options(const Options& options) {
  const std::vector<std::string> isas = cpu_isas();
  const bool of_cpu = std::ranges::find(isas, options.isa) != isas.end();
  const bool of_cuda = std::ranges::find(kChapters, options.isa) != kChapters.end();
  if (options.backend != BackendChoice::cuda && options.isa != "auto" && !of_cpu && !of_cuda) {
    refuse("isa", options.isa,
           "one of " + listed(isas) + " on this machine; of " + listed(kChapters) + " with --backend cuda");
  }
  switch (options.backend) {
    case BackendChoice::cpu:
      if (of_cuda)
        refuse("isa", options.isa, "one of " + listed(isas) + " on this machine, with --backend cpu");
      return BackendChoice::cpu;
    case BackendChoice::cuda:
      if (options.isa != "auto" && !of_cuda)
        refuse("isa", options.isa, "one of " + listed(kChapters) + " with --backend cuda");
      return BackendChoice::cuda;
    case BackendChoice::automatic:
      break;
  }
  const bool nccl = options.communicator == CommunicatorKind::nccl;
  if (nccl && of_cpu) refuse("isa", options.isa, "one of " + listed(kChapters) + " with --communicator nccl");
  if (of_cpu) return BackendChoice::cpu;
  return of_cuda || nccl ? BackendChoice::cuda : BackendChoice::automatic;
}

Backend choose_backend(Communicator& comm, const Options& options, const CudaMachine& machine,
                       std::chrono::milliseconds patience) {
  BackendChoice choice = BackendChoice::automatic;
  shared_step(comm, patience, [&] {
    choice = backend_of_options(options);
    if (choice == BackendChoice::cuda && !machine.unavailable.empty())
      throw DeviceError("backend cuda cannot be used: " + machine.unavailable);
  });
  if (choice == BackendChoice::cpu) return Backend::cpu;
  if (choice == BackendChoice::cuda) return Backend::cuda;
  const std::vector<std::string> reasons = gather_texts(comm, machine.unavailable, patience);
  if (std::ranges::all_of(reasons, &std::string::empty)) return Backend::cuda;
  if (const std::string warning = warning_of(reasons); !warning.empty() && comm.rank() == 0)
    std::fprintf(stderr, "ringattn: warning: %s\n", warning.c_str());
  return Backend::cpu;
}

}  // namespace ringattn::launch
