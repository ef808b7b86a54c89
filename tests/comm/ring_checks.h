// What every communicator must do, written once and run on each of them. Collective.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "comm/communicator.h"
#include "src/error.h"

namespace ringattn::test {

// Enough for any step on a busy machine, short of a test that hangs.
inline Deadline soon() { return Clock::now() + std::chrono::seconds(30); }

// Every block comes from the previous rank unchanged, for all kSizes, the same on all ranks.
void check_equal_sizes(Communicator& comm);

// Each rank's block has a size of its own, and some are empty.
void check_sizes_that_differ(Communicator& comm);

// A full turn: in size-1 hops each rank sees every other rank's block once, in ring order, in two slots.
void check_full_turn(Communicator& comm);

// Many shifts in a row with test() between, alternating slots.
void check_many_shifts(Communicator& comm, int count);

// Blobs of different sizes, empty ones among them, in rank order, twice in a row.
void check_all_gather(Communicator& comm);

// sent() counts bytes and blocks, and an empty block is none.
void check_sent_count(Communicator& comm);

// A second shift while one is under way is refused and leaves the first alone.
void check_one_shift_at_a_time(Communicator& comm);

// The text of the CommError that `body` throws; fails the test if it throws none.
template <class Body>
std::string comm_error_of(Body&& body) {
  try {
    body();
  } catch (const CommError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no CommError was thrown";
  return {};
}

// "... timed out after T s ...": the time differs from run to run.
std::string without_time(std::string text);

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace ringattn::test
