// Work on a stream that makes, reads and adds to blocks, as late as the harness pleases, and checked for
// order: toy kernels, which a ring cannot tell from real ones.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/simt/memory.h"

namespace ringattn::test {

// Device memory with an owner. It starts as poison.
class DeviceBlock {
 public:
  explicit DeviceBlock(std::size_t bytes);
  std::span<std::byte> bytes() const { return {data_.get(), size_}; }
  std::span<std::byte> first(std::size_t n) const { return bytes().first(n); }

 private:
  std::unique_ptr<std::byte, void (*)(std::byte*)> data_;
  std::size_t size_;
};

struct Touch {
  std::span<const std::byte> bytes;
  simt::Access access = simt::Access::read;
};
// Queues `work` on the stream; it may touch these spans, and reads or writes them as `access` says.
void on_stream(cudaStream_t stream, std::vector<Touch> touched, std::function<void()> work);
void on_stream(cudaStream_t stream, std::span<std::byte> bytes, simt::Access access,
               std::function<void(std::span<std::byte>)> work);

// The block becomes pattern(size, rank, hop) of tests/comm/pattern.h.
void write_pattern(cudaStream_t stream, std::span<std::byte> block, int rank, int hop);
// The block becomes poison: for a slot whose old content must not pass for the new one.
void write_poison(cudaStream_t stream, std::span<std::byte> block);
void write_zero(cudaStream_t stream, std::span<std::byte> block);

// What stream work has found wrong; asked when the streams have been synchronised.
class Findings {
 public:
  // Queues a look whether the block is what write_pattern(.., rank, hop) makes.
  void expect_pattern(cudaStream_t stream, std::span<std::byte> block, int rank, int hop);
  void expect_all(cudaStream_t stream, std::span<std::byte> block, std::byte value);
  // Fails the running test if anything was wrong, or if a look has not been taken.
  void report();
  bool all_well() const { return found_->looks == wanted_ && found_->wrong.empty(); }

 private:
  void expect(cudaStream_t stream, std::span<std::byte> block, std::vector<std::byte> expected,
              std::string what);
  struct Shared {
    std::size_t looks = 0;
    std::vector<std::string> wrong;
  };
  std::shared_ptr<Shared> found_ = std::make_shared<Shared>();
  std::size_t wanted_ = 0;
};

}  // namespace ringattn::test
