// Numbers with their units, for people.
#pragma once
#include <string>

namespace ringattn::launch {

std::string bytes_text(double bytes);      // "12.4 GiB", "512 B"
std::string seconds_text(double seconds);  // "1.234 s", "56.7 ms", "8.9 us"
std::string rate_text(double per_second);  // "1.23 T", "456 G": to be followed by FLOP/s
std::string count_text(double count);      // "33554432", from 10^15 on "1.23e+17"
std::string number_text(double number);    // shortest text that reads back as the same double

}  // namespace ringattn::launch
