#include "kernels/cuda/sent.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/parallel.h"
#include "kernels/cuda/device_error.h"
#include "kernels/cuda/layout.h"

namespace ringattn::cuda {

SentWalk send(Uploads& uploads, const Schedule& schedule) {
  if (schedule.groups.empty()) return {.memory = {}, .walk = {}, .merges = nullptr};
  const std::size_t groups = schedule.groups.size() * sizeof(Group);
  const std::size_t pieces = schedule.pieces.size() * sizeof(Piece);
  const std::size_t merges = schedule.merges.size() * sizeof(Merge);
  const std::span<std::byte> room = uploads.room(groups + pieces + merges);
  std::memcpy(room.data(), schedule.groups.data(), groups);
  std::memcpy(room.data() + groups, schedule.pieces.data(), pieces);
  if (merges > 0) std::memcpy(room.data() + groups + pieces, schedule.merges.data(), merges);
  SentWalk sent{.memory = uploads.send(), .walk = {}, .merges = nullptr};
  sent.walk = {.groups = reinterpret_cast<const Group*>(sent.memory.data()),
               .pieces = reinterpret_cast<const Piece*>(sent.memory.data() + groups),
               .count = static_cast<index_t>(schedule.groups.size())};
  sent.merges = reinterpret_cast<const Merge*>(sent.memory.data() + groups + pieces);
  return sent;
}

SentTurns send(Uploads& uploads, const TurnList& list, index_t q_rows, index_t heads, cudaStream_t stream) {
  if (list.runs.empty()) return {.runs = {}, .counters = {}, .turns = {}};
  const std::size_t first = list.first_runs.size() * sizeof(int);
  const std::size_t runs = list.runs.size() * sizeof(TurnRun);
  const std::span<std::byte> room = uploads.room(first + runs);
  std::memcpy(room.data(), list.first_runs.data(), first);
  std::memcpy(room.data() + first, list.runs.data(), runs);
  const index_t blocks = (q_rows + kTurnRows - 1) / kTurnRows;
  const index_t counters = checked_sum(1, checked_product({heads, blocks}));
  const auto bytes = static_cast<std::size_t>(checked_product({counters, index_t{sizeof(int)}}));
  SentTurns sent{.runs = uploads.send(), .counters = DeviceMemory(bytes, stream), .turns = {}};
  check_cuda(cudaMemsetAsync(sent.counters.data(), 0, bytes, stream), "cudaMemsetAsync");
  int* const ticket = reinterpret_cast<int*>(sent.counters.data());
  sent.turns = {.first_runs = reinterpret_cast<const int*>(sent.runs.data()),
                .runs = reinterpret_cast<const TurnRun*>(sent.runs.data() + first),
                .ticket = ticket,
                .done = ticket + 1,
                .blocks = blocks};
  return sent;
}

SentRows send(Uploads& uploads, const std::vector<index_t>& first_rows) {
  const std::size_t bytes = first_rows.size() * sizeof(index_t);
  if (bytes == 0) return {.memory = {}, .first_rows = nullptr};
  std::memcpy(uploads.room(bytes).data(), first_rows.data(), bytes);
  SentRows sent{.memory = uploads.send(), .first_rows = nullptr};
  sent.first_rows = reinterpret_cast<const index_t*>(sent.memory.data());
  return sent;
}

SentAngles send(Uploads& uploads, const Rotation& rotation, index_t rows, bool back, int threads) {
  if (rotation.dim == 0 || rows == 0) return {.memory = {}, .turn = {}};
  const auto pairs = static_cast<std::size_t>(rotation.dim / 2);
  const std::span<std::byte> room =
      uploads.room(static_cast<std::size_t>(checked_product({rows, rotation.dim, index_t{sizeof(float)}})));
  auto* const angles = reinterpret_cast<float*>(room.data());
  constexpr index_t kRowsATask = 64;
  cpu::parallel_tasks(threads, (rows + kRowsATask - 1) / kRowsATask, [&](index_t task, int) {
    for (index_t row = task * kRowsATask; row < std::min((task + 1) * kRowsATask, rows); ++row) {
      float* const cos = angles + row * rotation.dim;
      rotation.angles(row, {cos, pairs}, {cos + pairs, pairs});
    }
  });
  SentAngles sent{.memory = uploads.send(), .turn = {}};
  sent.turn = {.angles = reinterpret_cast<const float*>(sent.memory.data()),
               .dim = static_cast<int>(rotation.dim),
               .interleaved = rotation.interleaved,
               .back = back};
  return sent;
}

}  // namespace ringattn::cuda
