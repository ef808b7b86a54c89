// The two ways in which a rank may fail. In a shared step every rank learns of the failure, so all of them
// end in an orderly way with one message; everywhere else a rank fails alone, and has to end the others by
// force.
#pragma once
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/communicator.h"
#include "launch/exit_code.h"
#include "src/agreement.h"

namespace ringattn::launch {

// Thrown on every rank alike. Anything else that leaves a rank's program was its failure alone.
class SharedFailure : public std::exception {
 public:
  explicit SharedFailure(Failure failure) : failure_(std::move(failure)) {}
  const Failure& failure() const { return failure_; }
  const char* what() const noexcept override { return failure_.text.c_str(); }

 private:
  Failure failure_;
};

// Collective. Runs body on every rank; if it throws on one of them, SharedFailure is thrown on all. A
// CommError passes as it is: nobody can be told any more.
void shared_step(Communicator& comm, std::chrono::milliseconds patience, const std::function<void()>& body);

// Collective. Runs something that is collective itself and that throws on all ranks alike, such as
// agree_on_fields or the constructor of RingAttention.
void shared_call(const std::function<void()>& body);

// Collective. Returns when all ranks have come here.
void meet(Communicator& comm, std::chrono::milliseconds patience);

// Collective. Every rank's value of a trivially copyable type, in rank order.
template <class T>
std::vector<T> gather_values(Communicator& comm, const T& mine, std::chrono::milliseconds patience) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto blobs = comm.all_gather(std::as_bytes(std::span(&mine, 1)), Clock::now() + patience);
  std::vector<T> values(blobs.size());
  for (std::size_t r = 0; r < blobs.size(); ++r) {
    if (blobs[r].size() != sizeof(T)) throw std::logic_error("gather_values: a blob of the wrong size");
    std::memcpy(&values[r], blobs[r].data(), sizeof(T));
  }
  return values;
}

// Collective. Every rank's text, in rank order.
std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine,
                                      std::chrono::milliseconds patience);

// Runs a rank's program to its exit code. A shared failure is printed by rank 0 alone. A failure alone is
// handed to `last_words` (which may print it; MPI's abort prints by itself) and ends the other ranks through
// Communicator::abort, which for MPI does not return.
using LastWords = std::function<void(const Communicator& comm, const Failure& alone)>;
ExitCode end_of_rank(Communicator& comm, const LastWords& last_words,
                     const std::function<void()>& program) noexcept;

// "ringattn: rank 2: k.npy: not found" on stderr; with one rank there is no rank to name.
void print_failure(const Communicator& comm, const Failure& failure) noexcept;

}  // namespace ringattn::launch
