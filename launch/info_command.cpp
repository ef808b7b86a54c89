#include "launch/info_command.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "kernels/cpu/cpu.h"
#include "launch/build_info.h"
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

// The program runs on CPUs whatever the library holds.
std::string unused(const char* found) {
  return *found == '\0' ? "none found by this build" : std::string(found) + " found, not used by the program";
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

  std::ostringstream table;
  table << "ringattn " << kVersion << ", " << kBuildType << " build with " << kCompiler << '\n'
        << "  instruction sets  " << joined(isas) << " (best first)\n"
        << "  threads           " << threads << " by default, CPUs allowed " << cpus << '\n'
        << "  memory            " << bytes_text(room.bytes) << " available (" << room.limit << ")\n"
        << "  MPI               " << or_none(library, "none in this build")
        << (library.empty() ? "" : ", MPI " + std::string(kBuildMpi)) << '\n'
        << "  CUDA              " << unused(kBuildCuda) << '\n'
        << "  NCCL              " << unused(kBuildNccl) << '\n';
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
                                    {"nccl_found", or_null(kBuildNccl)}};
  output.write(table.str(), json.dump() + "\n");
}

}  // namespace ringattn::launch
