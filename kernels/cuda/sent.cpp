#include "kernels/cuda/sent.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/parallel.h"
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
