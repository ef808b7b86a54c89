#include "tests/simt/peers.h"

#include <array>
#include <deque>
#include <mutex>
#include <set>
#include <utility>

#include "tests/simt/config.h"
#include "tests/simt/runtime.h"

namespace simt {

struct MemPool {
  int device;
};

namespace {

struct Peers {
  std::mutex mutex;
  std::array<std::set<std::pair<int, int>>, 2> open;  // (device, owner), by whether the memory is a pool's
  std::deque<MemPool> pools;                          // one a device
  PeerCopies copies;
};
Peers& peers() {
  static Peers p;
  return p;
}

bool exists(int device) { return config().driver && device >= 0 && device < config().devices; }

}  // namespace

bool reaches(int device, int owner, bool pooled) {
  if (device == owner) return true;
  const std::lock_guard lock(peers().mutex);
  return peers().open[pooled ? 1 : 0].contains({device, owner});
}

PeerCopies peer_copies() {
  const std::lock_guard lock(peers().mutex);
  return peers().copies;
}

void count_peer_copy(bool direct) {
  const std::lock_guard lock(peers().mutex);
  ++(direct ? peers().copies.direct : peers().copies.by_the_host);
}

void forget_peers() {
  const std::lock_guard lock(peers().mutex);
  for (auto& pairs : peers().open) pairs.clear();
  peers().copies = {};
}

}  // namespace simt

using simt::noted, simt::peers;

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!simt::exists(device) || !simt::exists(peer)) return noted(cudaErrorInvalidDevice);
  return *can = device != peer && simt::config().peer_access ? 1 : 0, cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  int can = 0;
  if (flags != 0) return noted(cudaErrorInvalidValue);
  if (const cudaError_t e = cudaDeviceCanAccessPeer(&can, simt::current_device, peer); e != cudaSuccess)
    return e;
  if (can == 0) return noted(cudaErrorPeerAccessUnsupported);
  const std::lock_guard lock(peers().mutex);
  const bool fresh = peers().open[0].insert({simt::current_device, peer}).second;
  return noted(fresh ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled);
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  if (!simt::exists(device)) return noted(cudaErrorInvalidDevice);
  const std::lock_guard lock(peers().mutex);
  auto& pools = peers().pools;
  while (static_cast<int>(pools.size()) <= device)
    pools.push_back({.device = static_cast<int>(pools.size())});
  return *pool = &pools[static_cast<std::size_t>(device)], cudaSuccess;
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* list, std::size_t count) {
  if (pool == nullptr || list == nullptr) return noted(cudaErrorInvalidValue);
  for (std::size_t i = 0; i < count; ++i) {
    const cudaMemAccessDesc& access = list[i];
    if (access.location.type != cudaMemLocationTypeDevice) return noted(cudaErrorInvalidValue);
    int can = 0;
    if (const cudaError_t e = cudaDeviceCanAccessPeer(&can, access.location.id, pool->device);
        e != cudaSuccess)
      return e;
    if (can == 0) return noted(cudaErrorInvalidDevice);
    const std::lock_guard lock(peers().mutex);
    auto& open = peers().open[1];
    const std::pair pair(access.location.id, pool->device);
    if (access.flags == cudaMemAccessFlagsProtReadWrite)
      open.insert(pair);
    else
      open.erase(pair);
  }
  return cudaSuccess;
}
