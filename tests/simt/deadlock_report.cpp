#include <map>
#include <string>

#include "tests/simt/block.h"

namespace simt {

std::string Block::deadlock_report() const {
  // Threads that stand at the same place make one line: "threads 0-31 64-127".
  std::map<std::string, std::string> places;
  auto place_of = [&](const Thread& t) {
    return t.exited ? std::string("have returned")
                    : std::string("wait for ") + t.waiting_for + " at " + at(t.where);
  };
  for (unsigned i = 0; i < threads.size();) {
    const std::string place = place_of(threads[i]);
    unsigned last = i;
    while (last + 1 < threads.size() && place_of(threads[last + 1]) == place) ++last;
    std::string& ids = places[place];
    ids.append(" ").append(std::to_string(i));
    if (last > i) ids.append("-").append(std::to_string(last));
    i = last + 1;
  }
  std::string text = "block " + std::to_string(index.x) + "," + std::to_string(index.y) + "," +
                     std::to_string(index.z) + ", no thread can go on:";
  for (const auto& [place, ids] : places) text += "\n  threads" + ids + " " + place;
  return text;
}

}  // namespace simt
