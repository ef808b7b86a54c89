#include "bench/gpu/command.h"

#include <algorithm>
#include <array>
#include <ostream>
#include <string_view>

#include "bench/gpu/device.h"
#include "bench/gpu/kernel_part.h"
#include "bench/gpu/lines.h"
#include "bench/gpu/units.h"
#include "kernels/cuda/cuda.h"
#include "src/error.h"

namespace ringattn::acceptance {
namespace {

constexpr std::array<std::string_view, 4> kCommands{"info", "units", "kernels", "rings"};

struct Options {
  std::string command;
  Extent extent = Extent::full;
  std::vector<std::string> chapters{};  // none: those of the device; for rings the one that it chooses
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(',', begin);
    parts.push_back(text.substr(begin, end == std::string::npos ? end : end - begin));
  }
  return parts;
}

Options parse(std::span<const std::string> arguments) {
  if (arguments.empty()) throw UsageError("no command; allowed are info, units, kernels and rings");
  Options options{.command = arguments[0]};
  if (std::ranges::find(kCommands, options.command) == kCommands.end())
    throw UsageError("command '" + options.command + "'; allowed are info, units, kernels and rings");
  for (std::size_t i = 1; i < arguments.size(); i += 2) {
    const std::string& name = arguments[i];
    if (i + 1 == arguments.size()) throw UsageError(name + " has no value");
    const std::string& value = arguments[i + 1];
    if (name == "--extent")
      options.extent = extent_from_name(value);
    else if (name == "--chapters")
      options.chapters = split(value);
    else
      throw UsageError("option '" + name + "'; allowed are --extent and --chapters");
  }
  if (arguments.size() > 1 && options.command != "kernels" && options.command != "rings")
    throw UsageError("option '" + arguments[1] + "' means nothing to the command " + options.command);
  return options;
}

void write_info(const std::vector<DeviceFacts>& all, const std::string& why, std::ostream& out) {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  out << "{\"driver\": " << driver << ", \"runtime\": " << runtime << ", \"why\": " << json_string(why)
      << ", \"devices\": [";
  for (std::size_t i = 0; i < all.size(); ++i)
    out << (i ? ", " : "") << "{\"name\": " << json_string(all[i].name)
        << ", \"capability\": " << all[i].capability << ", \"multiprocessors\": " << all[i].processors
        << ", \"memory\": " << all[i].memory << "}";
  out << "]}" << std::endl;
}

int run(const Options& options, const OnRanks& on_ranks, std::ostream& out, std::ostream& err) {
  std::string why;
  const std::vector<DeviceFacts> all = devices(why);
  if (options.command == "info") {
    write_info(all, why, out);
    return 0;
  }
  if (all.empty()) throw DeviceError("no GPU: " + why);
  Lines lines(out);
  const auto chapters_or = [&](std::vector<std::string> usual) {
    return options.chapters.empty() ? usual : options.chapters;
  };
  if (options.command == "units") check_units(all[0].capability, lines);
  if (options.command == "kernels")
    check_kernels(options.extent, chapters_or(chapters_of(all[0].capability)), make_cuda_kernel, lines);
  if (options.command == "rings") {
    for (const std::string& chapter : chapters_or({"auto"}))
      check_rings(options.extent, chapter, on_ranks, lines);
    time_rings(options.extent, on_ranks, lines);
  }
  if (lines.written() == 0) err << options.command << ": this device has none of what it checks\n";
  return lines.failed() > 0 ? 1 : 0;
}

}  // namespace

int run_command(std::span<const std::string> arguments, const OnRanks& on_ranks, std::ostream& out,
                std::ostream& err) {
  try {
    return run(parse(arguments), on_ranks, out, err);
  } catch (const UsageError& error) {
    err << "gpu-acceptance: " << error.what() << '\n';
    return 2;
  } catch (const DeviceError& error) {
    err << "gpu-acceptance: " << error.what() << '\n';
    return 5;
  } catch (const std::exception& error) {
    err << "gpu-acceptance: " << error.what() << '\n';
    return 1;
  }
}

}  // namespace ringattn::acceptance
