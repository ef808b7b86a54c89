#include "launch/option_table.h"

#include <algorithm>
#include <array>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/value_semantic.hpp>
#include <sstream>

namespace ringattn::launch {
namespace {

namespace po = boost::program_options;

constexpr unsigned kRun = bit(Command::run), kBench = bit(Command::bench), kPlan = bit(Command::plan),
                   kInfo = bit(Command::info);
constexpr unsigned kForward = kRun | kBench, kProblem = kRun | kBench | kPlan;

// In `run` the files give the shapes; the options that name a shape are then promises to be kept.
constexpr auto kTable = std::to_array<OptionRow>({
    {"q", kRun, "FILE", "queries [batch, seqlen_q, num_heads, head_dim]: F.npy or F.safetensors:NAME"},
    {"k", kRun, "FILE", "keys [batch, seqlen_k, num_heads_kv, head_dim]"},
    {"v", kRun, "FILE", "values [batch, seqlen_k, num_heads_kv, head_dim_v]"},
    {"out", kRun, "FILE", "where the output [batch, seqlen_q, num_heads, head_dim_v] goes"},
    {"lse", kRun, "FILE", "where the log-sum-exp, f32 [batch, num_heads, seqlen_q], goes (default: nowhere)"},
    {"dout", kRun, "FILE",
     "gradient of a loss by the output, of the output's shape; needs --dq, --dk or --dv"},
    {"dq", kRun, "FILE", "where the gradient by q, of its shape, goes (default: nowhere); needs --dout"},
    {"dk", kRun, "FILE", "where the gradient by k goes, likewise"},
    {"dv", kRun, "FILE", "where the gradient by v goes, likewise"},
    {"seqlen", kProblem, "N", "tokens, queries and keys alike"},
    {"seqlen-q", kProblem, "N", "queries; aligned with the last keys"},
    {"seqlen-k", kProblem, "N", "keys"},
    {"batch", kProblem, "N", "sequences (default 1)"},
    {"num-heads", kProblem, "N", "query heads (default 8)"},
    {"num-heads-kv", kProblem, "N", "key/value heads, a divisor of --num-heads (default: --num-heads)"},
    {"head-dim", kProblem, "N", "elements of a query and key head, 1 to 512 (default 128)"},
    {"head-dim-v", kProblem, "N", "elements of a value head (default: --head-dim)"},
    {"dtype", kProblem, "f32|bf16|f16", "element type (default f32; run: the files' own)"},
    {"mask", kProblem, "full|causal", "which keys a query sees (default full)"},
    {"window", kProblem, "L,R", "sliding window instead of --mask: keys before and after, -1 = no limit"},
    {"cu-seqlens", kProblem, "A,B,..|@FILE",
     "packed documents: their offsets, 0 first, in the text or in a file"},
    {"layout", kProblem, "contiguous|zigzag|striped", "which rows a rank holds (default zigzag)"},
    {"softmax-scale", kProblem, "X", "factor of the logits (default 1/sqrt(head_dim))"},
    {"rope", kProblem, "none|half|interleaved", "rotary embedding and its pairing (default none)"},
    {"rope-base", kProblem, "X", "base of the rotary frequencies (default 10000)"},
    {"rope-dim", kProblem, "N", "leading elements that turn, even (default: --head-dim)"},
    {"position-offset", kProblem, "N", "added to every rotary position (default 0)"},
    {"threads", kProblem, "N",
     "OpenMP threads a rank (default: OMP_NUM_THREADS, else this rank's share of CPUs)"},
    {"backend", kProblem, "auto|cpu|cuda",
     "where attention is computed; auto: on GPUs where the build and the machine have them, else on CPUs"},
    {"isa", kForward, "NAME",
     "instruction set, or with cuda version of the kernels, of those that info lists (default: the best)"},
    {"iterations", kBench, "N", "timed repeats (default 5)"},
    {"warmup", kBench, "N", "repeats before them that are not timed (default 1)"},
    {"seed", kBench, "N", "of the synthetic tensors (default 0)"},
    {"direction", kBench, "forward|backward|both",
     "what an iteration computes: attention, its gradients, or both (default forward)"},
    {"mode", kForward, "overlap|blocking|compute-only|comm-only",
     "how the ring turns (default overlap); run knows the first two"},
    {"check-rows", kForward, "N",
     "query rows, and keys of gradients, recomputed in float64 (default 16; 0 = no check, and says so)"},
    {"communicator", kForward, "auto|self|threads|mpi|nccl",
     "auto: mpi under a launcher such as mpirun, else self; with cuda nccl if each rank has a GPU of its "
     "own"},
    {"ranks", kForward | kPlan, "P", "ranks: with --communicator threads, and for plan"},
    {"rank", kPlan, "R", "describe this rank hop by hop"},
    {"tiles", kPlan, "", "with --rank: list its tiles too"},
    {"link-gbps", kProblem, "X", "run over a link of this many Gbit/s; plan: estimate with it"},
    {"link-latency-us", kProblem, "X", "and of this latency in microseconds"},
    {"deadline", kForward, "SECONDS", "longest wait for a peer (default: bench 60, run 300)"},
    {"json", kProblem | kInfo, "FILE|-",
     "one JSON object a line; - is stdout, the table then goes to stderr"},
    {"progress", kForward, "auto|on|off", "progress line on stderr (default auto: on a terminal)"},
    {"help", kProblem | kInfo, "", "print this"},
});

constexpr std::array kCommands{Command::run, Command::bench, Command::plan, Command::info};

// One line each, for the help.
constexpr std::string_view summary(Command command) {
  switch (command) {
    case Command::run:
      return "exact attention over the tensors of files, spread over ranks";
    case Command::bench:
      return "time attention over synthetic tensors, and check the numbers";
    case Command::plan:
      return "what a run would compute, send and hold on each rank, without running it";
    case Command::info:
      return "instruction sets, threads, GPUs, MPI, CUDA and NCCL that this build and machine have";
  }
  return "";
}

}  // namespace

std::string_view name_of(Command command) {
  switch (command) {
    case Command::run:
      return "run";
    case Command::bench:
      return "bench";
    case Command::plan:
      return "plan";
    case Command::info:
      return "info";
  }
  return "";
}

std::span<const OptionRow> option_table() { return kTable; }

const OptionRow* find_option(std::string_view name) {
  const auto row = std::find_if(kTable.begin(), kTable.end(), [&](const auto& r) { return name == r.name; });
  return row == kTable.end() ? nullptr : &*row;
}

std::string allowed_options(Command command) {
  std::string list;
  for (const OptionRow& row : kTable) {
    if (row.commands & bit(command)) list += (list.empty() ? "--" : " --") + std::string(row.name);
  }
  return list;
}

std::string commands_of(const OptionRow& row) {
  std::string list;
  for (const Command command : kCommands) {
    if (row.commands & bit(command)) list += (list.empty() ? "" : ", ") + std::string(name_of(command));
  }
  return list;
}

// The exit codes are part of the interface: scripts read them.
std::string help_text() {
  std::ostringstream text;
  text << "ringattn: exact attention over sequences too long for one device\n\n"
          "  ringattn SUBCOMMAND [OPTIONS]        mpirun -np P ringattn SUBCOMMAND [OPTIONS]\n\n";
  for (const Command command : kCommands) {
    std::string name(name_of(command));
    name.resize(8, ' ');
    text << "  " << name << summary(command) << '\n';
  }
  text << "\n  ringattn SUBCOMMAND --help lists its options; --version prints the version.\n\n"
          "Exit codes: 0 ok, 1 wrong numbers, 2 usage or ranks that disagree, 3 data, 4 communication,\n"
          "            5 device, 6 out of memory, 70 a bug of ringattn.\n";
  return text.str();
}

std::string help_text(Command command) {
  // Widths that keep the longest placeholder and its text on one line.
  constexpr unsigned kLineLength = 110, kHelpColumn = 66;
  po::options_description options("Options", kLineLength, kHelpColumn);
  for (const OptionRow& row : kTable) {
    if (!(row.commands & bit(command))) continue;
    if (*row.value == '\0') {
      options.add_options()(row.name, row.help);
    } else {
      options.add_options()(row.name, po::value<std::string>()->value_name(row.value), row.help);
    }
  }
  std::ostringstream text;
  text << "ringattn " << name_of(command) << ": " << summary(command) << "\n\n" << options;
  return text.str();
}

}  // namespace ringattn::launch
