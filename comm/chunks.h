// How a block is cut into messages. Arithmetic alone, so that it can be tested at sizes nobody allocates.
#pragma once
#include <algorithm>
#include <cstddef>

namespace ringattn {

// Chunk i is bytes [offset(i), offset(i) + size(i)) of the block. All have `chunk_bytes` but the last, which
// has the rest. Example: 2^32 + 16 bytes in chunks of 2^31 - 1 are three chunks, the last of 18 bytes.
class Chunks {
 public:
  // chunk_bytes: 1 .. 2^31-1, so that the size of a chunk is an int as MPI 3 wants it.
  constexpr Chunks(std::size_t block_bytes, std::size_t chunk_bytes)
      : block_bytes_(block_bytes), chunk_bytes_(chunk_bytes) {}

  // Written so that nothing overflows for a block of 2^64-1 bytes.
  constexpr std::size_t count() const {
    return block_bytes_ / chunk_bytes_ + (block_bytes_ % chunk_bytes_ == 0 ? 0 : 1);
  }
  constexpr std::size_t offset(std::size_t i) const { return i * chunk_bytes_; }
  constexpr int size(std::size_t i) const {
    return static_cast<int>(std::min(chunk_bytes_, block_bytes_ - offset(i)));
  }

 private:
  std::size_t block_bytes_;
  std::size_t chunk_bytes_;
};

}  // namespace ringattn
