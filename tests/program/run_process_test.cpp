// ringattn run as a process: tensors of files in, a file out that is there when it is right and not before.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "launch/files/tensor_file.h"
#include "tests/program/process.h"

namespace ringattn::test {
namespace {

namespace fs = std::filesystem;

class Run : public testing::Test {
 protected:
  Run() : folder_(fs::path(testing::TempDir()) / ("ringattn_run_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~Run() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  bool exists(const std::string& name) const { return fs::exists(folder_ / name); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

  // A dense f32 tensor [1, rows, heads, dim] whose element is f(row, head, element).
  template <class F>
  void write(const std::string& name, index_t rows, index_t heads, index_t dim, F&& f) const {
    std::vector<float> values;
    for (index_t i = 0; i < rows; ++i) {
      for (index_t h = 0; h < heads; ++h) {
        for (index_t e = 0; e < dim; ++e) values.push_back(static_cast<float>(f(i, h, e)));
      }
    }
    PendingFile file = PendingFile::create(path(name), {1, rows, heads, dim}, DType::f32);
    const Segment all{.begin = 0, .count = rows};
    file.write(std::span(&all, 1), 1, std::as_bytes(std::span(values)));
    file.commit();
  }
  std::vector<float> read(const std::string& name) const {
    const TensorFile file = TensorFile::open(path(name), std::nullopt);
    std::vector<float> values(static_cast<std::size_t>(file.shape()[1] * file.shape()[2] * file.shape()[3]));
    const Segment all{.begin = 0, .count = file.shape()[1]};
    file.read(std::span(&all, 1), std::as_writable_bytes(std::span(values)));
    return values;
  }
  void expect_out(const std::vector<double>& want) const {
    const std::vector<float> got = read("out.npy");
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << i;
  }
  // Case "V=j" of cases.md section 0: equal logits, so an output is the mean of the visible key indices.
  void write_v_is_j(index_t lq, index_t lk) const {
    write("q.npy", lq, 1, 1, [](index_t, index_t, index_t) { return 0; });
    write("k.npy", lk, 1, 1, [](index_t, index_t, index_t) { return 0; });
    write("v.npy", lk, 1, 1, [](index_t j, index_t, index_t) { return j; });
  }
  Ended run(const std::string& options) const {
    return ringattn(words("run --q " + path("q.npy") + " --k " + path("k.npy") + " --v " + path("v.npy") +
                          " --out " + path("out.npy") + " " + options));
  }

  fs::path folder_;
};

// Case A18, test 1: a window of 2 to the left is three tokens.
TEST_F(Run, ComputesTheWindowOfTheOptions) {
  write_v_is_j(8, 8);
  for (const char* ranks :
       {"--communicator self", "--communicator threads --ranks 3", "--communicator threads --ranks 5"}) {
    for (const char* layout : {"contiguous", "zigzag", "striped"}) {
      const Ended ended = run("--window 2,0 --layout " + std::string(layout) + " " + ranks);
      ASSERT_EQ(ended.code, 0) << ended.err;
      expect_out({0, .5, 1, 2, 3, 4, 5, 6});
    }
  }
}

// Case A34: causal with fewer queries than keys is aligned at the end. Lse: ln of the number of keys, ln 4,
// ln 5.
TEST_F(Run, AlignsCausalQueriesWithTheLastKeys) {
  write_v_is_j(2, 5);
  const Ended ended = run("--mask causal --communicator threads --ranks 2 --lse " + path("lse.npy"));
  ASSERT_EQ(ended.code, 0) << ended.err;
  expect_out({1.5, 2});
  const TensorFile lse = TensorFile::open(path("lse.npy"), std::nullopt);
  EXPECT_EQ(lse.shape(), (std::vector<index_t>{1, 1, 2}));
  std::ifstream bytes(path("lse.npy"), std::ios::binary);
  bytes.seekg(-8, std::ios::end);
  float values[2];
  bytes.read(reinterpret_cast<char*>(values), sizeof values);
  EXPECT_NEAR(values[0], 1.386294361, 1e-6);
  EXPECT_NEAR(values[1], 1.609437912, 1e-6);
}

// Case "V=j": equal logits, so p = 1/n for each of the n keys seen. With dout 1, dv_j is the sum of 1/n over
// the queries that see j; q and k are zero, so dq and dk are.
TEST_F(Run, WritesTheGradientsThatAreAskedFor) {
  write_v_is_j(5, 5);
  write("dout.npy", 5, 1, 1, [](index_t, index_t, index_t) { return 1; });
  const std::string given = "--mask causal --communicator threads --ranks 3 --dout " + path("dout.npy");
  const Ended ended = run(given + " --dv " + path("dv.npy") + " --dq " + path("dq.npy"));
  ASSERT_EQ(ended.code, 0) << ended.err;
  expect_out({0, .5, 1, 1.5, 2});
  const std::vector<double> want{137. / 60, 77. / 60, 47. / 60, 9. / 20, 1. / 5};
  const auto dv = read("dv.npy"), dq = read("dq.npy");
  ASSERT_EQ(dv.size(), 5u);
  for (std::size_t j = 0; j < 5; ++j) {
    EXPECT_NEAR(dv[j], want[j], 1e-6);
    EXPECT_EQ(dq[j], 0);
  }
  EXPECT_FALSE(exists("dk.npy"));
  ASSERT_EQ(run(given + " --dk " + path("dk.npy")).code, 0);
  EXPECT_EQ(read("dk.npy").size(), 5u);
}

// GQA with head_dim_v of its own: dk and dv have the KV heads' shapes.
TEST_F(Run, GradientsOfGroupedHeadsHaveTheirTensorsShapes) {
  const auto value = [](index_t i, index_t h, index_t e) {
    return std::sin(static_cast<double>(i * 7 + h * 3 + e));
  };
  write("q.npy", 11, 6, 4, value);
  write("k.npy", 13, 2, 4, value);
  write("v.npy", 13, 2, 3, value);
  write("dout.npy", 11, 6, 3, value);
  const Ended ended =
      run("--mask causal --rope half --communicator threads --ranks 3 --dout " + path("dout.npy") + " --dq " +
          path("dq.npy") + " --dk " + path("dk.npy") + " --dv " + path("dv.npy") + " --json -");
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(json_lines(ended.out).at(0)["check"]["gradients"]["dk"]["passed"], true);
  const auto shape = [&](const char* name) { return TensorFile::open(path(name), std::nullopt).shape(); };
  EXPECT_EQ(shape("dq.npy"), (std::vector<index_t>{1, 11, 6, 4}));
  EXPECT_EQ(shape("dk.npy"), (std::vector<index_t>{1, 13, 2, 4}));
  EXPECT_EQ(shape("dv.npy"), (std::vector<index_t>{1, 13, 2, 3}));
}

TEST_F(Run, ADoutOfAnotherShapeNamesBothFiles) {
  write_v_is_j(5, 5);
  write("dout.npy", 4, 1, 1, [](index_t, index_t, index_t) { return 1; });
  const Ended ended = run("--dout " + path("dout.npy") + " --dq " + path("dq.npy"));
  EXPECT_EQ(ended.code, 3);
  for (const char* name : {"q.npy", "dout.npy", "seqlen_q"})
    EXPECT_NE(ended.err.find(name), std::string::npos) << ended.err;
  EXPECT_FALSE(exists("out.npy") || exists("dq.npy"));
}

// No file has its name before all are right.
TEST_F(Run, AWrongGradientLeavesNoOutputAtAll) {
  write_v_is_j(8, 8);
  write("dout.npy", 8, 1, 1, [](index_t, index_t, index_t) { return 1; });
  const std::size_t before = files();
  const Ended ended = ringattn_with_fault(
      "dv-off", words("run --q " + path("q.npy") + " --k " + path("k.npy") + " --v " + path("v.npy") +
                      " --out " + path("out.npy") + " --dout " + path("dout.npy") + " --dv " +
                      path("dv.npy") + " --communicator threads --ranks 3"));
  EXPECT_EQ(ended.code, 1) << ended.err;
  EXPECT_EQ(files(), before);
}

// NaN in row 5 of dout: its own dq, and dk and dv of the keys that it sees; the check agrees.
TEST_F(Run, ANaNInDoutReachesTheKeysThatItsRowSees) {
  write_v_is_j(8, 8);
  write("dout.npy", 8, 1, 1, [](index_t i, index_t, index_t) { return i == 5 ? std::nan("") : 1.0; });
  const Ended ended = run("--window 2,0 --communicator threads --ranks 3 --dout " + path("dout.npy") +
                          " --dq " + path("dq.npy") + " --dk " + path("dk.npy") + " --dv " + path("dv.npy"));
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto dq = read("dq.npy"), dk = read("dk.npy"), dv = read("dv.npy");
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(std::isnan(dq[i]), i == 5) << i;
    EXPECT_EQ(std::isnan(dk[i]), i >= 3 && i <= 5) << i;
    EXPECT_EQ(std::isnan(dv[i]), i >= 3 && i <= 5) << i;
  }
}

TEST_F(Run, PassesItsCheckOnARealModelsTensors) {
  const std::string data = std::string(RINGATTN_DATA) + "/smollm2_layer10/";
  for (const char* ranks : {"--communicator self", "--communicator threads --ranks 3"}) {
    const Ended ended = ringattn(
        words("run --q " + data + "q.npy --k " + data + "k.npy --v " + data + "v.npy --out " +
              path("out.npy") + " --mask causal --rope interleaved --rope-base 100000 --json - " + ranks));
    ASSERT_EQ(ended.code, 0) << ended.err;
    const auto json = json_lines(ended.out).at(0);
    EXPECT_EQ(json["check"]["passed"], true);
    EXPECT_EQ(json["check"]["heads_per_row"], 9);
    EXPECT_EQ(json["num_heads_kv"], 3);
    EXPECT_EQ(json["dtype"], "f16");
  }
}

TEST_F(Run, AnOptionThatContradictsAFileNamesBoth) {
  write_v_is_j(8, 8);
  const std::size_t before = files();
  for (const auto& [options, names] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"--num-heads 2", {"--num-heads is '2'", "q.npy"}},
           {"--seqlen 9", {"'9'", "q.npy"}},
           {"--head-dim-v 2", {"--head-dim-v", "v.npy"}}}) {
    const Ended ended = run(options);
    EXPECT_EQ(ended.code, 2) << options;
    for (const std::string& name : names) EXPECT_NE(ended.err.find(name), std::string::npos) << ended.err;
  }
  EXPECT_EQ(run("--seqlen 8 --batch 1 --num-heads 1 --num-heads-kv 1 --head-dim 1 --dtype f32").code, 0);
  EXPECT_EQ(files(), before + 1);
}

// Case A10 (b): head_dim 63 and 64.
TEST_F(Run, FilesThatContradictEachOtherAreBothNamed) {
  write("q.npy", 4, 1, 64, [](index_t, index_t, index_t) { return 1; });
  write("k.npy", 4, 1, 63, [](index_t, index_t, index_t) { return 1; });
  write("v.npy", 4, 1, 64, [](index_t, index_t, index_t) { return 1; });
  const Ended ended = run("--communicator threads --ranks 3");
  EXPECT_EQ(ended.code, 3);
  for (const char* name : {"head_dim", "q.npy", "k.npy", "64", "63"}) {
    EXPECT_NE(ended.err.find(name), std::string::npos) << ended.err;
  }
  EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 2) << ended.err;  // a warning, one message
  EXPECT_FALSE(exists("out.npy"));
}

