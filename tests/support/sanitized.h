// Whether this build runs under a sanitizer, for tests that would take minutes there or ask for what it
// forbids.
#pragma once
#include <cstddef>

namespace ringattn::test {

// g++ and clang tell in different ways.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

// A sanitizer, which takes ten times as long, gets every n-th of a long row of problems; other builds leave
// none out.
constexpr bool left_out(std::size_t problem, std::size_t n) { return kSanitized && problem % n != 0; }

}  // namespace ringattn::test
