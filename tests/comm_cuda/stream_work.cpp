#include "tests/comm_cuda/stream_work.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/comm/pattern.h"
#include "tests/simt/stream.h"

namespace ringattn::test {

DeviceBlock::DeviceBlock(std::size_t bytes)
    : data_(nullptr, [](std::byte* p) { cudaFree(p); }), size_(bytes) {
  void* p = nullptr;
  cudaMalloc(&p, std::max<std::size_t>(bytes, 1));
  data_.reset(static_cast<std::byte*>(p));
}

void on_stream(cudaStream_t stream, std::vector<Touch> touched, std::function<void()> work) {
  const auto run = [touched = std::move(touched), work = std::move(work), where = simt::Where::current()] {
    for (const Touch& touch : touched)
      if (!touch.bytes.empty())
        simt::check_global(touch.bytes.data(), touch.bytes.size(), 1, touch.access, where);
    work();
  };
  simt::System::get().push(*stream, {"test work", {}, run, {}});
}

void on_stream(cudaStream_t stream, std::span<std::byte> bytes, simt::Access access,
               std::function<void(std::span<std::byte>)> work) {
  on_stream(stream, {{bytes, access}}, [=] { work(bytes); });
}

void write_pattern(cudaStream_t stream, std::span<std::byte> block, int rank, int hop) {
  on_stream(stream, block, simt::Access::write, [=](std::span<std::byte> bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern_byte(i, rank, hop);
  });
}

void write_poison(cudaStream_t stream, std::span<std::byte> block) {
  on_stream(stream, block, simt::Access::write,
            [](std::span<std::byte> bytes) { std::ranges::fill(bytes, std::byte{0xfb}); });
}

void write_zero(cudaStream_t stream, std::span<std::byte> block) {
  on_stream(stream, block, simt::Access::write,
            [](std::span<std::byte> bytes) { std::ranges::fill(bytes, std::byte{0}); });
}

void Findings::expect(cudaStream_t stream, std::span<std::byte> block, std::vector<std::byte> expected,
                      std::string what) {
  ++wanted_;
  on_stream(stream, block, simt::Access::read,
            [found = found_, expected = std::move(expected), what](std::span<std::byte> bytes) {
              ++found->looks;
              if (!std::ranges::equal(bytes, expected)) found->wrong.push_back(what);
            });
}

void Findings::expect_pattern(cudaStream_t stream, std::span<std::byte> block, int rank, int hop) {
  expect(stream, block, pattern(block.size(), rank, hop),
         std::to_string(block.size()) + " bytes are not rank " + std::to_string(rank) + "'s of hop " +
             std::to_string(hop));
}

void Findings::expect_all(cudaStream_t stream, std::span<std::byte> block, std::byte value) {
  expect(stream, block, std::vector<std::byte>(block.size(), value),
         std::to_string(block.size()) + " bytes are not all " + std::to_string(std::to_integer<int>(value)));
}

void Findings::report() {
  EXPECT_EQ(found_->looks, wanted_);
  for (const std::string& what : found_->wrong) ADD_FAILURE() << what;
}

}  // namespace ringattn::test
