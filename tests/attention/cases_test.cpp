// Faults met in public projects, as the smallest input that shows each; the right values are those of
// cases.md.
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "tests/attention/case_check.h"

namespace ringattn::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Problem one_head(Mask mask, index_t head_dim = 1) {
  return {.shape = {.head_dim = head_dim}, .mask = std::move(mask)};
}

TEST(Cases, A3_lengths_that_do_not_divide_lose_no_token) {
  const Problem seven = one_head(Mask::causal(7, 7));
  expect_case(seven, mean_inputs(seven), {.out = {0, .5, 1, 1.5, 2, 2.5, 3}});
  const Problem full = one_head(Mask::full(8, 8));
  expect_case(full, mean_inputs(full), {.out = std::vector<double>(8, 3.5)});
  const Problem odd = one_head(Mask::causal(2999, 2999));
  for (const RingShape& shape : ring_shapes(odd)) {
    if (shape.ranks != 4) continue;
    EXPECT_NEAR(run_threads(odd, shape.layout, 4, mean_inputs(odd)).out.at(0, 2998, 0, 0), 1499.0, 1e-3)
        << text(shape);
  }
}

// A4 and A7: q = k = (1, 0) everywhere, so that the score of (i, j) is cos(i - j).
const std::vector<double> kRopeTable{0,
                                     0.612942458335,
                                     1.404110803452,
                                     2.240678115105,
                                     2.959088366645,
                                     3.240256835969,
                                     3.124411719951,
                                     3.397074576183};

Inputs rope_inputs(const Problem& problem) {
  Inputs in = mean_inputs(problem);
  for (Tensor* t : {&in.q, &in.k})
    for (index_t row = 0; row < t->shape[1]; ++row) t->at(0, row, 0, 0) = 1;
  return in;
}

Problem rope_problem(Mask mask, Rope::Pairing pairing, index_t offset, DType dtype = DType::f32) {
  return {.shape = {.head_dim = 2},
          .dtype = dtype,
          .mask = std::move(mask),
          .rope = {.pairing = pairing, .position_offset = offset},
          .softmax_scale = 1.0};
}

TEST(Cases, A4_rope_positions_are_global_in_every_layout) {
  for (const auto pairing : {Rope::Pairing::half, Rope::Pairing::interleaved}) {
    const Problem problem = rope_problem(Mask::causal(8, 8), pairing, 0);
    expect_case(problem, rope_inputs(problem), {.out = kRopeTable, .tolerance = 1e-5});
    on_every_ring(problem, rope_inputs(problem), [](const Answer& got, const std::string& where) {
      EXPECT_NEAR(got.lse[7], 2.489190812974, 1e-5) << where;
    });
  }
  const index_t cu[] = {0, 4, 8};
  const Problem packed = rope_problem(Mask::documents(8, 8, cu, cu, {-1, 0}), Rope::Pairing::half, 0);
  std::vector<double> rows(kRopeTable.begin(), kRopeTable.begin() + 4);
  for (int i = 0; i < 4; ++i) rows.push_back(4 + kRopeTable[static_cast<std::size_t>(i)]);
  expect_case(packed, rope_inputs(packed), {.out = rows, .tolerance = 1e-5});
}

TEST(Cases, A7_a_position_offset_moves_nothing) {
  for (const index_t offset : {15955, 131064}) {
    const Problem problem = rope_problem(Mask::causal(8, 8), Rope::Pairing::half, offset);
    expect_case(problem, rope_inputs(problem), {.out = kRopeTable, .tolerance = 1e-5});
    const Problem narrow = rope_problem(Mask::causal(8, 8), Rope::Pairing::half, offset, DType::bf16);
    expect_case(narrow, rope_inputs(narrow),
                {.out = kRopeTable, .tolerance = 0.02});  // bf16 output: half ulp 2^-7
  }
}

TEST(Cases, A42_decode_stands_beside_the_newest_key) {
  // Token 6 and token 7 alone, against 7 and 8 keys: the same values as in the whole run.
  for (const index_t token : {6, 7}) {
    const Problem problem = rope_problem(Mask::causal(1, token + 1), Rope::Pairing::half, 0);
    expect_case(problem, rope_inputs(problem),
                {.out = {kRopeTable[static_cast<std::size_t>(token)]}, .tolerance = 1e-5});
  }
}

