// Where the program's words go: the table for people and the JSON lines for programs.
#pragma once
#include <optional>
#include <string>

namespace ringattn::launch {

// A text file that has its name only when it is complete.
class PendingText {
 public:
  // Throws DataError naming the path if it could not be written.
  explicit PendingText(std::string path);
  // Writes beside the path, flushes to disk, renames. Throws DataError naming the path.
  void commit(const std::string& text);

 private:
  std::string path_;
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
  std::optional<PendingText> file_;
};

}  // namespace ringattn::launch
