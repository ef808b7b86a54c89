// Over real MPI between processes, each with a device of the harness: memory that MPI can read and write, so
// that the way of an MPI with support for devices is walked by one without.
#include <gtest/gtest.h>
#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

#include <cstdlib>

#include "comm/mpi.h"
#include "comm/mpi_device.h"
#include "comm/mpi_device_claim.h"
#include "src/error.h"
#include "tests/comm_cuda/device_checks.h"
#include "tests/comm_cuda/device_memory_only.h"
#include "tests/simt/run_kernel.h"

namespace ringattn::test {
namespace {

struct MpiRank {
  std::shared_ptr<BlockCount> count = std::make_shared<BlockCount>();
  simt::StreamOwner stream{};

  MpiDevice make(bool claimed) const {
    return make_mpi_device(
        [this] { return make_device_memory_watch(make_mpi_communicator(MPI_COMM_WORLD), count); }, stream,
        {.claimed = claimed, .staged = {.chunk_bytes = 1000}});
  }
  void check(const MpiDevice& made) const {
    const RankThread me{.rank = made.comm->rank(), .size = made.comm->size(), .stream = stream};
    check_device_sizes(me, *made.comm);
    check_device_turns(me, *made.comm);
    check_device_distances(me, *made.comm);
    check_device_backward(me, *made.comm);
    check_device_sent(me, *made.comm);
  }
};

TEST(MpiDevice, GivesBlocksToMpiAsTheyAreIfItMay) {
  const MpiRank me;
  const MpiDevice made = me.make(true);
  EXPECT_EQ(made.comm->name(), "direct(mpi)");
  EXPECT_EQ(made.why_staged, "");
  me.check(made);
  EXPECT_GT(me.count->device, 0);
  EXPECT_EQ(me.count->other, 0);
}

TEST(MpiDevice, StagesThemIfItMayNot) {
  const MpiRank me;
  const MpiDevice made = me.make(false);
  EXPECT_EQ(made.comm->name(), "staged(mpi)");
  EXPECT_EQ(made.why_staged, "rank 0: its mpi does not claim to carry device memory");
  me.check(made);
  EXPECT_EQ(me.count->device, 0);
}

TEST(MpiDevice, TheClaimIsThatOfMpiAndCanBeForbidden) {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
  EXPECT_EQ(mpi_claims_device_memory(), MPIX_Query_cuda_support() != 0);
  if (!MPIX_CUDA_AWARE_SUPPORT) {
    EXPECT_FALSE(mpi_claims_device_memory());
  }
#endif
  setenv("RINGATTN_MPI_DEVICE", "off", 1);
  EXPECT_FALSE(mpi_claims_device_memory());
  setenv("RINGATTN_MPI_DEVICE", "yes", 1);
  try {
    (void)mpi_claims_device_memory();
    ADD_FAILURE() << "no UsageError";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "RINGATTN_MPI_DEVICE is 'yes', allowed are auto and off");
  }
  unsetenv("RINGATTN_MPI_DEVICE");
}

}  // namespace
}  // namespace ringattn::test
