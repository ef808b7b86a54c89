#include "launch/option_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>

#include "src/error.h"

namespace ringattn::launch {
namespace {

// A limit that nobody can reach is not mentioned.
std::string range_text(index_t min, index_t max) {
  if (max == std::numeric_limits<index_t>::max()) return "a whole number from " + std::to_string(min);
  return "a whole number from " + std::to_string(min) + " to " + std::to_string(max);
}

// from_chars takes no blank, no '+' and no base prefix; what it leaves over is refused here.
template <class Number>
bool whole_text(std::string_view text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc{} && stop == end;
}

// Numbers separated by one comma, by white space, or by both; nothing if the text is anything else or empty.
std::optional<std::vector<index_t>> numbers_of_file(std::string_view text) {
  std::vector<index_t> numbers;
  const auto skip_blanks = [&] {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  };
  while (true) {
    skip_blanks();
    if (text.empty()) break;
    index_t number = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc{}) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
    const std::size_t before = text.size();
    skip_blanks();
    const bool comma = text.starts_with(',');
    if (comma) text.remove_prefix(1);
    if (!text.empty() && text.size() == before) return std::nullopt;  // "12x"
    numbers.push_back(number);
    if (comma && text.find_first_not_of(" \t\r\n") == std::string_view::npos) return std::nullopt;
  }
  if (numbers.empty()) return std::nullopt;
  return numbers;
}

}  // namespace

// One sentence for all refusals, so that tests and users know where to look.
void refuse(std::string_view option, std::string_view value, std::string_view allowed) {
  throw UsageError("--" + std::string(option) + " is '" + std::string(value) + "', allowed is " +
                   std::string(allowed));
}

index_t parse_whole(std::string_view option, std::string_view value, index_t min, index_t max) {
  index_t number = 0;
  if (!whole_text(value, number) || number < min || number > max) refuse(option, value, range_text(min, max));
  return number;
}

std::uint64_t parse_seed(std::string_view option, std::string_view value) {
  std::uint64_t number = 0;
  if (!whole_text(value, number)) refuse(option, value, "a whole number from 0 to 2^64 - 1");
  return number;
}

double parse_real(std::string_view option, std::string_view value, Real allowed) {
  double number = 0;
  const bool read = whole_text(value, number) && std::isfinite(number);
  switch (allowed) {
    case Real::any:
      if (!read) refuse(option, value, "a finite number");
      break;
    case Real::not_negative:
      if (!read || number < 0) refuse(option, value, "a finite number from 0");
      break;
    case Real::positive:
      if (!read || number <= 0) refuse(option, value, "a finite number above 0");
      break;
  }
  return number;
}

std::chrono::milliseconds parse_seconds(std::string_view option, std::string_view value) {
  // About 115 days; milliseconds of it fit any clock.
  constexpr double kMost = 1e7;
  double seconds = 0;
  if (!whole_text(value, seconds) || !(seconds >= 0.001 && seconds <= kMost)) {
    refuse(option, value, "a number of seconds from 0.001 to 10000000");
  }
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

std::vector<index_t> parse_list(std::string_view option, std::string_view value) {
  std::vector<index_t> numbers;
  std::string_view rest = value;
  while (true) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    index_t number = 0;
    if (!whole_text(rest.substr(0, comma), number)) {
      refuse(option, value, "whole numbers separated by commas");
    }
    numbers.push_back(number);
    if (comma == rest.size()) return numbers;
    rest.remove_prefix(comma + 1);
  }
}

std::vector<index_t> parse_list_or_file(std::string_view option, const std::string& value) {
  if (!value.starts_with('@')) return parse_list(option, value);
  const std::string path = value.substr(1);
  std::ifstream file(path, std::ios::binary);
  if (!file) throw DataError("--" + std::string(option) + " '" + value + "': the file cannot be opened");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) throw DataError("--" + std::string(option) + " '" + value + "': the file cannot be read");

  if (const auto numbers = numbers_of_file(text)) return *numbers;
  refuse(option, value, "a file of whole numbers separated by commas or white space");
}

std::size_t parse_choice(std::string_view option, std::string_view value,
                         const std::vector<std::string_view>& allowed) {
  const auto found = std::find(allowed.begin(), allowed.end(), value);
  if (found == allowed.end()) {
    std::string list;
    for (const std::string_view name : allowed) list += (list.empty() ? "" : ", ") + std::string(name);
    refuse(option, value, "one of " + list);
  }
  return static_cast<std::size_t>(found - allowed.begin());
}

}  // namespace ringattn::launch
