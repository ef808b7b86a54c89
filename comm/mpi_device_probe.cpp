#include "comm/mpi_device_probe.h"

#include <array>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include "comm/device_handles.h"
#include "comm/last_words.h"
#include "src/error.h"

namespace ringattn {
namespace {

// Around where an MPI changes its way of sending: into the peer's buffers, by a rendezvous, and piece by
// piece between devices.
constexpr std::array<std::size_t, 4> kSizes = {1, 4096, 70'001, (std::size_t{1} << 20) + 1};

constexpr Route kForth{.distance = 1, .channel = 0}, kBack{.distance = -1, .channel = 1};

// (31 i + 7 rank + 97 channel) mod 251: the prime shows a shift by any power of two, and nothing is 255.
std::vector<std::byte> pattern(std::size_t size, int rank, int channel) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t value =
        31 * i + 7 * static_cast<std::size_t>(rank) + 97 * static_cast<std::size_t>(channel);
    bytes[i] = static_cast<std::byte>(value % 251);
  }
  return bytes;
}

void check(cudaError_t code, const char* what) { check_cuda(code, "trial of device memory", what); }

class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t size) : size_(size) { check(cudaMalloc(&data_, size), "cudaMalloc"); }
  // After an error MPI may still read from here and write to it, so that the memory is left to the end of the
  // process.
  ~DeviceBytes() {
    if (std::uncaught_exceptions() == uncaught_) cudaFree(data_);
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(data_), size_}; }
  void write(const std::vector<std::byte>& from, cudaStream_t stream) const {
    check(cudaMemcpyAsync(data_, from.data(), size_, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  }
  std::vector<std::byte> read(cudaStream_t stream) const {
    std::vector<std::byte> to(size_);
    check(cudaMemcpyAsync(to.data(), data_, size_, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    return to;
  }

 private:
  void* data_ = nullptr;
  std::size_t size_;
  int uncaught_ = std::uncaught_exceptions();
};

// One block each way along a route. It was full of ones before.
struct Trial {
  Trial(const Communicator& comm, const Route& r, std::size_t bytes)
      : route(r),
        size(bytes),
        sent(pattern(bytes, comm.rank(), r.channel)),
        expected(pattern(bytes, sender_to(comm.rank(), r, comm.size()), r.channel)),
        out(bytes),
        in(bytes) {}

  void fill(cudaStream_t stream) const {
    out.write(sent, stream);
    in.write(std::vector<std::byte>(size, std::byte{0xFF}), stream);
  }
  std::string verdict(const Communicator& comm, cudaStream_t stream) const {
    const std::vector<std::byte> got = in.read(stream);
    for (std::size_t i = 0; i < size; ++i) {
      if (got[i] == expected[i]) continue;
      return "byte " + std::to_string(i) + " of " + std::to_string(size) + " from rank " +
             std::to_string(sender_to(comm.rank(), route, comm.size())) + " came as " +
             std::to_string(std::to_integer<int>(got[i])) + " and not as " +
             std::to_string(std::to_integer<int>(expected[i]));
    }
    return {};
  }

  Route route;
  std::size_t size;
  std::vector<std::byte> sent, expected;
  DeviceBytes out, in;
};

std::string try_size(Communicator& probe, cudaStream_t stream, int hop, std::size_t size, Deadline deadline) {
  const Trial forth(probe, kForth, size), back(probe, kBack, size);
  forth.fill(stream);
  back.fill(stream);
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  const auto one = probe.shift(hop, forth.out.bytes(), forth.in.bytes(), kForth);
  const auto other = probe.shift(hop, back.out.bytes(), back.in.bytes(), kBack);
  one->wait(deadline);
  other->wait(deadline);
  const std::string verdict = forth.verdict(probe, stream);
  return verdict.empty() ? back.verdict(probe, stream) : verdict;
}

}  // namespace

std::string probe_device_memory(Communicator& probe, void* stream, Deadline deadline) {
  auto* const compute = static_cast<cudaStream_t>(stream);
  std::string first;
  try {
    int hop = 0;
    for (const std::size_t size : kSizes) {
      std::string why = try_size(probe, compute, hop++, size, deadline);
      if (first.empty()) first = std::move(why);  // and on: the neighbours count on this rank
    }
  } catch (const CommError& error) {
    return error.what();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return first;
}

}  // namespace ringattn
