// Case A21: sizes around and above 2^31, where an int count is wrong or silently small, without allocating.
#include "comm/chunks.h"

#include <gtest/gtest.h>

#include <climits>
#include <cstdint>

namespace ringattn::test {
namespace {

constexpr std::size_t kTwo31 = std::size_t{1} << 31, kTwo32 = std::size_t{1} << 32;

// Walks over all chunks: they follow each other without a gap, fill the block, and each has an int size.
void check_cover(std::size_t block, std::size_t chunk) {
  const Chunks chunks(block, chunk);
  std::size_t covered = 0;
  for (std::size_t i = 0; i < chunks.count(); ++i) {
    ASSERT_EQ(chunks.offset(i), covered);
    ASSERT_GE(chunks.size(i), 1);
    ASSERT_LE(static_cast<std::size_t>(chunks.size(i)), chunk);
    covered += static_cast<std::size_t>(chunks.size(i));
  }
  EXPECT_EQ(covered, block) << block << " in chunks of " << chunk;
}

TEST(Chunks, CoverEveryBlockOnce) {
  for (const std::size_t block : {std::size_t{0}, std::size_t{1}, std::size_t{999}, std::size_t{1000},
                                  std::size_t{1001}, kTwo31 - 1, kTwo31, kTwo31 + 4096, kTwo32 + 16}) {
    for (const std::size_t chunk :
         {std::size_t{1000}, std::size_t{2} << 20, std::size_t{1} << 30, std::size_t{INT_MAX}}) {
      check_cover(block, chunk);
    }
  }
}

TEST(Chunks, AreAsManyAsTheyMustBe) {
  EXPECT_EQ(Chunks(0, 1000).count(), 0u);
  EXPECT_EQ(Chunks(1000, 1000).count(), 1u);
  EXPECT_EQ(Chunks(1001, 1000).count(), 2u);
  EXPECT_EQ(Chunks(kTwo31 - 1, INT_MAX).count(), 1u);
  EXPECT_EQ(Chunks(kTwo31, INT_MAX).count(), 2u);
  EXPECT_EQ(Chunks(kTwo31, INT_MAX).size(1), 1);
  // (int)(2^32 + 16) would be 16.
  EXPECT_EQ(Chunks(kTwo32 + 16, INT_MAX).count(), 3u);
  EXPECT_EQ(Chunks(kTwo32 + 16, INT_MAX).size(0), INT_MAX);
  EXPECT_EQ(Chunks(kTwo32 + 16, INT_MAX).size(2), 18);
}

TEST(Chunks, LargestBlockDoesNotOverflow) {
  const Chunks chunks(SIZE_MAX, INT_MAX);
  EXPECT_EQ(chunks.count(), 8589934597u);  // ceil((2^64 - 1) / (2^31 - 1))
  EXPECT_EQ(chunks.offset(chunks.count() - 1) + static_cast<std::size_t>(chunks.size(chunks.count() - 1)),
            SIZE_MAX);
}

}  // namespace
}  // namespace ringattn::test
