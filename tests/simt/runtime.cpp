#include "tests/simt/runtime.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "tests/simt/fault.h"
#include "tests/simt/memory.h"
#include "tests/simt/order.h"

using simt::Access, simt::System, simt::Where;

namespace {
simt::Device& here() { return System::get().device(simt::current_device); }

simt::Stream& real(cudaStream_t s) {
  if (!s) throw simt::Fault(simt::FaultKind::usage, "the null stream is not supported");
  return *s;
}
bool idle(const simt::Stream& s) { return s.queue.empty() && !s.busy; }
}  // namespace

const char* cudaGetErrorString(cudaError_t e) {
  return e == cudaSuccess ? "no error" : e == cudaErrorNotReady ? "not ready" : "invalid value";
}
cudaError_t cudaSetDevice(int device) { return simt::current_device = device, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = simt::current_device, cudaSuccess; }

cudaError_t cudaDeviceSynchronize() {
  simt::Device& d = here();
  System::get().drain(d, nullptr, [&] {
    return std::all_of(d.streams.begin(), d.streams.end(), [](auto& s) { return idle(*s); });
  });
  System::get().locked([&] {
    for (auto& s : d.streams) simt::join(simt::host_clock, s->actor.clock);
  });
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** p, std::size_t n) { return *p = simt::global_allocate(n), cudaSuccess; }
cudaError_t cudaHostAlloc(void** p, std::size_t n, unsigned) {
  return *p = simt::global_allocate(n), cudaSuccess;
}
cudaError_t cudaFreeHost(void* p) { return simt::global_free(p), cudaSuccess; }
cudaError_t cudaFree(void* p) { return simt::global_free(p), cudaSuccess; }

// The address exists at once; the memory is only good in stream order. Poisoning it again when
// the stream gets there wipes out whatever another stream wrote too early.
cudaError_t cudaMallocAsync(void** p, std::size_t n, cudaStream_t s, Where where) {
  void* memory = *p = simt::global_allocate(n);
  System::get().push(real(s), {"cudaMallocAsync", {}, [=] {
                                 simt::check_order(memory, n, Access::write, where);
                                 std::memset(memory, simt::kPoison, n);
                               }});
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t s, Where where) {
  System::get().push(real(s), {"cudaFreeAsync", {}, [=] {
                                 simt::check_order(p, simt::global_size(p), Access::write, where);
                                 simt::global_free(p);
                               }});
  return cudaSuccess;
}

namespace {
void copy(void* to, const void* from, std::size_t n, const Where& where) {
  if (n == 0) return;  // the pointers may then be null
  simt::check_order(from, n, Access::read, where);
  simt::check_order(to, n, Access::write, where);
  std::memcpy(to, from, n);
}
}  // namespace

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t n, cudaMemcpyKind, Where where) {
  return copy(to, from, n, where), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t n, cudaMemcpyKind, cudaStream_t s,
                            Where where) {
  System::get().push(real(s), {"cudaMemcpyAsync", {}, [=] { copy(to, from, n, where); }});
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t n, cudaStream_t s, Where where) {
  System::get().push(real(s), {"cudaMemsetAsync", {}, [=] {
                                 simt::check_order(to, n, Access::write, where);
                                 std::memset(to, value, n);
                               }});
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
  simt::Device& d = here();
  System::get().locked([&] {
    d.streams.push_back(std::make_unique<simt::Stream>(&d));
    *s = d.streams.back().get();
  });
  return cudaSuccess;
}
// Returns at once, like the original: what is queued still runs. (It also has to work in a
// destructor, while a fault is on its way up.)
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  System::get().locked([&] { s->closing = true; });
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  System::get().drain(*real(s).device, s, [s] { return idle(*s); });
  System::get().locked([&] { simt::join(simt::host_clock, s->actor.clock); });
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
  System::get().step(*real(s).device);  // so that a polling loop ends
  return System::get().locked([&] {
    if (!idle(*s)) return cudaErrorNotReady;
    simt::join(simt::host_clock, s->actor.clock);
    return cudaSuccess;
  });
}

namespace {
// The host or the acting stream learns what the event's record number `ticket` stood for.
void acquire(simt::StreamClock& who, const simt::Event& e, std::uint64_t ticket) {
  if (ticket > 0) simt::join(who, e.clock_at[ticket - 1]);
}
}  // namespace

// As on the device: the wait is for the record that was last enqueued before this call.
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  const auto ticket = System::get().locked([&] { return e->recorded; });
  System::get().push(real(s),
                     {"cudaStreamWaitEvent", [=] { return e->completed >= ticket; },
                      [=] { System::get().locked([&] { acquire(simt::acting->clock, *e, ticket); }); }});
  return cudaSuccess;
}
// Destroying an event that is still in a queue is legal, so events live until the end.
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
  static std::deque<simt::Event> all;
  System::get().locked([&] { *e = &all.emplace_back(); });
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  System::get().locked([&] { ++e->recorded; });
  System::get().push(real(s), {"cudaEventRecord", {}, [=] {
                                 System::get().locked([&] {
                                   e->clock_at.push_back(simt::acting->clock);
                                   ++e->completed;
                                 });
                               }});
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  const auto ticket = System::get().locked([&] { return e->recorded; });
  System::get().drain(here(), nullptr, [=] { return e->completed >= ticket; });
  System::get().locked([&] { acquire(simt::host_clock, *e, ticket); });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  System::get().step(here());
  return System::get().locked([&] {
    if (e->completed < e->recorded) return cudaErrorNotReady;
    acquire(simt::host_clock, *e, e->recorded);
    return cudaSuccess;
  });
}
