// Texts of the command line as values, strictly: the whole text or a UsageError that names the option, its
// value and what is allowed.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/types.h"

namespace ringattn::launch {

// "--iterations is '-3', allowed is ..."
[[noreturn]] void refuse(std::string_view option, std::string_view value, std::string_view allowed);

// A whole number in [min, max]; no sign but '-', no blank, nothing after it.
index_t parse_whole(std::string_view option, std::string_view value, index_t min, index_t max);
std::uint64_t parse_seed(std::string_view option, std::string_view value);

enum class Real { any, not_negative, positive };
double parse_real(std::string_view option, std::string_view value, Real allowed);

// Seconds, up to about 100 days, as milliseconds; at least one.
std::chrono::milliseconds parse_seconds(std::string_view option, std::string_view value);

// Whole numbers separated by commas.
std::vector<index_t> parse_list(std::string_view option, std::string_view value);
// "a,b,c", or "@file" with numbers separated by commas or white space. A file that cannot be read is a
// DataError.
std::vector<index_t> parse_list_or_file(std::string_view option, const std::string& value);

// The index of `value` among the allowed names.
std::size_t parse_choice(std::string_view option, std::string_view value,
                         const std::vector<std::string_view>& allowed);

}  // namespace ringattn::launch
