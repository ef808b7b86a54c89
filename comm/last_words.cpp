#include "comm/last_words.h"

#include <iomanip>
#include <sstream>

#include "src/error.h"

namespace ringattn {
namespace {

// A stream that has the place written already. Streams also keep g++ 12 from a false -Wrestrict, which it
// reports for `"text" + std::string` at -O3.
std::ostringstream at_place(int rank, int hop) {
  std::ostringstream text;
  text << "rank " << rank << ", hop " << hop;
  return text;
}

}  // namespace

std::string place(int rank, int hop) { return at_place(rank, hop).str(); }

std::string seconds_text(Clock::duration time) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << std::chrono::duration<double>(time).count() << " s";
  return text.str();
}

std::string timeout_text(int rank, int hop, Clock::duration waited,
                         const std::optional<PendingTransfer>& receive,
                         const std::optional<PendingTransfer>& send) {
  auto text = at_place(rank, hop);
  text << ": timed out after " << seconds_text(waited) << " waiting for";
  if (receive) {
    text << " " << receive->bytes << " bytes from rank " << receive->peer << " (" << receive->moved
         << " arrived)";
  }
  if (receive && send) text << " and for";
  if (send) {
    text << " rank " << send->peer << " to take " << send->bytes << " bytes (" << send->moved << " taken)";
  }
  return text.str();
}

std::string gather_timeout_text(int rank, std::size_t own_bytes, Clock::duration waited,
                                std::span<const int> missing) {
  std::ostringstream text;
  text << "rank " << rank << ": timed out after " << seconds_text(waited) << " in all_gather (" << own_bytes
       << " bytes of its own) waiting for";
  for (std::size_t i = 0; i < missing.size(); ++i) text << (i == 0 ? " rank " : " and rank ") << missing[i];
  return text.str();
}

std::string size_text(int rank, int hop, int from, std::size_t sent, std::size_t expected) {
  auto text = at_place(rank, hop);
  text << ": rank " << from << " sends " << sent << " bytes, " << expected << " are expected";
  return text.str();
}

std::string hop_text(int rank, int hop, int from, int their_hop) {
  auto text = at_place(rank, hop);
  text << ": rank " << from << " sends its block of hop " << their_hop;
  return text.str();
}

std::string failed_before_text(int rank, int hop, const std::string& failure) {
  auto text = at_place(rank, hop);
  text << ": this communicator failed before: " << failure;
  return text.str();
}

std::string busy_text(int rank, int hop, int running_hop, int channel) {
  auto text = at_place(rank, hop);
  text << ": the shift of hop " << running_hop << " is still under way";
  if (channel != 0) text << " on channel " << channel;
  return text.str();
}

void check_channel(const Route& route) {
  if (route.channel >= 0 && route.channel < Route::kChannels) return;
  throw UsageError("shift: channel is " + std::to_string(route.channel) + ", allowed are 0 to " +
                   std::to_string(Route::kChannels - 1));
}

}  // namespace ringattn
