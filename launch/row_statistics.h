// What a key has to know of the queries that see it: lse and delta = sum_e dout_e out_e of every row, which
// stand for the row's other keys. Sound as the yardstick of dk and dv in either of two ways:
//
// - recomputed in float64 over all keys, where forward over all rows is cheap;
// - else from the ring's own forward, whose lse and out the check of the query rows has compared with
//   float64, on rows spread over all ranks. backward() is defined on just these two (src/attention.h), so a
//   key's gradient through them is what backward() should have given; a forward that is wrong is found by
//   that other check, and a backward that used another lse or delta is found by this one.
#pragma once
#include <chrono>
#include <vector>

#include "comm/communicator.h"
#include "launch/checked_tensors.h"
#include "src/problem.h"

namespace ringattn::launch {

struct RowStatistics {
  double lse = 0, delta = 0;
};

// Bytes that gather_row_statistics holds at most: 16 for each query of each head of a group, twice.
double row_statistics_bytes(const Problem& problem);

struct StatisticsOf {
  const Problem& problem;
  const Sharding& sharding;
  const CheckInputs& inputs;
  const CheckedOutput& output;  // this rank's rows, read unless `recompute`
  bool recompute = false;
};

// Collective. Of the query heads that read a KV head: [head in the group][global position]. Every rank works
// on its own rows; 16 bytes a row and head travel to every rank.
std::vector<std::vector<RowStatistics>> gather_row_statistics(Communicator& comm, const StatisticsOf& what,
                                                              index_t batch, index_t kv_head,
                                                              std::chrono::milliseconds patience);

}  // namespace ringattn::launch
