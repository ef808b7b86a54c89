// Misuse of the C interface by one caller: every slip is a status and a text that names the argument.
#include <limits>
#include <thread>
#include <vector>

#include "tests/c_api/c_objects.h"

namespace ringattn::test {
namespace {

// One rank over 5 tokens, 2 query heads of dimension 4, and tensors for it.
struct Small {
  Comm comm = made<Comm>(ringattn_comm_create_self);
  MaskHandle mask = made<MaskHandle>(ringattn_mask_create_causal, 5, 5);
  LayoutHandle layout = made<LayoutHandle>(ringattn_layout_create, RINGATTN_CONTIGUOUS, 5, 5, 1);
  ringattn_problem problem = problem_with(2, 1, 4);
  ringattn_options options = options_with(1, 5000);
  Attention attention =
      made<Attention>(ringattn_attention_create, comm.get(), &problem, mask.get(), layout.get(), &options);
  PlanHandle plan = made<PlanHandle>(ringattn_plan_create, &problem, mask.get(), layout.get(), 0);
  std::vector<float> q = std::vector<float>(40, 0.5f), kv = std::vector<float>(20, 0.25f),
                     out = std::vector<float>(40), dk = kv, dv = kv, lse = std::vector<float>(10);
  ringattn_forward_args args{};
  ringattn_backward_args backward{};