TEST(Cases, A5_strongly_negative_logits_behind_hidden_blocks_keep_their_row) {
  Problem problem = one_head(Mask::causal(4, 8));
  problem.softmax_scale = 1.0;
  Inputs in = mean_inputs(problem);
  std::ranges::fill(in.q.data, -20);
  std::ranges::fill(in.k.data, 10);
  expect_case(
      problem, in,
      {.out = {2, 2.5, 3, 3.5}, .lse = {-198.390562088, -198.208240531, -198.054089851, -197.920558458}});
  Problem longer = one_head(Mask::causal(64, 64));
  longer.softmax_scale = 1.0;
  Inputs in64 = mean_inputs(longer);
  std::ranges::fill(in64.q.data, -20);
  std::ranges::fill(in64.k.data, 10);
  std::vector<double> half(64);
  for (std::size_t i = 0; i < half.size(); ++i) half[i] = static_cast<double>(i) / 2;
  expect_case(longer, in64, {.out = half});
  on_every_ring(longer, in64, [](const Answer& got, const std::string& where) {
    EXPECT_NEAR(got.lse[63], -195.841116917, 2e-5) << where;
  });
}

TEST(Cases, A6_partial_results_are_not_rounded_at_every_hop) {
  for (const int ranks : {8, 16}) {
    const index_t length = 8 * ranks;
    const Problem problem{.shape = {.head_dim = 8}, .dtype = DType::bf16, .mask = Mask::full(length, length)};
    Inputs in = mean_inputs(problem);
    for (index_t j = 0; j < length; ++j)
      for (index_t d = 0; d < 8; ++d) in.v.at(0, j, 0, d) = j < 8 ? 1.0 : 1.0078125;
    const Answer got = run_threads(problem, LayoutKind::contiguous, ranks, in);
    for (const double x : got.out.data) EXPECT_EQ(x, 1.0078125) << ranks << " ranks";
  }
}

TEST(Cases, A12_chunked_prefill_and_decode_see_the_history) {
  const auto row = [](index_t lq, index_t lk, Window w, std::vector<double> expected) {
    const Problem problem = one_head(Mask::window(lq, lk, w));
    expect_case(problem, mean_inputs(problem), {.out = std::move(expected)});
  };
  row(5, 5, {-1, 0}, {0, .5, 1, 1.5, 2});
  row(3, 8, {-1, 0}, {2.5, 3, 3.5});
  row(1, 8, {-1, 0}, {3.5});
  row(3, 8, {2, 0}, {4, 5, 6});
}

TEST(Cases, A13_documents_without_rows) {
  const std::vector<index_t> cu_q{0, 0, 1, 1, 3, 3, 3}, cu_k{0, 0, 3, 3, 8, 8, 8};
  const Problem problem = one_head(Mask::documents(3, 8, cu_q, cu_k, {-1, 0}));
  Inputs in = mean_inputs(problem);
  for (index_t j = 3; j < 8; ++j) in.v.at(0, j, 0, 0) -= 3;  // "V = j local"
  expect_case(problem, in, {.out = {1, 1.5, 2}, .lse = {1.098612289, 1.386294361, 1.609437912}});
}

TEST(Cases, A18_windows_count_inclusively_and_may_exceed_the_length) {
  const auto rows = [](Mask mask, std::vector<double> expected) {
    const Problem problem = one_head(std::move(mask));
    expect_case(problem, mean_inputs(problem), {.out = std::move(expected)});
  };
  rows(Mask::window(8, 8, {2, 0}), {0, .5, 1, 2, 3, 4, 5, 6});
  rows(Mask::window(6, 2, {-1, (index_t{1} << 31) - 1}), std::vector<double>(6, 0.5));
  rows(Mask::window(5, 5, {0, 0}), {0, 1, 2, 3, 4});
  const Problem causal = one_head(Mask::causal(33, 33), 8);
  const Inputs in = case_inputs(causal);
  const Answer expected = run_threads(causal, LayoutKind::zigzag, 3, in);
  for (const index_t left : {index_t{32}, index_t{33}, index_t{1000000000}, index_t{-1}}) {
    const Problem windowed = one_head(Mask::window(33, 33, {left, 0}), 8);
    EXPECT_TRUE(same_bits(run_threads(windowed, LayoutKind::zigzag, 3, in).out.data, expected.out.data))
        << left;
  }
}

