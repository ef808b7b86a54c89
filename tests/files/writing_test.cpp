#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "launch/files/npy_header.h"
#include "launch/files/tensor_file.h"
#include "tests/files/scratch.h"

namespace ringattn {
namespace {

using test::has;
using Names = std::vector<std::string>;

const std::vector<index_t> kShape{1, 3, 1};
const std::vector<Segment> kAll{{0, 3, 1}};
const std::vector<float> kValues{1, 2, 3};

void write_all(PendingFile& file) { file.write(kAll, 1, std::as_bytes(std::span(kValues))); }

std::string refusal(const std::string& spec) {
  return test::message_of<DataError>([&] { PendingFile::create(spec, kShape, DType::f32); });
}

// Runs body in a process of its own and expects it to end with `true`; for what changes the whole process.
template <class Body>
void expect_in_child(Body&& body) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    bool good = false;
    try {
      good = body();
    } catch (...) {
    }
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

TEST(Writing, TheNameAppearsOnlyWithTheWholeFile) {
  const test::Scratch scratch;
  PendingFile out = PendingFile::create(scratch.path("o.npy"), kShape, DType::f32);
  EXPECT_FALSE(std::filesystem::exists(scratch.path("o.npy")));
  EXPECT_EQ(out.temporary().parent_path(), std::filesystem::path(scratch.path("o.npy")).parent_path());
  EXPECT_TRUE(out.temporary().filename().string().starts_with(".o.npy."));
  EXPECT_EQ(std::filesystem::file_size(out.temporary()), 140u);  // header 128, data 12: reserved at once
  write_all(out);
  EXPECT_FALSE(std::filesystem::exists(scratch.path("o.npy")));
  out.commit();
  EXPECT_EQ(scratch.names(), Names{"o.npy"});
  EXPECT_EQ(test::contents(scratch.path("o.npy")),
            format_npy_header(kShape, DType::f32) + test::raw(kValues));
}

TEST(Writing, AnExistingFileStaysUntilCommit) {
  const test::Scratch scratch;
  const std::string path = scratch.file("o.npy", "old");
  {
    PendingFile out = PendingFile::create(path, kShape, DType::f32);
    write_all(out);
    EXPECT_EQ(test::contents(path), "old");
  }
  EXPECT_EQ(test::contents(path), "old");
  EXPECT_EQ(scratch.names(), Names{"o.npy"});
  PendingFile out = PendingFile::create(path, kShape, DType::f32);
  write_all(out);
  out.commit();
  EXPECT_EQ(std::filesystem::file_size(path), 140u);
}

TEST(Writing, TheCreatorRemovesWhatItDidNotCommit) {
  const test::Scratch scratch;
  {
    PendingFile out = PendingFile::create(scratch.path("o.npy"), kShape, DType::f32);
    PendingFile moved = std::move(out);
    const PendingFile other =
        PendingFile::attach(scratch.path("o.npy"), moved.temporary(), kShape, DType::f32);
    EXPECT_EQ(scratch.names().size(), 1u);
  }
  EXPECT_TRUE(scratch.names().empty());
  PendingFile first = PendingFile::create(scratch.path("a.npy"), kShape, DType::f32);
  first = PendingFile::create(scratch.path("b.npy"), kShape, DType::f32);
  EXPECT_EQ(scratch.names(), Names{first.temporary().filename().string()});
}

TEST(Writing, OneThatOnlyAttachedNeitherRemovesNorCommits) {
  const test::Scratch scratch;
  PendingFile out = PendingFile::create(scratch.path("o.npy"), kShape, DType::f32);
  {
    PendingFile other = PendingFile::attach(scratch.path("o.npy"), out.temporary(), kShape, DType::f32);
    EXPECT_TRUE(has(test::message_of<UsageError>([&] { other.commit(); }), "only the process that created"));
    EXPECT_EQ(other.temporary(), out.temporary());
    write_all(other);
  }
  out.commit();
  EXPECT_EQ(test::contents(scratch.path("o.npy")).substr(128), test::raw(kValues));
}

TEST(Writing, AfterCommitNothingMoreIsAccepted) {
  const test::Scratch scratch;
  PendingFile out = PendingFile::create(scratch.path("o.npy"), kShape, DType::f32);
  write_all(out);
  out.commit();
  EXPECT_TRUE(has(test::message_of<UsageError>([&] { write_all(out); }), "after commit"));
  EXPECT_TRUE(has(test::message_of<UsageError>([&] { out.commit(); }), "twice"));
  EXPECT_TRUE(std::filesystem::exists(scratch.path("o.npy")));
}

TEST(Writing, AttachingNeedsTheSameTensor) {
  const test::Scratch scratch;
  const std::string spec = scratch.path("o.npy");
  const PendingFile out = PendingFile::create(spec, kShape, DType::f16);
  const auto message = [&](const std::vector<index_t>& shape, DType dtype) {
    return test::message_of<DataError>([&] { PendingFile::attach(spec, out.temporary(), shape, dtype); });
  };
  EXPECT_TRUE(has(message(kShape, DType::f32), "the tensor to be written takes 140"));
  EXPECT_TRUE(has(message(kShape, DType::bf16), "another type, shape or name"));
  EXPECT_TRUE(has(message({3, 1, 1}, DType::f16), "another type, shape or name"));
  EXPECT_TRUE(has(test::message_of<DataError>(
                      [&] { PendingFile::attach(spec, scratch.path(".gone"), kShape, DType::f16); }),
                  ".gone: No such file"));
}

TEST(Writing, TargetsThatAreNoRegularFilesAreRefusedAndNothingIsLeft) {
  const test::Scratch scratch;
  std::filesystem::create_directory(scratch.path("folder.npy"));
  ASSERT_EQ(::mkfifo(scratch.path("pipe.npy").c_str(), 0644), 0);
  std::filesystem::create_symlink("/dev/null", scratch.path("null.npy"));
  std::filesystem::create_symlink("nowhere", scratch.path("dangling.npy"));
  for (const std::string name : {"folder.npy", "pipe.npy", "null.npy", "dangling.npy"}) {
    EXPECT_EQ(refusal(scratch.path(name)),
              scratch.path(name) + ": exists and is not a regular file; it is not replaced");
  }
  EXPECT_EQ(scratch.names().size(), 4u);
}

TEST(Writing, FoldersThatCannotTakeAFileAreNamed) {
  const test::Scratch scratch;
  EXPECT_TRUE(has(refusal(scratch.path("missing/o.npy")), scratch.path("missing/")));
  EXPECT_TRUE(has(refusal(scratch.path("missing/o.npy")), "No such file or directory"));
  EXPECT_TRUE(has(refusal(scratch.file("file", "") + "/o.npy"), "Not a directory"));
}

TEST(Writing, AFolderWithoutTheRightToWriteIsNamed) {
  const test::Scratch scratch;
  ASSERT_EQ(::chmod(scratch.path("").c_str(), 0555), 0);
  // Root may write anywhere, so the child becomes somebody else first.
  expect_in_child([&] {
    if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) return false;
    const std::string message = refusal(scratch.path("o.npy"));
    return has(message, scratch.path("")) && has(message, "Permission denied");
  });
  ASSERT_EQ(::chmod(scratch.path("").c_str(), 0755), 0);
  EXPECT_TRUE(scratch.names().empty());
}

TEST(Writing, ADiskThatIsTooSmallIsAnErrorUpFront) {
  // 2^57 floats are half an EiB, more than the file systems of a machine hold.
  const test::Scratch scratch;
  const std::string message = test::message_of<DataError>([&] {
    PendingFile::create(scratch.path("o.npy"), {1, index_t{1} << 57}, DType::f32);
  });
  EXPECT_TRUE(has(message, "reserving 576460752303423616 bytes"));
  EXPECT_TRUE(has(message, scratch.path("o.npy") + ": "));
  EXPECT_TRUE(scratch.names().empty());
  EXPECT_TRUE(has(test::message_of<DataError>([&] {
                    PendingFile::create(scratch.path("o.npy"), {1, index_t{1} << 62}, DType::f32);
                  }),
                  "overflows"));
}

TEST(Writing, AFileSizeLimitIsAnErrorUpFrontToo) {
  const test::Scratch scratch;
  expect_in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 4096, .rlim_max = 4096};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    try {
      PendingFile::create(scratch.path("o.npy"), {1, 4096}, DType::f32);
    } catch (const DataError& error) {
      return static_cast<bool>(has(error.what(), "File too large")) && scratch.names().empty();
    }
    return false;
  });
}

