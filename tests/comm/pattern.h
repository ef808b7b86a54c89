// Blocks whose bytes tell who made them, at which hop and where in the block they stand.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ringattn::test {

// (31 i + 7 rank) mod 251 of case A21, and a term of the hop. 251 is prime, so a shift by any power of two
// shows.
inline std::byte pattern_byte(std::size_t i, int rank, int hop) {
  return static_cast<std::byte>(
      (31 * i + 7 * static_cast<std::size_t>(rank) + 97 * static_cast<std::size_t>(hop)) % 251);
}

inline std::vector<std::byte> pattern(std::size_t size, int rank, int hop) {
  std::vector<std::byte> block(size);
  for (std::size_t i = 0; i < size; ++i) block[i] = pattern_byte(i, rank, hop);
  return block;
}

// Never a byte of a pattern, since those are below 251.
inline std::vector<std::byte> poisoned(std::size_t size) {
  return std::vector<std::byte>(size, std::byte{0xfb});
}

// The sizes of case A20 (around the eager limit of Open MPI, 4096), the smallest ones, and one that is just
// over three MiB, so that it ends in a chunk of one byte.
inline constexpr std::array<std::size_t, 9> kSizes = {0,    1,      1000,      4000,          4096,
                                                      5000, 70'000, 1'000'000, (3u << 20) + 1};

}  // namespace ringattn::test
