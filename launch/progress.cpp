#include "launch/progress.h"

#include <unistd.h>

#include <cstdio>

namespace ringattn::launch {

Progress::Progress(Switch setting)
    : on_(setting == Switch::on || (setting == Switch::automatic && isatty(STDERR_FILENO) == 1)) {}

Progress::~Progress() { erase(); }

void Progress::show(const std::string& what) {
  if (!on_) return;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  std::fprintf(stderr, "\r\033[K%s, %.0f s", what.c_str(), elapsed.count());
  std::fflush(stderr);
  shown_ = true;
}

void Progress::erase() {
  if (shown_) std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace ringattn::launch
