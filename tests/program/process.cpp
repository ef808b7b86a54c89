#include "tests/program/process.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <stdexcept>

namespace ringattn::test {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File temporary() {
  File file(std::tmpfile(), &std::fclose);
  if (!file) throw std::runtime_error("tmpfile");
  return file;
}

std::string content(std::FILE* file) {
  std::string text;
  std::rewind(file);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  return text;
}

[[noreturn]] void become(const Start& how, std::FILE* out, std::FILE* err) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "RINGATTN_TEST_FAULT"})
    unsetenv(name);
  setenv("CUDA_VISIBLE_DEVICES", "", 1);  // the same on every machine: no GPU
  for (const auto& [name, value] : how.environment) setenv(name.c_str(), value.c_str(), 1);
  if (how.address_space != 0) {
    const rlimit limit{how.address_space, how.address_space};
    setrlimit(RLIMIT_AS, &limit);
  }
  dup2(fileno(out), STDOUT_FILENO);
  dup2(fileno(err), STDERR_FILENO);
  std::vector<std::string> words{RINGATTN_PROGRAM};
  words.insert(words.end(), how.arguments.begin(), how.arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

}  // namespace

Ended start(const Start& how) {
  const File out = temporary(), err = temporary();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork");
  if (child == 0) become(how, out.get(), err.get());
  int status = 0;
  if (waitpid(child, &status, 0) != child) throw std::runtime_error("waitpid");
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return {.code = code, .out = content(out.get()), .err = content(err.get())};
}

Ended ringattn(const std::vector<std::string>& arguments) { return start({.arguments = arguments}); }

Ended ringattn_with_fault(const std::string& fault, const std::vector<std::string>& arguments) {
  return start(
      {.arguments = arguments, .environment = {{"OMP_NUM_THREADS", "1"}, {"RINGATTN_TEST_FAULT", fault}}});
}

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> list;
  for (std::string word; stream >> word;) list.push_back(word);
  return list;
}

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<nlohmann::json> json_lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

}  // namespace ringattn::test
