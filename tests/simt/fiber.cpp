#include "tests/simt/fiber.h"

#include <utility>

#include "tests/simt/guard.h"

#ifdef SIMT_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#define SIMT_TELL_SANITIZER(call) call
#else
#define SIMT_TELL_SANITIZER(call) (void)0
#endif

namespace simt {
namespace {
#ifdef SIMT_ADDRESS_SANITIZER
constexpr std::size_t kStackBytes = 512 * 1024;  // red zones make frames several times larger
#else
constexpr std::size_t kStackBytes = 128 * 1024;
#endif
}  // namespace

// The shadow that AddressSanitizer keeps outlives the memory it stands for, and the last frames of a fiber,
// which are left and not returned from, leave their red zones in it. The variables of a new thread (its
// thread_local ones, whose shadow the sanitizer does not clear) may come to lie there.
void FiberStacks::deallocate(boost::context::stack_context& stack) noexcept {
  open_guard(static_cast<unsigned char*>(stack.sp) - stack.size, stack.size);
  pages_.deallocate(stack);
}

Fiber::Fiber() : allocator_(kStackBytes), stack_(allocator_.allocate()) {
  boost::context::preallocated place(stack_.sp, stack_.size, stack_);
  inside_ = boost::context::fiber(std::allocator_arg, place, allocator_,
                                  [this](boost::context::fiber&& f) { return run(std::move(f)); });
}

Fiber::~Fiber() {
  job_ = nullptr;
  resume();  // lets run() return; Boost then gives the stack back through allocator_
}

boost::context::fiber Fiber::run(boost::context::fiber&& caller) {
  SIMT_TELL_SANITIZER(__sanitizer_finish_switch_fiber(nullptr, &outside_bottom_, &outside_size_));
  outside_ = std::move(caller);
  while (job_) {
    (*job_)();
    suspend();
  }
  SIMT_TELL_SANITIZER(__sanitizer_start_switch_fiber(nullptr, outside_bottom_, outside_size_));
  return std::move(outside_);
}

void Fiber::resume() {
  SIMT_TELL_SANITIZER(__sanitizer_start_switch_fiber(
      &fake_outside_, static_cast<char*>(stack_.sp) - stack_.size, stack_.size));
  inside_ = std::move(inside_).resume();
  SIMT_TELL_SANITIZER(__sanitizer_finish_switch_fiber(fake_outside_, nullptr, nullptr));
}

void Fiber::suspend() {
  SIMT_TELL_SANITIZER(__sanitizer_start_switch_fiber(&fake_inside_, outside_bottom_, outside_size_));
  outside_ = std::move(outside_).resume();
  SIMT_TELL_SANITIZER(__sanitizer_finish_switch_fiber(fake_inside_, &outside_bottom_, &outside_size_));
}

}  // namespace simt
