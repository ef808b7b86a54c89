#include "tests/faults/commands.h"

#include <unistd.h>

#include <sstream>

namespace ringattn::test {
namespace {

Words allow_root() { return geteuid() == 0 ? Words{"--allow-run-as-root"} : Words{}; }

}  // namespace

Words words(const std::string& text) {
  std::istringstream in(text);
  Words list;
  for (std::string word; in >> word;) list.push_back(word);
  return list;
}

Words operator+(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

Words local(int ranks, const Words& arguments) {
  return Words{RINGATTN_LOCAL, "-n", std::to_string(ranks), "--timeout", "100", "--", RINGATTN_PROGRAM} +
         arguments;
}

Words mpirun(const std::vector<RankGroup>& groups) {
  Words command = words("mpirun --timeout 100 --bind-to none --oversubscribe") + allow_root();
  bool first = true;
  for (const RankGroup& group : groups) {
    if (!first) command.emplace_back(":");
    first = false;
    command = std::move(command) + Words{"-np", std::to_string(group.ranks)} + group.wrapper +
              Words{RINGATTN_PROGRAM} + group.arguments;
  }
  return command;
}

Words bare_mpirun(int ranks, const Words& arguments) {
  return words("mpirun --timeout 100") + allow_root() +
         Words{"-np", std::to_string(ranks), RINGATTN_PROGRAM} + arguments;
}

Words limited(const std::string& limits) { return {"bash", "-c", limits + "; exec \"$@\"", "bash"}; }

}  // namespace ringattn::test
