// Misuse on one rank of several: every rank gets an error with the same text, soon, and can go on.
#include <array>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "tests/c_api/c_objects.h"

namespace ringattn::test {
namespace {

constexpr int kRanks = 3;
constexpr int64_t kLength = 11, kDim = 4;

// What one rank brings: a third of 11 tokens, one head.
struct Rank {
  int rank;
  ringattn_comm* comm;
  MaskHandle mask = made<MaskHandle>(ringattn_mask_create_causal, kLength, kLength);
  LayoutHandle layout = made<LayoutHandle>(ringattn_layout_create, RINGATTN_ZIGZAG, kLength, kLength, kRanks);
  ringattn_problem problem = problem_with(1, 1, kDim);
  // Far longer than the test may take: an error that comes by the deadline is too late.
  ringattn_options options = options_with(1, 60000);
  std::vector<float> x, y, lse;
  ringattn_forward_args args{};
  ringattn_backward_args backward{};

  Rank(int r, ringattn_comm* c) : rank(r), comm(c) {
    int64_t rows = 0;
    EXPECT_TRUE(ok(ringattn_layout_rows(layout.get(), RINGATTN_QUERIES, rank, &rows)));
    x.assign(static_cast<std::size_t>(rows * kDim), 0.5f);
    y = x;
    lse.resize(static_cast<std::size_t>(rows));
    EXPECT_TRUE(ok(ringattn_forward_args_init(&args, sizeof args)));
    EXPECT_TRUE(ok(ringattn_backward_args_init(&backward, sizeof backward)));
    const ringattn_tensor in = ringattn_tensor_dense(x.data(), RINGATTN_F32, 1, rows, 1, kDim);
    const ringattn_tensor out = ringattn_tensor_dense(y.data(), RINGATTN_F32, 1, rows, 1, kDim);
    args.q = args.k = args.v = in;
    backward.dout = backward.q = backward.k = backward.v = backward.out = in;
    args.out = backward.dq = backward.dk = backward.dv = out;
    args.lse = backward.lse = ringattn_lse_dense(lse.data(), 1, 1, rows);
  }
  Attention attention() {
    return made<Attention>(ringattn_attention_create, comm, &problem, mask.get(), layout.get(), &options);
  }
};

struct Ending {
  ringattn_status status = RINGATTN_OK;
  std::string text;
};

// Runs `body` on a thread a rank; how it ended on each of them.
std::array<Ending, kRanks> on_every_rank(const std::function<ringattn_status(Rank&)>& body) {
  std::array<ringattn_comm*, kRanks> comms{};
  EXPECT_TRUE(ok(ringattn_comm_create_threads(kRanks, comms.data())));
  std::array<Ending, kRanks> endings;
  const auto start = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < kRanks; ++r)
      threads.emplace_back([&, r] {
        const auto at = static_cast<std::size_t>(r);
        Rank rank(r, comms[at]);
        const ringattn_status status = body(rank);
        endings[at] = {status, ringattn_last_error()};
      });
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  for (ringattn_comm* comm : comms) EXPECT_TRUE(ok(ringattn_comm_destroy(comm)));
  return endings;
}

void expect_everywhere(const std::array<Ending, kRanks>& endings, const std::string& words) {
  for (const Ending& ending : endings) {
    EXPECT_EQ(ending.status, RINGATTN_USAGE) << ringattn_status_name(ending.status);
    EXPECT_EQ(ending.text, endings[0].text);
    EXPECT_NE(ending.text.find(words), std::string::npos) << ending.text << " lacks " << words;
  }
}

TEST(CollectiveMisuse, a_wrong_argument_of_create_fails_on_every_rank) {
  const std::pair<const char*, std::function<void(Rank&)>> slips[] = {
      {"rank 1: mask is a null handle", [](Rank& r) { r.mask.reset(); }},
      {"rank 1: layout is a null handle", [](Rank& r) { r.layout.reset(); }},
      {"rank 1: problem.struct_size is 7", [](Rank& r) { r.problem.struct_size = 7; }},
      {"rank 1: problem.dtype is 9", [](Rank& r) { r.problem.dtype = 9; }},
      {"rank 1: head_dim is 513", [](Rank& r) { r.problem.head_dim = 513; }},
      {"rank 1: options.deadline_ms is 0", [](Rank& r) { r.options.deadline_ms = 0; }},
      {"rank 1: options.mode is 17", [](Rank& r) { r.options.mode = 17; }},
      {"rank 1: head_dim 8, others 4", [](Rank& r) { r.problem.head_dim = 8; }},
  };
  for (const auto& slip : slips) {
    SCOPED_TRACE(slip.first);
    const auto& [words, spoil] = slip;
    expect_everywhere(on_every_rank([&, &spoil = spoil](Rank& r) {
                        if (r.rank == 1) spoil(r);
                        ringattn_attention* attention = nullptr;
                        const ringattn_status status = ringattn_attention_create(
                            r.comm, &r.problem, r.mask.get(), r.layout.get(), &r.options, &attention);
                        EXPECT_EQ(attention, nullptr);
                        return status;
                      }),
                      words);
  }
}

TEST(CollectiveMisuse, a_wrong_argument_of_a_call_fails_on_every_rank_and_harms_nothing) {
  expect_everywhere(on_every_rank([](Rank& r) {
                      const Attention attention = r.attention();
                      const size_t size = r.args.struct_size;
                      if (r.rank == 2) r.args.struct_size = 1;
                      const ringattn_status status = ringattn_forward(attention.get(), &r.args);
                      r.args.struct_size = size;
                      EXPECT_TRUE(ok(ringattn_forward(attention.get(), &r.args)));
                      EXPECT_EQ(r.y, r.x);  // a mean of equal values
                      return status;
                    }),
                    "rank 2: args.struct_size is 1");
  expect_everywhere(on_every_rank([](Rank& r) {
                      const Attention attention = r.attention();
                      EXPECT_TRUE(ok(ringattn_forward(attention.get(), &r.args)));
                      const ringattn_status status =
                          ringattn_backward(attention.get(), r.rank == 0 ? nullptr : &r.backward);
                      EXPECT_TRUE(ok(ringattn_backward(attention.get(), &r.backward)));
                      return status;
                    }),
                    "rank 0: args is a null pointer");
}

TEST(CollectiveMisuse, ranks_that_call_different_functions_are_all_told) {
  expect_everywhere(on_every_rank([](Rank& r) {
                      const Attention attention = r.attention();
                      if (r.rank == 1) return ringattn_backward(attention.get(), &r.backward);
                      return ringattn_forward(attention.get(), &r.args);
                    }),
                    "rank 1: call backward, others forward");
  expect_everywhere(on_every_rank([](Rank& r) {
                      const Attention attention = r.attention();
                      ringattn_attention* second = nullptr;
                      if (r.rank == 0) return ringattn_forward(attention.get(), nullptr);  // wrong and alone
                      return ringattn_attention_create(r.comm, &r.problem, r.mask.get(), r.layout.get(),
                                                       &r.options, &second);
                    }),
                    "rank 0: call forward, others construction");
}

TEST(CollectiveMisuse, a_rank_that_aborts_is_an_error_of_the_others) {
  const auto endings = on_every_rank([](Rank& r) {
    const Attention attention = r.attention();
    if (r.rank == 2) return ringattn_comm_abort(r.comm, 3, "rank 2 has no more time");
    return ringattn_forward(attention.get(), &r.args);
  });
  EXPECT_EQ(endings[2].status, RINGATTN_OK);
  for (const Ending& ending : {endings[0], endings[1]}) {
    EXPECT_EQ(ending.status, RINGATTN_COMM);
    EXPECT_NE(ending.text.find("rank 2 has no more time"), std::string::npos) << ending.text;
  }
}

// A rank whose handle is dead cannot tell the others: they fail at their deadline, not later.
TEST(CollectiveMisuse, a_rank_that_never_comes_is_an_error_at_the_deadline) {
  const auto endings = on_every_rank([](Rank& r) {
    r.options.deadline_ms = 400;
    Attention attention = r.attention();
    if (r.rank == 1) {
      ringattn_attention* dead = attention.release();
      EXPECT_TRUE(ok(ringattn_attention_destroy(dead)));
      return ringattn_forward(dead, &r.args);
    }
    return ringattn_forward(attention.get(), &r.args);
  });
  EXPECT_EQ(endings[1].status, RINGATTN_USAGE);
  EXPECT_EQ(endings[0].status, RINGATTN_COMM) << endings[0].text;
  EXPECT_EQ(endings[2].status, RINGATTN_COMM) << endings[2].text;
}

}  // namespace
}  // namespace ringattn::test
