// How the program ends. The library throws; only this file knows what number a failure becomes.
#pragma once
#include <exception>
#include <stdexcept>
#include <string>

namespace ringattn::launch {

enum class ExitCode : int {
  ok = 0,
  wrong_numbers = 1,  // the check found a value outside its bound
  usage = 2,          // a bad option, or ranks that were given different ones
  data = 3,           // input that cannot be used, output that cannot be written
  communication = 4,  // a peer that is lost, late or sent the wrong size
  device = 5,
  memory = 6,
  bug = 70,  // a promise of the program itself is broken
};

// The check compared the output with the float64 reference and it is wrong.
struct WrongNumbers : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Failure {
  ExitCode code = ExitCode::bug;
  std::string text;
};

// What an exception becomes. Never throws for lack of memory: an unreadable text is better than none.
Failure failure_of(const std::exception_ptr& error) noexcept;

}  // namespace ringattn::launch
