#include "kernels/cuda/gradients.h"

#include "kernels/cuda/device_error.h"
#include "kernels/cuda/launches.h"
#include "kernels/cuda/sent.h"

namespace ringattn::cuda {
namespace {

void poll(const BackwardCall& call) {
  if (call.poll) call.poll();
}

// The stream goes on behind the sums that other ranks have formed.
void await_sums(const BackwardCall& call) {
  if (!call.gradients.arrived) return;
  while (call.gradients.arrived() < call.gradients.bytes.size()) poll(call);
}

Schedule key_schedule_of(const BackwardCall& call) {
  return key_schedule(call.tiles, call.params.q_rows, call.params.k_rows, call.group_rows.keys);
}

// dq first, while sums may still be on their way.
void add_apart(const BackwardCall& call) {
  BackwardParams params = call.params;
  const SentWalk queries =
      send(call.uploads, query_schedule(call.tiles, params.q_rows, params.k_rows, call.group_rows.queries));
  params.walk = queries.walk;
  if (params.walk.count > 0) call.chapter.query_gradients(call.dtype, params, call.stream);
  poll(call);
  const SentWalk keys = send(call.uploads, key_schedule_of(call));
  params.walk = keys.walk;
  if (params.walk.count > 0) await_sums(call);
  if (params.walk.count > 0) call.chapter.key_gradients(call.dtype, params, call.stream);
}

// All in one launch. While sums are still on their way, dk and dv are formed in memory of their own and added
// when they have come: the bits are the same, since a launch adds to each sum once. It costs one more pass
// over both, where waiting would cost the time of a transfer that hides behind the launch.
void add_at_once(const BackwardCall& call) {
  BackwardParams params = call.params;
  const Schedule schedule = key_schedule_of(call);
  if (schedule.groups.empty()) return;
  const SentWalk keys = send(call.uploads, schedule);
  const SentTurns turns =
      send(call.uploads, turns_of(schedule, params.q_rows), params.q_rows, params.all_heads, call.stream);
  params.walk = keys.walk;
  params.turns = turns.turns;
  if (!call.gradients.arrived) return call.chapter.key_gradients(call.dtype, params, call.stream);

  const std::span<std::byte> sums = call.gradients.bytes;
  const DeviceMemory apart(sums.size(), call.stream);
  check_cuda(cudaMemsetAsync(apart.data(), 0, apart.size(), call.stream), "cudaMemsetAsync");
  for (Rows* rows : {&params.dk, &params.dv})
    rows->data = apart.data() + (static_cast<std::byte*>(rows->data) - sums.data());
  call.chapter.key_gradients(call.dtype, params, call.stream);
  poll(call);
  await_sums(call);
  launch_add({.to = reinterpret_cast<float*>(sums.data()),
              .from = reinterpret_cast<const float*>(apart.data()),
              .count = static_cast<index_t>(sums.size() / sizeof(float))},
             call.stream);
}

}  // namespace

void add_gradients(const BackwardCall& call) {
  if (call.group_rows.at_once)
    add_at_once(call);
  else
    add_apart(call);
  poll(call);
}

}  // namespace ringattn::cuda
