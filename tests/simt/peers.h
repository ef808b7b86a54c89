// Which device may touch whose memory. As in CUDA there are two ways to it: cudaDeviceEnablePeerAccess opens
// what cudaMalloc has given, cudaMemPoolSetAccess what cudaMallocAsync gives from a pool; neither opens the
// other's.
#pragma once

namespace simt {

// Whether `device` may touch memory of `owner`.
bool reaches(int device, int owner, bool pooled);

// Of cudaMemcpyPeerAsync between two devices, as they ran: straight from one memory to the other, or by way
// of the host where the device of the stream may not touch one of them.
struct PeerCopies {
  int direct = 0, by_the_host = 0;
};
PeerCopies peer_copies();
void count_peer_copy(bool direct);

// Nobody reaches anybody, and nothing has been counted: as in a new process.
void forget_peers();

}  // namespace simt
