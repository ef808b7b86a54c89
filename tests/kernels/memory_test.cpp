// Memory of the CPU kernel: whole, zeroed, dealt to its threads, in huge pages where the system has them.
#include "kernels/cpu/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "src/error.h"

namespace ringattn::cpu {
namespace {

constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;

TEST(Memory, IsZeroedToTheLastByteAndAligned) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{63}, 512 * kKiB - 1, 512 * kKiB, 2 * kMiB - 1,
                                  2 * kMiB, 2 * kMiB + 1, 11 * kMiB + 13}) {
    for (const int threads : {1, 2, 3, 5, 64}) {
      const Buffer buffer = allocate_zeroed(bytes, threads);
      ASSERT_EQ(buffer.size, bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data.get()) % (bytes >= 512 * kKiB ? 2 * kMiB : 64),
                0U);
      const auto nonzero = std::count_if(buffer.bytes().begin(), buffer.bytes().end(),
                                         [](std::byte b) { return b != std::byte{}; });
      EXPECT_EQ(nonzero, 0) << bytes << " bytes, " << threads << " threads";
      // What is freed comes back next time: it must not be zero by luck.
      std::fill(buffer.bytes().begin(), buffer.bytes().end(), std::byte{0xFF});
    }
  }
}

TEST(Memory, ThatIsNotThereIsSaidWithItsSize) {
  EXPECT_EQ(allocate_zeroed(0, 3).data, nullptr);
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX / 2, std::size_t{1} << 60}) {
    try {
      allocate_zeroed(bytes, 1);
      FAIL() << bytes;
    } catch (const OutOfMemory& e) {
      EXPECT_NE(std::string(e.what()).find(std::to_string(bytes)), std::string::npos) << e.what();
    }
  }
}

// Every byte belongs to one thread of the team, and no thread has more than one part more than another.
TEST(Memory, IsDealtToATeamEvenly) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, kHugePage - 1, kHugePage, kHugePage + 1,
                                  7 * kHugePage, 13 * kHugePage + 17}) {
    for (const int team : {1, 2, 3, 5, 16}) {
      std::vector<std::size_t> parts(static_cast<std::size_t>(team)), seen;
      std::size_t sum = 0;
      for (int thread = 0; thread < team; ++thread) {
        for_own_parts(bytes, thread, team, [&](std::size_t first, std::size_t count) {
          EXPECT_EQ(first % kHugePage, 0U);
          EXPECT_LE(count, kHugePage);
          seen.push_back(first);
          sum += count;
          ++parts[static_cast<std::size_t>(thread)];
        });
      }
      std::sort(seen.begin(), seen.end());
      EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
      EXPECT_EQ(sum, bytes) << team;
      EXPECT_LE(*std::max_element(parts.begin(), parts.end()),
                *std::min_element(parts.begin(), parts.end()) + 1);
    }
  }
}

TEST(Threads, OfATeamAreCalledOnceEach) {
  for (const int threads : {1, 2, 3, 7}) {
    std::vector<std::atomic<int>> calls(static_cast<std::size_t>(threads));
    std::atomic<int> teams = 0;
    on_every_thread(threads, [&](int thread, int team) noexcept {
      if (team <= threads && thread < team) ++calls[static_cast<std::size_t>(thread)];
      teams = team;
    });
    for (int thread = 0; thread < threads; ++thread)
      EXPECT_EQ(calls[static_cast<std::size_t>(thread)], thread < teams ? 1 : 0) << thread;
  }
}

// Whether the page at `address` is advised to be a huge one; empty if the system does not tell.
std::optional<bool> advised(const std::byte* address) {
  std::ifstream file("/proc/self/smaps");
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  bool here = false;
  for (std::string line; std::getline(file, line);) {
    std::uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2)
      here = begin <= wanted && wanted < end;
    if (here && line.rfind("VmFlags:", 0) == 0) return line.find(" hg") != std::string::npos;
  }
  return std::nullopt;
}

// Whether the system has a huge page to give is its own affair. The advice reaches to the end of the last
// one: a page that is advised in part stays a row of small ones.
TEST(Memory, IsAdvisedToBeInHugePagesToTheEndOfTheLast) {
  for (const std::size_t bytes : {512 * kKiB, 600 * kKiB, 3000 * kKiB, 8 * kMiB + 1}) {
    const Buffer buffer = allocate_zeroed(bytes, 2);
    const std::size_t whole = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    for (const std::size_t at : {std::size_t{0}, bytes - 1, whole - 1}) {
      const std::optional<bool> huge = advised(buffer.data.get() + at);
      if (!huge) GTEST_SKIP() << "this system does not tell the flags of its mappings";
      EXPECT_TRUE(*huge) << "byte " << at << " of " << bytes;
    }
  }
}

}  // namespace
}  // namespace ringattn::cpu
