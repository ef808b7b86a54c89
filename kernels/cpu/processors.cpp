#include <memory>

#include "kernels/cpu/cpu.h"

#if defined(__linux__)
#include <sched.h>
#else
#include <thread>
#endif

namespace ringattn {

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
#if defined(__linux__)
  // The set is as large as the kernel's: it is asked with more room until it fits.
  for (int count = 1024; count <= (1 << 20); count *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(static_cast<std::size_t>(count)),
                                                               [](cpu_set_t* s) { CPU_FREE(s); });
    const std::size_t size = CPU_ALLOC_SIZE(static_cast<std::size_t>(count));
    if (!set || sched_getaffinity(0, size, set.get()) != 0) continue;
    for (int cpu = 0; cpu < count; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), size, set.get())) cpus.push_back(cpu);
    }
    break;
  }
#else
  const int count = static_cast<int>(std::thread::hardware_concurrency());
  for (int cpu = 0; cpu < count; ++cpu) cpus.push_back(cpu);
#endif
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

}  // namespace ringattn
