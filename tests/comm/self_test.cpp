#include "comm/self.h"

#include "tests/comm/pattern.h"
#include "tests/comm/ring_checks.h"
#include "tests/comm/route_checks.h"

namespace ringattn::test {
namespace {

TEST(Self, IsARingOfOneRank) {
  const auto comm = make_self_communicator();
  EXPECT_EQ(comm->name(), "self");
  EXPECT_EQ(comm->rank(), 0);
  EXPECT_EQ(comm->size(), 1);
}

TEST(Self, DoesWhatEveryCommunicatorDoes) {
  const auto comm = make_self_communicator();
  check_equal_sizes(*comm);
  check_sizes_that_differ(*comm);
  check_full_turn(*comm);
  check_many_shifts(*comm, 100);
  check_all_gather(*comm);
  check_sent_count(*comm);
  check_one_shift_at_a_time(*comm);
  check_distances(*comm);
  check_channels(*comm);
  check_arrivals(*comm);
  check_refusals(*comm);
}

TEST(Self, CountsWhatIsShifted) {
  const auto comm = make_self_communicator();
  const auto block = pattern(1000, 0, 0);
  auto got = poisoned(1000);
  comm->shift(0, block, got)->wait(soon());
  EXPECT_EQ(comm->sent().bytes, 1000u);
  EXPECT_EQ(comm->sent().messages, 1u);
}

TEST(Self, NamesBothSizesWhenTheyDiffer) {
  const auto comm = make_self_communicator();
  const auto block = pattern(1000, 0, 0);
  auto got = poisoned(999);
  const auto shift = comm->shift(3, block, got);
  const std::string text = comm_error_of([&] { shift->wait(soon()); });
  EXPECT_EQ(text, "rank 0, hop 3: rank 0 sends 1000 bytes, 999 are expected");
  EXPECT_TRUE(got == poisoned(999));
}

TEST(Self, AfterAbortEveryOperationThrowsItsText) {
  const auto comm = make_self_communicator();
  const auto block = pattern(10, 0, 0);
  auto got = poisoned(10);
  const auto shift = comm->shift(0, block, got);
  comm->abort(4, "no more");
  EXPECT_EQ(comm_error_of([&] { shift->wait(soon()); }), "no more");
  EXPECT_EQ(comm_error_of([&] { (void)comm->shift(1, block, got); }), "no more");
  EXPECT_EQ(comm_error_of([&] { comm->all_gather(block, soon()); }), "no more");
}

}  // namespace
}  // namespace ringattn::test
