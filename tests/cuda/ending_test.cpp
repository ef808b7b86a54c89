// The last block of keys: attend_last must leave the bits of attend and finish, whoever writes them.
#include <gtest/gtest.h>

#include <limits>

#include "tests/cuda/support.h"

namespace ringattn::test {
namespace {

class CudaEnding : public EveryChapter {
 protected:
  void expect_bits_of_finish(const Problem& p, unsigned seed, const Blocks& blocks = {}) const {
    const Inputs in = random_inputs(p, seed);
    const Result ended = run_cuda(p, in, blocks);
    EXPECT_TRUE(same_bits(ended, run_cuda(p, in, blocks, Ending::finish)));
    expect_accurate(ended, p, in);
  }
};
INSTANTIATE_TEST_SUITE_P(All, CudaEnding, ::testing::ValuesIn(kChapters));

// Rows that the last block shows nothing come from earlier ones or have seen nothing at all.
TEST_P(CudaEnding, BitsAreThoseOfFinishWhateverTheLastBlockShows) {
  const index_t rows = 301, keys = 97;
  for (const auto& tiles : {full_tiles(rows, keys), causal_tiles(rows, keys), window_tiles(rows, keys, 30, 4),
                            std::vector<Tile>{{{130, 140}, {20, keys}, {}}},
                            std::vector<Tile>{{{0, 5}, {0, 60}, {}}, {{299, rows}, {0, 30}, {}}},
                            std::vector<Tile>{}, random_grid(rows, keys, 4)})
    for (const Blocks& blocks : {Blocks{{0, keys}}, Blocks{{0, 53}, {53, keys}}, Blocks{{53, keys}, {0, 53}}})
      expect_bits_of_finish(problem_of({1, 2, 1, 20, 13}, dtype(), rows, keys, tiles), 61, blocks);
}

TEST_P(CudaEnding, BitsAreThoseOfFinishForEveryGroupAndWidth) {
  for (const DType type : dtypes()) {
    for (const index_t q_rows : {1, 3, 17})  // rows of several heads in a block of threads
      expect_bits_of_finish(problem_of({2, 6, 2, 12, 5}, type, q_rows, 71, causal_tiles(q_rows, 71)), 62,
                            blocks_of(40, 71));
    for (const index_t dim : {1, 64, 90, 128, 250}) {
      if (!can(dim, dim)) continue;
      expect_bits_of_finish(problem_of({1, 2, 1, dim, dim}, type, 33, 71, causal_tiles(33, 71)), 63);
    }
  }
}

// Of one block that all rows see.
struct Ended {
  explicit Ended(const Problem& problem) : p(problem), in(random_inputs(p, 64)) {}

  // The answers of attend_last, or of finish() after it.
  Result run(const char* isa, DType out_dtype, bool finish_again) const {
    const auto size = static_cast<std::size_t>(p.shape.batch * p.shape.num_heads * p.q_rows);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    Result result{filled(out_dtype, p.out_shape(), nan), std::vector<float>(size, 1)};
    const auto copy = [](const Tensor& tensor) {
      return DeviceCopy(tensor.bytes.data(), tensor.bytes.size());
    };
    const DeviceCopy q = copy(in.q), k = copy(in.k), v = copy(in.v), out = copy(result.out);
    const DeviceCopy lse(result.lse.data(), size * sizeof(float));
    const LseView lse_view =
        dense_lse(static_cast<float*>(lse.data()), p.shape.batch, p.shape.num_heads, p.q_rows);
    const DeviceStream stream;
    const auto kernel = cuda_kernel(p, stream, isa);
    const Buffer block = kernel->allocate(kernel->block_bytes(p.k_rows));
    kernel->load_queries(moved(in.q.view(), q), {});
    kernel->load_block(moved(in.k.view(), k), moved(in.v.view(), v), {}, block.bytes());
    kernel->attend_last(p.tiles, block.bytes(), p.k_rows, moved(result.out.view(), out), lse_view, {});
    if (finish_again) kernel->finish(moved(result.out.view(), out), lse_view);
    stream.wait();
    out.read(result.out.bytes.data());
    lse.read(result.lse.data());
    return result;
  }

  Problem p;
  Inputs in;
};

TEST_P(CudaEnding, OutMayHaveAnotherDtype) {
  const Ended ended(problem_of({1, 2, 1, 12, 20}, DType::bf16, 21, 43, full_tiles(21, 43)));
  const Result wide = ended.run(GetParam(), DType::f32, false);
  const Result same = ended.run(GetParam(), DType::bf16, false);
  for (std::size_t i = 0; i < wide.out.size(); ++i)
    ASSERT_EQ(rounded(wide.out.get(i), DType::bf16), same.out.get(i));  // rounded once, at the end
  EXPECT_EQ(wide.lse, same.lse);
}

// That is what is saved. The plain chapter finishes afterwards.
TEST_P(CudaEnding, EndedRowsDoNotGoThroughTheState) {
  const Ended ended(problem_of({1, 2, 1, 12, 20}, DType::bf16, 21, 43, full_tiles(21, 43)));
  const Result state = ended.run(GetParam(), DType::bf16, true);
  EXPECT_EQ(state.lse == ended.run(GetParam(), DType::bf16, false).lse, plain());
  if (plain()) return;
  for (const float lse : state.lse) ASSERT_EQ(lse, -std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace ringattn::test
