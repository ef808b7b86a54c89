// One reusable fiber: a stack that runs one job after another.
#pragma once
#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstddef>
#include <functional>

namespace simt {

// Stacks with a guard page at their end. For Boost, which gives one back when its fiber has ended.
class FiberStacks {
 public:
  explicit FiberStacks(std::size_t bytes) : pages_(bytes) {}
  boost::context::stack_context allocate() { return pages_.allocate(); }
  void deallocate(boost::context::stack_context& stack) noexcept;

 private:
  boost::context::protected_fixedsize_stack pages_;
};

// Blocks never move their fibers to another OS thread: thread_local addresses stay valid across
// suspend(), and the compiler may cache them. A job that looks at none of those may move.
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

  FiberStacks allocator_;
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
