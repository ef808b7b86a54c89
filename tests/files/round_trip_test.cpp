// Several writers fill one file by their shards, several readers take it apart by other shards, and every
// byte is where it belongs.
#include <gtest/gtest.h>

#include <random>

#include "launch/files/tensor_file.h"
#include "tests/files/scratch.h"

namespace ringattn {
namespace {

constexpr LayoutKind kLayouts[] = {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped};

// A dense tensor and its element size; any axis can hold the sequence.
struct Tensor {
  std::vector<index_t> shape;
  std::size_t element = 0;
  std::string bytes;

  static Tensor random(std::vector<index_t> shape, std::size_t element, std::uint32_t seed) {
    std::size_t size = element;
    for (const index_t d : shape) size *= static_cast<std::size_t>(d);
    std::mt19937 random(seed);
    Tensor t{std::move(shape), element, std::string(size, '\0')};
    for (char& c : t.bytes) c = static_cast<char>(random() & 255);
    return t;
  }
  // The rows of a rank, copied one by one through the layout's own positions and not through its segments.
  std::string rows(const Layout& layout, int rank, std::size_t axis) const {
    std::size_t outer = 1, inner = element;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (i != axis) (i < axis ? outer : inner) *= static_cast<std::size_t>(shape[i]);
    }
    std::string found;
    for (std::size_t o = 0; o < outer; ++o) {
      for (const index_t position : layout.positions(rank)) {
        const std::size_t row =
            o * static_cast<std::size_t>(shape[axis]) + static_cast<std::size_t>(position);
        found += bytes.substr(row * inner, inner);
      }
    }
    return found;
  }
};

void write_by_shards(const std::string& spec, const Tensor& tensor, DType dtype, int axis,
                     const Layout& layout) {
  PendingFile creator = PendingFile::create(spec, tensor.shape, dtype);
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const std::string rows = tensor.rows(layout, rank, static_cast<std::size_t>(axis));
    if (rank == 0) {
      creator.write(layout.segments(rank), axis, std::as_bytes(std::span(rows)));
    } else {
      PendingFile writer = PendingFile::attach(spec, creator.temporary(), tensor.shape, dtype);
      writer.write(layout.segments(rank), axis, std::as_bytes(std::span(rows)));
    }
  }
  creator.commit();
}

void expect_read_by_shards(const std::string& spec, const Tensor& tensor, DType dtype, const Layout& layout) {
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const std::string expected = tensor.rows(layout, rank, 1);
    std::string found(expected.size(), '\xff');
    const TensorFile file = TensorFile::open(spec, dtype);
    EXPECT_EQ(file.dtype(), dtype);
    EXPECT_EQ(file.shape(), tensor.shape);
    file.read(layout.segments(rank), std::as_writable_bytes(std::span(found)));
    EXPECT_EQ(found, expected) << spec << " " << name_of(layout.kind()) << " rank " << rank << " of "
                               << layout.ranks();
  }
}

TEST(RoundTrip, EveryTypeFormatLayoutAndNumberOfRanks) {
  const test::Scratch scratch;
  std::uint32_t seed = 1;
  // 2 and 3 rows on 5 ranks leave shards empty; 17 is cut unevenly by every number but 1.
  for (const index_t rows : {0, 1, 2, 3, 17}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const std::string name : {"o.npy", "o.safetensors:layer.10/out"}) {
        for (const int ranks : {1, 2, 3, 5}) {
          for (const LayoutKind kind : kLayouts) {
            const Tensor tensor = Tensor::random({2, rows, 3, 5}, size_of(dtype), seed++);
            const std::string spec = scratch.path(name);
            write_by_shards(spec, tensor, dtype, 1, Layout::make(kind, rows, ranks));
            const std::string path = spec.substr(0, spec.find(":layer"));
            EXPECT_EQ(test::contents(path).substr(std::filesystem::file_size(path) - tensor.bytes.size()),
                      tensor.bytes);
            // Read back by another cut than it was written by.
            expect_read_by_shards(spec, tensor, dtype, Layout::make(kLayouts[seed % 3], rows, 1 + ranks % 5));
          }
        }
      }
    }
  }
}

TEST(RoundTrip, LseHasItsSequenceOnAxisTwo) {
  const test::Scratch scratch;
  std::uint32_t seed = 1000;
  for (const index_t rows : {1, 3, 17}) {
    for (const int ranks : {1, 2, 3, 5}) {
      for (const LayoutKind kind : kLayouts) {
        const Tensor lse = Tensor::random({2, 3, rows}, 4, seed++);
        const std::string path = scratch.path("lse.npy");
        write_by_shards(path, lse, DType::f32, 2, Layout::make(kind, rows, ranks));
        EXPECT_EQ(test::contents(path).substr(128), lse.bytes) << name_of(kind) << " " << ranks;
      }
    }
  }
}

TEST(RoundTrip, CustomSegmentsInAnyOrder) {
  // Rank 0 holds 10, 7, 4, then 0 to 2; rank 1 the rest, in three pieces and backwards.
  const Layout layout =
      Layout::custom(13, {{{4, 3, 3}, {0, 3, 1}}, {{11, 2, 1}, {8, 2, 1}, {5, 2, 1}, {3, 1, 1}}});
  const test::Scratch scratch;
  const Tensor tensor = Tensor::random({3, 13, 2}, 2, 7);
  write_by_shards(scratch.path("o.npy"), tensor, DType::bf16, 1, layout);
  EXPECT_EQ(test::contents(scratch.path("o.npy")).substr(128), tensor.bytes);
  expect_read_by_shards(scratch.path("o.npy"), tensor, DType::bf16, layout);
}

TEST(RoundTrip, AShardThatNobodyWroteIsZeroAndNotRubbish) {
  const test::Scratch scratch;
  const Layout layout = Layout::make(LayoutKind::striped, 5, 2);
  const Tensor tensor = Tensor::random({1, 5, 3}, 4, 8);
  PendingFile out = PendingFile::create(scratch.path("o.npy"), tensor.shape, DType::f32);
  const std::string rows = tensor.rows(layout, 0, 1);
  out.write(layout.segments(0), 1, std::as_bytes(std::span(rows)));
  out.commit();
  std::string others(2 * 12, '\xff');
  TensorFile::open(scratch.path("o.npy"), std::nullopt)
      .read(layout.segments(1), std::as_writable_bytes(std::span(others)));
  EXPECT_EQ(others, std::string(24, '\0'));
}

}  // namespace
}  // namespace ringattn
