#include "arrays.h"

#include <nanobind/stl/string.h>

#include <optional>
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

// Pinned and managed memory is the host's and the device's; here each is what it is allocated as.
std::optional<MemorySpace> space_of(std::int64_t device) {
  switch (device) {
    case nb::device::cpu::value:
    case nb::device::cuda_host::value:
      return MemorySpace::host;
    case nb::device::cuda::value:
    case nb::device::cuda_managed::value:
      return MemorySpace::cuda;
    default:
      return std::nullopt;
  }
}

void check_space(std::int64_t device, MemorySpace expected, const char* name) {
  const std::optional<MemorySpace> space = space_of(device);
  if (space == expected) return;
  throw UsageError(std::string(name) + " is " +
                   (space ? "in " + std::string(name_of(*space)) + " memory"
                          : "on DLPack device type " + std::to_string(device)) +
                   ", expected is " + std::string(name_of(expected)) + " memory");
}

// What an object says before it exports anything: a CUDA array that is not wanted is not touched.
std::optional<std::int64_t> device_of(nb::handle object) {
  if (!nb::hasattr(object, "__dlpack_device__")) return std::nullopt;
  const nb::object device = object.attr("__dlpack_device__")();
  return nb::cast<std::int64_t>(nb::int_(device[0]));
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
Arrays::Imported<Array> Arrays::import(nb::handle object, const char* name, MemorySpace space) {
  if (const auto device = device_of(object)) check_space(*device, space, name);
  const bool bfloat16 = is_numpy_bfloat16(object);
  const nb::object seen = bfloat16                     ? object.attr("view")("uint16")
                          : space == MemorySpace::cuda ? exported(object, name)
                                                       : nb::borrow(object);
  Array array;
  if (!nb::try_cast(seen, array, false))
    throw UsageError(std::string(name) + " is a " + kind_of(object) +
                     " that cannot be used: " + export_error(seen));
  check_space(array.device_type(), space, name);
  return {array, bfloat16};
}

// The DLPack protocol's stream: a number, 1 for the legacy default one.
nb::object Arrays::exported(nb::handle object, const char* name) const {
  try {
    return object.attr("__dlpack__")(nb::arg("stream") = reinterpret_cast<std::uintptr_t>(stream_));
  } catch (const nb::python_error& error) {
    throw UsageError(std::string(name) + " is a " + kind_of(object) +
                     " that cannot be used: " + text_of(error.value()));
  }
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
View tensor_view(const Array& array, bool bfloat16, MemorySpace space, const char* name) {
  check_dimensions<4>(array, name, "[batch, rows of this rank, heads, dim]");
  View view{.data = array.data(), .dtype = dtype_of(array.dtype(), bfloat16, name), .space = space};
  copy_extents(array, view.shape, view.stride);
  return view;
}

template <class View, class Float, class Array>
View lse_view(const Array& array, MemorySpace space, const char* name) {
  check_dimensions<3>(array, name, "[batch, num_heads, rows of this rank]");
  if (!is(array.dtype(), Code::Float, 32))
    throw UsageError(std::string(name) + " has element type " + text_of(array.dtype()) +
                     ", allowed is float32");
  View view{.data = static_cast<Float*>(array.data()), .space = space};
  copy_extents(array, view.shape, view.stride);
  return view;
}

}  // namespace

ConstTensorView Arrays::tensor(nb::handle object, const char* name) {
  const auto [array, bfloat16] = import <ReadOnly>(object, name, space_);
  read_.push_back(array);
  return tensor_view<ConstTensorView>(array, bfloat16, space_, name);
}

TensorView Arrays::writable_tensor(nb::handle object, const char* name) {
  const auto [array, bfloat16] = import <Writable>(object, name, space_);
  written_.push_back(array);
  return tensor_view<TensorView>(array, bfloat16, space_, name);
}

ConstLseView Arrays::lse(nb::handle object, const char* name) {
  const auto imported = import <ReadOnly>(object, name, space_);
  read_.push_back(imported.array);
  return lse_view<ConstLseView, const float>(imported.array, space_, name);
}

LseView Arrays::writable_lse(nb::handle object, const char* name) {
  if (object.is_none()) return {};
  const auto imported = import <Writable>(object, name, space_);
  written_.push_back(imported.array);
  return lse_view<LseView, float>(imported.array, space_, name);
}

std::span<const index_t> Arrays::positions(nb::handle object, const char* name) {
  if (object.is_none()) return {};
  const auto imported = import <ReadOnly>(object, name, MemorySpace::host);
  const auto& array = imported.array;
  check_dimensions<1>(array, name, "[rows of this rank]");
  if (!is(array.dtype(), Code::Int, 64) || (array.shape(0) > 1 && array.stride(0) != 1))
    throw UsageError(std::string(name) + " has element type " + text_of(array.dtype()) + " and stride " +
                     std::to_string(array.stride(0)) + ", allowed is int64 with stride 1");
  read_.push_back(array);
  return {static_cast<const index_t*>(array.data()), array.shape(0)};
}

}  // namespace ringattn::python
