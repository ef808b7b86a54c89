// The command line as plain data: what the user asked for, before shapes are known.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/direction.h"
#include "launch/option_table.h"
#include "src/executor.h"
#include "src/layout.h"
#include "src/mask.h"
#include "src/problem.h"
#include "src/rope.h"
#include "src/types.h"

namespace ringattn::launch {

enum class CommunicatorKind : std::uint8_t { automatic, self, threads, mpi, nccl };
enum class BackendChoice : std::uint8_t { automatic, cpu, cuda };
enum class Switch : std::uint8_t { automatic, on, off };

struct Files {
  std::string q, k, v, out, lse;  // lse may be empty
  std::string dout, dq, dk, dv;   // all empty, or dout and at least one of the others
  bool gradients() const { return !dout.empty(); }
};

// What names the problem. In `run` the files decide the shapes; an option that says otherwise is an error.
struct ProblemOptions {
  std::optional<index_t> seqlen_q, seqlen_k, batch, num_heads, num_heads_kv, head_dim, head_dim_v;
  std::optional<DType> dtype;
  bool causal = false;
  std::optional<Window> window;
  std::optional<std::vector<index_t>> cu_seqlens;
  LayoutKind layout = LayoutKind::zigzag;
  std::optional<double> softmax_scale;
  Rope rope;
};

struct Options {
  Command command = Command::info;
  bool help = false, version = false;  // then nothing else is looked at
  std::string help_of;                 // the text that --help asked for
  Files files;
  ProblemOptions problem;
  std::optional<index_t> threads;
  BackendChoice backend = BackendChoice::automatic;
  std::string isa = "auto";  // of the backend: an instruction set or a version of the CUDA kernels
  int iterations = 5, warmup = 1;
  std::uint64_t seed = 0;
  Direction direction = Direction::forward;
  Mode mode = Mode::overlap;
  index_t check_rows = 16;
  CommunicatorKind communicator = CommunicatorKind::automatic;
  std::optional<int> ranks;
  std::optional<int> rank;
  bool tiles = false;
  double link_gbps = 0;  // 0 = no limit
  double link_latency_us = 0;
  std::chrono::milliseconds deadline{};
  std::string json;  // "" = none, "-" = stdout
  Switch progress = Switch::automatic;
};

// The arguments after the program's name. Throws UsageError naming the option, its value and what is allowed
// for options that are unknown, repeated, malformed or contradictory, or that the subcommand does not know.
Options parse_options(const std::vector<std::string>& arguments);

}  // namespace ringattn::launch
