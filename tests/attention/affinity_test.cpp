// Where the threads of a ring run is the business of whoever started the program: the library goes by the
// affinity mask that it finds, and leaves it as it is.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "comm/self.h"
#include "kernels/cpu/cpu.h"
#include "src/attention.h"

namespace ringattn::test {
namespace {

// Of every thread of this process, as the system writes them: "0-1".
std::multiset<std::string> masks_of_all_threads() {
  std::multiset<std::string> masks;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("Cpus_allowed_list:")) masks.insert(line.substr(line.find_last_of('\t') + 1));
  }
  return masks;
}

// Both passes on a ring of one rank; the number of threads that it used.
int forward_and_backward(int threads) {
  const index_t rows = 601, heads = 3, dim = 20;
  const Problem problem{.shape = {.num_heads = heads, .num_heads_kv = heads, .head_dim = dim},
                        .mask = Mask::causal(rows, rows)};
  RingAttention ring(make_self_communicator(), problem, Sharding::make(LayoutKind::zigzag, rows, rows, 1),
                     {.threads = threads});
  const std::vector<float> x(static_cast<std::size_t>(rows * heads * dim), 0.25f);
  std::vector<float> out(x.size()), dq(x.size()), dk(x.size()), dv(x.size()),
      lse(static_cast<std::size_t>(rows * heads));
  const auto in = dense_view(static_cast<const void*>(x.data()), DType::f32, {1, rows, heads, dim});
  const auto view = [&](std::vector<float>& data) {
    return dense_view(static_cast<void*>(data.data()), DType::f32, {1, rows, heads, dim});
  };
  const LseView lse_view = dense_lse(lse.data(), 1, heads, rows);
  ring.forward(in, in, in, view(out), lse_view);
  ring.backward(
      {.dout = in, .q = in, .k = in, .v = in, .out = as_const(view(out)), .lse = as_const(lse_view)},
      {.dq = view(dq), .dk = view(dk), .dv = view(dv)});
  return ring.threads();
}

// On a thread of its own that may run on one CPU alone; OpenMP's threads inherit that.
template <class Body>
void on_one_cpu(int cpu, const Body& body) {
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(cpu), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    body();
  }).join();
}

bool affinity_can_be_tested(std::vector<int>& cpus) {
  cpus = allowed_cpus();
  return cpus.back() < CPU_SETSIZE;
}

TEST(Affinity, OfNoThreadIsChangedByForwardAndBackward) {
  const std::multiset<std::string> before = masks_of_all_threads();
  ASSERT_EQ(std::set<std::string>(before.begin(), before.end()).size(), 1U);
  forward_and_backward(3);
  const std::multiset<std::string> after = masks_of_all_threads();
  EXPECT_EQ(std::set<std::string>(after.begin(), after.end()),
            std::set<std::string>(before.begin(), before.end()));
}

// Not so with LLVM's OpenMP, which gives a thread that enters it for the first time the mask that the process
// had at its start, unless KMP_AFFINITY=disabled is in the environment. What mpirun or taskset set holds
// there, too.
TEST(Affinity, OfAThreadThatMayRunOnOneCpuHoldsForItsTeam) {
#if defined(__clang__)
  GTEST_SKIP() << "LLVM's OpenMP resets the mask of a thread that was narrowed after the process had started";
#endif
  std::vector<int> cpus;
  if (!affinity_can_be_tested(cpus)) GTEST_SKIP() << "CPU " << cpus.back() << " does not fit a cpu_set_t";
  on_one_cpu(cpus.back(), [&] {
    forward_and_backward(3);
    EXPECT_EQ(allowed_cpus(), std::vector<int>{cpus.back()});
    // This thread and the two that OpenMP started for it; the process's first thread has its own mask.
    EXPECT_GE(masks_of_all_threads().count(std::to_string(cpus.back())), 3U);
  });
  EXPECT_EQ(allowed_cpus(), cpus);
}

// hardware_concurrency() would count the CPUs of the machine (case kind F19).
TEST(Affinity, DecidesHowManyThreadsThereAreByDefault) {
  std::vector<int> cpus;
  if (!affinity_can_be_tested(cpus)) GTEST_SKIP() << "CPU " << cpus.back() << " does not fit a cpu_set_t";
  EXPECT_EQ(thread_count({}), static_cast<int>(cpus.size()));
  on_one_cpu(cpus.front(), [] {
    EXPECT_EQ(thread_count({}), 1);
    EXPECT_EQ(thread_count({.threads = 5}), 5);
    EXPECT_EQ(forward_and_backward(0), 1);
  });
  EXPECT_EQ(forward_and_backward(0), static_cast<int>(cpus.size()));
}

}  // namespace
}  // namespace ringattn::test
