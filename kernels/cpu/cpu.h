// Blocked flash attention on CPUs: fp32 arithmetic, one source for every SIMD instruction set, OpenMP
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

// Instruction sets that this build holds and this machine runs, best first, e.g. {"AVX3", "AVX2", "EMU128"}.
std::vector<std::string> cpu_isas();

// fp32 fused multiply-add rate of `threads` threads, in FLOP/s (2 per FMA), measured for about `seconds` with
// independent register accumulators: the ceiling that fraction_of_peak refers to.
double measure_fma_peak(int threads, const std::string& isa = "auto", double seconds = 0.1);
// Bytes per second that `threads` threads read of a buffer of `bytes`, a share each, again and again for about
// `seconds`; the best of many passes. At least 64 KiB a thread. The ceiling of attention of few queries.
double measure_read_bandwidth(int threads, std::size_t bytes, double seconds = 0.1);

// What a kernel of that dtype multiplies with: "FMA", or "bf16 dot-product", which makes two products and two
// sums of them at once.
std::string cpu_product(DType dtype, const std::string& isa = "auto");
// The rate of that instruction, measured likewise.
double measure_product_peak(DType dtype, int threads, const std::string& isa = "auto", double seconds = 0.1);

}  // namespace ringattn
