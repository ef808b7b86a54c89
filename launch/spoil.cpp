#include "launch/spoil.h"

#include <algorithm>
#include <limits>

#include "launch/element.h"

namespace ringattn::launch {

void spoil_output(OutputFault fault, const CheckPlan& plan, const Sharding& sharding, int rank,
                  ShardTensors& tensors) {
  if (fault == OutputFault::zero) {
    std::ranges::fill(tensors.out, std::byte{0});
    return;
  }
  if (plan.rows.empty()) return;
  const QueryRow last = plan.rows.back();
  // One rank holds the row; on the others the output stays right.
  const auto local = local_row(sharding.q, rank, last.position);
  if (!local) return;
  const TensorView& out = tensors.out_view;
  const index_t head = checked_heads(plan, plan.rows.size() - 1, out.heads()).at(0);
  const auto offset = static_cast<std::size_t>(out.offset(last.batch, *local, head)) * size_of(out.dtype);
  std::byte* element = tensors.out.data() + offset;
  switch (fault) {
    case OutputFault::nan:
      store_element(out.dtype, std::numeric_limits<float>::quiet_NaN(), element);
      break;
    case OutputFault::inf:
      store_element(out.dtype, std::numeric_limits<float>::infinity(), element);
      break;
    case OutputFault::off:
      store_element(out.dtype, load_element(out.dtype, element) + 0.01f, element);
      break;
    case OutputFault::zero:
      break;
  }
}

}  // namespace ringattn::launch
