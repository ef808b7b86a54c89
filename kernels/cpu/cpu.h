// Blocked flash attention on CPUs: fp32 arithmetic, products of bf16 by the dot-product instruction where the
// machine has it ("AVX3_BF16" among the instruction sets), one source for every SIMD instruction set, OpenMP
// threads.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernel.h"

namespace ringattn {

// Throws UsageError if config.isa is not "auto" or one of cpu_isas(), OutOfMemory if the state cannot be
// held.
std::unique_ptr<Kernel> make_cpu_kernel(const KernelConfig& config);
// What that kernel would hold and move, without making it (KernelConfig::isa is not looked at).
std::size_t cpu_block_bytes(const HeadShape& shape, DType dtype, index_t k_rows);
std::size_t cpu_gradient_bytes(const HeadShape& shape, index_t k_rows);
std::size_t cpu_workspace_bytes(const KernelConfig& config, Pass pass = Pass::forward);

// Instruction sets that this build holds and this machine runs, best first, e.g. {"AVX3_BF16", "AVX3",
// "AVX2", "SCALAR"}.
std::vector<std::string> cpu_isas();

// Numbers of the CPUs that the calling thread may run on, ascending, never empty. The standard library's
// hardware_concurrency() counts those of the machine, whatever the affinity mask says.
std::vector<int> allowed_cpus();

// fp32 fused multiply-add rate of `threads` threads, in FLOP/s (2 per FMA), measured for about `seconds` with
// independent register accumulators: the ceiling that fraction_of_peak refers to.
double measure_fma_peak(int threads, const std::string& isa = "auto", double seconds = 0.1);

// What a kernel of that dtype multiplies with: "FMA", or "bf16 dot-product", which makes two products and two
// sums of them at once.
std::string cpu_product(DType dtype, const std::string& isa = "auto");
// The rate of that instruction, measured likewise.
double measure_product_peak(DType dtype, int threads, const std::string& isa = "auto", double seconds = 0.1);

// Bytes a second that `threads` threads read together, measured for about `seconds` by the best instruction
// set: the best of repeated passes over a buffer of `bytes`, a share each, that the same threads have touched
// first. A buffer of several times the last-level cache gives the memory's rate, which is the ceiling of few
// queries. Throws UsageError if threads < 1 or a share is below 64 bytes, OutOfMemory if there is no room.
double measure_read_bandwidth(int threads, std::size_t bytes, double seconds = 0.1);

}  // namespace ringattn
