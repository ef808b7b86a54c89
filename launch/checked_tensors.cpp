#include "launch/checked_tensors.h"

#include "launch/element.h"

namespace ringattn::launch {

double element_of(const ConstTensorView& tensor, index_t batch, index_t local_row, index_t head,
                  index_t element) {
  const auto offset =
      static_cast<std::size_t>(tensor.offset(batch, local_row, head) + element) * size_of(tensor.dtype);
  return load_element(tensor.dtype, static_cast<const std::byte*>(tensor.data) + offset);
}

}  // namespace ringattn::launch
