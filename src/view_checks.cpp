#include "src/view_checks.h"

#include <algorithm>
#include <string>

#include "src/error.h"

namespace ringattn {
namespace {

template <class View>
std::string shape_text(const View& view) {
  std::string text = "[";
  for (std::size_t i = 0; i < view.shape.size(); ++i) text += (i ? ", " : "") + std::to_string(view.shape[i]);
  return text + "]";
}

void check_space(const char* name, MemorySpace space, MemorySpace expected) {
  if (space != expected)
    throw UsageError(std::string(name) + " is in " + std::string(name_of(space)) +
                     " memory, this object computes in " + std::string(name_of(expected)) + " memory");
}

template <class View>
void check_places(const char* name, const View& view) {
  if (std::ranges::find(view.shape, 0) != view.shape.end()) return;
  for (std::size_t i = 0; i < view.shape.size(); ++i)
    if (view.shape[i] > 1 && view.stride[i] == 0)
      throw UsageError(std::string(name) + " has stride 0 along dimension " + std::to_string(i) +
                       ", which holds " + std::to_string(view.shape[i]) + " elements to be written");
}

}  // namespace

void check_view(const char* name, const ConstTensorView& view, const std::array<index_t, 4>& shape,
                const ViewRule& rule) {
  if (view.shape != shape)
    throw UsageError(std::string(name) + " has shape " + shape_text(view) + ", expected " +
                     shape_text(ConstTensorView{.shape = shape}) + " [batch, rows of this rank, heads, dim]");
  if (view.dtype != rule.dtype)
    throw UsageError(std::string(name) + " has dtype " + std::string(name_of(view.dtype)) +
                     ", the problem has " + std::string(name_of(rule.dtype)));
  check_space(name, view.space, rule.space);
  const bool empty = std::ranges::find(shape, 0) != shape.end();
  if (!empty && view.data == nullptr) throw UsageError(std::string(name) + " has no data (null pointer)");
  if (!empty && shape[3] > 1 && view.stride[3] != 1)
    throw UsageError(std::string(name) + " has stride " + std::to_string(view.stride[3]) +
                     " along the last dimension, allowed is 1");
}

void check_lse_view(const ConstLseView& lse, const std::array<index_t, 3>& shape, MemorySpace space) {
  if (lse.shape != shape)
    throw UsageError("lse has shape " + shape_text(lse) + ", expected " +
                     shape_text(LseView{.shape = shape}) + " [batch, num_heads, rows of this rank]");
  check_space("lse", lse.space, space);
  if (shape[2] > 1 && lse.stride[2] != 1)
    throw UsageError("lse has stride " + std::to_string(lse.stride[2]) +
                     " along the last dimension, allowed is 1");
}

void check_writable(const char* name, const TensorView& view) { check_places(name, view); }
void check_writable(const char* name, const LseView& view) { check_places(name, view); }

}  // namespace ringattn
