#include "launch/steps.h"

#include <cstdio>

#include "src/error.h"

namespace ringattn::launch {

namespace {

void print_line(const std::string& text) noexcept {
  std::fprintf(stderr, "ringattn: %s\n", text.c_str());
  std::fflush(stderr);
}

}  // namespace

void print_failure(const Communicator& comm, const Failure& failure) noexcept {
  const bool names_a_rank = failure.text.starts_with("rank ") || failure.text.starts_with("ranks ");
  print_line(comm.size() == 1 || names_a_rank ? failure.text
                                              : "rank " + std::to_string(comm.rank()) + ": " + failure.text);
}

// A failure that is already shared keeps its code; one of communication cannot be shared any more.
void shared_call(const std::function<void()>& body) {
  try {
    body();
  } catch (const CommError&) {
    throw;
  } catch (const SharedFailure&) {
    throw;
  } catch (...) {
    throw SharedFailure(failure_of(std::current_exception()));
  }
}

void shared_step(Communicator& comm, std::chrono::milliseconds patience, const std::function<void()>& body) {
  shared_call([&] { together(comm, Clock::now() + patience, body); });
}

void meet(Communicator& comm, std::chrono::milliseconds patience) {
  // One byte, because a barrier is a gather of nothing in particular.
  const std::byte nothing{};
  comm.all_gather(std::span(&nothing, 1), Clock::now() + patience);
}

std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine,
                                      std::chrono::milliseconds patience) {
  const auto blobs = comm.all_gather(std::as_bytes(std::span(mine)), Clock::now() + patience);
  std::vector<std::string> texts;
  texts.reserve(blobs.size());
  for (const auto& blob : blobs) {
    texts.emplace_back(reinterpret_cast<const char*>(blob.data()), blob.size());
  }
  return texts;
}

ExitCode end_of_rank(Communicator& comm, const LastWords& last_words,
                     const std::function<void()>& program) noexcept {
  try {
    program();
    return ExitCode::ok;
  } catch (const SharedFailure& shared) {
    if (comm.rank() == 0) print_line(shared.failure().text);  // it names the rank whose failure it is
    return shared.failure().code;
  } catch (...) {
    const Failure alone = failure_of(std::current_exception());
    // Words first: after abort() this process may not live to say them.
    last_words(comm, alone);
    comm.abort(static_cast<int>(alone.code), alone.text);
    return alone.code;
  }
}

}  // namespace ringattn::launch
