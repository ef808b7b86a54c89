#include "launch/program.h"

#include <cstdio>
#include <optional>

#include "launch/bench.h"
#include "launch/build_info.h"
#include "launch/info_command.h"
#include "launch/output.h"
#include "launch/plan_command.h"
#include "launch/problem_options.h"
#include "launch/ranks.h"
#include "launch/run.h"
#include "launch/steps.h"

namespace ringattn::launch {
namespace {

// Ranks do not know their options before they agree on them, so this patience is fixed.
constexpr std::chrono::seconds kStartPatience{60};

// help, version, plan and info: no ranks are needed.
bool works_alone(const Options& options) {
  return options.help || options.version || options.command == Command::plan ||
         options.command == Command::info;
}

void work_alone(const Options& options) {
  if (options.help) {
    Output("").write(options.help_of, "");
  } else if (options.version) {
    Output("").write(std::string("ringattn ") + kVersion + "\n", "");
  } else if (options.command == Command::plan) {
    plan_command(options);
  } else {
    info_command(options);
  }
}

void work_together(const std::shared_ptr<Communicator>& comm, const Options& options, const Seat& seat) {
  if (options.command == Command::run) {
    run(comm, options, seat);
  } else {
    bench(comm, options, seat);
  }
}

// Under mpirun every process is a rank, whatever it was asked for: only so can ranks with different arguments
// find that out.
ExitCode launched_program(const std::vector<std::string>& arguments, const Launcher& launcher) {
  std::optional<ExitCode>
      inner;  // of ranks that are not MPI's: --communicator self or threads with one process
  const ExitCode outer = run_mpi_ranks([&](const std::shared_ptr<Communicator>& comm, const Seat& seat) {
    Options options;
    shared_step(*comm, kStartPatience, [&] {
      options = parse_options(arguments);
      check_communicator(options, launcher);
    });
    shared_call([&] { agree_on_fields(*comm, program_fields(options), Clock::now() + kStartPatience); });
    if (works_alone(options)) {
      // What rank 0 prints may take its time; the others only wait for it to be done.
      shared_step(*comm, std::chrono::hours(24), [&] {
        if (comm->rank() == 0) work_alone(options);
      });
    } else if (options.communicator == CommunicatorKind::self) {
      inner =
          run_self_rank([&](const auto& self, const Seat& alone) { work_together(self, options, alone); });
    } else if (options.communicator == CommunicatorKind::threads) {
      inner = run_thread_ranks(*options.ranks, [&](const auto& rank, const Seat& thread) {
        work_together(rank, options, thread);
      });
    } else {
      work_together(comm, options, seat);
    }
  });
  return outer == ExitCode::ok ? inner.value_or(ExitCode::ok) : outer;
}

ExitCode single_program(const std::vector<std::string>& arguments, const Launcher& launcher) {
  const Options options = parse_options(arguments);
  check_communicator(options, launcher);
  if (works_alone(options)) {
    work_alone(options);
    return ExitCode::ok;
  }
  const RankProgram program = [&](const std::shared_ptr<Communicator>& comm, const Seat& seat) {
    work_together(comm, options, seat);
  };
  switch (options.communicator) {
    case CommunicatorKind::mpi:
    case CommunicatorKind::nccl:
      return run_mpi_ranks(program);
    case CommunicatorKind::threads:
      return run_thread_ranks(*options.ranks, program);
    case CommunicatorKind::automatic:  // no launcher: there is one rank
    case CommunicatorKind::self:
      break;
  }
  return run_self_rank(program);
}

}  // namespace

ExitCode program(const std::vector<std::string>& arguments) noexcept {
  try {
    const Launcher launcher = launcher_of_environment();
    if (launcher.present && !mpi_library().empty()) return launched_program(arguments, launcher);
    return single_program(arguments, launcher);
  } catch (...) {
    const Failure failure = failure_of(std::current_exception());
    std::fprintf(stderr, "ringattn: %s\n", failure.text.c_str());
    return failure.code;
  }
}

}  // namespace ringattn::launch
