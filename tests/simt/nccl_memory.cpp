// Memory of the stand-in for NCCL: its own, and what is registered with its communicators.
#include <algorithm>
#include <exception>

#include "tests/simt/memory.h"
#include "tests/simt/nccl.h"

namespace simt {
namespace {

// All under the lock of the system, and kept to the end, so that a handle of the past is known for what it
// is.
struct Registration {
  const NcclComm* comm;
  const unsigned char* data;
  std::size_t bytes;
  bool live = true;
};
std::deque<Registration> registrations;
NcclCounts counts;
thread_local NcclRefusal refusal = NcclRefusal::none;

void end(Registration& registration) {
  registration.live = false;
  hold(registration.data, -1);
  --counts.registered;
}

// Functions of 2.19.1; a program that calls them in an older NCCL does not start, or ends there.
void check_known(const char* name) {
  if (nccl_version < NCCL_VERSION(2, 19, 1))
    throw Fault(FaultKind::usage, std::string(name) + " is called, and this NCCL does not have it");
}

Registration& known(const NcclComm* comm, void* handle) {
  const auto found = std::find_if(registrations.begin(), registrations.end(),
                                  [=](const Registration& r) { return &r == handle; });
  if (found == registrations.end()) throw Fault(FaultKind::usage, "ncclCommDeregister of no handle at all");
  if (found->comm != comm)
    throw Fault(FaultKind::usage, "ncclCommDeregister of another communicator's handle");
  if (comm->ended) throw Fault(FaultKind::usage, "ncclCommDeregister after the end of its communicator");
  if (!found->live) throw Fault(FaultKind::usage, "ncclCommDeregister of a handle for the second time");
  return *found;
}

}  // namespace

bool is_registered(const NcclComm& comm, const void* data, std::size_t bytes) {
  const auto* const first = static_cast<const unsigned char*>(data);
  return std::any_of(registrations.begin(), registrations.end(), [&](const Registration& r) {
    return r.live && r.comm == &comm && r.data <= first && first + bytes <= r.data + r.bytes;
  });
}

int registrations_of(const NcclComm& comm) {
  return static_cast<int>(std::count_if(registrations.begin(), registrations.end(),
                                        [&](const Registration& r) { return r.live && r.comm == &comm; }));
}

void end_registrations(const NcclComm& comm) {
  for (Registration& r : registrations)
    if (r.live && r.comm == &comm) end(r);
}

void count_message(bool zero_copy) {
  ++counts.messages;
  counts.zero_copy += zero_copy ? 1 : 0;
}

void nccl_refuse(NcclRefusal r) { refusal = r; }

NcclCounts nccl_counts() {
  return System::get().locked([] { return counts; });
}

}  // namespace simt

using simt::NcclRefusal, simt::System;

ncclResult_t ncclMemAlloc(void** p, std::size_t bytes) {
  simt::check_known("ncclMemAlloc");
  *p = nullptr;
  if (bytes == 0) return ncclInvalidArgument;
  if (simt::refusal == NcclRefusal::no_memory) return ncclUnhandledCudaError;
  *p = simt::allocate(simt::MemoryKind::device, simt::current_device, bytes);
  return *p == nullptr ? ncclUnhandledCudaError : ncclSuccess;
}

// Unmaps it at once, whatever streams have still to do with it.
ncclResult_t ncclMemFree(void* p, simt::Where where) {
  return simt::accused([&] {
    simt::check_known("ncclMemFree");
    const auto memory = simt::find_allocation(p);
    if (!memory || memory->base != p) return ncclInvalidArgument;
    std::exception_ptr fault;
    try {
      simt::check_order(p, memory->bytes, simt::Access::write, where);
    } catch (const simt::Fault&) {
      fault = std::current_exception();
    }
    simt::release(simt::MemoryKind::device, p);  // all the same: its owner will not come again
    if (fault) std::rethrow_exception(fault);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* data, std::size_t bytes, void** handle) {
  simt::check_known("ncclCommRegister");
  *handle = nullptr;
  const auto memory = simt::find_allocation(data);
  if (comm == nullptr || bytes == 0 || !memory || memory->kind != simt::MemoryKind::device)
    return ncclInvalidArgument;
  if (simt::refusal == NcclRefusal::error) return ncclUnhandledCudaError;
  if (simt::refusal == NcclRefusal::no_handle) return ncclSuccess;  // as with NCCL_LOCAL_REGISTER=0
  System::get().locked([&] {
    if (comm->ended)
      throw simt::Fault(simt::FaultKind::usage, "ncclCommRegister after the communicator's end");
    simt::hold(data, 1);
    simt::registrations.push_back(
        {.comm = comm, .data = static_cast<const unsigned char*>(data), .bytes = bytes});
    ++simt::counts.registrations;
    ++simt::counts.registered;
    *handle = &simt::registrations.back();
  });
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  if (comm == nullptr) return ncclInvalidArgument;
  return simt::accused([&] {
    simt::check_known("ncclCommDeregister");
    System::get().locked([&] { simt::end(simt::known(comm, handle)); });
    return ncclSuccess;
  });
}
