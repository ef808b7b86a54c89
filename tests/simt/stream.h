// Streams and events that run as late, and as interleaved, as the program allows.
//
// Enqueuing never executes anything. Work runs only when the host synchronises, and then only
// what that synchronisation needs, plus whatever the dice add from other streams. A missing
// cudaStreamWaitEvent or cudaStreamSynchronize therefore reads poison or stale data.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/simt/config.h"
#include "tests/simt/order.h"

namespace simt {

struct Operation {
  const char* name;
  std::function<bool()> ready;   // empty: always; asked at the head of its stream, lock held
  std::function<void()> run;     // runs without the lock
  StreamClock enqueued_after{};  // what the host knew to be finished; set by push()
};

struct Device;

struct Stream {
  Device* device;
  int priority_level = 0;  // as asked for at its creation; lower is more urgent
  std::deque<Operation> queue;
  bool busy = false;           // its head is being run by some host thread
  bool closing = false;        // destroyed by the program; goes away when its work is done
  std::uint32_t priority = 0;  // drawn anew now and then; decides who goes first
  Actor actor;                 // its place in the order of work
  explicit Stream(Device* d, int device_index) : device(d), actor(device_index) {}
};

struct Event {
  bool timed = true;
  std::uint64_t recorded = 0;                    // records enqueued so far
  std::uint64_t completed = 0;                   // records executed so far
  std::vector<StreamClock> clock_at;             // of the recording stream, per executed record
  std::chrono::steady_clock::time_point last{};  // when the last record was executed
};

struct Device {
  std::vector<std::unique_ptr<Stream>> streams;
};

// All devices of the process (one per rank) behind one lock: the stand-in is for tests, and one
// lock makes "nobody can make progress" a question with an exact answer.
class System {
 public:
  static System& get();
  // The end of the process: destroyed streams do what is left in them. A fault in it ends the process with
  // code 1.
  ~System();

  Device& device(int index);
  void push(Stream& s, Operation op);
  // Runs operations until done() holds (asked with the lock held). Raises when nobody can go on.
  void drain(Device& d, Stream* wanted, const std::function<bool()>& done);
  void step(Device& d);  // runs one ready operation, if there is one: for polling loops
  template <class F>
  auto locked(F f) {
    std::lock_guard lock(mutex_);
    return f();
  }
  // +1: one more host thread (a watchdog) that may act while all ranks wait; -1 when it is gone.
  void add_host_thread(int n) {
    locked([&] { ranks_ += n; }), changed();
  }
  // A fault whose exception may be lost on its way up ends this run_ranks for everybody. False outside of
  // one.
  bool blame(std::exception_ptr fault);
  void changed() { wake_.notify_all(); }  // something outside the streams changed (an abort)

  // Runs rank(0..n-1) on n host threads, each with its own device, as mpirun would start
  // processes. Rethrows the first fault after all of them have ended.
  void run_ranks(int n, const std::function<void(int)>& rank);

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Waiter = const std::function<bool()>*;
  System();
  Random& dice();
  Stream* pick(Device& d, Stream* wanted);
  Stream* pick_anywhere();
  void run_head(Stream& s, Lock& lock);
  bool stuck() const;
  [[noreturn]] void fail(Lock& lock, std::exception_ptr error);
  Stream* pick_destroyed();
  void finish_destroyed();
  void drop(bool (*from)(const Stream&));
  void forget_dropped(Lock& lock);
  std::string stuck_report() const;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<Waiter> waiters_;  // host threads inside drain() with nothing to run
  std::uint64_t seeded_with_ = config().seed;
  Random random_{config().seed};
  int ranks_ = 1;    // host threads that may still enqueue or abort something
  int running_ = 0;  // operations being run right now
  bool in_ranks_ = false;
  std::exception_ptr lost_;  // the fault that ended this run_ranks for everybody
  // Work that a fault has taken off its stream. It may own memory that running work still touches, so it
  // stays until nothing runs.
  std::vector<Operation> dropped_;
};

inline thread_local int current_device = 0;

}  // namespace simt
