// Ranks agree before the first byte moves: on the same fields, and that each of them can go on.
#pragma once
#include <chrono>
#include <exception>
#include <vector>

#include "comm/communicator.h"
#include "src/problem.h"

namespace ringattn {

// Collective. Throws the same UsageError on every rank if some rank's fields differ from those of the
// majority, e.g. "rank 3: seqlen_k 65536, others 32768".
void agree_on_fields(Communicator& comm, const std::vector<Field>& fields, Deadline deadline);

// Collective. If a rank passes an exception, every rank throws one of the same type with the text "rank N:
// ..." of the lowest failing rank; without "rank N: " if all ranks failed with the same words. A CommError is
// rethrown at once: there is nobody left to agree with.
void agree_all_well(Communicator& comm, const std::exception_ptr& mine, Deadline deadline);

// Runs body, then agree_all_well on how it ended.
template <class Body>
void together(Communicator& comm, Deadline deadline, Body&& body) {
  std::exception_ptr error;
  try {
    body();
  } catch (...) {
    error = std::current_exception();
  }
  agree_all_well(comm, error, deadline);
}

}  // namespace ringattn
