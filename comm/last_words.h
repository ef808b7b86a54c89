// What a communicator says when a shift fails: the same words whatever carries the bytes. Internal to comm/.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "comm/communicator.h"

namespace ringattn {

// One direction of a shift that is not done yet.
struct PendingTransfer {
  int peer = 0;
  std::size_t bytes = 0;  // of the whole block
  std::size_t moved = 0;  // of them have arrived at the receiver, as far as this rank knows
};

// "rank 1, hop 3"
std::string place(int rank, int hop);

// "rank 1, hop 3: timed out after 5.0 s waiting for 80 bytes from rank 0 (16 arrived) and for rank 2 to take
// 80 bytes (0 taken)". Both directions are named: the peer that stands still may be on either side.
std::string timeout_text(int rank, int hop, Clock::duration waited,
                         const std::optional<PendingTransfer>& receive,
                         const std::optional<PendingTransfer>& send);

// "rank 1: timed out after 5.0 s in all_gather (8 bytes of its own) waiting for rank 0 and rank 3"
std::string gather_timeout_text(int rank, std::size_t own_bytes, Clock::duration waited,
                                std::span<const int> missing);

// "rank 1, hop 3: rank 0 sends 79 bytes, 80 are expected"
std::string size_text(int rank, int hop, int from, std::size_t sent, std::size_t expected);

// "rank 1, hop 3: rank 0 sends its block of hop 4"
std::string hop_text(int rank, int hop, int from, int their_hop);

// "rank 1, hop 4: this communicator failed before: ..."
std::string failed_before_text(int rank, int hop, const std::string& failure);

// "rank 1, hop 4: the shift of hop 3 is still under way", with " on channel 1" where it is not the first.
std::string busy_text(int rank, int hop, int running_hop, int channel);

// "5.0 s"
std::string seconds_text(Clock::duration time);

// Where a block that leaves along the route goes, and where the one that comes is from.
constexpr int rank_at(int rank, int distance, int size) {
  return ((rank + distance % size) % size + size) % size;
}
constexpr int receiver_of(int rank, const Route& route, int size) {
  return rank_at(rank, route.distance, size);
}
constexpr int sender_to(int rank, const Route& route, int size) {
  return rank_at(rank, -(route.distance % size), size);
}

constexpr int next_rank(int rank, int size) { return receiver_of(rank, {}, size); }
constexpr int previous_rank(int rank, int size) { return sender_to(rank, {}, size); }

// Throws UsageError naming the channel if there is none of that number.
void check_channel(const Route& route);

}  // namespace ringattn
