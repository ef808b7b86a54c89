// Fibers by themselves: frames, exceptions, threads, and what AddressSanitizer is told of them.
#include "tests/simt/fiber.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/simt/guard.h"

namespace simt {
namespace {

constexpr int kDepth = 23;

// Suspends at the bottom of a recursion whose frames hold arrays, and throws on its way back.
int descend(Fiber& fiber, int depth, int seed) {
  std::array<volatile int, 17> frame{};
  for (std::size_t i = 0; i < frame.size(); ++i) frame[i] = seed + depth;
  if (depth == 0) {
    fiber.suspend();
    throw std::runtime_error(std::to_string(seed));
  }
  int below = 0;
  bool caught = false;
  try {
    below = descend(fiber, depth - 1, seed);
  } catch (
      const std::runtime_error& error) {  // no place to suspend: a thread keeps one list of what is caught
    below = std::stoi(error.what());
    caught = true;
    if (depth % 3 == 0) throw;
  }
  if (caught) fiber.suspend();
  for (const volatile int& x : frame)
    if (x != seed + depth) return -1;
  return below;
}

// One fiber that descends over and over, and what it has found.
struct Descent {
  Fiber fiber;
  std::vector<int> found;
  std::function<void()> job;
  explicit Descent(int seed) {
    job = [this, seed] { found.push_back(descend(fiber, kDepth, seed)); };
    fiber.assign(&job);
  }
};

TEST(Fibers, KeepTheirFramesAndExceptionsApart) {
  std::vector<std::unique_ptr<Descent>> all;
  for (int seed = 1; seed <= 7; ++seed) all.push_back(std::make_unique<Descent>(100 * seed));
  const auto unfinished = [&] {
    return std::any_of(all.begin(), all.end(), [](const auto& d) { return d->found.size() < 3; });
  };
  for (std::size_t turn = 0; unfinished(); turn += 3) all[turn % all.size()]->fiber.resume();
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const int found : all[i]->found) EXPECT_EQ(found, 100 * static_cast<int>(i + 1));
}

// Every turn on a thread of its own, the first, the last and the end of the fiber as well.
TEST(Fibers, MayGoOnOnAnotherThread) {
  std::unique_ptr<Descent> descent;
  std::thread([&] { descent = std::make_unique<Descent>(500); }).join();
  while (descent->found.empty()) std::thread([&] { descent->fiber.resume(); }).join();
  EXPECT_EQ(descent->found, std::vector<int>{500});
  std::thread([&] { descent.reset(); }).join();
}

#ifdef SIMT_ADDRESS_SANITIZER
// The stack's addresses go to whoever asks next, such as a thread for its thread_local variables.
TEST(Fibers, LeaveNothingPoisonedWhereTheirStackWas) {
  constexpr std::uintptr_t kPage = 4096;
  std::uintptr_t frame = 0;
  {
    Descent descent(900);
    const std::function<void()> job = [&] {
      volatile int local = 0;
      frame = reinterpret_cast<std::uintptr_t>(&local);
      descent.job();
    };
    descent.fiber.assign(&job);
    while (descent.found.empty()) descent.fiber.resume();
  }
  // From below the deepest frame up to the end of the page that holds the first ones.
  const std::uintptr_t end = (frame + kPage - 1) / kPage * kPage, begin = end - 16 * kPage;
  EXPECT_EQ(__asan_region_is_poisoned(reinterpret_cast<void*>(begin), end - begin), nullptr);
}
#endif

}  // namespace
}  // namespace simt
