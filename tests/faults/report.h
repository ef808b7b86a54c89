// What a job said: its JSON report, and how often it said a thing.
#pragma once
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/faults/job.h"

namespace ringattn::test {

// The JSON objects that `--json -` puts on stdout, one a line. A line that is none is a failed expectation.
inline std::vector<nlohmann::json> reports_of(const JobResult& job) {
  std::vector<nlohmann::json> reports;
  std::istringstream lines(job.out);
  for (std::string line; std::getline(lines, line);) {
    reports.push_back(nlohmann::json::parse(line, nullptr, false));
    EXPECT_TRUE(reports.back().is_object()) << "no JSON object: " << line;
  }
  return reports;
}

// The only one. A second rank that reports is as wrong as no report.
inline nlohmann::json report_of(const JobResult& job) {
  const std::vector<nlohmann::json> reports = reports_of(job);
  EXPECT_EQ(reports.size(), 1u) << job.out << "\nstderr: " << job.err;
  return reports.empty() ? nlohmann::json() : reports.front();
}

inline int times_said(const JobResult& job, const std::string& text) {
  int count = 0;
  for (auto at = job.err.find(text); at != std::string::npos; at = job.err.find(text, at + 1)) ++count;
  return count;
}

// The job failed as promised: with this code, its own words on stderr once, and no report of success.
inline void expect_failure(const JobResult& job, int exit_code, const std::string& words) {
  EXPECT_EQ(job.exit_code, exit_code) << job.err;
  EXPECT_EQ(times_said(job, words), 1) << "'" << words << "' in: " << job.err;
  EXPECT_EQ(job.out, "") << "a job that failed before its work reported";
}

}  // namespace ringattn::test