  Small() {
    EXPECT_TRUE(ok(ringattn_forward_args_init(&args, sizeof args)));
    EXPECT_TRUE(ok(ringattn_backward_args_init(&backward, sizeof backward)));
    const auto wide = [](std::vector<float>& x) {
      return ringattn_tensor_dense(x.data(), RINGATTN_F32, 1, 5, 2, 4);
    };
    const auto narrow = [](std::vector<float>& x) {
      return ringattn_tensor_dense(x.data(), RINGATTN_F32, 1, 5, 1, 4);
    };
    backward.q = args.q = wide(q);
    backward.k = args.k = backward.v = args.v = narrow(kv);
    backward.dout = backward.out = args.out = wide(out);
    backward.lse = args.lse = ringattn_lse_dense(lse.data(), 1, 2, 5);
    backward.dq = wide(q);
    backward.dk = narrow(dk);
    backward.dv = narrow(dv);
  }
};

TEST(CMisuse, a_null_handle_is_named) {
  int32_t i = 0;
  int64_t n = 0;
  size_t z = 0;
  char name[64];
  ringattn_hop hop;
  ringattn_forward_args args;
  ringattn_plan* plan = nullptr;
  ringattn_attention* attention = nullptr;
  Small s;
  EXPECT_TRUE(refused(ringattn_comm_rank(nullptr, &i), "comm is a null handle"));
  EXPECT_TRUE(refused(ringattn_comm_size(nullptr, &i), "comm is a null handle"));
  EXPECT_TRUE(refused(ringattn_comm_abort(nullptr, 1, "why"), "comm is a null handle"));
  EXPECT_TRUE(refused(ringattn_comm_destroy(nullptr), "comm is a null handle"));
  EXPECT_TRUE(refused(ringattn_mask_pairs(nullptr, &n), "mask is a null handle"));
  EXPECT_TRUE(refused(ringattn_mask_destroy(nullptr), "mask is a null handle"));
  EXPECT_TRUE(refused(ringattn_layout_ranks(nullptr, &i), "layout is a null handle"));
  EXPECT_TRUE(refused(ringattn_layout_rows(nullptr, RINGATTN_KEYS, 0, &n), "layout is a null handle"));
  EXPECT_TRUE(refused(ringattn_layout_positions(nullptr, RINGATTN_KEYS, 0, nullptr, 0, &z),
                      "layout is a null handle"));
  EXPECT_TRUE(refused(ringattn_layout_segments(nullptr, RINGATTN_KEYS, 0, nullptr, 0, &z),
                      "layout is a null handle"));
  EXPECT_TRUE(refused(ringattn_layout_destroy(nullptr), "layout is a null handle"));
  EXPECT_TRUE(
      refused(ringattn_plan_create(&s.problem, nullptr, s.layout.get(), 0, &plan), "mask is a null handle"));
  EXPECT_TRUE(
      refused(ringattn_plan_create(&s.problem, s.mask.get(), nullptr, 0, &plan), "layout is a null handle"));
  EXPECT_TRUE(refused(ringattn_plan_rows(nullptr, RINGATTN_KEYS, &n), "plan is a null handle"));
  EXPECT_TRUE(refused(ringattn_plan_pairs(nullptr, &n), "plan is a null handle"));
  EXPECT_TRUE(refused(ringattn_plan_hop_count(nullptr, &z), "plan is a null handle"));
  EXPECT_TRUE(refused(ringattn_plan_hop(nullptr, 0, &hop), "plan is a null handle"));
  EXPECT_TRUE(refused(ringattn_plan_tiles(nullptr, 0, nullptr, 0, &z), "plan is a null handle"));
  EXPECT_TRUE(refused(ringattn_plan_cost(nullptr, RINGATTN_FORWARD, nullptr), "plan is a null handle"));
  EXPECT_TRUE(
      refused(ringattn_plan_workspace(nullptr, 1, RINGATTN_FORWARD, nullptr), "plan is a null handle"));
  EXPECT_TRUE(refused(ringattn_plan_destroy(nullptr), "plan is a null handle"));
  EXPECT_TRUE(refused(
      ringattn_attention_create(nullptr, &s.problem, s.mask.get(), s.layout.get(), nullptr, &attention),
      "comm is a null handle"));
  EXPECT_TRUE(refused(
      ringattn_attention_create(s.comm.get(), &s.problem, nullptr, s.layout.get(), nullptr, &attention),
      "mask is a null handle"));
  EXPECT_TRUE(
      refused(ringattn_attention_create(s.comm.get(), &s.problem, s.mask.get(), nullptr, nullptr, &attention),
              "layout is a null handle"));
  EXPECT_TRUE(refused(ringattn_forward(nullptr, &args), "attention is a null handle"));
  EXPECT_TRUE(refused(ringattn_backward(nullptr, nullptr), "attention is a null handle"));
  EXPECT_TRUE(refused(ringattn_attention_workspace(nullptr, nullptr), "attention is a null handle"));
  EXPECT_TRUE(refused(ringattn_attention_plan(nullptr, &plan), "attention is a null handle"));
  EXPECT_TRUE(refused(ringattn_attention_threads(nullptr, &i), "attention is a null handle"));
  EXPECT_TRUE(refused(ringattn_attention_backend(nullptr, name, sizeof name), "attention is a null handle"));
  EXPECT_TRUE(refused(ringattn_attention_destroy(nullptr), "attention is a null handle"));
}

TEST(CMisuse, a_null_pointer_is_named) {
  Small s;
  ringattn_plan* plan = nullptr;
  ringattn_attention* attention = nullptr;
  ringattn_mask* mask = nullptr;
  ringattn_layout* layout = nullptr;
  const size_t one = 1;
  const int64_t offsets[] = {0, 5};
  const ringattn_segment whole{0, 5, 1};
  EXPECT_TRUE(refused(ringattn_comm_create_self(nullptr), "comm is a null pointer"));
  EXPECT_TRUE(refused(ringattn_comm_create_threads(2, nullptr), "comms is a null pointer"));
  EXPECT_TRUE(refused(ringattn_comm_rank(s.comm.get(), nullptr), "rank is a null pointer"));
  EXPECT_TRUE(refused(ringattn_comm_size(s.comm.get(), nullptr), "size is a null pointer"));
  EXPECT_TRUE(refused(ringattn_comm_abort(s.comm.get(), 1, nullptr), "why is a null pointer"));
  EXPECT_TRUE(refused(ringattn_mask_create_full(5, 5, nullptr), "mask is a null pointer"));
  EXPECT_TRUE(refused(ringattn_mask_create_causal(5, 5, nullptr), "mask is a null pointer"));
  EXPECT_TRUE(refused(ringattn_mask_create_window(5, 5, 1, 0, nullptr), "mask is a null pointer"));
  EXPECT_TRUE(refused(ringattn_mask_create_tiles(5, 5, nullptr, 0, nullptr), "mask is a null pointer"));
  EXPECT_TRUE(refused(ringattn_mask_create_tiles(5, 5, nullptr, 1, &mask), "tiles is a null pointer"));
  EXPECT_TRUE(refused(ringattn_mask_create_documents(5, 5, nullptr, offsets, 1, -1, 0, &mask),
                      "cu_seqlens_q is a null pointer"));
  EXPECT_TRUE(refused(ringattn_mask_create_documents(5, 5, offsets, nullptr, 1, -1, 0, &mask),
                      "cu_seqlens_k is a null pointer"));
  EXPECT_TRUE(
      refused(ringattn_mask_create_documents(5, 5, offsets, offsets, 1, -1, 0, nullptr), "mask is a null"));
  EXPECT_TRUE(refused(ringattn_mask_pairs(s.mask.get(), nullptr), "pairs is a null pointer"));
  EXPECT_TRUE(refused(ringattn_layout_create(RINGATTN_ZIGZAG, 5, 5, 1, nullptr), "layout is a null pointer"));
  EXPECT_TRUE(refused(ringattn_layout_create_custom(1, 5, &whole, nullptr, 5, &whole, &one, &layout),
                      "q_counts is a null pointer"));
  EXPECT_TRUE(refused(ringattn_layout_create_custom(1, 5, &whole, &one, 5, nullptr, &one, &layout),
                      "k_segments is a null pointer"));
  EXPECT_TRUE(refused(ringattn_layout_ranks(s.layout.get(), nullptr), "ranks is a null pointer"));
  EXPECT_TRUE(
      refused(ringattn_layout_rows(s.layout.get(), RINGATTN_KEYS, 0, nullptr), "rows is a null pointer"));
  EXPECT_TRUE(refused(ringattn_layout_positions(s.layout.get(), RINGATTN_KEYS, 0, nullptr, 0, nullptr),
                      "count is a null pointer"));
  EXPECT_TRUE(refused(ringattn_problem_init(nullptr, sizeof s.problem), "problem is a null pointer"));
  EXPECT_TRUE(refused(ringattn_options_init(nullptr, sizeof s.options), "options is a null pointer"));
  EXPECT_TRUE(refused(ringattn_forward_args_init(nullptr, sizeof s.args), "args is a null pointer"));
  EXPECT_TRUE(refused(ringattn_backward_args_init(nullptr, sizeof s.backward), "args is a null pointer"));
  EXPECT_TRUE(refused(ringattn_plan_create(nullptr, s.mask.get(), s.layout.get(), 0, &plan),
                      "problem is a null pointer"));
  EXPECT_TRUE(refused(ringattn_plan_create(&s.problem, s.mask.get(), s.layout.get(), 0, nullptr),
                      "plan is a null pointer"));
  EXPECT_TRUE(refused(ringattn_plan_rows(s.plan.get(), RINGATTN_KEYS, nullptr), "rows is a null pointer"));
  EXPECT_TRUE(refused(ringattn_plan_pairs(s.plan.get(), nullptr), "pairs is a null pointer"));
  EXPECT_TRUE(refused(ringattn_plan_hop_count(s.plan.get(), nullptr), "hops is a null pointer"));
  EXPECT_TRUE(refused(ringattn_plan_hop(s.plan.get(), 0, nullptr), "hop is a null pointer"));
  EXPECT_TRUE(refused(ringattn_plan_cost(s.plan.get(), RINGATTN_FORWARD, nullptr), "cost is a null pointer"));
  EXPECT_TRUE(refused(ringattn_plan_workspace(s.plan.get(), 1, RINGATTN_FORWARD, nullptr),
                      "workspace is a null pointer"));
  EXPECT_TRUE(refused(
      ringattn_attention_create(s.comm.get(), nullptr, s.mask.get(), s.layout.get(), nullptr, &attention),
      "problem is a null pointer"));
  EXPECT_TRUE(refused(
      ringattn_attention_create(s.comm.get(), &s.problem, s.mask.get(), s.layout.get(), nullptr, nullptr),
      "attention is a null pointer"));
  EXPECT_TRUE(refused(ringattn_forward(s.attention.get(), nullptr), "args is a null pointer"));
  EXPECT_TRUE(refused(ringattn_backward(s.attention.get(), nullptr), "args is a null pointer"));
  EXPECT_TRUE(
      refused(ringattn_attention_workspace(s.attention.get(), nullptr), "workspace is a null pointer"));
  EXPECT_TRUE(refused(ringattn_attention_plan(s.attention.get(), nullptr), "plan is a null pointer"));
  EXPECT_TRUE(refused(ringattn_attention_threads(s.attention.get(), nullptr), "threads is a null pointer"));
  EXPECT_TRUE(refused(ringattn_attention_backend(s.attention.get(), nullptr, 9), "name is a null pointer"));
}

TEST(CMisuse, a_destroyed_handle_is_found_out_and_never_comes_back) {
  ringattn_mask* stale = nullptr;
  ASSERT_TRUE(ok(ringattn_mask_create_full(5, 5, &stale)));
  ASSERT_TRUE(ok(ringattn_mask_destroy(stale)));
  int64_t pairs = -1;
  EXPECT_TRUE(refused(ringattn_mask_destroy(stale), "mask is a handle that was destroyed"));
  // New masks are likely to get the old one's memory, but not its handle.
  std::vector<MaskHandle> others;
  for (int i = 0; i < 100; ++i) {
    others.push_back(made<MaskHandle>(ringattn_mask_create_full, 7, 7));
    EXPECT_NE(others.back().get(), stale);
  }
  EXPECT_TRUE(refused(ringattn_mask_pairs(stale, &pairs), "mask is a handle that was destroyed"));
  EXPECT_EQ(pairs, -1);

  Small s;
  ringattn_attention* attention = s.attention.release();
  ASSERT_TRUE(ok(ringattn_attention_destroy(attention)));
  EXPECT_TRUE(refused(ringattn_forward(attention, &s.args), "attention is a handle that was destroyed"));
  EXPECT_TRUE(refused(ringattn_backward(attention, &s.backward), "attention is a handle that was destroyed"));
  EXPECT_TRUE(refused(ringattn_attention_destroy(attention), "attention is a handle that was destroyed"));
}

TEST(CMisuse, a_handle_of_another_kind_or_of_nobody_is_refused) {
  Small s;
  int64_t n = 0;
  int64_t local = 0;
  EXPECT_TRUE(refused(ringattn_mask_pairs(reinterpret_cast<ringattn_mask*>(s.layout.get()), &n),
                      "mask is the handle of a layout, expected a mask"));
  EXPECT_TRUE(refused(ringattn_mask_destroy(reinterpret_cast<ringattn_mask*>(s.plan.get())),
                      "mask is the handle of a plan, expected a mask"));
  EXPECT_TRUE(refused(ringattn_plan_pairs(reinterpret_cast<ringattn_plan*>(&local), &n),
                      "plan is not a handle of this library"));
  EXPECT_TRUE(ok(ringattn_plan_pairs(s.plan.get(), &n)));  // the slip above harmed nothing
  EXPECT_EQ(n, 15);
}

TEST(CMisuse, what_was_made_from_a_handle_does_not_need_it) {
  Small s;
  s.comm.reset();
  s.mask.reset();
  s.layout.reset();
  EXPECT_TRUE(ok(ringattn_forward(s.attention.get(), &s.args)));
  EXPECT_EQ(s.out[0], 0.25f);  // all values are 1/4, and so are their means
}

TEST(CMisuse, numbers_that_name_nothing_are_refused) {
  Small s;
  ringattn_layout* layout = nullptr;
  ringattn_attention* attention = nullptr;
  int64_t n = 0;
  const auto create = [&] {
    return ringattn_attention_create(s.comm.get(), &s.problem, s.mask.get(), s.layout.get(), &s.options,
                                     &attention);
  };
  for (const int32_t wrong :
       {-1, 3, 99, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    const std::string value = " is " + std::to_string(wrong);
    EXPECT_TRUE(refused(ringattn_layout_create(wrong, 5, 5, 1, &layout), "kind" + value));
    EXPECT_EQ(layout, nullptr);
    EXPECT_TRUE(refused(ringattn_layout_rows(s.layout.get(), wrong, 0, &n), "side" + value));
    ringattn_cost cost{};
    cost.struct_size = sizeof cost;
    EXPECT_TRUE(refused(ringattn_plan_cost(s.plan.get(), wrong, &cost), "pass" + value));
    s.problem.dtype = wrong;
    EXPECT_TRUE(refused(create(), "problem.dtype" + value));
    s.problem.dtype = RINGATTN_F32, s.problem.rope_pairing = wrong;
    EXPECT_TRUE(refused(create(), "problem.rope_pairing" + value));
    s.problem.rope_pairing = RINGATTN_ROPE_NONE;
    s.args.v.dtype = wrong;
    EXPECT_TRUE(refused(ringattn_forward(s.attention.get(), &s.args), "v.dtype" + value));
    s.args.v.dtype = RINGATTN_F32;
    s.backward.dk.dtype = wrong;
    EXPECT_TRUE(refused(ringattn_backward(s.attention.get(), &s.backward), "dk.dtype" + value));
    s.backward.dk.dtype = RINGATTN_F32;
  }
  s.options.mode = 4;
  EXPECT_TRUE(refused(create(), "options.mode is 4"));
  s.options.mode = RINGATTN_OVERLAP, s.options.isa = "MMX";
  EXPECT_TRUE(refused(create(), "MMX"));
  s.options.isa = nullptr, s.options.threads = -2;
  EXPECT_TRUE(refused(create(), "threads is -2"));
  s.options.threads = 1;
  for (const int64_t wrong : {int64_t{0}, int64_t{-5}, std::numeric_limits<int64_t>::max()}) {
    s.options.deadline_ms = wrong;
    EXPECT_TRUE(refused(create(), "options.deadline_ms is " + std::to_string(wrong)));
  }
  s.options.deadline_ms = 5000;
  EXPECT_EQ(attention, nullptr);
  EXPECT_TRUE(ok(create()));
  EXPECT_TRUE(ok(ringattn_attention_destroy(attention)));
}

TEST(CMisuse, sizes_that_do_not_fit_are_refused_by_name) {
  Small s;
  ringattn_comm* comms[1];
  ringattn_mask* mask = nullptr;
  ringattn_layout* layout = nullptr;
  ringattn_plan* plan = nullptr;
  const int64_t falling[] = {0, 4, 2};
  const ringattn_segment overlap[] = {{0, 3, 1}, {2, 3, 1}};
  const size_t counts[] = {1, 1};
  EXPECT_TRUE(refused(ringattn_comm_create_threads(0, comms), "size is 0"));
  EXPECT_TRUE(refused(ringattn_comm_create_threads(-3, comms), "size is -3"));
  EXPECT_TRUE(refused(ringattn_mask_create_causal(-1, 5, &mask), "seqlen_q is -1"));
  EXPECT_TRUE(refused(ringattn_mask_create_window(5, 5, -2, 0, &mask), "-2"));
  EXPECT_TRUE(
      refused(ringattn_mask_create_documents(5, 5, falling, falling, 2, -1, 0, &mask), "cu_seqlens_q"));
  EXPECT_TRUE(refused(ringattn_mask_create_documents(5, 5, falling, falling, SIZE_MAX, -1, 0, &mask),
                      "documents is"));
  EXPECT_TRUE(refused(ringattn_layout_create(RINGATTN_ZIGZAG, 5, 5, 0, &layout), "ranks is 0"));
  EXPECT_TRUE(refused(ringattn_layout_create_custom(-1, 5, overlap, counts, 5, overlap, counts, &layout),
                      "ranks is -1"));
  EXPECT_TRUE(refused(ringattn_layout_create_custom(2, 5, overlap, counts, 5, overlap, counts, &layout),
                      "position 2"));
  EXPECT_TRUE(refused(ringattn_plan_create(&s.problem, s.mask.get(), s.layout.get(), 1, &plan), "rank is 1"));
  EXPECT_EQ(plan, nullptr);
  s.problem.num_heads_kv = 3;
  EXPECT_TRUE(
      refused(ringattn_plan_create(&s.problem, s.mask.get(), s.layout.get(), 0, &plan), "num_heads is 2"));
  s.problem.num_heads_kv = 1;
  s.args.k.shape[1] = 4;
  EXPECT_TRUE(refused(ringattn_forward(s.attention.get(), &s.args), "k has shape [1, 4, 1, 4]"));
  s.args.k.shape[1] = 5, s.args.q.data = nullptr;
  EXPECT_TRUE(refused(ringattn_forward(s.attention.get(), &s.args), "q has no data"));
  s.backward.lse.data = nullptr;
  EXPECT_TRUE(refused(ringattn_backward(s.attention.get(), &s.backward), "lse has no data"));
  const int64_t positions[5] = {};
  s.args.q.data = s.q.data(), s.args.q_positions = positions;
  EXPECT_TRUE(refused(ringattn_forward(s.attention.get(), &s.args), "positions.q is given"));
  s.args.q_positions = nullptr;
  EXPECT_TRUE(ok(ringattn_forward(s.attention.get(), &s.args)));
  char name[2] = {'x', 'y'};
  EXPECT_TRUE(refused(ringattn_attention_backend(s.attention.get(), name, 2), "capacity is 2"));
  EXPECT_EQ(name[0], 'x');
}

TEST(CMisuse, a_struct_size_that_was_never_set_is_refused) {
  Small s;
  ringattn_plan* plan = nullptr;
  for (const size_t wrong : {size_t{0}, sizeof(ringattn_problem) - 1, size_t{4097}, SIZE_MAX}) {
    const std::string value = ".struct_size is " + std::to_string(wrong);
    s.problem.struct_size = wrong;
    EXPECT_TRUE(
        refused(ringattn_plan_create(&s.problem, s.mask.get(), s.layout.get(), 0, &plan), "problem" + value));
    EXPECT_TRUE(refused(ringattn_problem_init(&s.problem, wrong), "problem" + value));
    s.args.struct_size = wrong;
    EXPECT_TRUE(refused(ringattn_forward(s.attention.get(), &s.args), "args" + value));
  }
  s.args.struct_size = sizeof s.args;
  ringattn_timing timing{};
  s.args.timing = &timing;
  EXPECT_TRUE(refused(ringattn_forward(s.attention.get(), &s.args), "args.timing.struct_size is 0"));
}

TEST(CMisuse, each_thread_has_its_own_last_error) {
  EXPECT_TRUE(refused(ringattn_mask_destroy(nullptr), "mask"));
  const std::string mine = ringattn_last_error();
  std::string fresh = "not asked", theirs;
  std::thread([&] {
    fresh = ringattn_last_error();
    ringattn_plan_destroy(nullptr);
    theirs = ringattn_last_error();
  }).join();
  EXPECT_EQ(fresh, "");
  EXPECT_NE(theirs.find("plan is a null handle"), std::string::npos) << theirs;
  EXPECT_EQ(ringattn_last_error(), mine);
  made<MaskHandle>(ringattn_mask_create_full, 2, 2);  // success leaves the text alone
  EXPECT_EQ(ringattn_last_error(), mine);
}

TEST(CMisuse, memory_that_cannot_be_had_is_a_status) {
  const int64_t length = int64_t{1} << 31;
  const Comm comm = made<Comm>(ringattn_comm_create_self);
  const MaskHandle mask = made<MaskHandle>(ringattn_mask_create_causal, length, length);
  const LayoutHandle layout =
      made<LayoutHandle>(ringattn_layout_create, RINGATTN_CONTIGUOUS, length, length, 1);
  const ringattn_problem problem = problem_with(4096, 4096, 512);
  ringattn_attention* attention = nullptr;
  EXPECT_TRUE(
      says(ringattn_attention_create(comm.get(), &problem, mask.get(), layout.get(), nullptr, &attention),
           RINGATTN_MEMORY, "bytes"));
  EXPECT_EQ(attention, nullptr);
}

TEST(CMisuse, statuses_have_names) {
  EXPECT_STREQ(ringattn_status_name(RINGATTN_OK), "ok");
  EXPECT_STREQ(ringattn_status_name(RINGATTN_MEMORY), "memory");
  EXPECT_STREQ(ringattn_status_name(RINGATTN_INTERNAL), "internal");
  EXPECT_STREQ(ringattn_status_name(12345), "unknown");
}

}  // namespace
}  // namespace ringattn::test
