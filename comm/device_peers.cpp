#include "comm/device_peers.h"

#include <cuda_runtime.h>

namespace ringattn {
namespace {

// A refusal is an answer here, and not for the next call of the runtime to find.
bool granted(cudaError_t code) {
  if (code != cudaSuccess) cudaGetLastError();
  return code == cudaSuccess || code == cudaErrorPeerAccessAlreadyEnabled;
}

bool open_pool(int device, int peer) {
  cudaMemPool_t pool = nullptr;
  if (!granted(cudaDeviceGetMemPool(&pool, peer))) return false;
  cudaMemAccessDesc access{};
  access.location.type = cudaMemLocationTypeDevice;
  access.location.id = device;
  access.flags = cudaMemAccessFlagsProtReadWrite;
  return granted(cudaMemPoolSetAccess(pool, &access, 1));
}

}  // namespace

bool open_peer_memory(int peer) {
  int device = 0, possible = 0;
  if (!granted(cudaGetDevice(&device))) return false;
  if (!granted(cudaDeviceCanAccessPeer(&possible, device, peer)) || possible == 0) return false;
  const bool plain = granted(cudaDeviceEnablePeerAccess(peer, 0));
  return open_pool(device, peer) && plain;
}

}  // namespace ringattn
