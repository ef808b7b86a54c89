#include "comm/mpi_gather.h"

#include <climits>
#include <cstdint>

#include "comm/last_words.h"
#include "comm/poll.h"
#include "src/error.h"

namespace ringattn {
namespace {

std::string here(const MpiEndpoint& end) { return "rank " + std::to_string(end.rank) + ", all_gather"; }

// The same bytes to every other rank and the right number of bytes from each. Empty spans do not travel.
class Exchange {
 public:
  Exchange(const MpiEndpoint& end, int tag) : end_(end), tag_(tag), receives_(ranks(), MPI_REQUEST_NULL) {
    sends_ = receives_;
    statuses_.resize(ranks());
  }
  ~Exchange() { withdraw(receives_, sends_); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void start(std::span<const std::byte> mine, std::vector<std::span<std::byte>> theirs) {
    theirs_ = std::move(theirs);
    for (int peer = 0; peer < end_.size; ++peer) {
      const std::span<std::byte> block = theirs_[at(peer)];
      if (peer == end_.rank || block.empty()) continue;
      check_mpi(MPI_Irecv(block.data(), static_cast<int>(block.size()), MPI_BYTE, peer, tag_, end_.comm.get(),
                          &receives_[at(peer)]),
                here(end_), "MPI_Irecv");
    }
    // Each rank begins with its next one, or all would call on rank 0 first.
    for (int step = 1; step < end_.size && !mine.empty(); ++step) {
      const int peer = (end_.rank + step) % end_.size;
      check_mpi(MPI_Isend(mine.data(), static_cast<int>(mine.size()), MPI_BYTE, peer, tag_, end_.comm.get(),
                          &sends_[at(peer)]),
                here(end_), "MPI_Isend");
    }
  }

  // MPI_Testall ends all requests or none, so after a deadline the ones still pending can be told apart.
  bool advance() {
    int received = received_ ? 1 : 0, sent = 0;
    if (received == 0) {
      check_mpi(MPI_Testall(end_.size, receives_.data(), &received, statuses_.data()), here(end_),
                "MPI_Testall");
      if (received != 0) check_sizes();
      received_ = received != 0;
    }
    check_mpi(MPI_Testall(end_.size, sends_.data(), &sent, MPI_STATUSES_IGNORE), here(end_), "MPI_Testall");
    return received != 0 && sent != 0;
  }

  // Ranks that have not sent their part, or not taken ours.
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int peer = 0; peer < end_.size; ++peer) {
      if (pending(receives_[at(peer)]) || pending(sends_[at(peer)])) ranks.push_back(peer);
    }
    return ranks;
  }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  std::size_t ranks() const { return at(end_.size); }

  // MPI_Request_get_status leaves the request as it is, for the destructor to withdraw.
  static bool pending(MPI_Request request) {
    int done = 1;
    if (request != MPI_REQUEST_NULL) MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE);
    return done == 0;
  }

  void check_sizes() const {
    for (int peer = 0; peer < end_.size; ++peer) {
      const std::size_t expected = theirs_[at(peer)].size();
      if (peer == end_.rank || expected == 0) continue;
      int size = 0;
      check_mpi(MPI_Get_count(&statuses_[at(peer)], MPI_BYTE, &size), here(end_), "MPI_Get_count");
      if (static_cast<std::size_t>(size) != expected) {
        throw CommError(here(end_) + ": rank " + std::to_string(peer) + " sends " + std::to_string(size) +
                        " bytes, " + std::to_string(expected) + " are expected");
      }
    }
  }

  const MpiEndpoint& end_;
  int tag_;
  std::vector<MPI_Request> receives_, sends_;  // by peer
  std::vector<MPI_Status> statuses_;
  std::vector<std::span<std::byte>> theirs_;
  bool received_ = false;
};

void run(Exchange& exchange, const MpiEndpoint& end, std::size_t own_bytes, Deadline began,
         Deadline deadline) {
  const bool in_time = poll_until(
      deadline, [&] { return exchange.advance(); }, [] { return std::size_t{0}; });
  if (in_time) return;
  throw CommError(gather_timeout_text(end.rank, own_bytes, Clock::now() - began, exchange.missing()));
}

// The size of every rank's blob.
std::vector<std::uint64_t> call_the_roll(const MpiEndpoint& end, std::uint64_t own_bytes, Deadline began,
                                         Deadline deadline) {
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(end.size));
  std::vector<std::span<std::byte>> theirs;
  theirs.reserve(sizes.size());
  for (std::uint64_t& size : sizes) theirs.push_back(std::as_writable_bytes(std::span(&size, 1)));
  Exchange exchange(end, kRollCallTag);
  exchange.start(std::as_bytes(std::span(&own_bytes, 1)), std::move(theirs));
  run(exchange, end, own_bytes, began, deadline);
  sizes[static_cast<std::size_t>(end.rank)] = own_bytes;
  return sizes;
}

// Every rank sees the same sizes, so all refuse or none.
void check_total(const MpiEndpoint& end, const std::vector<std::uint64_t>& sizes) {
  std::uint64_t room = INT_MAX;  // counted down, which cannot overflow
  for (std::size_t peer = 0; peer < sizes.size(); ++peer) {
    if (sizes[peer] > room) {
      throw CommError(here(end) + ": with rank " + std::to_string(peer) + "'s blob of " +
                      std::to_string(sizes[peer]) + " bytes there are more than 2147483647 bytes in all");
    }
    room -= sizes[peer];
  }
}

}  // namespace

std::vector<std::vector<std::byte>> gather(const MpiEndpoint& end, std::span<const std::byte> mine,
                                           Deadline deadline) {
  const Deadline began = Clock::now();
  const std::vector<std::uint64_t> sizes = call_the_roll(end, mine.size(), began, deadline);
  check_total(end, sizes);

  // Declared before the exchange, whose destructor ends the receives into them.
  std::vector<std::vector<std::byte>> blobs(sizes.begin(), sizes.end());
  Exchange exchange(end, kBlobTag);
  exchange.start(mine, {blobs.begin(), blobs.end()});
  run(exchange, end, mine.size(), began, deadline);
  blobs[static_cast<std::size_t>(end.rank)].assign(mine.begin(), mine.end());
  return blobs;
}

}  // namespace ringattn
