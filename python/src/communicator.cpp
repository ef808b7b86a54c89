#include "communicator.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "comm/device_ranks.h"
#include "comm/nccl.h"
#include "comm/self.h"
#include "comm/staged.h"
#include "comm/threads.h"
#include "src/agreement.h"
#include "src/attention.h"
#include "src/error.h"
#ifdef RINGATTN_HAVE_MPI
#include "comm/mpi.h"
#endif

namespace ringattn::python {

namespace nb = nanobind;

Claim::Claim(std::shared_ptr<RankCommunicator> comm) : comm_(std::move(comm)) {
  if (comm_->busy.test_and_set())
    throw UsageError("comm is in use by another thread; give each thread a communicator of its own");
}

namespace {

using Shared = std::shared_ptr<RankCommunicator>;

Shared shared(std::shared_ptr<Communicator> ring) {
  auto comm = std::make_shared<RankCommunicator>();
  comm->ring = std::move(ring);
  return comm;
}

std::vector<Shared> threads(int size) {
  std::vector<Shared> ranks;
  for (auto& ring : make_thread_communicators(size)) ranks.push_back(shared(std::move(ring)));
  return ranks;
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

#ifdef RINGATTN_HAVE_MPI
std::string library_version() {
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  return text.substr(0, static_cast<std::size_t>(length));
}

// mpi4py and this library must have opened the same MPI: handles of another one mean nothing here.
Shared mpi(std::uintptr_t address, std::size_t handle_size, const std::string& version) {
  if (handle_size != sizeof(MPI_Comm) || version.find(library_version()) == std::string::npos)
    throw UsageError("comm belongs to the MPI library '" + version + "', ringattn was built with '" +
                     library_version() +
                     "'; install mpi4py for this one: pip install --no-binary mpi4py mpi4py");
  MPI_Comm comm = MPI_COMM_NULL;
  std::memcpy(&comm, reinterpret_cast<const void*>(address), sizeof(MPI_Comm));
  const nb::gil_scoped_release release;
  return shared(make_mpi_communicator(comm));
}
#else
Shared mpi(std::uintptr_t, std::size_t, const std::string&) {
  throw UsageError("comm is an MPI communicator, this build of ringattn has no MPI");
}
#endif

// The communicators of device memory: made together by all ranks of one of the host, which carries their
// agreements from then on.
template <class Make>
Shared on_device(const Shared& host, Make&& make) {
  const Claim claim(host);
  const nb::gil_scoped_release release;
  return shared(make(host->ring));
}

void* pointer(std::uintptr_t number) { return reinterpret_cast<void*>(number); }

Shared nccl(const Shared& host, std::uintptr_t stream, std::uintptr_t comm, double deadline) {
  return on_device(host, [&](const std::shared_ptr<Communicator>& ring) {
    return make_nccl_communicator(ring, pointer(stream),
                                  {.comm = pointer(comm), .patience = milliseconds(deadline)});
  });
}

Shared staged(const Shared& host, std::uintptr_t stream) {
  return on_device(host, [&](const auto& ring) { return make_staged(ring, pointer(stream)); });
}

Shared device_ranks(const Shared& host, std::uintptr_t stream) {
  return on_device(host, [&](const auto& ring) { return make_device_ranks(ring, pointer(stream)); });
}

std::vector<nb::bytes> all_gather(const Shared& comm, const nb::bytes& mine, double deadline) {
  std::vector<std::vector<std::byte>> blobs;
  {
    const std::span data(static_cast<const std::byte*>(mine.data()), mine.size());
    const Claim claim(comm);
    const nb::gil_scoped_release release;
    blobs = claim.ring().all_gather(data, Clock::now() + milliseconds(deadline));
  }
  std::vector<nb::bytes> all;
  for (const auto& blob : blobs) all.emplace_back(blob.data(), blob.size());
  return all;
}

// For an error that this rank met before it could construct: the others are waiting in the agreement there.
void refuse_construction(const Shared& comm, const std::string& text, double deadline) {
  const Claim claim(comm);
  const nb::gil_scoped_release release;
  agree_all_well(claim.ring(), std::make_exception_ptr(UsageError(text)),
                 Clock::now() + milliseconds(deadline), RingAttention::construction());
}

}  // namespace

void bind_communicator(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<RankCommunicator>(module, "Communicator", "One rank's end of a ring.")
      .def_static(
          "one_rank", [] { return shared(make_self_communicator()); }, "A ring of one rank.")
      .def_static(
          "threads", &threads, "size"_a,
          "The ends of a ring whose ranks are threads of this process, for tests: give each thread one.")
      .def_static("_mpi", &mpi, "address"_a, "handle_size"_a, "version"_a)
      .def_prop_ro("rank", [](const RankCommunicator& c) { return c.ring->rank(); })
      .def_prop_ro("size", [](const RankCommunicator& c) { return c.ring->size(); })
      .def_prop_ro(
          "name", [](const RankCommunicator& c) { return c.ring->name(); },
          "'self', 'threads', 'mpi', 'nccl', 'staged(mpi)', 'device(threads)'.")
      .def_prop_ro(
          "on_device",
          [](const RankCommunicator& c) {
            return dynamic_cast<const DeviceCommunicator*>(c.ring.get()) != nullptr;
          },
          "Whether blocks lie in the memory of a GPU.")
      .def_prop_ro(
          "sent",
          [](const RankCommunicator& c) -> Counts {
            nb::dict sent;
            sent["bytes"] = c.ring->sent().bytes;
            sent["messages"] = c.ring->sent().messages;
            return sent;
          },
          "What this rank has sent in blocks since the communicator was made.")
      .def("_nccl", &nccl, "stream"_a, "nccl_comm"_a, "deadline"_a)
      .def("_staged", &staged, "stream"_a)
      .def("_device_ranks", &device_ranks, "stream"_a)
      .def("_all_gather", &all_gather, "mine"_a, "deadline"_a)
      .def("_refuse_construction", &refuse_construction, "text"_a, "deadline"_a);
}

}  // namespace ringattn::python
