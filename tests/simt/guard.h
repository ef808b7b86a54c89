// Guard zones around allocations, and what unwritten memory holds.
#pragma once
#include <cstddef>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ADDRESS_SANITIZER 1
#endif
#endif
#ifdef SIMT_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace simt {

// 0xFF in every byte reads as NaN in bf16, fp16, fp32 and fp64: whatever was never written (or is still in
// flight) spoils the result instead of looking like a plausible zero.
inline constexpr unsigned char kPoison = 0xFF;
inline constexpr std::size_t kGuard = 1024;
inline constexpr unsigned char kCanary = 0xA5;

// Under AddressSanitizer a guard is unaddressable; otherwise it holds a pattern that is compared later. The
// pattern would trip the sanitizer, hence the two forms.
inline void open_guard([[maybe_unused]] unsigned char* p, [[maybe_unused]] std::size_t n) {
#ifdef SIMT_ADDRESS_SANITIZER
  ASAN_UNPOISON_MEMORY_REGION(p, n);
#endif
}
inline void draw_guard(unsigned char* p, std::size_t n) {
  std::memset(p, kCanary, n);
#ifdef SIMT_ADDRESS_SANITIZER
  ASAN_POISON_MEMORY_REGION(p, n);
#endif
}
inline bool guard_intact([[maybe_unused]] const unsigned char* p, [[maybe_unused]] std::size_t n) {
#ifndef SIMT_ADDRESS_SANITIZER
  // Every byte equals the one before it: memcmp looks at many at once.
  if (n > 0 && (p[0] != kCanary || std::memcmp(p, p + 1, n - 1) != 0)) return false;
#endif
  return true;
}

}  // namespace simt
