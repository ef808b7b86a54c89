// Streams and events of the stand-in runtime.
#include <algorithm>
#include <chrono>
#include <deque>

#include "tests/simt/runtime.h"

using simt::System, simt::guarded, simt::noted;

namespace simt {
Stream& real(Stream* s) {
  if (!s)
    throw Fault(FaultKind::usage, "work on the null stream, which the harness does not have: use a stream");
  return *s;
}
}  // namespace simt
using simt::real;

namespace {

simt::Device& here() { return System::get().device(simt::current_device); }

// The host or the acting stream learns what the event's record number `ticket` stood for.
void acquire(simt::StreamClock& who, const simt::Event& e, std::uint64_t ticket) {
  if (ticket > 0) simt::join(who, e.clock_at[ticket - 1]);
}

// Destroying an event that is still in a queue is legal, so events live until the end, and longer than
// streams.
std::deque<simt::Event> events;

constexpr int kLeastUrgent = 0, kMostUrgent = -5;  // as on the GPUs at hand

}  // namespace

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned flags, int priority) {
  if (flags > cudaStreamNonBlocking) return noted(cudaErrorInvalidValue);
  simt::Device& d = here();
  System::get().locked([&] {
    d.streams.push_back(std::make_unique<simt::Stream>(&d, simt::current_device));
    *s = d.streams.back().get();
    (*s)->priority_level = std::clamp(priority, kMostUrgent, kLeastUrgent);
  });
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
  return cudaStreamCreateWithPriority(s, flags, kLeastUrgent);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return *least = kLeastUrgent, *greatest = kMostUrgent, cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t s, int* priority) {
  return *priority = real(s).priority_level, cudaSuccess;
}
// Returns at once, like the original: what is queued still runs, as late as the rest, at the latest when the
// ranks or the process end. (It also has to work in a destructor, while a fault is on its way up.)
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  if (!s) return noted(cudaErrorInvalidResourceHandle);
  System::get().locked([&] { s->closing = true; });
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  return guarded([s] {
    System::get().drain(*real(s).device, s, [s] { return simt::idle(*s); });
    System::get().locked([&] { simt::join(simt::host_clock, s->actor.clock); });
    return cudaSuccess;
  });
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
  return guarded([s] {
    System::get().step(*real(s).device);  // so that a polling loop ends
    return System::get().locked([&] {
      if (!simt::idle(*s)) return cudaErrorNotReady;
      simt::join(simt::host_clock, s->actor.clock);
      return cudaSuccess;
    });
  });
}
// As on the device: the wait is for the record that was last enqueued before this call.
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  if (!e) return noted(cudaErrorInvalidResourceHandle);
  const auto ticket = System::get().locked([&] { return e->recorded; });
  System::get().push(real(s),
                     {"cudaStreamWaitEvent", [=] { return e->completed >= ticket; },
                      [=] { System::get().locked([&] { acquire(simt::acting->clock, *e, ticket); }); }});
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, void (*function)(void*), void* data) {
  System::get().push(real(s), {"cudaLaunchHostFunc", {}, [=] { function(data); }});
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned flags) {
  System::get().locked([&] {
    *e = &events.emplace_back();
    (*e)->timed = !(flags & cudaEventDisableTiming);
  });
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  return noted(e ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  if (!e) return noted(cudaErrorInvalidResourceHandle);
  System::get().locked([&] { ++e->recorded; });
  System::get().push(real(s), {"cudaEventRecord", {}, [=] {
                                 System::get().locked([&] {
                                   e->clock_at.push_back(simt::acting->clock);
                                   e->last = std::chrono::steady_clock::now();
                                   ++e->completed;
                                 });
                               }});
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  if (!e) return noted(cudaErrorInvalidResourceHandle);
  return guarded([e] {
    const auto ticket = System::get().locked([&] { return e->recorded; });
    System::get().drain(here(), nullptr, [=] { return e->completed >= ticket; });
    System::get().locked([&] { acquire(simt::host_clock, *e, ticket); });
    return cudaSuccess;
  });
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  if (!e) return noted(cudaErrorInvalidResourceHandle);
  return guarded([e] {
    System::get().step(here());
    return System::get().locked([&] {
      if (e->completed < e->recorded) return cudaErrorNotReady;
      acquire(simt::host_clock, *e, e->recorded);
      return cudaSuccess;
    });
  });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return System::get().locked([&] {
    if (!from || !to || !from->timed || !to->timed || from->recorded == 0 || to->recorded == 0)
      return noted(cudaErrorInvalidResourceHandle);
    if (from->completed < from->recorded || to->completed < to->recorded) return cudaErrorNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(to->last - from->last).count();
    return cudaSuccess;
  });
}
