#include "bench/gpu/lines.h"

#include <array>
#include <cstdio>
#include <ostream>

namespace ringattn::acceptance {

const char* name_of(Status status) {
  static constexpr std::array kNames{"ok", "failed", "refused", "measured"};
  return kNames[static_cast<std::size_t>(status)];
}

std::string json_string(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::array<char, 8> code{};
      std::snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(c));
      quoted += code.data();
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.9g", value);
  return text.data();
}

void Lines::write(const Check& check) {
  ++written_;
  if (check.status == Status::failed) ++failed_;
  to_ << "{\"part\": " << json_string(check.part) << ", \"name\": " << json_string(check.name)
      << ", \"status\": " << json_string(name_of(check.status));
  if (!check.detail.empty()) to_ << ", \"detail\": " << json_string(check.detail);
  for (const auto& [key, value] : check.facts) to_ << ", " << json_string(key) << ": " << json_string(value);
  for (const auto& [key, value] : check.numbers)
    to_ << ", " << json_string(key) << ": " << json_number(value);
  to_ << "}" << std::endl;  // flushed: the reader may lose patience
}

}  // namespace ringattn::acceptance
