// A job started as a user would start it and watched from outside: what it says, how it ends, how long that
// takes and what it leaves behind. A test never hangs on its job: every wait has a limit, and a job that goes
// past it is killed with all its ranks.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/faults/processes.h"
#include "tests/files/scratch.h"

namespace ringattn::test {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
using Environment = std::map<std::string, std::string>;

// faults.md section 1: no process of a job is left this long after its launcher has ended.
constexpr Seconds kCleanupTime{5};

struct JobResult {
  int exit_code = -1;                  // of the launcher; 128 + signal if one ended it
  bool out_of_time = false;            // it was still there at its limit and was killed
  Seconds seconds{};                   // from its start to its end
  Clock::time_point ended;             // when the launcher was gone
  std::string out, err;                // of all ranks, as mpirun passes them on
  std::vector<std::string> left_over;  // processes that were there kCleanupTime later; they were killed
};

class Job {
 public:
  // Starts `command` (looked up on PATH) with this process's environment and `more` on top of it.
  explicit Job(const std::vector<std::string>& command, const Environment& more = {});
  ~Job();  // kills what is left
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  pid_t launcher() const { return launcher_; }
  std::vector<JobProcess> processes() const { return processes_with(mark_); }
  // Waits for the process named "ringattn" with that rank. This and the next throw
  // std::runtime_error at `limit`, and when the job ends before that.
  pid_t wait_for_rank(int rank, Seconds limit = Seconds(30)) const;
  bool has_said(const std::string& text) const;  // on stderr, so far
  // Waits until the job has written `text` to stderr.
  void wait_for_words(const std::string& text, Seconds limit = Seconds(30)) const;
  // Waits for the launcher's end and then for that of everything else. To be called once.
  JobResult finish(Seconds limit);

 private:
  void kill_all() const;
  bool launcher_is_gone() const;
  void wait_for(const std::function<bool()>& seen, const std::string& what, Seconds limit) const;

  Scratch scratch_;
  std::string mark_;  // NAME=VALUE, in the environment of this job's processes alone
  Clock::time_point started_;
  pid_t launcher_ = 0;
  bool reaped_ = false;
};

// finish(), with a failed expectation if the job had to be killed or left processes behind.
JobResult finish_clean(Job& job, Seconds limit);
JobResult run_job(const std::vector<std::string>& command, const Environment& more = {},
                  Seconds limit = Seconds(60));

// Waits until `done`; false if that was not so within the limit.
bool wait_until(const std::function<bool()>& done, Seconds limit);

}  // namespace ringattn::test
