#include <exception>
#include <mutex>
#include <thread>

#include "comm/threads.h"
#include "src/error.h"

namespace ringattn {
namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

// The exception of the rank that failed first. The others are told only after it has been stored, so what
// they throw in answer can never take its place.
class FirstFailure {
 public:
  void report(Communicator& comm, const std::exception_ptr& error) {
    {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = error;
    }
    comm.abort(1, "rank " + std::to_string(comm.rank()) + " failed: " + text_of(error));
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace

void run_thread_ranks(int size, const std::function<void(std::shared_ptr<Communicator>)>& body) {
  std::vector<std::shared_ptr<Communicator>> communicators;
  for (auto& communicator : make_thread_communicators(size)) communicators.push_back(std::move(communicator));

  FirstFailure failure;
  const auto run = [&](const std::shared_ptr<Communicator>& comm) {
    try {
      body(comm);
    } catch (...) {
      failure.report(*comm, std::current_exception());
    }
  };
  {
    std::vector<std::jthread> threads;  // joined at the end of this scope, whatever happens
    try {
      for (std::size_t rank = 1; rank < communicators.size(); ++rank) {
        threads.emplace_back(run, communicators[rank]);
      }
      run(communicators[0]);
    } catch (...) {  // a thread could not be started: those that run must not wait for it
      failure.report(*communicators[0], std::current_exception());
    }
  }
  failure.rethrow();
}

}  // namespace ringattn
