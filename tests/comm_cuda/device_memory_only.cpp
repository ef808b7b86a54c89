#include "tests/comm_cuda/device_memory_only.h"

#include "tests/simt/fault.h"
#include "tests/simt/memory.h"
#include "tests/simt/stream.h"

namespace ringattn::test {
namespace {

class Watch final : public Communicator {
 public:
  Watch(std::shared_ptr<Communicator> inner, std::shared_ptr<BlockCount> count)
      : inner_(std::move(inner)), count_(std::move(count)) {}

  std::string name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  SentCount sent() const override { return inner_->sent(); }
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine,
                                                 Deadline deadline) override {
    return inner_->all_gather(mine, deadline);
  }
  void abort(int exit_code, const std::string& why) noexcept override { inner_->abort(exit_code, why); }

 private:
  std::unique_ptr<Shift> start_shift(int hop, std::span<const std::byte> to_next,
                                     std::span<std::byte> from_prev, const Route& route) override {
    look_at(to_next, simt::Access::read);
    look_at(from_prev, simt::Access::write);
    return inner_->shift(hop, to_next, from_prev, route);
  }

  void look_at(std::span<const std::byte> block, simt::Access access) {
    if (block.empty()) return;
    const auto where = simt::Where::current();
    const auto allocation = simt::find_allocation(block.data());
    const bool on_device = allocation && allocation->kind == simt::MemoryKind::device;
    ++(on_device ? count_->device : count_->other);
    if (!on_device) return;
    if (allocation->device != simt::current_device) {
      simt::raise(simt::FaultKind::usage,
                  "a block of device " + std::to_string(allocation->device) +
                      " is given to the host of device " + std::to_string(simt::current_device),
                  where);
    }
    simt::check_order(block.data(), block.size(), access, where);
  }

  std::shared_ptr<Communicator> inner_;
  std::shared_ptr<BlockCount> count_;
};

}  // namespace

std::shared_ptr<Communicator> make_device_memory_watch(std::shared_ptr<Communicator> inner,
                                                       std::shared_ptr<BlockCount> count) {
  return std::make_shared<Watch>(std::move(inner), std::move(count));
}

}  // namespace ringattn::test
