// What can go wrong, as types. The library throws these and std::bad_alloc (as OutOfMemory); only the program
// turns them into exit codes.
#pragma once
#include <new>
#include <stdexcept>
#include <string>

namespace ringattn {

// A wrong argument, or ranks that were given different ones. The text names the argument and its value.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// Input data that cannot be used: a malformed file, a truncated tensor. The text names the file and the
// field.
struct DataError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// A message that did not arrive in time or in the right size, or a rank that is gone. The text names every
// pending operation, its peer and its size.
struct CommError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// An accelerator that is absent or failed.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// An allocation that failed, with the size that was wanted.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::string what) : what_(std::move(what)) {}
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};

}  // namespace ringattn
