#include "launch/machine.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>

#include "kernels/cpu/cpu.h"
#include "launch/placement.h"
#include "launch/tensors.h"
#include "src/error.h"

namespace ringattn::launch {
namespace {

namespace fs = std::filesystem;

// A root folder with just the files that matter.
class FakeRoot {
 public:
  FakeRoot() : root_(fs::path(testing::TempDir()) / ("ringattn_root_" + std::to_string(getpid()))) {}
  ~FakeRoot() { fs::remove_all(root_); }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  const fs::path& path() const { return root_; }

 private:
  fs::path root_;
};

constexpr const char* kMeminfo = "MemTotal:  16000 kB\nMemFree:  1000 kB\nMemAvailable:  8000 kB\n";

TEST(MemoryRoom, IsTheAvailableMemoryAmongTheRanksOfTheMachine) {
  const FakeRoot root;
  root.write("proc/meminfo", kMeminfo);
  const MemoryRoom room = memory_room(4, 1, root.path());
  EXPECT_EQ(room.bytes, 2000 * 1024);
  EXPECT_EQ(room.limit, "MemAvailable");
}

TEST(MemoryRoom, IsWhatTheTightestCgroupOnTheWayUpLeaves) {
  const FakeRoot root;
  root.write("proc/meminfo", kMeminfo);
  root.write("proc/self/cgroup", "0::/slice/job\n");
  root.write("sys/fs/cgroup/slice/job/memory.max", "max\n");
  root.write("sys/fs/cgroup/slice/job/memory.current", "700\n");
  root.write("sys/fs/cgroup/slice/memory.max", "5000\n");
  root.write("sys/fs/cgroup/slice/memory.current", "1000\n");
  const MemoryRoom room = memory_room(2, 1, root.path());
  EXPECT_EQ(room.bytes, 2000);
  EXPECT_EQ(room.limit, "cgroup limit");
}

TEST(MemoryRoom, KnowsTheFirstVersionOfCgroups) {
  const FakeRoot root;
  root.write("proc/meminfo", kMeminfo);
  root.write("proc/self/cgroup", "8:pids:/\n4:cpu,memory:/box\n");
  root.write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "9000\n");
  root.write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "10000\n");
  EXPECT_EQ(memory_room(1, 1, root.path()).bytes, 0);
}

TEST(RequireMemory, SaysWhatIsNeededAndWhatThereIs) {
  const MemoryRoom room{.bytes = 8.0 * (1 << 30), .limit = "MemAvailable"};
  EXPECT_NO_THROW(require_memory(8.0 * (1 << 30), room));
  try {
    require_memory(12.4 * (1 << 30), room);
    FAIL();
  } catch (const OutOfMemory& e) {
    EXPECT_STREQ(e.what(), "needs 12.4 GiB per rank, 8.00 GiB available (MemAvailable)");
  }
}

TEST(ShardBytes, AreWhatIsAllocated) {
  const Problem p{.shape = {.batch = 2, .num_heads = 6, .num_heads_kv = 3, .head_dim = 5, .head_dim_v = 7},
                  .dtype = DType::bf16,
                  .mask = Mask::full(11, 13),
                  .rope = {},
                  .softmax_scale = {}};
  const Sharding sharding = Sharding::make(LayoutKind::zigzag, 11, 13, 3);
  for (int r = 0; r < 3; ++r) {
    const ShardTensors t = allocate_shard(p, sharding, r);
    EXPECT_EQ(shard_bytes(p, sharding, r), static_cast<double>(t.q.size() + t.k.size() + t.v.size() +
                                                               t.out.size() + t.lse.size() * sizeof(float)));
  }
}

TEST(AllowedCpus, AreThoseOfTheAffinityMask) {
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  EXPECT_EQ(static_cast<int>(allowed_cpus().size()), CPU_COUNT(&set));
}

TEST(PeakRss, IsAtLeastWhatWasTouched) {
  std::vector<char> touched(64 << 20);
  for (std::size_t i = 0; i < touched.size(); i += 4096) static_cast<volatile char*>(touched.data())[i] = 'x';
  EXPECT_GE(peak_rss_bytes(), touched.size());
}

Placement on_one_host(std::vector<std::vector<int>> cpus, int threads) {
  Placement placement;
  for (auto& list : cpus)
    placement.ranks.push_back({.host = "a", .cpus = std::move(list), .threads = threads});
  return placement;
}

TEST(Threads, AreTheRanksShareOfItsCpus) {
  EXPECT_EQ(default_threads(on_one_host({{0, 1, 2, 3}}, 0), 0, nullptr), 4);
  EXPECT_EQ(default_threads(on_one_host({{0, 1, 2, 3}, {0, 1, 2, 3}}, 0), 1, nullptr), 2);
  EXPECT_EQ(default_threads(on_one_host({{0, 1}, {0, 1}, {0, 1}}, 0), 1, nullptr), 1);
  // Bound apart by the launcher: each rank keeps its own.
  EXPECT_EQ(default_threads(on_one_host({{0, 1}, {2, 3}}, 0), 0, nullptr), 2);
  Placement two_hosts = on_one_host({{0, 1}, {0, 1}}, 0);
  two_hosts.ranks[1].host = "b";
  EXPECT_EQ(default_threads(two_hosts, 0, nullptr), 2);
}

TEST(Threads, FollowOmpNumThreadsStrictly) {
  const Placement placement = on_one_host({{0, 1}}, 0);
  EXPECT_EQ(default_threads(placement, 0, "7"), 7);
  EXPECT_EQ(default_threads(placement, 0, "3,2"), 3);
  EXPECT_EQ(default_threads(placement, 0, ""), 2);
  for (const char* bad : {"0", "-1", "two", "2x", " 2", "99999999999"}) {
    try {
      default_threads(placement, 0, bad);
      FAIL() << bad;
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find("OMP_NUM_THREADS is '" + std::string(bad) + "'"),
                std::string::npos);
    }
  }
}

// Case A2: two threads on the one CPU that mpirun pinned the rank to.
TEST(Placement, WarnsOfMoreThreadsThanCpus) {
  const Placement pinned = on_one_host({{0}, {1}}, 2);
  EXPECT_TRUE(pinned.oversubscribed());
  EXPECT_EQ(pinned.warnings(), (std::vector<std::string>{"rank 0: allowed CPUs 1 < threads 2",
                                                         "rank 1: allowed CPUs 1 < threads 2"}));
  const Placement crowded = on_one_host({{0, 1}, {0, 1}, {0, 1}}, 1);
  EXPECT_TRUE(crowded.oversubscribed());
  EXPECT_EQ(crowded.warnings(), (std::vector<std::string>{"allowed CPUs 2 on a < 3 threads of its 3 ranks"}));
  EXPECT_FALSE(on_one_host({{0, 1}, {0, 1}}, 1).oversubscribed());
  EXPECT_FALSE(on_one_host({{0}, {1}}, 1).oversubscribed());
}

}  // namespace
}  // namespace ringattn::launch
