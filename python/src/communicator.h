// A communicator as Python holds it.
#pragma once
#include <atomic>
#include <memory>

#include "comm/communicator.h"
#include "module.h"

namespace ringattn::python {

// The library's communicators are used by one thread at a time. Python threads may run side by side while the
// GIL is released, so use is claimed: a second claim throws UsageError instead of mixing two messages.
struct RankCommunicator {
  std::shared_ptr<Communicator> ring;
  std::atomic_flag busy{};
};

class Claim {
 public:
  explicit Claim(std::shared_ptr<RankCommunicator> comm);
  ~Claim() { comm_->busy.clear(); }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  Communicator& ring() const { return *comm_->ring; }

 private:
  std::shared_ptr<RankCommunicator> comm_;
};

}  // namespace ringattn::python
