// What the program says: one line of JSON a check, written at once, so that a run that is cut off leaves all
// that it has found. bench/gpu/acceptance reads them.
#pragma once
#include <cmath>
#include <iosfwd>
#include <map>
#include <string>

namespace ringattn::acceptance {

enum class Status {
  ok,
  failed,
  refused,  // by the library, with a reason that is allowed there
  measured  // a figure, not a check
};
const char* name_of(Status status);

struct Check {
  std::string part;  // "units", "kernels", "rings"
  std::string name;
  Status status = Status::ok;
  std::string detail{};  // what is wrong, or the reason; empty if all is well
  std::map<std::string, std::string> facts{};
  std::map<std::string, double> numbers{};
};

// Text of a JSON string, with its quotes. Bytes above 127 are passed on as they are.
std::string json_string(const std::string& text);
// JSON knows no NaN and no infinity: these become null.
std::string json_number(double value);

class Lines {
 public:
  explicit Lines(std::ostream& to) : to_(to) {}
  void write(const Check& check);
  int failed() const { return failed_; }
  int written() const { return written_; }

 private:
  std::ostream& to_;
  int failed_ = 0, written_ = 0;
};

}  // namespace ringattn::acceptance
