// Devices of one process that touch each other's memory without a detour through the host. Internal to comm/.
#pragma once

namespace ringattn {

// Lets the current device read and write the memory of the device `peer`, for the whole process and from then
// on: what cudaMalloc gives there (cudaDeviceEnablePeerAccess) and what cudaMallocAsync gives from the pool
// that the device has now, which that call leaves alone (cudaMemPoolSetAccess). To do it again changes
// nothing. False where CUDA refuses one of the two: there is no way between the devices, or `peer` has enough
// peers already. That is no error: cudaMemcpyPeerAsync then copies by way of the host.
bool open_peer_memory(int peer);

}  // namespace ringattn