TEST(Writing, ModeFollowsTheUmask) {
  const test::Scratch scratch;
  for (const mode_t mask : {mode_t{022}, mode_t{077}}) {
    const mode_t before = ::umask(mask);
    PendingFile out = PendingFile::create(scratch.path("o.npy"), kShape, DType::f32);
    ::umask(before);
    out.commit();
    struct ::stat status {};
    ASSERT_EQ(::stat(scratch.path("o.npy").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0644 & ~mask);
  }
}

TEST(Writing, TwoWritersOfOneNameAndLeftoversDoNotMeet) {
  const test::Scratch scratch;
  // What a killed process with our number would have left.
  const std::string left = scratch.file(".o.npy." + std::to_string(::getpid()) + ".0.partial", "left");
  PendingFile one = PendingFile::create(scratch.path("o.npy"), kShape, DType::f32);
  PendingFile two = PendingFile::create(scratch.path("o.npy"), kShape, DType::f32);
  EXPECT_NE(one.temporary(), two.temporary());
  write_all(one);
  write_all(two);
  one.commit();
  two.commit();
  EXPECT_EQ(test::contents(left), "left");
  EXPECT_EQ(scratch.names().size(), 2u);
}

TEST(Writing, LongNamesGetShorterTemporaries) {
  const test::Scratch scratch;
  const std::string name = std::string(251, 'n') + ".npy";  // 255 bytes, the most that file systems allow
  PendingFile out = PendingFile::create(scratch.path(name), kShape, DType::f32);
  out.commit();
  EXPECT_EQ(scratch.names(), Names{name});
}

TEST(Writing, ARelativeNameIsWrittenToTheCurrentFolder) {
  const test::Scratch scratch;
  expect_in_child([&] {
    if (::chdir(scratch.path("").c_str()) != 0) return false;
    PendingFile out = PendingFile::create("o.npy", kShape, DType::f32);
    out.commit();
    return std::filesystem::file_size("o.npy") == 140;
  });
}

TEST(Writing, SpecsAndSizesAreChecked) {
  const test::Scratch scratch;
  EXPECT_TRUE(has(refusal(scratch.path("o.safetensors")), "name the tensor to be written"));
  EXPECT_TRUE(has(refusal(scratch.path("o.safetensors:")), "name the tensor to be written"));
  EXPECT_TRUE(has(refusal(scratch.path("o.bin")), "unknown format"));
  EXPECT_TRUE(has(test::message_of<DataError>([&] {
                    PendingFile::create(scratch.path("o.npy"), {1, -3}, DType::f32);
                  }),
                  "negative dimension"));
  PendingFile out = PendingFile::create(scratch.path("o.npy"), kShape, DType::f32);
  const auto bytes = std::as_bytes(std::span(kValues));
  EXPECT_TRUE(has(test::message_of<UsageError>([&] { out.write(kAll, 1, bytes.first(8)); }),
                  "8 bytes given, the segments hold 12"));
  EXPECT_TRUE(has(test::message_of<UsageError>([&] { out.write(kAll, 3, bytes); }), "no axis 3"));
  EXPECT_TRUE(has(test::message_of<UsageError>([&] { out.write(kAll, -1, bytes); }), "no axis"));
  const std::vector<Segment> outside{{1, 3, 1}};
  EXPECT_TRUE(has(test::message_of<UsageError>([&] { out.write(outside, 1, bytes); }), "leaves the 3 rows"));
}

}  // namespace
}  // namespace ringattn
