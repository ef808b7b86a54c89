// gpu-acceptance: checks of the CUDA kernels and rings on the GPU of this machine, without anything that such
// a machine may lack (MPI, Boost, GoogleTest, Highway, NCCL). bench/gpu/acceptance builds and starts it.
#include <iostream>
#include <string>
#include <vector>

#include "bench/gpu/command.h"
#include "comm/threads.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return ringattn::acceptance::run_command(arguments, ringattn::run_thread_ranks, std::cout, std::cerr);
}
