#include "src/slots.h"

#include "comm/device.h"

namespace ringattn {
namespace {

std::vector<BlockMemory> offered_memory(std::size_t count, std::size_t bytes, Communicator& comm,
                                        Deadline deadline) {
  auto* const device = dynamic_cast<DeviceCommunicator*>(&comm);
  if (device == nullptr || count < 2 || bytes == 0) return {};
  return device->block_memory(count, bytes, deadline);
}

}  // namespace

void make_slots(std::array<Buffer, 2>& slots, std::size_t count, std::size_t bytes, const Kernel& kernel,
                Communicator& comm, Deadline deadline, const Operation& operation) {
  std::array<Buffer, 2> made;
  together(comm, deadline, operation, [&] {
    auto memory =
        offered_memory(count, bytes, comm, deadline);  // first of all, since it is collective itself
    for (std::size_t i = 0; i < count; ++i) {
      if (memory.empty())
        made[i] = kernel.allocate(bytes);
      else
        made[i] = Buffer{.data = std::move(memory[i]), .size = bytes};
    }
  });
  slots = std::move(made);
}

}  // namespace ringattn