TEST(Cases, A19_lse_is_the_natural_logarithm_of_scaled_logits) {
  const Problem two = one_head(Mask::full(1, 2));
  expect_case(two, mean_inputs(two), {.lse = {0.693147180560}});
  const Problem one = one_head(Mask::full(1, 1), 16);
  Inputs in = mean_inputs(one);
  in.q.data[0] = 4;
  in.k.data[0] = 8;  // q.k = 32, scale 1/4
  expect_case(one, in, {.lse = {8}});
}

TEST(Cases, A23_one_shard_that_dwarfs_another) {
  for (const double sign : {1.0, -1.0}) {
    Problem problem = one_head(Mask::full(1, 4));
    problem.softmax_scale = 1.0;
    Inputs in = mean_inputs(problem);
    in.q.data = {1};
    in.k.data = {0, 0, 200 * sign, 200 * sign};
    in.v.data = {1, 2, 3, 5};
    expect_case(problem, in,
                {.out = {sign > 0 ? 4.0 : 1.5}, .lse = {sign > 0 ? 200.693147181 : 0.693147181}});
  }
}

TEST(Cases, A32_rows_past_the_last_document_are_zero_whatever_they_hold) {
  const std::vector<index_t> cu{0, 144, 432, 944};
  const auto problem = [&](index_t length) {
    return Problem{.shape = {.num_heads = 2, .num_heads_kv = 2, .head_dim = 8},
                   .mask = Mask::documents(length, length, cu, cu, {-1, 0})};
  };
  // The same 944 rows behind each other; two more of NaN. One rank: the blocks are cut at the same places.
  const Inputs shorter = case_inputs(problem(944));
  Inputs longer = case_inputs(problem(946));
  for (auto [from, to] :
       {std::pair{&shorter.q, &longer.q}, {&shorter.k, &longer.k}, {&shorter.v, &longer.v}}) {
    std::ranges::fill(to->data, std::nan(""));
    std::ranges::copy(from->data, to->data.begin());
  }
  const auto bits = run_threads(problem(944), LayoutKind::contiguous, 1, shorter);
  for (const int ranks : {1, 2}) {
    const auto got = run_threads(problem(946), LayoutKind::contiguous, ranks, longer);
    for (index_t i = 0; i < 946; ++i)
      for (index_t d = 0; d < 8; ++d) {
        const double expected = i < 944 ? bits.out.at(0, i, 1, d) : 0.0;
        EXPECT_NEAR(got.out.at(0, i, 1, d), expected, ranks == 1 ? 0 : 2e-5) << i;
      }
    EXPECT_EQ(got.lse[945], -kInf);
  }
}

TEST(Cases, A34_causal_is_aligned_at_the_end) {
  const Problem problem = one_head(Mask::causal(2, 5));
  expect_case(problem, mean_inputs(problem), {.out = {1.5, 2}, .lse = {1.386294361, 1.609437912}});
  // More queries than keys: the first rows see nothing (forward side of A8).
  const Problem more = one_head(Mask::causal(5, 2), 2);
  Inputs in = case_inputs(more);
  for (index_t j = 0; j < 2; ++j)
    for (index_t d = 0; d < 2; ++d) in.v.at(0, j, 0, d) = j == 0 ? 10 : 20;
  expect_case(more, in,
              {.out = {0, 0, 0, 10, 13.879939509}, .lse = {-kInf, -kInf, -kInf, 0.063529125, 0.511211231}});
}

TEST(Cases, A35_head_dims_that_no_vector_width_divides) {
  const Problem problem = one_head(Mask::full(8, 8), 20);
  on_every_ring(problem, case_inputs(problem), [](const Answer& got, const std::string& where) {
    expect_digest(got.out.data, 2.725795429301, 26.223095946226, where);
    expect_digest(got.lse, 16.509300851487, -1, where);
  });
}

TEST(Cases, A16_query_heads_read_the_kv_head_of_their_group) {
  const Problem groups{.shape = {.num_heads = 6, .num_heads_kv = 2, .head_dim = 4},
                       .mask = Mask::causal(8, 8)};
  const double expected[] = {-0.027146242158, -0.118822061317, -0.115583853123,
                             -0.254281503868, -0.244334864478, -0.251611767116};
  on_every_ring(groups, case_inputs(groups), [&](const Answer& got, const std::string& where) {
    for (index_t h = 0; h < 6; ++h) EXPECT_NEAR(got.out.at(0, 7, h, 0), expected[h], 2e-5) << where;
  });
}

