#include "launch/spoil.h"

#include <algorithm>
#include <limits>

#include "launch/element.h"
#include "src/error.h"

namespace ringattn::launch {
namespace {

// The element to spoil; null on the ranks that do not hold it, whose part stays right.
std::byte* victim(const TensorView& tensor, const Layout& layout, int rank,
                  const std::vector<QueryRow>& sample, const std::vector<index_t>& heads) {
  const auto local = local_row(layout, rank, sample.back().position);
  if (!local) return nullptr;
  const index_t offset = tensor.offset(sample.back().batch, *local, heads.at(0));
  return static_cast<std::byte*>(tensor.data) + static_cast<std::size_t>(offset) * size_of(tensor.dtype);
}

void spoil(OutputFault fault, DType dtype, std::byte* element) {
  switch (fault) {
    case OutputFault::nan:
      store_element(dtype, std::numeric_limits<float>::quiet_NaN(), element);
      break;
    case OutputFault::inf:
      store_element(dtype, std::numeric_limits<float>::infinity(), element);
      break;
    case OutputFault::off:
      store_element(dtype, load_element(dtype, element) + 0.01f, element);
      break;
    case OutputFault::zero:
      break;
  }
}

struct Target {
  std::vector<std::byte>& bytes;
  const TensorView& view;
};

Target target_of(Spoilt spoilt, ShardTensors& t) {
  switch (spoilt) {
    case Spoilt::dq:
      return {t.dq, t.views.gradients.dq};
    case Spoilt::dk:
      return {t.dk, t.views.gradients.dk};
    case Spoilt::dv:
      return {t.dv, t.views.gradients.dv};
    case Spoilt::out:
      break;
  }
  return {t.out, t.views.out};
}

}  // namespace

void spoil_result(const TestFaults& faults, const CheckPlan& rows, const KeyPlan& keys,
                  const Sharding& sharding, int rank, ShardTensors& tensors) {
  if (!faults.output) return;
  const auto& [bytes, view] = target_of(faults.spoilt, tensors);
  // A view that was never made has no dimensions: a fault that does nothing would prove nothing.
  if (view.dim() == 0)
    throw UsageError("RINGATTN_TEST_FAULT holds '" + faults.text + "': no gradient is computed");
  if (*faults.output == OutputFault::zero) {
    std::ranges::fill(bytes, std::byte{0});
    return;
  }
  const bool of_keys = faults.spoilt == Spoilt::dk || faults.spoilt == Spoilt::dv;
  const std::vector<QueryRow>& sample = of_keys ? keys.keys : rows.rows;
  if (sample.empty()) return;
  const std::vector<index_t> heads = of_keys ? checked_kv_heads(keys, sample.size() - 1, view.heads())
                                             : checked_heads(rows, sample.size() - 1, view.heads());
  std::byte* element = victim(view, of_keys ? sharding.k : sharding.q, rank, sample, heads);
  if (element != nullptr) spoil(*faults.output, view.dtype, element);
}

}  // namespace ringattn::launch
