// Handles of the C interface that release themselves, for tests.
#pragma once
#include <gtest/gtest.h>
#include <ringattn.h>

#include <memory>
#include <string>

namespace ringattn::test {

// Ok with nothing said, or what was said.
inline testing::AssertionResult ok(ringattn_status status) {
  if (status == RINGATTN_OK) return testing::AssertionSuccess();
  return testing::AssertionFailure() << ringattn_status_name(status) << ": " << ringattn_last_error();
}

// That status, and words of the message.
inline testing::AssertionResult says(ringattn_status status, ringattn_status expected,
                                     const std::string& words) {
  const std::string text = ringattn_last_error();
  if (status == expected && text.find(words) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "status " << ringattn_status_name(status) << ", text '" << text
                                     << "', expected " << ringattn_status_name(expected) << " with '" << words
                                     << "'";
}
inline testing::AssertionResult refused(ringattn_status status, const std::string& words) {
  return says(status, RINGATTN_USAGE, words);
}

template <auto destroy>
struct Destroy {
  template <class Handle>
  void operator()(Handle* handle) const {
    EXPECT_TRUE(ok(destroy(handle)));
  }
};
using Comm = std::unique_ptr<ringattn_comm, Destroy<ringattn_comm_destroy>>;
using MaskHandle = std::unique_ptr<ringattn_mask, Destroy<ringattn_mask_destroy>>;
using LayoutHandle = std::unique_ptr<ringattn_layout, Destroy<ringattn_layout_destroy>>;
using PlanHandle = std::unique_ptr<ringattn_plan, Destroy<ringattn_plan_destroy>>;
using Attention = std::unique_ptr<ringattn_attention, Destroy<ringattn_attention_destroy>>;

// Calls a ..._create function that ends in a pointer to the handle.
template <class Owner, class Function, class... Arguments>
Owner made(Function function, Arguments... arguments) {
  typename Owner::pointer handle = nullptr;
  EXPECT_TRUE(ok(function(arguments..., &handle)));
  return Owner(handle);
}

inline ringattn_problem problem_with(int64_t heads, int64_t kv_heads, int64_t dim) {
  ringattn_problem problem;
  EXPECT_TRUE(ok(ringattn_problem_init(&problem, sizeof problem)));
  problem.num_heads = heads;
  problem.num_heads_kv = kv_heads;
  problem.head_dim = dim;
  return problem;
}

inline ringattn_options options_with(int32_t threads, int64_t deadline_ms) {
  ringattn_options options;
  EXPECT_TRUE(ok(ringattn_options_init(&options, sizeof options)));
  options.threads = threads;
  options.deadline_ms = deadline_ms;
  return options;
}

}  // namespace ringattn::test
