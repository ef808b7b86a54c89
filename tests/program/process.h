// The program as a user starts it: arguments and environment in, exit code and both streams out.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ringattn::test {

struct Ended {
  int code = -1;  // of a process that ended by itself; 128 + signal otherwise
  std::string out, err;
};

struct Start {
  std::vector<std::string> arguments;
  // Added to the environment. Variables of a launcher around the test are not handed on.
  std::map<std::string, std::string> environment{{"OMP_NUM_THREADS", "1"}};
  std::size_t address_space = 0;  // limit in bytes; 0 = none
};

Ended start(const Start& how);
Ended ringattn(const std::vector<std::string>& arguments);
// With RINGATTN_TEST_FAULT.
Ended ringattn_with_fault(const std::string& fault, const std::vector<std::string>& arguments);

// "bench --seqlen 8" as words.
std::vector<std::string> words(const std::string& text);
std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b);

// One object for each line.
std::vector<nlohmann::json> json_lines(const std::string& text);

}  // namespace ringattn::test