TEST(Cases, A36_rows_and_heads_of_equal_number_are_not_swapped) {
  const Problem problem{.shape = {.batch = 2, .num_heads = 16, .num_heads_kv = 16, .head_dim = 64},
                        .mask = Mask::causal(16, 16)};
  on_every_ring(problem, case_inputs(problem), [](const Answer& got, const std::string& where) {
    EXPECT_NEAR(got.out.at(0, 5, 3, 0), 0.180592820056, 2e-5) << where;
    EXPECT_NEAR(got.out.at(0, 5, 3, 1), -0.318222252151, 2e-5) << where;
    EXPECT_NEAR(got.out.at(0, 5, 3, 2), 0.035645328182, 2e-5) << where;
    expect_digest(got.out.data, -332.860489101, 6639.677963138, where);
  });
}

TEST(Cases, A9_forward_digest_of_the_causal_three_rank_case) {
  const Problem problem{.shape = {.num_heads = 2, .num_heads_kv = 2, .head_dim = 8},
                        .mask = Mask::causal(12, 12)};
  on_every_ring(problem, case_inputs(problem), [](const Answer& got, const std::string& where) {
    expect_digest(got.out.data, 3.116377645944, -1, where);
  });
}

TEST(Cases, A39_a_window_that_hides_the_first_tiles) {
  Problem problem = one_head(Mask::window(640, 640, {9, 0}), 4);
  problem.softmax_scale = 0.5;
  Inputs in = mean_inputs(problem);
  std::ranges::fill(in.q.data, 1);
  std::ranges::fill(in.k.data, 1);
  on_every_ring(problem, in, [](const Answer& got, const std::string& where) {
    const std::pair<index_t, double> rows[] = {{5, 2.5}, {10, 5.5}, {511, 506.5}, {512, 507.5}, {639, 634.5}};
    for (const auto& [row, value] : rows) EXPECT_NEAR(got.out.at(0, row, 0, 0), value, 2e-4) << where;
    EXPECT_NEAR(got.lse[0], 2, 2e-5) << where;
    EXPECT_NEAR(got.lse[639], 4.302585093, 2e-5) << where;
  });
}

TEST(Cases, A40_hidden_keys_may_have_higher_scores_than_any_sentinel) {
  Problem problem = one_head(Mask::causal(2, 2));
  problem.softmax_scale = 1.0;
  Inputs in = mean_inputs(problem);
  in.q.data = {-20000, 0};
  in.k.data = {1, 0};
  in.v.data = {1, 100};
  // Row 0 sees key 0 alone; row 1 sees both with equal logits. Causal shows row 0; key 1 hidden from both:
  // tiles.
  problem.mask = Mask::tiles(2, 2, {{{0, 2}, {0, 1}, {}}});
  expect_case(problem, in, {.out = {1, 1}, .lse = {-20000, 0}});
}

TEST(Cases, A40_scores_beyond_16_bits_and_odd_scales) {
  Problem half{.shape = {.head_dim = 64}, .dtype = DType::f16, .mask = Mask::full(4, 4)};
  Inputs in = mean_inputs(half);
  std::ranges::fill(in.q.data, 64);
  std::ranges::fill(in.k.data, 64);
  // fp32 has a spacing of 2^-8 at 32769: three of them.
  expect_case(half, in,
              {.out = std::vector<double>(4, 1.5),
               .lse = std::vector<double>(4, 32769.3863),
               .tolerance = 3 * 0x1p-8});

  Problem huge = one_head(Mask::full(1, 1), 64);
  huge.dtype = DType::bf16;
  Inputs one = mean_inputs(huge);
  for (Tensor* t : {&one.q, &one.k, &one.v}) std::ranges::fill(t->data, 133120);  // 65 * 2^11: exact in bf16
  on_every_ring(huge, one, [](const Answer& got, const std::string& where) {
    EXPECT_EQ(got.out.at(0, 0, 0, 0), 133120) << where;
    EXPECT_NEAR(got.lse[0] / 1.41767475e11, 1, 1e-6) << where;
  });

  Problem scaled = one_head(Mask::full(1, 4));
  Inputs four = mean_inputs(scaled);
  four.q.data = {1};
  four.k.data = {0, 200, 0, 0};
  four.v.data = {1, 2, 3, 5};
  scaled.softmax_scale = -1.0;
  expect_case(scaled, four, {.out = {3}, .lse = {1.098612289}});
  scaled.softmax_scale = 0.0;
  expect_case(scaled, four, {.out = {2.75}, .lse = {1.386294361}});
}

}  // namespace
}  // namespace ringattn::test
