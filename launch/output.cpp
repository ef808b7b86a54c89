#include "launch/output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "src/error.h"

namespace ringattn::launch {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw DataError(path + ": cannot " + what + ": " + std::strerror(errno));
}

// Beside the file whose place it will take; removed unless it was renamed.
class TemporaryFile {
 public:
  // The process number keeps two runs apart that write the same file.
  explicit TemporaryFile(const std::string& path)
      : path_(path), temporary_(path + "." + std::to_string(getpid()) + ".tmp") {
    file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0) fail(path_, "be written");
  }
  ~TemporaryFile() {
    close(file_);
    if (!renamed_) unlink(temporary_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(const std::string& text) {
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t written = ::write(file_, text.data() + done, text.size() - done);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail(path_, "be written");
      done += static_cast<std::size_t>(written);
    }
    if (fsync(file_) != 0) fail(path_, "be flushed to disk");
  }
  void rename_to(const std::string& path) {
    if (rename(temporary_.c_str(), path.c_str()) != 0) fail(path, "be given its name");
    renamed_ = true;
  }

 private:
  std::string path_, temporary_;
  int file_ = -1;
  bool renamed_ = false;
};

void write_stream(std::FILE* stream, const char* name, const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stream) != text.size() || std::fflush(stream) != 0) {
    fail(name, "be written");
  }
}

}  // namespace

PendingText::PendingText(std::string path) : path_(std::move(path)) {
  struct stat about {};
  if (stat(path_.c_str(), &about) == 0 && !S_ISREG(about.st_mode)) {
    throw DataError(path_ + ": exists and is not a regular file");
  }
  // Tried once and removed again: a job that is killed while it computes leaves nothing behind.
  const TemporaryFile attempt(path_);
}

void PendingText::commit(const std::string& text) {
  TemporaryFile file(path_);
  file.write(text);
  file.rename_to(path_);
}

Output::Output(std::string json) : json_(std::move(json)) {
  if (wants_json() && json_ != "-") file_.emplace(json_);
}

void Output::write(const std::string& table, const std::string& json_lines) {
  if (json_ == "-") {
    write_stream(stderr, "stderr", table);
    write_stream(stdout, "stdout", json_lines);
    return;
  }
  write_stream(stdout, "stdout", table);
  if (file_) file_->commit(json_lines);
}

}  // namespace ringattn::launch
