// In place of the kernels in a build without them, for machines without Highway that compute on a GPU.
#include "kernels/cpu/cpu.h"
#include "src/error.h"

namespace ringattn {
namespace {

[[noreturn]] void refuse() {
  throw UsageError("this build has no CPU kernels: it was made with RINGATTN_CPU=OFF");
}

}  // namespace

std::unique_ptr<Kernel> make_cpu_kernel(const KernelConfig&) { refuse(); }
std::size_t cpu_block_bytes(const HeadShape&, DType, index_t) { refuse(); }
std::size_t cpu_gradient_bytes(const HeadShape&, index_t) { refuse(); }
std::size_t cpu_workspace_bytes(const KernelConfig&, Pass) { refuse(); }
std::vector<std::string> cpu_isas() { return {}; }
double measure_fma_peak(int, const std::string&, double) { refuse(); }
std::string cpu_product(DType, const std::string&) { refuse(); }
double measure_product_peak(DType, int, const std::string&, double) { refuse(); }
double measure_read_bandwidth(int, std::size_t, double) { refuse(); }

}  // namespace ringattn
