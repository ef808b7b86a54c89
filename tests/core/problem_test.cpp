#include "src/problem.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "src/error.h"

namespace ringattn {
namespace {

Problem good() {
  return {.shape = {.batch = 2, .num_heads = 6, .num_heads_kv = 3, .head_dim = 64},
          .mask = Mask::causal(29, 31),
          .rope = {.pairing = Rope::Pairing::half}};
}

Sharding sharding(LayoutKind kind = LayoutKind::zigzag, int ranks = 3) {
  return Sharding::make(kind, 29, 31, ranks);
}

std::string refusal(const std::function<void(Problem&)>& spoil) {
  Problem problem = good();
  spoil(problem);
  try {
    validate(problem);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Problem, FillsInItsDefaults) {
  Problem p = good();
  EXPECT_EQ(p.head_dim_v(), 64);
  EXPECT_EQ(p.heads().head_dim_v, 64);
  EXPECT_DOUBLE_EQ(p.scale(), 0.125);
  EXPECT_EQ(p.query_position(0), 2);  // 31 keys, 29 queries
  p.shape.head_dim_v = 40;
  p.softmax_scale = -2.5;
  EXPECT_EQ(p.heads().head_dim_v, 40);
  EXPECT_EQ(p.scale(), -2.5);
}

TEST(Problem, RefusesEachFieldByNameAndValue) {
  EXPECT_EQ(refusal([](Problem&) {}), "accepted");
  EXPECT_EQ(refusal([](Problem& p) { p.shape.batch = 0; }), "batch is 0; allowed is 1 or more");
  EXPECT_EQ(refusal([](Problem& p) { p.shape.num_heads = -6; }), "num_heads is -6; allowed is 1 or more");
  EXPECT_EQ(refusal([](Problem& p) { p.shape.num_heads_kv = 0; }), "num_heads_kv is 0; allowed is 1 or more");
  EXPECT_EQ(refusal([](Problem& p) { p.shape.num_heads_kv = 4; }),
            "num_heads is 6; allowed are multiples of num_heads_kv, which is 4");
  EXPECT_EQ(refusal([](Problem& p) { p.shape.num_heads_kv = 12; }),
            "num_heads is 6; allowed are multiples of num_heads_kv, which is 12");
  EXPECT_EQ(refusal([](Problem& p) { p.shape.head_dim = 0; }), "head_dim is 0; allowed are 1 to 512");
  EXPECT_EQ(refusal([](Problem& p) { p.shape.head_dim = 513; }), "head_dim is 513; allowed are 1 to 512");
  EXPECT_EQ(refusal([](Problem& p) { p.shape.head_dim_v = -1; }), "head_dim_v is -1; allowed are 0 to 512");
  EXPECT_EQ(refusal([](Problem& p) { p.shape.head_dim_v = 513; }), "head_dim_v is 513; allowed are 0 to 512");
  EXPECT_EQ(refusal([](Problem& p) { p.softmax_scale = HUGE_VAL; }),
            "softmax_scale is inf; allowed is any finite number");
  EXPECT_EQ(refusal([](Problem& p) { p.softmax_scale = std::nan(""); }),
            "softmax_scale is nan; allowed is any finite number");
  EXPECT_EQ(refusal([](Problem& p) { p.rope.dim = 66; }), "rope dim is 66; allowed are 0 to 64");
  EXPECT_NE(refusal([](Problem& p) { p.shape.head_dim = 63; }).find("head_dim is 63"), std::string::npos);
}

TEST(Problem, AcceptsTheEdges) {
  EXPECT_EQ(refusal([](Problem& p) { p.softmax_scale = 0.0; }), "accepted");
  EXPECT_EQ(refusal([](Problem& p) { p.softmax_scale = -1.0; }), "accepted");
  EXPECT_EQ(refusal([](Problem& p) { p.mask = Mask::full(0, 5); }), "accepted");
  EXPECT_EQ(refusal([](Problem& p) { p.mask = Mask::full(5, 0); }), "accepted");
  EXPECT_EQ(refusal([](Problem& p) {
              p.shape.head_dim = 1;
              p.shape.head_dim_v = 512;
              p.rope = {};
            }),
            "accepted");
}

TEST(Problem, RefusesTensorsBeyond64Bits) {
  EXPECT_NE(refusal([](Problem& p) { p.shape.batch = index_t{1} << 50; }).find("64 bits"), std::string::npos);
  EXPECT_NE(refusal([](Problem& p) {
              p.shape.num_heads = p.shape.num_heads_kv = index_t{1} << 62;
              p.shape.batch = 4;  // the product is 0 modulo 2^64
            }).find("q of batch 4"),
            std::string::npos);
}

TEST(Problem, MustMatchItsSharding) {
  const Problem problem = good();
  EXPECT_NO_THROW(validate(problem, sharding()));
  const auto text = [&](const Sharding& s) -> std::string {
    try {
      validate(problem, s);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(text(Sharding::make(LayoutKind::striped, 28, 31, 3)),
            "seqlen_q is 29 in the problem and 28 in its layout");
  EXPECT_EQ(text(Sharding::make(LayoutKind::striped, 29, 32, 3)),
            "seqlen_k is 31 in the problem and 32 in its layout");
  EXPECT_EQ(text({Layout::make(LayoutKind::striped, 29, 3), Layout::make(LayoutKind::striped, 31, 4)}),
            "ranks is 3 in the layout of the queries and 4 in that of the keys");
}

// Names of the fields in which two fingerprints differ, separated by spaces.
std::string differing(const Problem& p, const Sharding& s) {
  const std::vector<Field> base = fingerprint(good(), sharding()), other = fingerprint(p, s);
  EXPECT_EQ(base.size(), other.size());
  std::string names;
  for (std::size_t i = 0; i < base.size(); ++i) {
    EXPECT_EQ(base[i].name, other[i].name);
    if (base[i].value != other[i].value) names += (names.empty() ? "" : " ") + base[i].name;
  }
  return names;
}

std::string differing(const std::function<void(Problem&)>& change) {
  Problem problem = good();
  change(problem);
  return differing(problem, sharding());
}

TEST(Fingerprint, EveryFieldIsToldApart) {
  EXPECT_EQ(differing([](Problem&) {}), "");
  EXPECT_EQ(differing([](Problem& p) { p.shape.batch = 3; }), "batch");
  EXPECT_EQ(differing([](Problem& p) { p.shape.num_heads = 9; }), "num_heads");
  EXPECT_EQ(differing([](Problem& p) { p.shape.num_heads_kv = 2; }), "num_heads_kv");
  EXPECT_EQ(differing([](Problem& p) { p.shape.head_dim_v = 63; }), "head_dim_v");
  EXPECT_EQ(differing([](Problem& p) { p.shape.head_dim = 62; }),
            "head_dim head_dim_v softmax_scale rope_dim");
  EXPECT_EQ(differing([](Problem& p) { p.dtype = DType::bf16; }), "dtype");
  EXPECT_EQ(differing([](Problem& p) { p.softmax_scale = std::nextafter(0.125, 1.0); }), "softmax_scale");
  EXPECT_EQ(differing([](Problem& p) { p.mask = Mask::full(29, 31); }), "mask mask_tiles");
  EXPECT_EQ(differing([](Problem& p) { p.mask = Mask::causal(29, 30); }), "seqlen_k mask_tiles");
  EXPECT_EQ(differing([](Problem& p) { p.rope.pairing = Rope::Pairing::interleaved; }), "rope");
  EXPECT_EQ(differing([](Problem& p) { p.rope.base = 10001; }), "rope_base");
  EXPECT_EQ(differing([](Problem& p) { p.rope.dim = 62; }), "rope_dim");
  EXPECT_EQ(differing([](Problem& p) { p.rope.position_offset = 1; }), "rope_position_offset");
  EXPECT_EQ(differing(good(), sharding(LayoutKind::zigzag, 4)), "ranks");
  EXPECT_EQ(differing(good(), sharding(LayoutKind::striped)), "layout_q layout_k");
}

TEST(Fingerprint, TwoWaysToSayTheSameAreTheSame) {
  EXPECT_EQ(differing([](Problem& p) {
              p.shape.head_dim_v = 64;
              p.softmax_scale = 0.125;
              p.rope.dim = 64;
              p.mask = Mask::window(29, 31, {-1, 0});
            }),
            "");
}

TEST(Fingerprint, ListsOfTilesAndSegmentsAreToldApartByOneValue) {
  const auto value = [](const Problem& p, const Sharding& s, const std::string& name) {
    for (const Field& f : fingerprint(p, s)) {
      if (f.name == name) return f.value;
    }
    return std::string("no such field");
  };
  Problem one = good(), other = good();
  const std::vector<index_t> cu{0, 5, 29}, cu_other{0, 6, 29};
  one.mask = Mask::documents(29, 31, cu, cu, {});
  other.mask = Mask::documents(29, 31, cu_other, cu_other, {});
  EXPECT_EQ(one.mask.name(), other.mask.name());
  EXPECT_NE(value(one, sharding(), "mask_tiles"), value(other, sharding(), "mask_tiles"));

  const Layout keys = Layout::make(LayoutKind::striped, 31, 2);
  const Layout first = Layout::custom(29, {{{0, 29, 1}}, {}}),
               second = Layout::custom(29, {{}, {{0, 29, 1}}});
  EXPECT_NE(value(one, {first, keys}, "layout_q"), value(one, {second, keys}, "layout_q"));
  const Layout early = Layout::custom(29, {{{0, 10, 1}}, {{10, 19, 1}}});
  const Layout late = Layout::custom(29, {{{10, 19, 1}}, {{0, 10, 1}}});
  EXPECT_NE(value(one, {early, keys}, "layout_q"), value(one, {late, keys}, "layout_q"));
  EXPECT_EQ(value(one, {first, keys}, "layout_q").substr(0, 24), "custom, 1 segments, hash");
  EXPECT_EQ(value(one, {first, keys}, "layout_k"), "striped");
}

}  // namespace
}  // namespace ringattn
