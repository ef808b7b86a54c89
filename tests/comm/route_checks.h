// What any communicator must do with routes: run by all ranks at once, over threads and over MPI.
#pragma once
#include "comm/communicator.h"

namespace ringattn::test {

// Blocks reach rank + distance for distances of any sign and size, one after the other.
void check_distances(Communicator& comm);
// A large block on one channel and a small one on the other run side by side, with the same hop number and
// with different ones, and in either order of waiting; nothing crosses over.
void check_channels(Communicator& comm);
// What arrived() covers is right while the rest is still poison, and it never falls.
void check_arrivals(Communicator& comm);
// A shift that another one of its channel or a wrong channel forbids is refused by name, and changes nothing.
void check_refusals(Communicator& comm);

}  // namespace ringattn::test
