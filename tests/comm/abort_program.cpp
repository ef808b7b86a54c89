// The last rank aborts while the others wait for it; check_abort.cmake looks at how the job ends.
#include <array>
#include <chrono>

#include "comm/mpi.h"

int main(int argc, char** argv) {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  {
    const auto comm = ringattn::make_mpi_communicator(MPI_COMM_WORLD);
    if (comm->rank() == comm->size() - 1) comm->abort(3, "k.npy:\nno such file");
    const std::array<std::byte, 100'000> block{};
    std::array<std::byte, 100'000> got{};
    comm->shift(0, block, got)->wait(ringattn::Clock::now() + std::chrono::seconds(60));
  }
  MPI_Finalize();
  return 0;
}