TEST_F(Run, AMissingInputIsExitThree) {
  write_v_is_j(4, 4);
  fs::remove(folder_ / "k.npy");
  const Ended ended = run("");
  EXPECT_EQ(ended.code, 3);
  EXPECT_NE(ended.err.find("k.npy"), std::string::npos) << ended.err;
  EXPECT_EQ(files(), 2u);
}

TEST_F(Run, AnOutputThatCannotBeWrittenIsKnownBeforeComputing) {
  write_v_is_j(4, 4);
  const Ended ended = ringattn_with_fault(
      "sleep:rank=0,ms=3000", words("run --q " + path("q.npy") + " --k " + path("k.npy") + " --v " +
                                    path("v.npy") + " --out " + path("none/out.npy")));
  EXPECT_EQ(ended.code, 3);
  EXPECT_NE(ended.err.find("none"), std::string::npos) << ended.err;
}

TEST_F(Run, WrongNumbersLeaveNoOutputAndAnOldOneAlone) {
  write_v_is_j(8, 8);
  std::ofstream(path("out.npy")) << "old";
  const Ended ended = ringattn_with_fault(
      "output-nan", words("run --q " + path("q.npy") + " --k " + path("k.npy") + " --v " + path("v.npy") +
                          " --out " + path("out.npy") + " --communicator threads --ranks 3"));
  EXPECT_EQ(ended.code, 1) << ended.err;
  std::string text;
  std::ifstream(path("out.npy")) >> text;
  EXPECT_EQ(text, "old");
  EXPECT_EQ(files(), 4u);
}

TEST_F(Run, WithoutTheCheckTheReportSaysSo) {
  write_v_is_j(8, 8);
  const Ended ended = run("--check-rows 0 --json -");
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(json_lines(ended.out).at(0)["check"]["off"], "--check-rows 0");
}

// NaN in: the queries that see it are NaN, which is right, and the check agrees.
TEST_F(Run, NaNInTheInputIsNaNInTheRightRows) {
  write_v_is_j(8, 8);
  write("v.npy", 8, 1, 1,
        [](index_t j, index_t, index_t) { return j == 5 ? std::nan("") : static_cast<double>(j); });
  const Ended ended = run("--mask causal --communicator threads --ranks 3");
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto out = read("out.npy");
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(std::isnan(out[i]), i >= 5) << i;
}

}  // namespace
}  // namespace ringattn::test
