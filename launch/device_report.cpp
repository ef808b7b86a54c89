#include "launch/device_report.h"

#include <algorithm>
#include <cstdio>

#include "launch/units.h"

namespace ringattn::launch {
namespace {

std::string gigahertz(double hertz) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f GHz", hertz * 1e-9);
  return text;
}

// How many different GPUs the ranks have.
std::size_t gpus_in_use(const std::vector<RankGpu>& ranks) {
  std::vector<RankGpu> seen;
  for (const RankGpu& rank : ranks) {
    if (std::ranges::none_of(seen, [&](const RankGpu& gpu) { return same_gpu(gpu, rank); }))
      seen.push_back(rank);
  }
  return seen.size();
}

double median_seconds(const std::vector<Iteration>& iterations) {
  std::vector<double> seconds;
  seconds.reserve(iterations.size());
  for (const Iteration& iteration : iterations) seconds.push_back(iteration.seconds);
  return spread_of(std::move(seconds)).median;
}

}  // namespace

Ceilings ceilings_of(const GpuSeat& gpu, DType dtype, int rank) {
  const double ranks = gpu.placement.ranks_on_gpu(rank);
  return {.fma_peak = device_peak(gpu.device, dtype).flops / ranks,
          .read_bandwidth = device_bandwidth(gpu.device) / ranks};
}

// What is left over is waiting, for the transfers or for ranks that have more to do.
void add_compute(Report& report, const Iterations& arithmetic) {
  const auto rest = [](double all, double part) { return std::max(0.0, all - part); };
  report.compute_seconds = spread_of(slowest(arithmetic, &Iteration::seconds)).median;
  report.wait_seconds = rest(report.seconds.median, *report.compute_seconds);
  for (std::size_t rank = 0; rank < report.ranks.size(); ++rank) {
    RankFigures& figures = report.ranks[rank];
    figures.compute_seconds = median_seconds(arithmetic.at(rank));
    figures.wait_seconds = rest(figures.seconds, *figures.compute_seconds);
  }
}

std::string peak_source(const Report& report) {
  if (!report.device) return "measured";
  const DevicePeak peak = device_peak(*report.device, report.problem->dtype);
  if (peak.flops_per_clock == 0) return "not known for compute capability " + report.device->capability();
  return "data sheet: " + std::to_string(report.device->multiprocessors) + " multiprocessors x " +
         gigahertz(report.device->clock_hz) + " x " + std::to_string(peak.flops_per_clock) + " FLOP a clock";
}

std::string device_text(const CudaDevice& device) {
  return device.name + ", compute capability " + device.capability() + ", " +
         std::to_string(device.multiprocessors) + " multiprocessors at up to " + gigahertz(device.clock_hz) +
         ", " + bytes_text(static_cast<double>(device.memory_bytes));
}

nlohmann::ordered_json device_json(const CudaDevice& device) {
  return {{"index", device.index},
          {"name", device.name},
          {"compute_capability", device.capability()},
          {"multiprocessors", device.multiprocessors},
          {"clock_ghz", device.clock_hz * 1e-9},
          {"memory_clock_ghz", device.memory_clock_hz * 1e-9},
          {"memory_bytes", device.memory_bytes},
          {"memory_gbytes_per_second", device_bandwidth(device) * 1e-9},
          {"uuid", device.uuid},
          {"pci", device.pci}};
}

std::string device_line(const Report& report) {
  const std::size_t gpus = gpus_in_use(report.gpus), ranks = report.ranks.size();
  std::string line = device_text(*report.device);
  if (ranks > 1)
    line +=
        "; " + std::to_string(ranks) + " ranks on " + std::to_string(gpus) + (gpus == 1 ? " GPU" : " GPUs");
  const bool known = device_peak(*report.device, report.problem->dtype).flops_per_clock > 0;
  return line + (known ? "; peak by the " : "; peak ") + peak_source(report);
}

nlohmann::ordered_json devices_json(const Report& report) {
  if (!report.device) return nullptr;
  nlohmann::ordered_json json = device_json(*report.device);
  json["gpus_in_use"] = gpus_in_use(report.gpus);
  return json;
}

}  // namespace ringattn::launch
