#include "launch/options.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "launch/fault_hook.h"
#include "launch/problem_options.h"
#include "src/error.h"

namespace ringattn::launch {
namespace {

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> list;
  for (std::string word; stream >> word;) list.push_back(word);
  return list;
}

Options parsed(const std::string& text) { return parse_options(words(text)); }

struct Refused {
  const char* arguments;
  std::vector<const char*> named;  // what the message has to name
};

void PrintTo(const Refused& r, std::ostream* out) { *out << r.arguments; }

class RefusedOptions : public testing::TestWithParam<Refused> {};

TEST_P(RefusedOptions, NameTheOptionAndItsValue) {
  try {
    const Options options = parsed(GetParam().arguments);
    // What only the mask and the problem can judge.
    make_problem(options.problem, shapes_of(options.problem));
    FAIL() << "accepted";
  } catch (const UsageError& e) {
    for (const char* name : GetParam().named) {
      EXPECT_NE(std::string(e.what()).find(name), std::string::npos) << e.what() << "\nshould name " << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Words, RefusedOptions,
    testing::Values(Refused{"", {"subcommand", "run, bench, plan, info"}},
                    Refused{"bunch --seqlen 8", {"subcommand", "'bunch'"}}, Refused{"bench", {"--seqlen"}},
                    Refused{"bench --seqlen-q 8", {"--seqlen-k", "missing"}},
                    Refused{"bench --seqlen", {"--seqlen"}}, Refused{"bench --seqlen=", {"--seqlen"}},
                    Refused{"bench --seqlen 8 --seqlen 9", {"--seqlen", "'8'", "'9'"}},
                    Refused{"bench --seqle 8", {"'--seqle'", "--seqlen"}},  // abbreviations are not guessed
                    Refused{"bench --SEQLEN 8", {"'--SEQLEN'"}},
                    Refused{"bench --seqlen 8 extra", {"'extra'"}}, Refused{"bench --seqlen 8 -h", {"'-h'"}},
                    Refused{"bench --seqlen 8 -- x", {"'x'"}},
                    Refused{"--help bench", {"'bench'", "--help"}}));

INSTANTIATE_TEST_SUITE_P(
    Backend, RefusedOptions,
    testing::Values(Refused{"bench --seqlen 8 --backend gpu", {"--backend", "'gpu'", "auto, cpu, cuda"}},
                    Refused{"plan --ranks 2 --seqlen 8 --backend gpu",
                            {"--backend", "'gpu'", "auto, cpu, cuda"}},
                    Refused{"plan --ranks 2 --seqlen 8 --isa plain", {"--isa 'plain'", "run, bench"}},
                    Refused{"info --backend cuda", {"--backend 'cuda'", "run, bench"}},
                    Refused{"bench --seqlen 8 --communicator ncc",
                            {"--communicator", "'ncc'", "auto, self, threads, mpi, nccl"}},
                    Refused{"bench --seqlen 8 --communicator nccl --ranks 2", {"--ranks", "threads"}},
                    Refused{"bench --seqlen 8 --communicator nccl --backend cpu",
                            {"--communicator 'nccl'", "--backend is 'cpu'"}}));

TEST(BackendOptions, AreKeptAsTheyAreGiven) {
  EXPECT_EQ(parsed("bench --seqlen 8").backend, BackendChoice::automatic);
  EXPECT_EQ(parsed("bench --seqlen 8 --backend cuda").backend, BackendChoice::cuda);
  EXPECT_EQ(parsed("bench --seqlen 8 --backend cpu").backend, BackendChoice::cpu);
  EXPECT_EQ(parsed("bench --seqlen 8 --communicator nccl").communicator, CommunicatorKind::nccl);
}

// A gradient and the gradient it starts from go together; outputs have names of their own.
INSTANTIATE_TEST_SUITE_P(
    Gradients, RefusedOptions,
    testing::Values(Refused{"run --q q --k k --v v --out o --dq d", {"--dq", "'d'", "--dout"}},
                    Refused{"run --q q --k k --v v --out o --dv d", {"--dv", "--dout"}},
                    Refused{"run --q q --k k --v v --out o --dout d",
                            {"--dout", "'d'", "--dq, --dk or --dv"}},
                    Refused{"run --q q --k k --v v --out o --dout d --dk o", {"--dk", "'o'", "--out"}},
                    Refused{"run --q q --k k --v v --out o --dout d --dk x --dv x", {"--dv", "'x'", "--dk"}},
                    Refused{"run --q q --k k --v v --out o --dout d --dk=", {"--dk"}},
                    Refused{"run --q q --k k --v v --out o --direction both", {"--direction", "bench"}},
                    Refused{"bench --seqlen 8 --dout d", {"--dout", "'d'", "run"}},
                    Refused{"plan --ranks 2 --seqlen 8 --direction both", {"--direction", "bench"}},
                    Refused{"bench --seqlen 8 --direction back", {"--direction", "'back'", "backward"}}));

// Case A14: what other programs offer and this one does not is refused by its name, not swallowed.
INSTANTIATE_TEST_SUITE_P(NotOffered, RefusedOptions,
                         testing::Values(Refused{"bench --seqlen 8 --dropout 0.1", {"--dropout"}},
                                         Refused{"bench --seqlen 8 --softcap=30", {"--softcap"}},  // A24
                                         Refused{"bench --seqlen 8 --sink 1", {"--sink"}},         // A25
                                         Refused{"bench --seqlen 8 --alibi", {"--alibi"}},
                                         Refused{"bench --seqlen 8 --deterministic", {"--deterministic"}},
                                         Refused{"bench --seqlen 8 --dtype fp8",
                                                 {"--dtype", "'fp8'", "bf16"}}));

INSTANTIATE_TEST_SUITE_P(
    Numbers, RefusedOptions,
    testing::Values(Refused{"bench --seqlen 12x", {"--seqlen", "'12x'"}},
                    Refused{"bench --seqlen -3", {"--seqlen", "'-3'"}},
                    Refused{"bench --seqlen 0", {"--seqlen", "'0'"}},
                    Refused{"bench --seqlen +8", {"--seqlen", "'+8'"}},
                    Refused{"bench --seqlen 0x10", {"--seqlen", "'0x10'"}},
                    Refused{"bench --seqlen 1e3", {"--seqlen", "'1e3'"}},
                    Refused{"bench --seqlen 99999999999999999999", {"--seqlen", "'99999999999999999999'"}},
                    Refused{"bench --seqlen 8 --batch 0", {"--batch", "'0'"}},
                    Refused{"bench --seqlen 8 --head-dim 513", {"--head-dim", "'513'", "512"}},
                    Refused{"bench --seqlen 8 --iterations 0", {"--iterations", "'0'"}},
                    Refused{"bench --seqlen 8 --warmup -1", {"--warmup", "'-1'"}},
                    Refused{"bench --seqlen 8 --seed -1", {"--seed", "'-1'"}},
                    Refused{"bench --seqlen 8 --seed 18446744073709551616", {"--seed"}},
                    Refused{"bench --seqlen 8 --threads 0", {"--threads", "'0'"}},
                    Refused{"bench --seqlen 8 --check-rows -1", {"--check-rows", "'-1'"}},
                    Refused{"bench --seqlen 8 --softmax-scale nan", {"--softmax-scale", "'nan'"}},
                    Refused{"bench --seqlen 8 --softmax-scale inf", {"--softmax-scale", "'inf'"}},
                    Refused{"bench --seqlen 8 --softmax-scale 1e999", {"--softmax-scale", "'1e999'"}},
                    Refused{"bench --seqlen 8 --softmax-scale 0.5.1", {"--softmax-scale", "'0.5.1'"}},
                    Refused{"bench --seqlen 8 --deadline 0", {"--deadline", "'0'"}},
                    Refused{"bench --seqlen 8 --deadline nan", {"--deadline", "'nan'"}},
                    Refused{"bench --seqlen 8 --link-gbps 0", {"--link-gbps", "'0'"}},
                    Refused{"bench --seqlen 8 --link-gbps -1", {"--link-gbps", "'-1'"}},
                    Refused{"bench --seqlen 8 --link-latency-us -1", {"--link-latency-us", "'-1'"}},
                    Refused{"bench --seqlen 8 --rope half --rope-base 0", {"--rope-base", "'0'"}},
                    Refused{"bench --seqlen 8 --rope half --rope-dim 7", {"--rope-dim", "'7'", "even"}}));

INSTANTIATE_TEST_SUITE_P(
    Masks, RefusedOptions,
    testing::Values(Refused{"bench --seqlen 8 --mask casual", {"--mask", "'casual'", "full, causal"}},
                    Refused{"bench --seqlen 8 --window 2", {"--window", "'2'"}},
                    Refused{"bench --seqlen 8 --window 2,1,0", {"--window", "'2,1,0'"}},
                    Refused{"bench --seqlen 8 --window 2,", {"--window", "'2,'"}},
                    Refused{"bench --seqlen 8 --window -3,0", {"--window", "'-3,0'"}},  // case A18
                    Refused{"bench --seqlen 8 --window 1,-2", {"--window", "'1,-2'"}},
                    Refused{"bench --seqlen 8 --cu-seqlens ,", {"--cu-seqlens", "','"}},
                    Refused{"bench --seqlen 8 --cu-seqlens 0,x", {"--cu-seqlens", "'0,x'"}},
                    Refused{"bench --seqlen 8 --cu-seqlens 0,5,3", {"cu_seqlens", "3"}},
                    Refused{"bench --seqlen 8 --cu-seqlens 1,8", {"cu_seqlens", "1"}},
                    Refused{"bench --seqlen 8 --cu-seqlens 0,9", {"cu_seqlens", "9"}},
                    Refused{"bench --seqlen-q 8 --seqlen-k 9 --cu-seqlens 0,8", {"--cu-seqlens", "8", "9"}},
                    Refused{"bench --seqlen 8 --layout zag", {"--layout", "'zag'", "striped"}}));

INSTANTIATE_TEST_SUITE_P(
    Contradictions, RefusedOptions,
    testing::Values(
        Refused{"bench --seqlen 8 --seqlen-q 8", {"--seqlen-q", "--seqlen"}},
        Refused{"bench --seqlen 8 --mask causal --window 1,1", {"--window", "'1,1'", "--mask", "'causal'"}},
        Refused{"bench --seqlen 8 --mask full --window 1,1", {"--window", "--mask", "'full'"}},
        Refused{"bench --seqlen 8 --ranks 2", {"--ranks", "'2'", "threads"}},
        Refused{"bench --seqlen 8 --communicator mpi --ranks 2", {"--ranks", "'2'", "threads"}},
        Refused{"bench --seqlen 8 --communicator threads", {"--ranks", "threads"}},
        Refused{"bench --seqlen 8 --rope-base 500", {"--rope-base", "'500'", "--rope"}},
        Refused{"bench --seqlen 8 --rope none --rope-dim 4", {"--rope-dim", "'4'", "--rope"}},
        Refused{"bench --seqlen 8 --position-offset 4", {"--position-offset", "'4'", "--rope"}},
        Refused{"bench --seqlen 8 --head-dim 4 --rope half --rope-dim 6", {"rope", "6"}},
        Refused{"bench --seqlen 8 --head-dim 5 --rope half", {"rope", "5"}},
        Refused{"bench --seqlen 8 --num-heads 6 --num-heads-kv 4", {"num_heads", "6", "4"}},
        Refused{"bench --seqlen 8 --mode comm-only --check-rows 4", {"--check-rows", "'4'", "comm-only"}}));

INSTANTIATE_TEST_SUITE_P(
    OtherSubcommands, RefusedOptions,
    testing::Values(Refused{"bench --seqlen 8 --q x.npy", {"--q", "'x.npy'", "bench", "run"}},
                    Refused{"info --seqlen 8", {"--seqlen", "'8'", "info"}},
                    Refused{"run --q a --k b --v c --out d --seed 1", {"--seed", "'1'", "run", "bench"}},
                    Refused{"run --q a --k b --v c --out d --mode comm-only",
                            {"--mode", "'comm-only'", "blocking"}},
                    Refused{"run --q a --k b --v c", {"--out", "missing"}},
                    Refused{"run --q a --k b --out c", {"--v", "missing"}},
                    Refused{"run --q a --k b --v c --out d --lse d", {"--lse", "'d'", "--out"}},
                    Refused{"plan --seqlen 8", {"--ranks", "missing"}},
                    Refused{"plan --seqlen 8 --ranks 3 --rank 3", {"--rank", "'3'", "0 to 2"}},
                    Refused{"plan --seqlen 8 --ranks 3 --tiles", {"--tiles", "--rank"}},
                    Refused{"plan --seqlen 8 --ranks 3 --deadline 3", {"--deadline", "'3'", "plan"}}));

TEST(Options, DefaultsAreTheOnesThatHelpStates) {
  const Options o = parsed("bench --seqlen 100");
  const Shapes s = shapes_of(o.problem);
  EXPECT_EQ(s.seqlen_q, 100);
  EXPECT_EQ(s.seqlen_k, 100);
  EXPECT_EQ(s.heads,
            (HeadShape{.batch = 1, .num_heads = 8, .num_heads_kv = 8, .head_dim = 128, .head_dim_v = 128}));
  EXPECT_EQ(s.dtype, DType::f32);
  EXPECT_EQ(o.problem.layout, LayoutKind::zigzag);
  EXPECT_EQ(o.iterations, 5);
  EXPECT_EQ(o.warmup, 1);
  EXPECT_EQ(o.check_rows, 16);
  EXPECT_EQ(o.deadline, std::chrono::seconds(60));
  EXPECT_EQ(parsed("run --q a --k b --v c --out d").deadline, std::chrono::seconds(300));
  EXPECT_EQ(make_problem(o.problem, s).mask.name(), Mask::full(100, 100).name());
  for (const char* text :
       {"default 8)", "default 128)", "default zigzag)", "default 5)", "default full)", "bench 60"}) {
    EXPECT_NE(help_text(Command::bench).find(text), std::string::npos) << text;
  }
}

TEST(Options, EveryOptionReachesTheProblem) {
  const Options o = parsed(
      "bench --seqlen-q 6 --seqlen-k 11 --batch 2 --num-heads 6 --num-heads-kv=2 --head-dim 12 --head-dim-v "
      "5 "
      "--dtype bf16 --window 3,-1 --layout striped --softmax-scale -0.25 --rope interleaved --rope-base 5e5 "
      "--rope-dim 8 --position-offset -7 --threads 3 --isa AVX2 --iterations 2 --warmup 0 --seed 9 "
      "--mode blocking --check-rows 3 --communicator threads --ranks 5 --link-gbps 1.5 --link-latency-us 20 "
      "--deadline 2.5 --json - --progress off");
  const Problem p = make_problem(o.problem, shapes_of(o.problem));
  EXPECT_EQ(p.shape,
            (HeadShape{.batch = 2, .num_heads = 6, .num_heads_kv = 2, .head_dim = 12, .head_dim_v = 5}));
  EXPECT_EQ(p.dtype, DType::bf16);
  EXPECT_EQ(p.mask.name(), Mask::window(6, 11, {3, -1}).name());
  EXPECT_EQ(p.scale(), -0.25);
  const Rope rope{.pairing = Rope::Pairing::interleaved, .base = 5e5, .dim = 8, .position_offset = -7};
  EXPECT_EQ(p.rope, rope);
  EXPECT_EQ(o.problem.layout, LayoutKind::striped);
  EXPECT_EQ(o.threads, 3);
  EXPECT_EQ(o.isa, "AVX2");
  EXPECT_EQ(o.iterations, 2);
  EXPECT_EQ(o.warmup, 0);
  EXPECT_EQ(o.seed, 9u);
  EXPECT_EQ(o.mode, Mode::blocking);
  EXPECT_EQ(o.check_rows, 3);
  EXPECT_EQ(o.communicator, CommunicatorKind::threads);
  EXPECT_EQ(o.ranks, 5);
  EXPECT_EQ(o.link_gbps, 1.5);
  EXPECT_EQ(o.link_latency_us, 20);
  EXPECT_EQ(o.deadline, std::chrono::milliseconds(2500));
  EXPECT_EQ(o.json, "-");
  EXPECT_EQ(o.progress, Switch::off);
}

TEST(Options, DocumentsWithACausalMaskSeeTheirOwnPast) {
  const Options o = parsed("bench --seqlen 8 --mask causal --cu-seqlens 0,3,3,8");
  EXPECT_EQ(make_problem(o.problem, shapes_of(o.problem)).mask.visible_pairs(), 3 * 4 / 2 + 5 * 6 / 2);
  const Options all = parsed("bench --seqlen 8 --cu-seqlens 0,3,3,8");
  EXPECT_EQ(make_problem(all.problem, shapes_of(all.problem)).mask.visible_pairs(), 3 * 3 + 5 * 5);
  const Options window = parsed("bench --seqlen 8 --window 1,0 --cu-seqlens 0,3,3,8");
  EXPECT_EQ(make_problem(window.problem, shapes_of(window.problem)).mask.visible_pairs(), 5 + 9);
}

TEST(Options, ModesWithoutTheRightAnswerAreNotChecked) {
  EXPECT_EQ(parsed("bench --seqlen 8 --mode compute-only").check_rows, 0);
  EXPECT_EQ(parsed("bench --seqlen 8 --mode comm-only --check-rows 0").check_rows, 0);
}

class DocumentFile : public testing::TestWithParam<std::pair<const char*, bool>> {};

TEST_P(DocumentFile, HoldsNumbersSeparatedByCommasOrBlanks) {
  const auto [text, good] = GetParam();
  // Its own for each process: CTest runs these side by side.
  const std::string path = testing::TempDir() + "ringattn_cu_seqlens." + std::to_string(getpid());
  std::ofstream(path, std::ios::binary) << text;
  const std::vector<std::string> arguments{"bench", "--seqlen", "8", "--cu-seqlens", "@" + path};
  if (good) {
    EXPECT_EQ(parse_options(arguments).problem.cu_seqlens, (std::vector<index_t>{0, 3, 8}));
  } else {
    EXPECT_THROW(parse_options(arguments), UsageError);
  }
  std::remove(path.c_str());
}

INSTANTIATE_TEST_SUITE_P(Texts, DocumentFile,
                         testing::Values(std::pair{"0,3,8", true}, std::pair{"0\n3\n8\n", true},
                                         std::pair{" 0 ,\t3\r\n, 8 ", true}, std::pair{"", false},
                                         std::pair{" \n", false}, std::pair{"0,,3,8", false},
                                         std::pair{"0,3,8,", false}, std::pair{",0,3,8", false},
                                         std::pair{"0 3x 8", false}, std::pair{"0;3;8", false},
                                         std::pair{"0 3 99999999999999999999", false}));

TEST(Options, ADocumentFileThatIsNotThereIsBadData) {
  EXPECT_THROW(parsed("bench --seqlen 8 --cu-seqlens @/nonexistent/file"), DataError);
}

TEST(Options, HelpListsEveryOptionOfASubcommandAndNoOther) {
  for (const Command command : {Command::run, Command::bench, Command::plan, Command::info}) {
    const std::string help = help_text(command);
    for (const OptionRow& row : option_table()) {
      const std::string line = "  --" + std::string(row.name) + " ";
      EXPECT_EQ(help.find(line) != std::string::npos, (row.commands & bit(command)) != 0)
          << name_of(command) << line;
    }
  }
}

// Ranks compare the program's fields by name, so every subcommand has the same names in the same order.
TEST(Options, ProgramFieldsHaveTheSameNamesInEverySubcommand) {
  const auto names = [](const std::string& text) {
    std::vector<std::string> list;
    for (const Field& field : program_fields(parsed(text))) list.push_back(field.name);
    return list;
  };
  EXPECT_EQ(names("bench --seqlen 8"), names("run --q a --k b --v c --out d"));
  EXPECT_EQ(names("bench --seqlen 8"), names("--help"));
  EXPECT_NE(program_fields(parsed("bench --seqlen 8")), program_fields(parsed("bench --seqlen 8 --seed 1")));
}

}  // namespace
}  // namespace ringattn::launch
