// What ranks must hear when they call different functions or use different objects, for threads and for MPI.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "src/attention.h"
#include "src/error.h"

namespace ringattn::test {

// An object with tensors of its own: one head of 4, contiguous shards.
class Ring {
 public:
  Ring(const std::shared_ptr<Communicator>& comm, const Mask& mask)
      : ring_(comm, {.shape = {.head_dim = 4}, .mask = mask},
              Sharding::make(LayoutKind::contiguous, mask.seqlen_q(), mask.seqlen_k(), comm->size()),
              {.threads = 1, .deadline = std::chrono::seconds(20)}) {
    const index_t rows = ring_.plan().q_rows();
    x_.assign(static_cast<std::size_t>(rows * 4), 0.5f);
    y_ = x_;
    lse_.resize(static_cast<std::size_t>(rows));
    in_ = dense_view(static_cast<const float*>(x_.data()), DType::f32, {1, rows, 1, 4});
    out_ = dense_view(y_.data(), DType::f32, {1, rows, 1, 4});
    lse_view_ = dense_lse(lse_.data(), 1, 1, rows);
  }
  void forward() { ring_.forward(in_, in_, in_, out_, lse_view_); }
  void backward() {
    backward({.dout = in_, .q = in_, .k = in_, .v = in_, .out = in_, .lse = as_const(lse_view_)});
  }
  void backward(const BackwardInputs& in) { ring_.backward(in, {.dq = out_, .dk = out_, .dv = out_}); }

 private:
  RingAttention ring_;
  std::vector<float> x_, y_, lse_;
  ConstTensorView in_;
  TensorView out_;
  LseView lse_view_;
};

template <class Body>
std::string usage_error(Body&& body) {
  try {
    body();
    return "";
  } catch (const UsageError& e) {
    return e.what();
  }
}

// The last rank calls backward while the others call forward; with two ranks the lower one is "others".
inline void expect_told_of_calls(const std::shared_ptr<Communicator>& comm) {
  const int odd = comm->size() - 1;
  Ring ring(comm, Mask::causal(13, 13));
  const auto start = Clock::now();
  const std::string text = usage_error([&] { comm->rank() == odd ? ring.backward() : ring.forward(); });
  EXPECT_EQ(text, "ranks disagree: rank " + std::to_string(odd) + ": call backward, others forward");
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
  ring.forward();  // both objects and the communicator are still good
  ring.backward();
}

// The last rank uses another object, whose problem differs in the mask.
inline void expect_told_of_problems(const std::shared_ptr<Communicator>& comm) {
  const int odd = comm->size() - 1;
  Ring causal(comm, Mask::causal(13, 13)), full(comm, Mask::full(13, 13));
  const std::string text = usage_error([&] { comm->rank() == odd ? full.forward() : causal.forward(); });
  EXPECT_EQ(text.find("ranks disagree: rank " + std::to_string(odd) + ": problem full"), 0u) << text;
  EXPECT_NE(text.find("others causal"), std::string::npos) << text;
  causal.forward();
  full.forward();
}

}  // namespace ringattn::test
