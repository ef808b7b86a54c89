// What the C interface answers without a communicator is what the C++ objects say.
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/cpu.h"
#include "src/attention.h"
#include "src/cost.h"
#include "tests/c_api/c_objects.h"

namespace ringattn::test {
namespace {

std::vector<int64_t> positions_of(const ringattn_layout* layout, ringattn_side side, int32_t rank) {
  size_t count = 0;
  EXPECT_TRUE(ok(ringattn_layout_positions(layout, side, rank, nullptr, 0, &count)));
  std::vector<int64_t> positions(count, -1);
  EXPECT_TRUE(ok(ringattn_layout_positions(layout, side, rank, positions.data(), count, &count)));
  return positions;
}

TEST(CQueries, a_layout_lists_rows_positions_and_segments) {
  const LayoutKind kinds[] = {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped};
  for (int32_t kind = 0; kind < 3; ++kind)
    for (const int ranks : {1, 2, 5, 13}) {  // 13 ranks of 11 queries: some shards are empty
      const LayoutHandle layout = made<LayoutHandle>(ringattn_layout_create, kind, 11, 23, ranks);
      const Sharding right = Sharding::make(kinds[kind], 11, 23, ranks);
      int32_t count = 0;
      EXPECT_TRUE(ok(ringattn_layout_ranks(layout.get(), &count)));
      EXPECT_EQ(count, ranks);
      for (int r = 0; r < ranks; ++r) {
        EXPECT_EQ(positions_of(layout.get(), RINGATTN_QUERIES, r), right.q.positions(r));
        EXPECT_EQ(positions_of(layout.get(), RINGATTN_KEYS, r), right.k.positions(r));
        int64_t rows = -1;
        EXPECT_TRUE(ok(ringattn_layout_rows(layout.get(), RINGATTN_KEYS, r, &rows)));
        EXPECT_EQ(rows, right.k.rows(r));
        ringattn_segment segments[2];
        size_t segment_count = 9;
        ASSERT_TRUE(
            ok(ringattn_layout_segments(layout.get(), RINGATTN_KEYS, r, segments, 2, &segment_count)));
        ASSERT_EQ(segment_count, right.k.segments(r).size());
        for (size_t i = 0; i < segment_count; ++i)
          EXPECT_EQ((Segment{segments[i].begin, segments[i].count, segments[i].stride}),
                    right.k.segments(r)[i]);
      }
    }
}

TEST(CQueries, a_list_is_written_whole_or_not_at_all) {
  const LayoutHandle layout = made<LayoutHandle>(ringattn_layout_create, RINGATTN_STRIPED, 11, 11, 2);
  std::vector<int64_t> list(7, -1);
  size_t count = 0;
  EXPECT_TRUE(refused(ringattn_layout_positions(layout.get(), RINGATTN_QUERIES, 0, list.data(), 5, &count),
                      "capacity is 5; positions has 6 entries"));
  EXPECT_EQ(count, 6u);
  EXPECT_EQ(list, std::vector<int64_t>(7, -1));
  EXPECT_TRUE(ok(ringattn_layout_positions(layout.get(), RINGATTN_QUERIES, 0, list.data(), 7, &count)));
  EXPECT_EQ(list, (std::vector<int64_t>{0, 2, 4, 6, 8, 10, -1}));
  EXPECT_TRUE(
      refused(ringattn_layout_positions(layout.get(), RINGATTN_QUERIES, 2, nullptr, 0, &count), "rank is 2"));
}

TEST(CQueries, the_length_of_a_list_that_no_memory_holds_can_be_asked_for) {
  const int64_t length = int64_t{1} << 58;
  const LayoutHandle layout = made<LayoutHandle>(ringattn_layout_create, RINGATTN_ZIGZAG, length, length, 1);
  size_t count = 0;
  EXPECT_TRUE(ok(ringattn_layout_positions(layout.get(), RINGATTN_KEYS, 0, nullptr, 0, &count)));
  EXPECT_EQ(count, static_cast<size_t>(length));
}

TEST(CQueries, a_custom_layout_is_the_callers) {
  const ringattn_segment q[] = {{5, 2, 1}, {0, 5, 1}}, k[] = {{0, 4, 2}, {1, 3, 2}};
  const size_t q_counts[] = {0, 2, 0}, k_counts[] = {1, 0, 1};
  const LayoutHandle layout =
      made<LayoutHandle>(ringattn_layout_create_custom, 3, 7, q, q_counts, 7, k, k_counts);
  EXPECT_EQ(positions_of(layout.get(), RINGATTN_QUERIES, 0), std::vector<int64_t>{});
  EXPECT_EQ(positions_of(layout.get(), RINGATTN_QUERIES, 1), (std::vector<int64_t>{5, 6, 0, 1, 2, 3, 4}));
  EXPECT_EQ(positions_of(layout.get(), RINGATTN_KEYS, 2), (std::vector<int64_t>{1, 3, 5}));
}

TEST(CQueries, masks_count_the_pairs_of_their_cplusplus_twins) {
  const auto pairs = [](const MaskHandle& mask) {
    int64_t n = -1;
    EXPECT_TRUE(ok(ringattn_mask_pairs(mask.get(), &n)));
    return n;
  };
  const std::vector<index_t> cu_q{0, 2, 2, 7}, cu_k{0, 3, 5, 11};
  const std::vector<Tile> tiles{{{0, 3}, {2, 9}, {-kUnbounded, 4}}, {{4, 7}, {0, 11}, {}}};
  const ringattn_tile c_tiles[] = {{0, 3, 2, 9, -RINGATTN_UNBOUNDED, 4},
                                   {4, 7, 0, 11, -RINGATTN_UNBOUNDED, RINGATTN_UNBOUNDED}};
  EXPECT_EQ(pairs(made<MaskHandle>(ringattn_mask_create_full, 7, 11)), 77);
  EXPECT_EQ(pairs(made<MaskHandle>(ringattn_mask_create_causal, 7, 11)), Mask::causal(7, 11).visible_pairs());
  EXPECT_EQ(pairs(made<MaskHandle>(ringattn_mask_create_window, 7, 11, 2, 1)),
            Mask::window(7, 11, {2, 1}).visible_pairs());
  EXPECT_EQ(pairs(made<MaskHandle>(ringattn_mask_create_documents, 7, 11, cu_q.data(), cu_k.data(), size_t{3},
                                   -1, 0)),
            Mask::documents(7, 11, cu_q, cu_k, {-1, 0}).visible_pairs());
  EXPECT_EQ(pairs(made<MaskHandle>(ringattn_mask_create_tiles, 7, 11, c_tiles, size_t{2})),
            Mask::tiles(7, 11, tiles).visible_pairs());
}

ringattn_workspace workspace_of(const ringattn_plan* plan, int32_t threads, ringattn_pass pass) {
  ringattn_workspace workspace{};
  workspace.struct_size = sizeof workspace;
  EXPECT_TRUE(ok(ringattn_plan_workspace(plan, threads, pass, &workspace)));
  return workspace;
}

void expect_workspace(const ringattn_workspace& got, const Workspace& right) {
  EXPECT_EQ(got.kernel, right.kernel);
  EXPECT_EQ(got.slots, right.slots);
  EXPECT_EQ(got.gradients, right.gradients);
  EXPECT_EQ(got.total, right.total());
}

TEST(CQueries, a_plan_says_what_the_cplusplus_plan_says) {
  const Problem problem{
      .shape = {.batch = 2, .num_heads = 6, .num_heads_kv = 3, .head_dim = 20, .head_dim_v = 12},
      .dtype = DType::bf16,
      .mask = Mask::window(101, 103, {17, 0})};
  ringattn_problem c_problem = problem_with(6, 3, 20);
  c_problem.batch = 2, c_problem.head_dim_v = 12, c_problem.dtype = RINGATTN_BF16;
  const MaskHandle mask = made<MaskHandle>(ringattn_mask_create_window, 101, 103, 17, 0);
  for (const int ranks : {1, 4, 7})
    for (int r = 0; r < ranks; ++r) {
      const LayoutHandle layout =
          made<LayoutHandle>(ringattn_layout_create, RINGATTN_ZIGZAG, 101, 103, ranks);
      const Sharding sharding = Sharding::make(LayoutKind::zigzag, 101, 103, ranks);
      const PlanHandle plan = made<PlanHandle>(ringattn_plan_create, &c_problem, mask.get(), layout.get(), r);
      const Plan right(problem, sharding, r);
      size_t hops = 0;
      int64_t pairs = 0, rows = 0;
      EXPECT_TRUE(ok(ringattn_plan_pairs(plan.get(), &pairs)));
      EXPECT_EQ(pairs, right.pairs());
      EXPECT_TRUE(ok(ringattn_plan_rows(plan.get(), RINGATTN_KEYS, &rows)));
      EXPECT_EQ(rows, right.k_rows());
      ASSERT_TRUE(ok(ringattn_plan_hop_count(plan.get(), &hops)));
      ASSERT_EQ(hops, right.hops().size());
      for (size_t s = 0; s < hops; ++s) {
        ringattn_hop hop;
        ASSERT_TRUE(ok(ringattn_plan_hop(plan.get(), s, &hop)));
        EXPECT_EQ(hop.owner, right.hops()[s].owner);
        EXPECT_EQ(hop.k_rows, right.hops()[s].k_rows);
        EXPECT_EQ(hop.pairs, right.hops()[s].pairs);
        std::vector<ringattn_tile> tiles(static_cast<size_t>(hop.tiles));
        size_t count = 0;
        ASSERT_TRUE(ok(ringattn_plan_tiles(plan.get(), s, tiles.data(), tiles.size(), &count)));
        const std::vector<Tile> right_tiles = right.tiles(s);
        ASSERT_EQ(count, right_tiles.size());
        for (size_t t = 0; t < count; ++t)
          EXPECT_EQ((Tile{{tiles[t].q_begin, tiles[t].q_end},
                          {tiles[t].k_begin, tiles[t].k_end},
                          {tiles[t].band_lo, tiles[t].band_hi}}),
                    right_tiles[t]);
      }
      ringattn_hop hop;
      EXPECT_TRUE(refused(ringattn_plan_hop(plan.get(), hops, &hop), "index is " + std::to_string(hops)));

      ringattn_cost cost{};
      cost.struct_size = sizeof cost;
      const auto block = [&](index_t n) { return cpu_block_bytes(problem.heads(), problem.dtype, n); };
      const auto gradient = [&](index_t n) { return cpu_gradient_bytes(problem.heads(), n); };
      ASSERT_TRUE(ok(ringattn_plan_cost(plan.get(), RINGATTN_FORWARD, &cost)));
      EXPECT_EQ(cost.flops, forward_flops(problem, right.pairs()));
      EXPECT_EQ((Traffic{cost.bytes_sent, cost.messages_sent}), forward_traffic(right, block));
      ASSERT_TRUE(ok(ringattn_plan_cost(plan.get(), RINGATTN_BACKWARD, &cost)));
      EXPECT_EQ(cost.flops, backward_flops(problem, right.pairs()));
      EXPECT_EQ((Traffic{cost.bytes_sent, cost.messages_sent}), backward_traffic(right, block, gradient));
      expect_workspace(workspace_of(plan.get(), 2, RINGATTN_FORWARD), workspace(problem, sharding, r, 2));
      expect_workspace(workspace_of(plan.get(), 2, RINGATTN_BACKWARD),
                       workspace(problem, sharding, r, 2, Pass::backward));
    }
}

TEST(CQueries, an_attention_answers_for_itself) {
  const Comm comm = made<Comm>(ringattn_comm_create_self);
  const MaskHandle mask = made<MaskHandle>(ringattn_mask_create_causal, 37, 37);
  const LayoutHandle layout = made<LayoutHandle>(ringattn_layout_create, RINGATTN_CONTIGUOUS, 37, 37, 1);
  ringattn_problem problem = problem_with(1, 1, 16);
  problem.softmax_scale = 0;  // a scale of 0 is a scale, not a default: outputs are plain means
  const ringattn_options options = options_with(2, 5000);
  const Attention attention =
      made<Attention>(ringattn_attention_create, comm.get(), &problem, mask.get(), layout.get(), &options);
  int32_t threads = 0;
  char backend[32];
  EXPECT_TRUE(ok(ringattn_attention_threads(attention.get(), &threads)));
  EXPECT_EQ(threads, 2);
  EXPECT_TRUE(ok(ringattn_attention_backend(attention.get(), backend, sizeof backend)));
  EXPECT_EQ(std::string(backend), "cpu/" + cpu_isas().front());

  const PlanHandle plan = made<PlanHandle>(ringattn_attention_plan, attention.get());
  ringattn_workspace now{};
  now.struct_size = sizeof now;
  EXPECT_TRUE(ok(ringattn_attention_workspace(attention.get(), &now)));
  const ringattn_workspace planned = workspace_of(plan.get(), 2, RINGATTN_FORWARD);
  EXPECT_EQ(std::memcmp(&now, &planned, sizeof now), 0);

  std::vector<float> x(37 * 16), out(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i / 16);
  ringattn_forward_args args;
  EXPECT_TRUE(ok(ringattn_forward_args_init(&args, sizeof args)));
  args.q = args.k = args.v = ringattn_tensor_dense(x.data(), RINGATTN_F32, 1, 37, 1, 16);
  args.out = ringattn_tensor_dense(out.data(), RINGATTN_F32, 1, 37, 1, 16);
  ringattn_timing timing{};
  timing.struct_size = sizeof timing;
  args.timing = &timing;
  ASSERT_TRUE(ok(ringattn_forward(attention.get(), &args)));
  for (size_t i = 0; i < 37; ++i) EXPECT_NEAR(out[i * 16], static_cast<double>(i) / 2, 1e-5) << i;
  EXPECT_GT(timing.load + timing.compute + timing.finish, 0);
}

TEST(CQueries, the_version_is_the_headers) {
  EXPECT_EQ(ringattn_version_number(),
            10000 * RINGATTN_VERSION_MAJOR + 100 * RINGATTN_VERSION_MINOR + RINGATTN_VERSION_PATCH);
  EXPECT_EQ(std::string(ringattn_version()), std::to_string(RINGATTN_VERSION_MAJOR) + "." +
                                                 std::to_string(RINGATTN_VERSION_MINOR) + "." +
                                                 std::to_string(RINGATTN_VERSION_PATCH));
}

}  // namespace
}  // namespace ringattn::test
