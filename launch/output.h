// Where the program's words go: the table for people and the JSON lines for programs.
#pragma once
#include <memory>
#include <string>

namespace ringattn::launch {

// A text file that has its name only when it is complete.
class PendingText {
 public:
  // Opens a temporary file beside `path`. Throws DataError naming the path if that cannot be done.
  explicit PendingText(std::string path);
  ~PendingText();  // removes the temporary file unless it was committed
  PendingText(const PendingText&) = delete;
  PendingText& operator=(const PendingText&) = delete;

  // Writes, flushes to disk, renames. Throws DataError naming the path.
  void commit(const std::string& text);

 private:
  std::string path_, temporary_;
  int file_ = -1;
};

// "" = no JSON; "-" = JSON on stdout and the table on stderr; otherwise JSON in that file and the table on
// stdout.
class Output {
 public:
  // Made before the work starts, so that a file that cannot be written is known early.
  explicit Output(std::string json);
  bool wants_json() const { return !json_.empty(); }
  // Throws DataError if something cannot be written, a full stdout included.
  void write(const std::string& table, const std::string& json_lines);

 private:
  std::string json_;
  std::unique_ptr<PendingText> file_;
};

}  // namespace ringattn::launch
