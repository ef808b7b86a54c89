// A link with a stated bandwidth and latency on top of any communicator, to see overlap on any machine.
#pragma once
#include <memory>

#include "comm/communicator.h"

namespace ringattn {

struct Link {
  double gigabits_per_second = 0;  // 0 = unlimited
  double latency_us = 0;
};

// A shift completes no earlier than latency + bytes / bandwidth after it was started (the larger direction
// counts); bytes of shifts that run side by side follow each other. The data still travels through `inner`.
// Throws UsageError on a negative or non-finite value.
std::unique_ptr<Communicator> make_throttled(std::shared_ptr<Communicator> inner, Link link);

}  // namespace ringattn
