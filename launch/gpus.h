// Which GPU each rank computes on, and who shares one. Every rank knows the same figures.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "kernels/cuda/device_stream.h"
#include "kernels/cuda/devices.h"

namespace ringattn::launch {

struct RankGpu {
  std::string host, uuid, pci;  // of the machine; of the GPU, see CudaDevice
  std::string name;
  int index = 0;  // in its process
};

// Whether two ranks have the same GPU. Device numbers do not tell, since each process may be shown others.
// Parts into which one GPU is divided have different uuids and one place on the bus, and count as the same.
bool same_gpu(const RankGpu& a, const RankGpu& b);

struct GpuPlacement {
  std::vector<RankGpu> ranks;
  std::optional<std::pair<int, int>> first_shared() const;  // two ranks on one GPU
  int ranks_on_gpu(int rank) const;                         // itself included
};

// What one rank has of a GPU.
struct GpuSeat {
  explicit GpuSeat(CudaDevice which) : device(std::move(which)), stream(device.index) {}
  CudaDevice device;
  DeviceStream stream;
  GpuPlacement placement{};
};

// The usable device of a rank that is the `local_rank`th of its machine: one each, and from the first again
// where there are fewer. Throws DeviceError saying why there is none.
const CudaDevice& device_of_rank(const CudaMachine& machine, int local_rank);

// Collective.
GpuPlacement place_gpus(Communicator& comm, const CudaDevice& mine, std::chrono::milliseconds patience);

}  // namespace ringattn::launch
