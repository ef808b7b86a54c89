// One reusable fiber: a stack that runs one job after another.
#pragma once
#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstddef>
#include <functional>

namespace simt {

// A fiber never moves to another OS thread: thread_local addresses stay valid across
// suspend(), and the compiler may cache them.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void assign(const std::function<void()>* job) { job_ = job; }  // borrowed until it returns
  void resume();   // scheduler -> fiber; returns when the fiber suspends or its job ends
  void suspend();  // fiber -> scheduler

 private:
  boost::context::fiber run(boost::context::fiber&& caller);

  boost::context::protected_fixedsize_stack allocator_;
  boost::context::stack_context stack_;
  boost::context::fiber inside_;                // handle on the fiber while it is suspended
  boost::context::fiber outside_;               // handle on the scheduler while the fiber runs
  const std::function<void()>* job_ = nullptr;  // null: leave run()

  // AddressSanitizer keeps one shadow of "the current stack"; it has to be told of every
  // switch, or it takes a fiber's frames for wild writes.
  [[maybe_unused]] void* fake_inside_ = nullptr;
  [[maybe_unused]] void* fake_outside_ = nullptr;
  [[maybe_unused]] const void* outside_bottom_ = nullptr;
  [[maybe_unused]] std::size_t outside_size_ = 0;
};

}  // namespace simt
