#include "launch/gpus.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "launch/machine.h"
#include "launch/steps.h"
#include "src/error.h"

namespace ringattn::launch {

bool same_gpu(const RankGpu& a, const RankGpu& b) {
  return a.uuid == b.uuid || (a.host == b.host && a.pci == b.pci);
}

std::optional<std::pair<int, int>> GpuPlacement::first_shared() const {
  for (std::size_t b = 0; b < ranks.size(); ++b) {
    for (std::size_t a = 0; a < b; ++a) {
      if (same_gpu(ranks[a], ranks[b])) return std::pair{static_cast<int>(a), static_cast<int>(b)};
    }
  }
  return std::nullopt;
}

int GpuPlacement::ranks_on_gpu(int rank) const {
  const RankGpu& mine = ranks.at(static_cast<std::size_t>(rank));
  return static_cast<int>(
      std::ranges::count_if(ranks, [&](const RankGpu& other) { return same_gpu(mine, other); }));
}

const CudaDevice& device_of_rank(const CudaMachine& machine, int local_rank) {
  if (!machine.unavailable.empty()) throw DeviceError(machine.unavailable);
  std::vector<const CudaDevice*> usable;
  for (const CudaDevice& device : machine.devices) {
    if (device.unusable.empty()) usable.push_back(&device);
  }
  return *usable.at(static_cast<std::size_t>(local_rank) % usable.size());
}

GpuPlacement place_gpus(Communicator& comm, const CudaDevice& mine, std::chrono::milliseconds patience) {
  // As JSON: a device's name is any text.
  const nlohmann::json card{{"host", host_name()},
                            {"uuid", mine.uuid},
                            {"pci", mine.pci},
                            {"name", mine.name},
                            {"index", mine.index}};
  GpuPlacement placement;
  for (const std::string& text : gather_texts(comm, card.dump(), patience)) {
    const auto theirs = nlohmann::json::parse(text);
    placement.ranks.push_back({.host = theirs["host"],
                               .uuid = theirs["uuid"],
                               .pci = theirs["pci"],
                               .name = theirs["name"],
                               .index = theirs["index"]});
  }
  return placement;
}

}  // namespace ringattn::launch
