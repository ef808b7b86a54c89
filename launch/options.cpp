#include "launch/options.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <limits>
#include <map>

#include "launch/option_values.h"
#include "src/error.h"

namespace ringattn::launch {
namespace {

namespace po = boost::program_options;

constexpr index_t kMostTokens = index_t{1}
                                << 48;  // far from any overflow of positions and pairs times a head
constexpr index_t kMostHeads = 1 << 20;
// Far above any machine; what is larger is a slip of the finger.
constexpr index_t kMostRanks = 1 << 20;
constexpr index_t kMostThreads = 4096;
constexpr index_t kMostRepeats = 1'000'000;
constexpr index_t kMostOffset = index_t{1} << 48;

// What was given, by option name without the dashes. A switch has the value "".
using Values = std::map<std::string, std::string>;

const std::string* find(const Values& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? nullptr : &found->second;
}

Command command_of(const std::string& word) {
  for (const Command command : {Command::run, Command::bench, Command::plan, Command::info}) {
    if (word == name_of(command)) return command;
  }
  throw UsageError("subcommand is '" + word +
                   "', allowed is one of run, bench, plan, info, --help, --version");
}

// The whole table is given to the parser: an option of another subcommand is known, and refused by name.
po::options_description all_options() {
  po::options_description all;
  for (const OptionRow& row : option_table()) {
    if (*row.value == '\0') {
      all.add_options()(row.name, row.help);
    } else {
      all.add_options()(row.name, po::value<std::string>(), row.help);
    }
  }
  return all;
}

// Boost splits the words; whether each of them may stand here is decided below, so that every refusal names
// option, value and what is allowed, and nothing is guessed from an abbreviation.
Values parse_words(Command command, const std::vector<std::string>& words) {
  const po::options_description all = all_options();
  const auto style = po::command_line_style::allow_long | po::command_line_style::long_allow_adjacent |
                     po::command_line_style::long_allow_next;
  std::vector<po::option> parsed;
  try {
    parsed = po::command_line_parser(words).options(all).style(style).allow_unregistered().run().options;
  } catch (const po::error& e) {
    throw UsageError(e.what());  // "the required argument for option '--seqlen' is missing", names the option
  }
  Values values;
  for (const po::option& option : parsed) {
    // The word as it was typed: "--dropout=0.1" rather than "dropout".
    const std::string given = option.original_tokens.empty() ? option.string_key : option.original_tokens[0];
    const OptionRow* row = option.position_key >= 0 ? nullptr : find_option(option.string_key);
    if (option.position_key >= 0 || row == nullptr) {
      throw UsageError("'" + given + "' is not an option of ringattn " + std::string(name_of(command)) +
                       "; allowed are " + allowed_options(command));
    }
    const std::string value = option.value.empty() ? "" : option.value[0];
    // An option that would change nothing here is an error: who gives it believes that it does something.
    if (!(row->commands & bit(command))) {
      throw UsageError("--" + option.string_key + (value.empty() ? "" : " '" + value + "'") +
                       " means nothing to ringattn " + std::string(name_of(command)) + ", only to " +
                       commands_of(*row));
    }
    const auto [position, fresh] = values.emplace(option.string_key, value);
    if (!fresh) {
      throw UsageError("--" + option.string_key + " is given twice: '" + position->second + "' and '" +
                       value + "'");
    }
  }
  return values;
}

// Two options that cannot both hold, or one that needs another.
[[noreturn]] void contradiction(const Values& values, const std::string& name, const std::string& why) {
  throw UsageError("--" + name + " '" + values.at(name) + "' " + why);
}

std::optional<index_t> whole(const Values& values, const std::string& name, index_t min, index_t max) {
  const std::string* value = find(values, name);
  if (!value) return std::nullopt;
  return parse_whole(name, *value, min, max);
}

void read_shape(const Values& values, ProblemOptions& problem) {
  if (find(values, "seqlen")) {
    for (const char* other : {"seqlen-q", "seqlen-k"}) {
      if (find(values, other))
        contradiction(values, other, "contradicts --seqlen '" + values.at("seqlen") + "'");
    }
    problem.seqlen_q = problem.seqlen_k = whole(values, "seqlen", 1, kMostTokens);
  } else {
    problem.seqlen_q = whole(values, "seqlen-q", 1, kMostTokens);
    problem.seqlen_k = whole(values, "seqlen-k", 1, kMostTokens);
  }
  problem.batch = whole(values, "batch", 1, kMostHeads);
  problem.num_heads = whole(values, "num-heads", 1, kMostHeads);
  problem.num_heads_kv = whole(values, "num-heads-kv", 1, kMostHeads);
  problem.head_dim = whole(values, "head-dim", 1, kMaxHeadDim);
  problem.head_dim_v = whole(values, "head-dim-v", 1, kMaxHeadDim);
  if (const std::string* v = find(values, "dtype")) {
    problem.dtype = static_cast<DType>(parse_choice("dtype", *v, {"f32", "bf16", "f16"}));
  }
  if (const std::string* v = find(values, "softmax-scale")) {
    problem.softmax_scale = parse_real("softmax-scale", *v, Real::any);
  }
}

// The mask options are kept apart until the lengths are known; mask and documents are made in
// problem_options.cpp.
void read_mask(const Values& values, ProblemOptions& problem) {
  if (const std::string* v = find(values, "mask")) {
    problem.causal = parse_choice("mask", *v, {"full", "causal"}) == 1;
    if (find(values, "window")) {
      contradiction(values, "window", "contradicts --mask '" + *v + "'; causal is --window -1,0");
    }
  }
  if (const std::string* v = find(values, "window")) {
    const auto sides = parse_list("window", *v);
    if (sides.size() != 2 || sides[0] < -1 || sides[1] < -1) {
      refuse("window", *v, "two whole numbers L,R from -1, which is no limit");
    }
    problem.window = Window{.left = sides[0], .right = sides[1]};
  }
  if (const std::string* v = find(values, "cu-seqlens")) {
    problem.cu_seqlens = parse_list_or_file("cu-seqlens", *v);
  }
  if (const std::string* v = find(values, "layout")) {
    constexpr std::array kinds{LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped};
    problem.layout = kinds[parse_choice("layout", *v, {"contiguous", "zigzag", "striped"})];
  }
}

// Rope::dim may exceed head_dim here: only the problem knows both.
void read_rope(const Values& values, Rope& rope) {
  if (const std::string* v = find(values, "rope")) {
    constexpr std::array kinds{Rope::Pairing::none, Rope::Pairing::half, Rope::Pairing::interleaved};
    rope.pairing = kinds[parse_choice("rope", *v, {"none", "half", "interleaved"})];
  }
  if (rope.pairing == Rope::Pairing::none) {
    for (const char* name : {"rope-base", "rope-dim", "position-offset"}) {
      if (find(values, name)) contradiction(values, name, "needs --rope half or --rope interleaved");
    }
  }
  if (const std::string* v = find(values, "rope-base"))
    rope.base = parse_real("rope-base", *v, Real::positive);
  if (const auto n = whole(values, "rope-dim", 2, kMaxHeadDim)) {
    if (*n % 2 != 0) refuse("rope-dim", values.at("rope-dim"), "an even number from 2 to 512");
    rope.dim = *n;
  }
  rope.position_offset = whole(values, "position-offset", -kMostOffset, kMostOffset).value_or(0);
}

// In plan --ranks is the size of the ring to plan; elsewhere it only makes sense where this program starts
// the ranks.
void read_ranks(const Values& values, Options& options) {
  if (const std::string* v = find(values, "communicator")) {
    options.communicator = static_cast<CommunicatorKind>(
        parse_choice("communicator", *v, {"auto", "self", "threads", "mpi", "nccl"}));
  }
  options.threads = whole(values, "threads", 1, kMostThreads);
  if (const auto n = whole(values, "ranks", 1, kMostRanks)) options.ranks = static_cast<int>(*n);
  if (options.command == Command::plan) {
    if (!options.ranks) throw UsageError("--ranks is missing: ringattn plan needs the number of ranks");
    if (const auto n = whole(values, "rank", 0, *options.ranks - 1)) options.rank = static_cast<int>(*n);
    options.tiles = find(values, "tiles") != nullptr;
    if (options.tiles && !options.rank)
      throw UsageError("--tiles needs --rank: the tiles of one rank are listed");
    return;
  }
  const bool threads = options.communicator == CommunicatorKind::threads;
  if (options.ranks && !threads) {
    contradiction(values, "ranks", "needs --communicator threads; mpirun -np decides the ranks of mpi");
  }
  if (threads && !options.ranks) throw UsageError("--ranks is missing: --communicator 'threads' needs it");
  if (threads && *options.ranks > 1024)
    refuse("ranks", values.at("ranks"), "1 to 1024 with --communicator threads");
}

// Which of the names of --isa there are is known to the machine; the backend to which it belongs is known
// here.
void read_backend(const Values& values, Options& options) {
  if (const std::string* v = find(values, "backend")) {
    options.backend = static_cast<BackendChoice>(parse_choice("backend", *v, {"auto", "cpu", "cuda"}));
  }
  if (const std::string* v = find(values, "isa")) options.isa = *v;
  if (options.communicator == CommunicatorKind::nccl && options.backend == BackendChoice::cpu) {
    contradiction(values, "communicator", "needs --backend cuda, and --backend is 'cpu'");
  }
}

void read_measurement(const Values& values, Options& options) {
  options.iterations =
      static_cast<int>(whole(values, "iterations", 1, kMostRepeats).value_or(options.iterations));
  options.warmup = static_cast<int>(whole(values, "warmup", 0, kMostRepeats).value_or(options.warmup));
  if (const std::string* v = find(values, "seed")) options.seed = parse_seed("seed", *v);
  if (const std::string* v = find(values, "direction")) {
    options.direction =
        static_cast<Direction>(parse_choice("direction", *v, {"forward", "backward", "both"}));
  }
  if (const std::string* v = find(values, "mode")) {
    constexpr std::array modes{Mode::overlap, Mode::blocking, Mode::compute_only, Mode::comm_only};
    if (options.command == Command::run) {
      options.mode = modes[parse_choice("mode", *v, {"overlap", "blocking"})];
    } else {
      options.mode = modes[parse_choice("mode", *v, {"overlap", "blocking", "compute-only", "comm-only"})];
    }
  }
  options.check_rows = whole(values, "check-rows", 0, kMostRepeats).value_or(options.check_rows);
  if (options.mode == Mode::compute_only || options.mode == Mode::comm_only) {
    // Such a mode leaves the right answer out on purpose, so there is nothing to check.
    if (find(values, "check-rows") && options.check_rows > 0) {
      contradiction(values, "check-rows",
                    "contradicts --mode '" + values.at("mode") + "', whose numbers are wrong");
    }
    options.check_rows = 0;
  }
  if (const std::string* v = find(values, "link-gbps")) {
    options.link_gbps = parse_real("link-gbps", *v, Real::positive);
  }
  if (const std::string* v = find(values, "link-latency-us")) {
    options.link_latency_us = parse_real("link-latency-us", *v, Real::not_negative);
  }
}

void read_ends(const Values& values, Options& options) {
  using namespace std::chrono_literals;
  options.deadline = options.command == Command::run ? 300s : 60s;
  if (const std::string* v = find(values, "deadline")) options.deadline = parse_seconds("deadline", *v);
  if (const std::string* v = find(values, "json")) {
    if (v->empty()) refuse("json", *v, "a file, or - for stdout");
    options.json = *v;
  }
  if (const std::string* v = find(values, "progress")) {
    options.progress = static_cast<Switch>(parse_choice("progress", *v, {"auto", "on", "off"}));
  }
}

// The files are opened much later, by every rank; here only their names must be there and differ.
void read_files(const Values& values, Files& files) {
  const auto required = [&](const char* name) {
    const std::string* value = find(values, name);
    if (!value)
      throw UsageError("--" + std::string(name) + " is missing: ringattn run needs --q, --k, --v and --out");
    if (value->empty()) refuse(name, *value, "a file");
    return *value;
  };
  const auto optional = [&](const char* name) {
    const std::string* value = find(values, name);
    if (value && value->empty()) refuse(name, *value, "a file");
    return value ? *value : std::string();
  };
  files = {.q = required("q"),
           .k = required("k"),
           .v = required("v"),
           .out = required("out"),
           .lse = optional("lse"),
           .dout = optional("dout"),
           .dq = optional("dq"),
           .dk = optional("dk"),
           .dv = optional("dv")};
  constexpr std::array gradients{"dq", "dk", "dv"};
  const auto given = std::ranges::find_if(gradients, [&](const char* name) { return find(values, name); });
  if (given != gradients.end() && files.dout.empty())
    contradiction(values, *given, "needs --dout, the gradient by the output");
  if (given == gradients.end() && !files.dout.empty())
    contradiction(values, "dout", "needs --dq, --dk or --dv, where a gradient goes");
  // Two outputs of one name would each take the other's place.
  const std::array outputs{std::pair{"out", &files.out}, std::pair{"lse", &files.lse},
                           std::pair{"dq", &files.dq}, std::pair{"dk", &files.dk},
                           std::pair{"dv", &files.dv}};
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!outputs[i].second->empty() && *outputs[i].second == *outputs[j].second)
        contradiction(values, outputs[i].first, "is the same file as --" + std::string(outputs[j].first));
    }
  }
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    throw UsageError("subcommand is missing, allowed is one of run, bench, plan, info, --help, --version");
  }
  Options options;
  const std::string& first = arguments[0];
  if (first == "--help" || first == "--version") {
    if (arguments.size() > 1) throw UsageError("'" + arguments[1] + "' after " + first + " means nothing");
    options.help = first == "--help";
    options.version = !options.help;
    if (options.help) options.help_of = help_text();
    return options;
  }
  options.command = command_of(first);
  const Values values = parse_words(options.command, {arguments.begin() + 1, arguments.end()});
  if (find(values, "help")) {
    options.help = true;
    options.help_of = help_text(options.command);
    return options;
  }
  read_shape(values, options.problem);
  read_mask(values, options.problem);
  read_rope(values, options.problem.rope);
  read_ranks(values, options);
  read_backend(values, options);
  read_measurement(values, options);
  read_ends(values, options);
  if (options.command == Command::run) {
    read_files(values, options.files);
    options.direction = options.files.gradients() ? Direction::both : Direction::forward;
  }
  if (options.command == Command::bench || options.command == Command::plan) {
    const ProblemOptions& p = options.problem;
    if (!p.seqlen_q || !p.seqlen_k) {
      const std::string missing = p.seqlen_k ? "--seqlen-q" : p.seqlen_q ? "--seqlen-k" : "--seqlen";
      throw UsageError(missing + " is missing: give --seqlen, or --seqlen-q and --seqlen-k");
    }
  }
  return options;
}

}  // namespace ringattn::launch
