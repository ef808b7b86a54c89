// The ring's link alone, under mpirun: what a bare shift costs. See "Link" in bench/README.md.
//
//   bench_link chunks [MiB]    bandwidth by chunk size and chunks in flight
//   bench_link overlap [MiB]   time in wait() after 20 ms of work, with and without test() in between
//   bench_link huge            one block of 2^31 + 4096 bytes, checked (case A21)
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "comm/mpi.h"
#include "src/error.h"

namespace {

using namespace ringattn;
using Seconds = std::chrono::duration<double>;

constexpr int kRepeats = 15;
constexpr std::size_t kMiB = std::size_t{1} << 20;

Deadline patience() { return Clock::now() + std::chrono::seconds(60); }

// The slowest rank's time, on every rank.
double slowest(double seconds) {
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return seconds;
}

struct Sample {
  double min = 0, median = 0;
};

// body() is timed by itself; ranks begin together. The first repeat only warms up.
template <class Body>
Sample measure(Body&& body) {
  std::vector<double> times;
  for (int i = 0; i <= kRepeats; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double seconds = slowest(body(i));
    if (i > 0) times.push_back(seconds);
  }
  std::sort(times.begin(), times.end());
  return {.min = times.front(), .median = times[times.size() / 2]};
}

double since(Deadline start) { return Seconds(Clock::now() - start).count(); }

// Two slots that swap, as in the ring.
void chunks(std::size_t bytes, bool print) {
  std::vector<std::byte> slot(bytes, std::byte{1}), other(bytes);
  if (print) std::printf("chunk KiB, in flight, GB/s per direction (best), (median)\n");
  for (std::size_t chunk = kMiB / 4; chunk <= bytes; chunk *= 2) {
    for (const int in_flight : {1, 2, 4, 8}) {
      const auto comm =
          make_mpi_communicator(MPI_COMM_WORLD, {.chunk_bytes = chunk, .chunks_in_flight = in_flight});
      const Sample s = measure([&](int hop) {
        const Deadline start = Clock::now();
        comm->shift(hop, slot, other)->wait(patience());
        const double seconds = since(start);
        std::swap(slot, other);
        return seconds;
      });
      const auto rate = [&](double seconds) { return static_cast<double>(bytes) / seconds * 1e-9; };
      if (print) std::printf("%zu, %d, %.2f, %.2f\n", chunk / 1024, in_flight, rate(s.min), rate(s.median));
    }
  }
}

// Arithmetic that touches no memory, for `length`; asks `poll` every 0.2 ms, about a tile.
template <class Poll>
double work(Clock::duration length, Poll&& poll) {
  double x = 1;
  const Deadline end = Clock::now() + length;
  while (Clock::now() < end) {
    const Deadline tile_end = Clock::now() + std::chrono::microseconds(200);
    while (Clock::now() < tile_end) x = x * 1.0000001 + 1e-9;
    poll();
  }
  return x;
}

void overlap(std::size_t bytes, bool print) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD);
  std::vector<std::byte> slot(bytes, std::byte{1}), other(bytes);
  double sum = 0;  // printed, so that the work is not optimised away
  for (const bool polling : {false, true}) {
    const Sample s = measure([&](int hop) {
      const auto shift = comm->shift(hop, slot, other);
      sum += work(std::chrono::milliseconds(20), [&] {
        if (polling) shift->test();
      });
      const Deadline start = Clock::now();
      shift->wait(patience());
      const double seconds = since(start);
      std::swap(slot, other);
      return seconds;
    });
    if (print) {
      std::printf("wait() after 20 ms of work, %s: best %.3f ms, median %.3f ms\n",
                  polling ? "test() every 0.2 ms" : "no test()", s.min * 1e3, s.median * 1e3);
    }
  }
  if (print) std::printf("(work's sum %g)\n", sum);
}

// byte i of rank r is (31 i + 7 r) mod 251
bool huge(bool print) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD);
  const std::size_t bytes = (std::size_t{1} << 31) + 4096;
  const auto made = [](std::size_t i, int rank) {
    return static_cast<std::byte>((31 * i + 7 * static_cast<std::size_t>(rank)) % 251);
  };
  std::vector<std::byte> block(bytes), got(bytes);
  for (std::size_t i = 0; i < bytes; ++i) block[i] = made(i, comm->rank());
  MPI_Barrier(MPI_COMM_WORLD);
  const Deadline start = Clock::now();
  comm->shift(0, block, got)->wait(patience());
  const double seconds = slowest(since(start));
  const int previous = (comm->rank() + comm->size() - 1) % comm->size();
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < bytes; ++i) wrong += got[i] != made(i, previous) ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  if (print) {
    std::printf("%zu bytes in %.2f s, %llu bytes wrong on all ranks\n", bytes, seconds,
                static_cast<unsigned long long>(wrong));
  }
  return wrong == 0;
}

std::size_t mebibytes(std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > 16384) {
    throw UsageError("MiB is '" + std::string(text) + "', allowed is 1 to 16384");
  }
  return value * kMiB;
}

bool run(const std::vector<std::string_view>& arguments, bool print) {
  const std::string_view what = arguments.empty() ? "" : arguments[0];
  if (what == "huge" && arguments.size() == 1) return huge(print);
  if ((what != "chunks" && what != "overlap") || arguments.size() > 2) {
    throw UsageError("usage: bench_link chunks [MiB] | overlap [MiB] | huge");
  }
  const std::size_t bytes = arguments.size() > 1 ? mebibytes(arguments[1]) : 32 * kMiB;
  what == "chunks" ? chunks(bytes, print) : overlap(bytes, print);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  int level = MPI_THREAD_SINGLE, rank = 0, code = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  try {
    code = run({argv + 1, argv + argc}, rank == 0) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_link: rank %d: %s\n", rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, dynamic_cast<const UsageError*>(&error) != nullptr ? 2 : 4);
  }
  MPI_Finalize();
  return code;
}
