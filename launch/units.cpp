#include "launch/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace ringattn::launch {
namespace {

std::string three_digits(double value, const char* unit) {
  char text[64];
  const int decimals = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f %s", decimals, value, unit);
  return text;
}

}  // namespace

std::string bytes_text(double bytes) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return count_text(bytes) + " B";
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  return three_digits(bytes, units[unit]);
}

std::string seconds_text(double seconds) {
  if (seconds >= 1 || seconds == 0) {
    char text[64];
    std::snprintf(text, sizeof text, "%.3f s", seconds);
    return text;
  }
  return seconds >= 1e-3 ? three_digits(seconds * 1e3, "ms") : three_digits(seconds * 1e6, "us");
}

std::string rate_text(double per_second) {
  if (per_second >= 1e15) return three_digits(per_second / 1e15, "P");
  if (per_second >= 1e12) return three_digits(per_second / 1e12, "T");
  if (per_second >= 1e9) return three_digits(per_second / 1e9, "G");
  return three_digits(per_second / 1e6, "M");
}

std::string count_text(double count) {
  char text[64];
  std::snprintf(text, sizeof text, std::abs(count) < 1e15 ? "%.0f" : "%.4g", count);
  return text;
}

std::string number_text(double number) {
  std::array<char, 64> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} ? std::string(text.data(), end) : std::string("?");
}

}  // namespace ringattn::launch
