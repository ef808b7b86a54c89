#include "launch/info_command.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "comm/nccl_version.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/devices.h"
#include "launch/build_info.h"
#include "launch/device_report.h"
#include "launch/machine.h"
#include "launch/output.h"
#include "launch/placement.h"
#include "launch/ranks.h"
#include "launch/units.h"

namespace ringattn::launch {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// Some MPI libraries introduce themselves on many lines.
std::string one_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string or_none(const std::string& found, const std::string& otherwise) {
  return found.empty() ? otherwise : found;
}

// 13010 is 13.1; 0 is no version.
std::string cuda_version(int version) {
  return version == 0 ? "" : std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

template <class Names>
std::vector<std::string> texts(const Names& names) {
  return {names.begin(), names.end()};
}

std::string cuda_line(const CudaMachine& machine) {
  if (!cuda_built()) return "none in this build";
  return "toolkit " + std::string(kBuildCuda) + ", driver " +
         or_none(cuda_version(machine.driver_version), "none") + "; kernels " +
         joined(texts(cuda_chapters()));
}

// A line for each GPU, and one if none of them can be used.
std::string device_lines(const CudaMachine& machine) {
  std::string lines;
  const auto add = [&](const std::string& title, const std::string& text) {
    std::string padded = "  " + title;
    padded.resize(std::max<std::size_t>(20, padded.size() + 1), ' ');
    lines += padded + text + '\n';
  };
  for (const CudaDevice& device : machine.devices) {
    add("GPU " + std::to_string(device.index),
        device.unusable.empty() ? device_text(device) + ", " + device.uuid + " at " + device.pci
                                : device.name + ", not used: " + device.unusable);
  }
  if (!machine.unavailable.empty()) add("GPUs", "none can be used: " + machine.unavailable);
  return lines;
}

nlohmann::ordered_json devices_list(const CudaMachine& machine) {
  auto list = nlohmann::ordered_json::array();
  for (const CudaDevice& device : machine.devices) {
    list.push_back(device_json(device));
    list.back()["unusable"] =
        device.unusable.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(device.unusable);
  }
  return list;
}

nlohmann::ordered_json or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
}

}  // namespace

void info_command(const Options& options) {
  Output output(options.json);
  const std::vector<std::string> isas = cpu_isas();
  const Placement alone{.ranks = {{.host = host_name(), .cpus = allowed_cpus(), .threads = 0}}};
  const int threads = default_threads(alone, 0, std::getenv("OMP_NUM_THREADS"));
  const std::size_t cpus = alone.ranks[0].cpus.size();
  const std::string library = one_line(mpi_library());
  const MemoryRoom room = memory_room(1, 1);
  const CudaMachine machine = find_cuda_devices();
  const std::string nccl = nccl_version();

  std::ostringstream table;
  table << "ringattn " << kVersion << ", " << kBuildType << " build with " << kCompiler << '\n'
        << "  instruction sets  " << joined(isas) << " (best first)\n"
        << "  threads           " << threads << " by default, CPUs allowed " << cpus << '\n'
        << "  memory            " << bytes_text(room.bytes) << " available (" << room.limit << ")\n"
        << "  MPI               " << or_none(library, "none in this build")
        << (library.empty() ? "" : ", MPI " + std::string(kBuildMpi)) << '\n'
        << "  CUDA              " << cuda_line(machine) << '\n'
        << device_lines(machine) << "  NCCL              " << or_none(nccl, "none in this build") << '\n';
  const nlohmann::ordered_json json{{"subcommand", "info"},
                                    {"version", kVersion},
                                    {"compiler", kCompiler},
                                    {"build_type", kBuildType},
                                    {"isas", isas},
                                    {"threads", threads},
                                    {"cpus_allowed", cpus},
                                    {"memory_available_bytes", room.bytes},
                                    {"mpi_library", or_null(library)},
                                    {"mpi_version", or_null(kBuildMpi)},
                                    {"cuda_found", or_null(kBuildCuda)},
                                    {"cuda_runtime", or_null(cuda_version(machine.runtime_version))},
                                    {"cuda_driver", or_null(cuda_version(machine.driver_version))},
                                    {"cuda_kernels", texts(cuda_chapters())},
                                    {"cuda_unavailable", or_null(machine.unavailable)},
                                    {"devices", devices_list(machine)},
                                    {"nccl_found", or_null(kBuildNccl)},
                                    {"nccl_version", or_null(nccl)}};
  output.write(table.str(), json.dump() + "\n");
}

}  // namespace ringattn::launch
