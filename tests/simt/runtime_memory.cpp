// Memory of the stand-in runtime: allocations of each kind, and copies that know what they touch.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/simt/memory.h"
#include "tests/simt/peers.h"
#include "tests/simt/runtime.h"

using simt::Access, simt::MemoryKind, simt::System, simt::Where, simt::guarded, simt::noted;

namespace {

cudaError_t allocate_into(MemoryKind kind, void** p, std::size_t n, bool pooled = false) {
  if (!p) return noted(cudaErrorInvalidValue);
  *p = nullptr;
  if (n == 0) return cudaSuccess;  // as CUDA: a null pointer
  *p = simt::allocate(kind, simt::current_device, n, pooled);
  return noted(*p ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t release_if_live(MemoryKind kind, void* p) {
  return guarded([=] { return !p || simt::release(kind, p) ? cudaSuccess : cudaErrorInvalidValue; });
}

struct Copy {
  void* to;
  const void* from;
  std::size_t to_pitch, from_pitch, width, height;
  bool by_the_host_if_need_be = false;  // between two devices
};

bool on_device(const void* p) {
  const auto a = simt::find_allocation(p);
  return a && a->kind == MemoryKind::device;
}
bool pageable(const void* p) { return !simt::find_allocation(p); }

// Pinned memory counts as host memory, as in CUDA.
bool direction_fits(const Copy& c, cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDefault || c.width == 0 || c.height == 0) return true;
  const bool from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const bool to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  return on_device(c.from) == from && on_device(c.to) == to;
}

// Whether the device that copies may touch that end of it.
bool reached(const void* p) {
  const auto a = simt::find_allocation(p);
  return !simt::acting || !a || a->kind != MemoryKind::device ||
         simt::reaches(simt::acting->device, a->device, a->pooled);
}

void check_reach(const Copy& c, const Where& where) {
  const bool direct = reached(c.to) && reached(c.from);
  if (c.by_the_host_if_need_be) return simt::count_peer_copy(direct);
  if (direct) return;
  simt::raise(simt::FaultKind::usage,
              "device " + std::to_string(simt::acting->device) +
                  " copies memory of another device, which it has not been let touch",
              where);
}

void run(const Copy& c, const Where& where) {
  if (c.width == 0) return;
  check_reach(c, where);
  for (std::size_t row = 0; row < c.height; ++row) {
    const void* from = static_cast<const unsigned char*>(c.from) + row * c.from_pitch;
    void* to = static_cast<unsigned char*>(c.to) + row * c.to_pitch;
    simt::check_order(from, c.width, Access::read, where);
    simt::check_order(to, c.width, Access::write, where);
    std::memcpy(to, from, c.width);
  }
}

// What was an allocation when the work was queued must be one when it runs: memory that was freed too early
// may have become the host's.
void check_alive(const void* p, bool was_allocated, const char* what, const Where& where) {
  if (was_allocated && pageable(p))
    simt::raise(simt::FaultKind::out_of_bounds, std::string(what) + " after its memory was freed", where);
}

cudaError_t enqueue(Copy c, cudaMemcpyKind kind, cudaStream_t s, const Where& where) {
  if (!direction_fits(c, kind)) return noted(cudaErrorInvalidMemcpyDirection);
  if (c.width > c.to_pitch || c.width > c.from_pitch) return noted(cudaErrorInvalidValue);
  if (c.width == 0 || c.height == 0) return cudaSuccess;
  const bool waits = pageable(c.to), reads_ours = !pageable(c.from);
  std::shared_ptr<std::vector<unsigned char>> taken;
  if (pageable(c.from)) {
    taken = std::make_shared<std::vector<unsigned char>>(c.width * c.height);
    run({taken->data(), c.from, c.width, c.from_pitch, c.width, c.height}, where);
    c.from = taken->data(), c.from_pitch = c.width;
  }
  System::get().push(simt::real(s), {"cudaMemcpyAsync", {}, [c, where, taken, waits, reads_ours] {
                                       check_alive(c.to, !waits, "a copy runs", where);
                                       check_alive(c.from, reads_ours, "a copy runs", where);
                                       run(c, where);
                                     }});
  return waits ? cudaStreamSynchronize(s) : cudaSuccess;
}

// Memory that a stream is to free. Where a fault or the end of the process has taken the work off its stream,
// it is freed all the same, as the end of a CUDA context does.
class FreedLater {
 public:
  explicit FreedLater(void* p) : p_(p) {}
  ~FreedLater() {
    try {
      if (p_) simt::release(MemoryKind::device, p_);
    } catch (const simt::Fault&) {  // one that has been told ended the stream
    }
  }
  FreedLater(const FreedLater&) = delete;
  FreedLater& operator=(const FreedLater&) = delete;
  void free(std::size_t bytes, const Where& where) {
    simt::check_order(p_, bytes, Access::write, where);
    if (!simt::release(MemoryKind::device, std::exchange(p_, nullptr)))
      simt::raise(simt::FaultKind::usage, "cudaFreeAsync runs and its memory was freed before", where);
  }

 private:
  void* p_;
};

}  // namespace

cudaError_t cudaMalloc(void** p, std::size_t n) { return allocate_into(MemoryKind::device, p, n); }
cudaError_t cudaFree(void* p) { return release_if_live(MemoryKind::device, p); }
cudaError_t cudaHostAlloc(void** p, std::size_t n, unsigned) {
  return allocate_into(MemoryKind::pinned, p, n);
}
cudaError_t cudaMallocHost(void** p, std::size_t n) { return allocate_into(MemoryKind::pinned, p, n); }
cudaError_t cudaFreeHost(void* p) { return release_if_live(MemoryKind::pinned, p); }

// The address exists at once; the memory is only good in stream order. Poisoning it again when the stream
// gets there wipes out whatever another stream wrote too early.
cudaError_t cudaMallocAsync(void** p, std::size_t n, cudaStream_t s, Where where) {
  if (const cudaError_t e = allocate_into(MemoryKind::device, p, n, true); e != cudaSuccess || n == 0)
    return e;
  System::get().push(simt::real(s), {"cudaMallocAsync", {}, [=, memory = *p] {
                                       simt::check_order(memory, n, Access::write, where);
                                       std::memset(memory, simt::kPoison, n);
                                     }});
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t s, Where where) {
  if (!p) return cudaSuccess;
  const auto a = simt::find_allocation(p);
  if (!a || a->base != p || a->kind != MemoryKind::device) return noted(cudaErrorInvalidValue);
  System::get().push(
      simt::real(s),
      {"cudaFreeAsync", {}, [memory = std::make_shared<FreedLater>(p), bytes = a->bytes, where] {
         memory->free(bytes, where);
       }});
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* p) {
  const auto a = simt::find_allocation(p);
  auto* const there = const_cast<void*>(p);
  if (!a)
    *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, there};
  else if (a->kind == MemoryKind::device)
    *attributes = {cudaMemoryTypeDevice, a->device, there, nullptr};
  else
    *attributes = {cudaMemoryTypeHost, a->device, there, there};
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = simt::config().device_bytes;
  *free = *total - simt::allocated_bytes(simt::current_device);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t n, cudaMemcpyKind kind, Where where) {
  const Copy c{to, from, n, n, n, 1};
  if (!direction_fits(c, kind)) return noted(cudaErrorInvalidMemcpyDirection);
  return guarded([&] { return run(c, where), cudaSuccess; });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t n, cudaMemcpyKind kind, cudaStream_t s,
                            Where where) {
  return enqueue({to, from, n, n, n, 1}, kind, s, where);
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t s,
                              Where where) {
  return enqueue({to, from, to_pitch, from_pitch, width, height}, kind, s, where);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t n,
                                cudaStream_t s, Where where) {
  const auto a = simt::find_allocation(to), b = simt::find_allocation(from);
  if (n != 0 && (!a || !b || a->device != to_device || b->device != from_device))
    return noted(cudaErrorInvalidValue);
  const bool two = to_device != from_device;
  return enqueue({to, from, n, n, n, 1, two}, cudaMemcpyDeviceToDevice, s, where);
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t n, cudaStream_t s, Where where) {
  if (n == 0) return cudaSuccess;
  if (pageable(to)) return noted(cudaErrorInvalidValue);
  System::get().push(simt::real(s), {"cudaMemsetAsync", {}, [=] {
                                       check_alive(to, true, "cudaMemsetAsync runs", where);
                                       simt::check_order(to, n, Access::write, where);
                                       std::memset(to, value, n);
                                     }});
  return cudaSuccess;
}
