// What a job said: its JSON report, and how often it said a thing.
#pragma once
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/faults/job.h"

namespace ringattn::test {

// The one JSON object that `--json -` puts on stdout. Null, with a failed expectation, if there is none: a
// second rank that reports is as wrong as no report.
inline nlohmann::json report_of(const JobResult& job) {
  nlohmann::json report = nlohmann::json::parse(job.out, nullptr, false);
  EXPECT_TRUE(report.is_object()) << "stdout is no JSON object: " << job.out << "\nstderr: " << job.err;
  return report.is_object() ? report : nlohmann::json();
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
