// Command lines of jobs: one set of arguments for all ranks, or a set for each group of ranks.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace ringattn::test {

using Words = std::vector<std::string>;

// "bench --seqlen 301" as words; blanks separate, nothing quotes.
Words words(const std::string& text);
Words operator+(Words left, const Words& right);

// launch/local on `ranks` ranks with a time limit of its own, well beyond what any test waits.
Words local(int ranks, const Words& arguments);

// mpirun with the flags of launch/local and ranks that are given different command lines, in the order of the
// groups: {{3, a}, {1, b}} is mpirun FLAGS -np 3 ringattn a : -np 1 ringattn b.
struct RankGroup {
  int ranks = 1;
  Words arguments;
  Words wrapper = {};  // words before the program, such as a shell that sets a limit and then executes it
};
Words mpirun(const std::vector<RankGroup>& groups);

// mpirun with nothing but the right to run here: its own binding (case A2).
Words bare_mpirun(int ranks, const Words& arguments);

// "bash -c 'LIMITS; exec "$@"' bash" for RankGroup::wrapper.
Words limited(const std::string& limits);

}  // namespace ringattn::test
