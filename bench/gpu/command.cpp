#include "bench/gpu/command.h"

#include <ostream>

#include "bench/gpu/device.h"
#include "bench/gpu/kernel_part.h"
#include "bench/gpu/lines.h"
#include "bench/gpu/units.h"
#include "kernels/cuda/cuda.h"
#include "src/error.h"

namespace ringattn::acceptance {
namespace {

struct Options {
  std::string command;
  Extent extent = Extent::full;
  std::vector<std::string> chapters{};  // none: those of the device
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

int run(const Options& options, std::ostream& out, std::ostream& err) {
  std::string why;
  const std::vector<DeviceFacts> all = devices(why);
  if (options.command == "info") {
    write_info(all, why, out);
    return 0;
  }
  if (all.empty()) throw DeviceError("no GPU: " + why);
  Lines lines(out);
  const auto chapters = options.chapters.empty() ? chapters_of(all[0].capability) : options.chapters;
  if (options.command == "units")
    check_units(all[0].capability, lines);
  else if (options.command == "kernels")
    check_kernels(options.extent, chapters, make_cuda_kernel, lines);
  else
    throw UsageError("command '" + options.command + "'; allowed are info, units, kernels and rings");
  if (lines.written() == 0) err << options.command << ": this device has none of what it checks\n";
  return lines.failed() > 0 ? 1 : 0;
}

}  // namespace

int run_command(std::span<const std::string> arguments, std::ostream& out, std::ostream& err) {
  try {
    return run(parse(arguments), out, err);
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
