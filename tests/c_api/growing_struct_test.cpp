// Callers that were built against an older or a newer header than the library.
#include "src/c_api/growing_struct.h"

#include "tests/c_api/c_objects.h"

// A struct whose second release added `later`.
struct Grown {
  size_t struct_size;
  int64_t first;
  int64_t later;
};

namespace ringattn::c_api {
template <>
inline constexpr std::size_t kFirstSize<Grown> = offsetof(Grown, later);
}

namespace ringattn::test {
namespace {

using c_api::read_struct;
using c_api::write_struct;

struct Older {
  size_t struct_size;
  int64_t first;
  int64_t not_ours = 77;  // what happens to lie behind the caller's struct
};
struct Newer {
  size_t struct_size;
  int64_t first, later, unknown;
};

TEST(GrowingStruct, an_older_caller_gets_the_default_of_what_it_does_not_know) {
  Older older{.struct_size = offsetof(Older, not_ours), .first = 3};
  const Grown got = read_struct(reinterpret_cast<const Grown*>(&older), "args",
                                {.struct_size = sizeof(Grown), .first = 1, .later = 42});
  EXPECT_EQ(got.first, 3);
  EXPECT_EQ(got.later, 42);
  write_struct<Grown>({.struct_size = 0, .first = 8, .later = 9}, reinterpret_cast<Grown*>(&older),
                      offsetof(Older, not_ours));
  EXPECT_EQ(older.struct_size, offsetof(Older, not_ours));
  EXPECT_EQ(older.first, 8);
  EXPECT_EQ(older.not_ours, 77);
}

TEST(GrowingStruct, a_newer_caller_is_served_unless_it_uses_what_we_do_not_know) {
  Newer newer{.struct_size = sizeof(Newer), .first = 3, .later = 4, .unknown = 0};
  const auto* callers = reinterpret_cast<const Grown*>(&newer);
  EXPECT_EQ(read_struct(callers, "args", Grown{}).later, 4);
  newer.unknown = int64_t{1} << 40;
  try {
    read_struct(callers, "args", Grown{});
    ADD_FAILURE() << "a field that is not known was ignored";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("args sets a field at byte 29"), std::string::npos) << e.what();
  }
  write_struct<Grown>({.struct_size = 0, .first = 8, .later = 9}, reinterpret_cast<Grown*>(&newer),
                      sizeof newer);
  EXPECT_EQ(newer.struct_size, sizeof(Newer));
  EXPECT_EQ(newer.later, 9);
  EXPECT_EQ(newer.unknown, 0);
}

// The same through the interface, with a problem of a newer header.
TEST(GrowingStruct, a_newer_problem_passes_through_the_interface) {
  struct {
    ringattn_problem problem;
    int64_t unknown[3];
  } newer{};
  ASSERT_TRUE(ok(ringattn_problem_init(&newer.problem, sizeof newer)));
  newer.problem.head_dim = 4;
  EXPECT_EQ(newer.problem.struct_size, sizeof newer);
  EXPECT_EQ(newer.problem.rope_base, 10000);
  const MaskHandle mask = made<MaskHandle>(ringattn_mask_create_full, 3, 3);
  const LayoutHandle layout = made<LayoutHandle>(ringattn_layout_create, RINGATTN_ZIGZAG, 3, 3, 1);
  made<PlanHandle>(ringattn_plan_create, &newer.problem, mask.get(), layout.get(), 0);
  newer.unknown[2] = 1;
  ringattn_plan* plan = nullptr;
  EXPECT_TRUE(refused(ringattn_plan_create(&newer.problem, mask.get(), layout.get(), 0, &plan),
                      "problem sets a field at byte"));
}

}  // namespace
}  // namespace ringattn::test
