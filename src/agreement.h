// Ranks agree before the first byte moves: on the same fields, on what they are about to do, and that each of
// them can go on.
#pragma once
#include <chrono>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "src/problem.h"

namespace ringattn {

// Collective. Throws the same UsageError on every rank if some rank's fields differ from those of the
// majority, e.g. "rank 3: seqlen_k 65536, others 32768".
void agree_on_fields(Communicator& comm, const std::vector<Field>& fields, Deadline deadline);

// What a rank is about to do with the others: the function that was called, and digest() of the object's
// problem where the ranks have agreed on one.
struct Operation {
  std::string call, problem;
};

// Collective. Ranks that were called for different operations all throw the same UsageError, "ranks disagree:
// rank 1: call backward, others forward", whatever else they have to say. If a rank passes an exception,
// every rank throws one of the same type with the text "rank N:
// ..." of the lowest failing rank; without "rank N: " if all ranks failed with the same words. A CommError is
// rethrown at once: there is nobody left to agree with.
void agree_all_well(Communicator& comm, const std::exception_ptr& mine, Deadline deadline,
                    const Operation& operation = {});

// Runs body, then agree_all_well on how it ended.
template <class Body>
void together(Communicator& comm, Deadline deadline, const Operation& operation, Body&& body) {
  std::exception_ptr error;
  try {
    body();
  } catch (...) {
    error = std::current_exception();
  }
  agree_all_well(comm, error, deadline, operation);
}
template <class Body>
void together(Communicator& comm, Deadline deadline, Body&& body) {
  together(comm, deadline, Operation{}, std::forward<Body>(body));
}

}  // namespace ringattn
