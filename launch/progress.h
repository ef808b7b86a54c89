// One line on stderr that says how far a long run is, rewritten in place and erased at the end.
#pragma once
#include <chrono>
#include <string>

#include "launch/options.h"

namespace ringattn::launch {

class Progress {
 public:
  // `automatic` is on if stderr is a terminal. Only the rank that prints should make one that is not off.
  explicit Progress(Switch setting);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // "timed iteration 3 of 5, 12 s"
  void show(const std::string& what);
  void erase();

 private:
  bool on_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace ringattn::launch
