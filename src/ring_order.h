// Whose keys a rank has at hand, and when: a block moves to the next rank after each hop.
#pragma once
#include "src/types.h"

namespace ringattn {

constexpr index_t owner_at(index_t rank, index_t hop, index_t ranks) {
  return rank >= hop ? rank - hop : rank - hop + ranks;
}
constexpr index_t hop_of(index_t rank, index_t owner, index_t ranks) {
  return rank >= owner ? rank - owner : rank - owner + ranks;
}

}  // namespace ringattn
