#include "arrays.h"

#include <nanobind/stl/string.h>

#include <string>

#include "src/error.h"

namespace ringattn::python {
namespace {

using ReadOnly = nb::ndarray<nb::ro>;
using Writable = nb::ndarray<>;

using Code = nb::dlpack::dtype_code;

bool is(const nb::dlpack::dtype& type, Code code, int bits) {
  return type.code == static_cast<std::uint8_t>(code) && type.bits == bits && type.lanes == 1;
}

std::string text_of(const nb::dlpack::dtype& type) {
  const char* kind = type.code == static_cast<std::uint8_t>(Code::Int)       ? "int"
                     : type.code == static_cast<std::uint8_t>(Code::UInt)    ? "uint"
                     : type.code == static_cast<std::uint8_t>(Code::Float)   ? "float"
                     : type.code == static_cast<std::uint8_t>(Code::Bfloat)  ? "bfloat"
                     : type.code == static_cast<std::uint8_t>(Code::Complex) ? "complex"
                     : type.code == static_cast<std::uint8_t>(Code::Bool)    ? "bool"
                                                                             : "dlpack type code ";
  const std::string code = kind[0] == 'd' ? std::to_string(type.code) + " of bits " : "";
  return kind + code + std::to_string(type.bits);
}

// A handle, not an accessor: nb::str would take an accessor for a str that is there already.
std::string text_of(nb::handle object) { return nb::str(object).c_str(); }

std::string kind_of(nb::handle object) {
  const nb::object name = object.type().attr("__name__");
  return text_of(name);
}

// NumPy has no bfloat16 of its own; ml_dtypes adds one, which neither DLPack nor the buffer protocol can
// name.
bool is_numpy_bfloat16(nb::handle object) {
  if (!nb::hasattr(object, "__array_interface__") || !nb::hasattr(object, "dtype")) return false;
  const nb::object dtype = object.attr("dtype");
  return text_of(dtype) == "bfloat16";
}

// What the object itself says about it, if it says anything: a torch tensor that requires gradients does.
std::string export_error(nb::handle object) {
  if (!nb::hasattr(object, "__dlpack__")) return "it offers neither DLPack nor the buffer protocol";
  try {
    object.attr("__dlpack__")();
  } catch (const nb::python_error& error) {
    return text_of(error.value());
  }
  return "its memory cannot be written";
}

void check_cpu(std::int32_t device, const char* name) {
  if (device != nb::device::cpu::value)
    throw UsageError(std::string(name) + " is on DLPack device type " + std::to_string(device) +
                     ", this build computes on the CPU (type 1)");
}

template <std::size_t N, class Array>
void check_dimensions(const Array& array, const char* name, const char* meaning) {
  if (array.ndim() != N)
    throw UsageError(std::string(name) + " has " + std::to_string(array.ndim()) + " dimensions, expected " +
                     std::to_string(N) + " " + meaning);
}

// Exporters write any strides for an array without elements and for an extent of 1, where nothing is stepped
// over; the library looks at the last one all the same, so it gets the 1 that a dense array has.
template <std::size_t N, class Array>
void copy_extents(const Array& array, std::array<index_t, N>& shape, std::array<index_t, N>& stride) {
  for (std::size_t i = 0; i < N; ++i) {
    shape[i] = static_cast<index_t>(array.shape(i));
    stride[i] = array.stride(i);
  }
  if (array.size() == 0 || shape[N - 1] == 1) stride[N - 1] = 1;
}

}  // namespace

template <class Array>
struct Arrays::Imported {
  Array array;
  bool bfloat16;  // the array shows the bits as uint16
};

template <class Array>
Arrays::Imported<Array> Arrays::import(nb::handle object, const char* name) {
  const bool bfloat16 = is_numpy_bfloat16(object);
  const nb::object seen = bfloat16 ? object.attr("view")("uint16") : nb::borrow(object);
  Array array;
  if (!nb::try_cast(seen, array, false))
    throw UsageError(std::string(name) + " is a " + kind_of(object) +
                     " that cannot be used: " + export_error(seen));
  check_cpu(array.device_type(), name);
  return {array, bfloat16};
}

namespace {

DType dtype_of(const nb::dlpack::dtype& type, bool bfloat16, const char* name) {
  if (bfloat16 || is(type, Code::Bfloat, 16)) return DType::bf16;
  if (is(type, Code::Float, 32)) return DType::f32;
  if (is(type, Code::Float, 16)) return DType::f16;
  throw UsageError(std::string(name) + " has element type " + text_of(type) +
                   ", allowed are float32, bfloat16 and float16");
}

template <class View, class Array>
View tensor_view(const Array& array, bool bfloat16, const char* name) {
  check_dimensions<4>(array, name, "[batch, rows of this rank, heads, dim]");
  View view{.data = array.data(), .dtype = dtype_of(array.dtype(), bfloat16, name)};
  copy_extents(array, view.shape, view.stride);
  return view;
}

template <class View, class Float, class Array>
View lse_view(const Array& array, const char* name) {
  check_dimensions<3>(array, name, "[batch, num_heads, rows of this rank]");
  if (!is(array.dtype(), Code::Float, 32))
    throw UsageError(std::string(name) + " has element type " + text_of(array.dtype()) +
                     ", allowed is float32");
  View view{.data = static_cast<Float*>(array.data())};
  copy_extents(array, view.shape, view.stride);
  return view;
}

}  // namespace

ConstTensorView Arrays::tensor(nb::handle object, const char* name) {
  const auto [array, bfloat16] = import <ReadOnly>(object, name);
  read_.push_back(array);
  return tensor_view<ConstTensorView>(array, bfloat16, name);
}

TensorView Arrays::writable_tensor(nb::handle object, const char* name) {
  const auto [array, bfloat16] = import <Writable>(object, name);
  written_.push_back(array);
  return tensor_view<TensorView>(array, bfloat16, name);
}

ConstLseView Arrays::lse(nb::handle object, const char* name) {
  const auto imported = import <ReadOnly>(object, name);
  read_.push_back(imported.array);
  return lse_view<ConstLseView, const float>(imported.array, name);
}

LseView Arrays::writable_lse(nb::handle object, const char* name) {
  if (object.is_none()) return {};
  const auto imported = import <Writable>(object, name);
  written_.push_back(imported.array);
  return lse_view<LseView, float>(imported.array, name);
}

std::span<const index_t> Arrays::positions(nb::handle object, const char* name) {
  if (object.is_none()) return {};
  const auto imported = import <ReadOnly>(object, name);
  const auto& array = imported.array;
  check_dimensions<1>(array, name, "[rows of this rank]");
  if (!is(array.dtype(), Code::Int, 64) || (array.shape(0) > 1 && array.stride(0) != 1))
    throw UsageError(std::string(name) + " has element type " + text_of(array.dtype()) + " and stride " +
                     std::to_string(array.stride(0)) + ", allowed is int64 with stride 1");
  read_.push_back(array);
  return {static_cast<const index_t*>(array.data()), array.shape(0)};
}

}  // namespace ringattn::python
