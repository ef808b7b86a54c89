// Which backend a job uses: by its options alone, and by what its ranks find.
#include "launch/backend.h"

#include <gtest/gtest.h>

#include <iterator>
#include <mutex>
#include <sstream>

#include "kernels/cpu/cpu.h"
#include "launch/ranks.h"
#include "launch/steps.h"
#include "src/error.h"

namespace ringattn::launch {
namespace {

using namespace std::chrono_literals;

// As the command line gives them.
Options options_of(const std::string& more) {
  std::istringstream stream("bench --seqlen 8 " + more);
  return parse_options({std::istream_iterator<std::string>(stream), {}});
}

CudaMachine without(const std::string& why) { return {.devices = {}, .unavailable = why}; }
CudaMachine with_one() { return {.devices = {CudaDevice{.major = 9}}}; }

struct Outcome {
  ExitCode code = ExitCode::ok;
  std::vector<Backend> backends;
  std::string said;
};

Outcome choose(const Options& options, const std::vector<CudaMachine>& machines) {
  Outcome outcome;
  std::mutex mutex;
  testing::internal::CaptureStderr();
  outcome.code = run_thread_ranks(static_cast<int>(machines.size()),
                                  [&](const std::shared_ptr<Communicator>& comm, const Seat&) {
                                    const auto& mine = machines[static_cast<std::size_t>(comm->rank())];
                                    const Backend backend = choose_backend(*comm, options, mine, 5s);
                                    const std::lock_guard lock(mutex);
                                    outcome.backends.push_back(backend);
                                  });
  outcome.said = testing::internal::GetCapturedStderr();
  return outcome;
}

bool says(const Outcome& outcome, const std::string& text) {
  return outcome.said.find(text) != std::string::npos;
}

TEST(Backend, IsCudaWhereEveryRankHasAGpu) {
  const Outcome outcome = choose({}, {with_one(), with_one(), with_one()});
  EXPECT_EQ(outcome.backends, std::vector<Backend>(3, Backend::cuda));
  EXPECT_EQ(outcome.said, "");
}

TEST(Backend, IsCpuWhereNoRankHasAGpuAndNobodyIsTold) {
  const Outcome outcome = choose({}, {without("no driver"), without("no driver")});
  EXPECT_EQ(outcome.backends, std::vector<Backend>(2, Backend::cpu));
  EXPECT_EQ(outcome.said, "");
}

TEST(Backend, IsTheSameOnAllRanksAndAGpuThatStandsIdleIsNamed) {
  const Outcome outcome = choose({}, {with_one(), without("no driver"), with_one()});
  EXPECT_EQ(outcome.code, ExitCode::ok);
  EXPECT_EQ(outcome.backends, std::vector<Backend>(3, Backend::cpu));
  EXPECT_TRUE(says(outcome, "warning: all ranks compute on CPUs")) << outcome.said;
  EXPECT_TRUE(says(outcome, "by rank 1 (no driver)")) << outcome.said;
}

TEST(Backend, ThatIsAskedForAndMissingEndsAllRanksWithItsReason) {
  const Options insists = options_of("--backend cuda");
  const Outcome outcome = choose(insists, {with_one(), with_one(), without("no driver")});
  EXPECT_EQ(outcome.code, ExitCode::device);
  EXPECT_TRUE(outcome.backends.empty());
  EXPECT_TRUE(says(outcome, "rank 2: backend cuda cannot be used: no driver")) << outcome.said;
}

TEST(Backend, CpuIsUsedBesideAGpu) {
  const Options cpu = options_of("--backend cpu");
  EXPECT_EQ(choose(cpu, {with_one()}).backends, std::vector<Backend>{Backend::cpu});
}

TEST(BackendOfOptions, FollowsNamesThatOnlyOneBackendKnows) {
  const std::string simd = cpu_isas().at(0);
  EXPECT_EQ(backend_of_options({}), BackendChoice::automatic);
  EXPECT_EQ(backend_of_options(options_of("--isa " + simd)), BackendChoice::cpu);
  EXPECT_EQ(backend_of_options(options_of("--backend cpu --isa " + simd)), BackendChoice::cpu);
  for (const std::string chapter : {"plain", "sm_80", "sm_90a"}) {
    EXPECT_EQ(backend_of_options(options_of("--isa " + chapter)), BackendChoice::cuda) << chapter;
    EXPECT_EQ(backend_of_options(options_of("--backend cuda --isa " + chapter)), BackendChoice::cuda);
  }
  EXPECT_EQ(backend_of_options(options_of("--communicator nccl")), BackendChoice::cuda);
}

TEST(BackendOfOptions, RefusesANameOfTheOtherBackend) {
  const std::string simd = cpu_isas().at(0);
  for (const std::string& wrong :
       {"--backend cuda --isa " + simd, std::string("--backend cpu --isa sm_80"),
        "--communicator nccl --isa " + simd, std::string("--isa sm_75"),
        std::string("--backend cuda --isa sm_75"), std::string("--backend cpu --isa sm_75")}) {
    const Options options = options_of(wrong);
    try {
      backend_of_options(options);
      ADD_FAILURE() << "accepted " << wrong;
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find("--isa is '" + options.isa + "', allowed is one of auto, "),
                std::string::npos)
          << e.what();
    }
  }
}

}  // namespace
}  // namespace ringattn::launch
