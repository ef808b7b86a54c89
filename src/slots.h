// The slots of a ring: where the block at hand lies, and where the next one arrives.
#pragma once
#include <array>

#include "comm/communicator.h"
#include "kernels/kernel.h"
#include "src/agreement.h"

namespace ringattn {

// Every slot holds the largest block of any rank, or its dK and dV. Gradient slots are there for backward.
// On a device they are allocated and freed in the order of the kernel's stream, and transfers run on others:
// - Before: a shift begins behind the point at which the stream was when it was started, so behind the
//   allocation, and so does a peer that reads the block (see comm/device.h).
// - After: the loops wait for every shift, and wait() puts the stream behind both of its directions; a shift
//   that an exception ends does so in its destructor. So the free, which comes later, is behind all of them.
struct Slots {
  std::array<Buffer, 2> block;
  std::array<Buffer, 2> gradient;
};

// Collective. Makes the first `count` of two slots, `bytes` bytes each. If there are two, blocks travel, and
// lie in memory that the communicator itself gives where it has any (DeviceCommunicator::block_memory); else
// it is the kernel's. If a rank fails, every rank throws as together() does, and no rank has any.
void make_slots(std::array<Buffer, 2>& slots, std::size_t count, std::size_t bytes, const Kernel& kernel,
                Communicator& comm, Deadline deadline, const Operation& operation);

}  // namespace ringattn
