// main() of tests that run under mpirun: every rank runs the same tests in the same order, and all ranks fail
// if one does. Rank 0 prints as usual, the others only what failed.
#include <gtest/gtest.h>
#include <mpi.h>

#include <iostream>
#include <memory>

namespace {

class FailurePrinter final : public testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}

 private:
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const char* file = result.file_name() == nullptr ? "?" : result.file_name();
    std::cout << "rank " << rank_ << ": " << file << ":" << result.line_number() << ": " << result.message()
              << std::endl;
  }

  int rank_;
};

}  // namespace

int main(int argc, char** argv) {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  if (level < MPI_THREAD_FUNNELED) {
    std::cerr << "MPI offers thread level " << level << ", MPI_THREAD_FUNNELED is needed" << std::endl;
    MPI_Abort(MPI_COMM_WORLD, 4);
  }
  testing::InitGoogleTest(&argc, argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) {
    const std::unique_ptr<testing::TestEventListener> usual(
        listeners.Release(listeners.default_result_printer()));
    listeners.Append(std::make_unique<FailurePrinter>(rank).release());  // the list owns it
  }
  int failed = RUN_ALL_TESTS();
  if (testing::UnitTest::GetInstance()->test_to_run_count() == 0) {
    std::cerr << "rank " << rank << ": no test was run" << std::endl;
    failed = 1;
  }
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return failed;
}
