#include "tests/faults/job.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace ringattn::test {
namespace {

// Unique in this machine's life, as far as process numbers and the clock are.
std::string new_mark() {
  static std::atomic<int> count{0};
  const auto now = Clock::now().time_since_epoch().count();
  return "RINGATTN_TEST_JOB=" + std::to_string(getpid()) + "." + std::to_string(now) + "." +
         std::to_string(count++);
}

// This process's environment with `more` in place of entries of the same name. GPUs are hidden, so that jobs
// are the same on every machine.
std::vector<std::string> merged_environment(Environment more, const std::string& mark) {
  more.emplace("CUDA_VISIBLE_DEVICES", "");
  std::vector<std::string> entries{mark};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    if (!more.contains(text.substr(0, text.find('=')))) entries.push_back(text);
  }
  for (const auto& [name, value] : more) entries.push_back(name + "=" + value);
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

// Between fork and exec: only calls that are safe there. The kernel kills the launcher if this test dies, and
// mpirun's end is its ranks' end.
[[noreturn]] void become(char* const* command, char* const* environment, const char* out, const char* err) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpgid(0, 0);
  const int files[] = {open("/dev/null", O_RDONLY), open(out, O_WRONLY | O_CREAT, 0600),
                       open(err, O_WRONLY | O_CREAT, 0600)};
  for (int i = 0; i < 3; ++i) {
    if (files[i] < 0 || dup2(files[i], i) < 0) _exit(127);
  }
  execvpe(command[0], command, environment);
  _exit(127);
}

int exit_code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

}  // namespace

bool wait_until(const std::function<bool()>& done, Seconds limit) {
  const auto end = Clock::now() + limit;
  while (!done()) {
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

Job::Job(const std::vector<std::string>& command, const Environment& more)
    : mark_(new_mark()), started_(Clock::now()) {
  std::vector<std::string> words = command, environment = merged_environment(more, mark_);
  const std::vector<char*> argv = pointers(words), envp = pointers(environment);
  const std::string out = scratch_.path("stdout"), err = scratch_.path("stderr");
  launcher_ = fork();
  if (launcher_ < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
  if (launcher_ == 0) become(argv.data(), envp.data(), out.c_str(), err.c_str());
}

Job::~Job() {
  kill_all();
  if (!reaped_) waitpid(launcher_, nullptr, 0);
}

void Job::kill_all() const {
  // The launcher first, so that it starts nothing more; before its exec it has no mark yet.
  if (!reaped_) kill(launcher_, SIGKILL);
  for (const JobProcess& process : processes()) kill(process.pid, SIGKILL);
}

bool Job::launcher_is_gone() const {
  siginfo_t about{};
  const int flags = WEXITED | WNOHANG | WNOWAIT;  // finish() will ask for the exit code again
  return waitid(P_PID, static_cast<id_t>(launcher_), &about, flags) == 0 && about.si_pid == launcher_;
}

void Job::wait_for(const std::function<bool()>& seen, const std::string& what, Seconds limit) const {
  bool gone = false, found = false;
  wait_until(
      [&] {
        gone = launcher_is_gone();  // asked first: what was written before the end is still found
        found = seen();
        return found || gone;
      },
      limit);
  if (found) return;
  throw std::runtime_error("no " + what + (gone ? " before the job ended" : " in time") +
                           "; its stderr: " + contents(scratch_.path("stderr")));
}

pid_t Job::wait_for_rank(int rank, Seconds limit) const {
  pid_t pid = 0;
  wait_for(
      [&] {
        const std::vector<JobProcess> all = processes();
        const auto it = std::ranges::find_if(
            all, [&](const JobProcess& p) { return p.name == "ringattn" && p.rank == rank; });
        if (it != all.end()) pid = it->pid;
        return it != all.end();
      },
      "process of rank " + std::to_string(rank), limit);
  return pid;
}

bool Job::has_said(const std::string& text) const {
  return contents(scratch_.path("stderr")).find(text) != std::string::npos;
}

void Job::wait_for_words(const std::string& text, Seconds limit) const {
  wait_for([&] { return has_said(text); }, "words '" + text + "'", limit);
}

JobResult Job::finish(Seconds limit) {
  JobResult result;
  int status = 0;
  const auto launcher_gone = [&] {
    const pid_t gone = waitpid(launcher_, &status, WNOHANG);
    if (gone < 0) throw std::runtime_error(std::string("waitpid: ") + std::strerror(errno));
    return gone == launcher_;
  };
  result.out_of_time = !wait_until(launcher_gone, limit);
  if (result.out_of_time) {
    kill_all();
    if (waitpid(launcher_, &status, 0) < 0) throw std::runtime_error("waitpid after SIGKILL");
  }
  reaped_ = true;
  result.ended = Clock::now();
  result.seconds = result.ended - started_;
  result.exit_code = exit_code_of(status);
  if (!wait_until([&] { return processes().empty(); }, kCleanupTime)) {
    for (const JobProcess& process : processes()) result.left_over.push_back(process.text());
    kill_all();
  }
  result.out = contents(scratch_.path("stdout"));
  result.err = contents(scratch_.path("stderr"));
  return result;
}

JobResult finish_clean(Job& job, Seconds limit) {
  JobResult result = job.finish(limit);
  EXPECT_FALSE(result.out_of_time) << "still there after " << result.seconds.count()
                                   << " s; stderr: " << result.err;
  for (const std::string& process : result.left_over) ADD_FAILURE() << "left behind: " << process;
  return result;
}

JobResult run_job(const std::vector<std::string>& command, const Environment& more, Seconds limit) {
  Job job(command, more);
  return finish_clean(job, limit);
}

}  // namespace ringattn::test
