#include "comm/mpi.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "comm/last_words.h"
#include "comm/mpi_endpoint.h"
#include "comm/mpi_gather.h"
#include "comm/mpi_shift.h"
#include "src/error.h"

namespace ringattn {
namespace {

// One line on stderr, which says the rank once even where `why` begins with it.
void print_last_words(int rank, std::string why) {
  std::replace(why.begin(), why.end(), '\n', ' ');
  const std::string me = "rank " + std::to_string(rank);
  const bool named = why == me || why.starts_with(me + ":") || why.starts_with(me + ",");
  std::fprintf(stderr, "ringattn: %s%s%s\n", named ? "" : me.c_str(), named ? "" : ": ", why.c_str());
  std::fflush(stderr);
}

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MPI_Comm comm, const MpiOptions& options)
      : end_(std::make_shared<MpiEndpoint>(comm, options)) {}

  std::string name() const override { return "mpi"; }
  int rank() const override { return end_->rank; }
  int size() const override { return end_->size; }
  SentCount sent() const override { return end_->sent; }

  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine,
                                                 Deadline deadline) override {
    if (!end_->failure.empty()) throw CommError(end_->failure);
    // A gather that failed on one rank has left messages on the others' way.
    try {
      return gather(*end_, mine, deadline);
    } catch (const CommError& error) {
      end_->failed(error.what());
      throw;
    }
  }

  // MPI_Abort on the duplicate ends the whole job in Open MPI, also from a sub-communicator: what one rank
  // cannot do, nobody should wait for.
  void abort(int exit_code, const std::string& why) noexcept override {
    print_last_words(end_->rank, why);
    if (mpi_is_running()) MPI_Abort(end_->comm.get(), exit_code);
    std::_Exit(exit_code);  // also where MPI has failed to end the job
  }

 private:
  std::unique_ptr<Shift> start_shift(int hop, std::span<const std::byte> to_next,
                                     std::span<std::byte> from_prev, const Route& route) override {
    check_channel(route);
    if (hop < 0) throw UsageError("shift: hop is " + std::to_string(hop) + ", allowed is 0 or more");
    if (!end_->failure.empty()) throw CommError(failed_before_text(end_->rank, hop, end_->failure));
    std::optional<int>& running = end_->running_hop[static_cast<std::size_t>(route.channel)];
    if (running) throw UsageError(busy_text(end_->rank, hop, *running, route.channel));
    auto shift = std::make_unique<MpiShift>(end_, hop, to_next, from_prev, route);
    running = hop;  // before start(): if it throws, the shift's destructor clears it
    shift->start();
    end_->sent.bytes += to_next.size();
    end_->sent.messages += to_next.empty() ? 0 : 1;
    return shift;
  }

  std::shared_ptr<MpiEndpoint> end_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm comm, const MpiOptions& options) {
  return std::make_unique<MpiCommunicator>(comm, options);
}

}  // namespace ringattn
