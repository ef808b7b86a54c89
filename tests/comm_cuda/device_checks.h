// What every communicator for device memory must do, whoever carries the bytes. Collective; the host waits
// for no stream before the end.
#pragma once
#include "tests/comm_cuda/rank_threads.h"

namespace ringattn::test {

// Blocks of all sizes from the previous rank, made and read by work on the stream.
void check_device_sizes(const RankThread& me, DeviceCommunicator& comm);
// Uneven shards, some empty, all the way round in two slots: a whole forward queued at once, several in a
// row.
void check_device_turns(const RankThread& me, DeviceCommunicator& comm);
// Distances of any sign, both channels.
void check_device_distances(const RankThread& me, DeviceCommunicator& comm);
// The messages of backward for every number of hops: blocks one rank on, sums one hop behind them, each added
// to as soon as it has arrived(), and the last straight home.
void check_device_backward(const RankThread& me, DeviceCommunicator& comm);
// sent() is what was asked for, in blocks, whatever travels underneath.
void check_device_sent(const RankThread& me, DeviceCommunicator& comm);
// A shift that another one of its channel or a wrong channel forbids is refused by name, and changes nothing.
void check_device_refusals(const RankThread& me, DeviceCommunicator& comm);

}  // namespace ringattn::test
