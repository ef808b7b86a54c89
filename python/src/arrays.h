// Python arrays as the library's views, without copies.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <vector>

#include "src/attention.h"

namespace ringattn::python {

namespace nb = nanobind;

// Keeps the arrays of one call alive and hands out views of them. Every function takes any object that offers
// DLPack or the buffer protocol and throws UsageError naming the argument if it offers neither, is not on the
// CPU, or has an element type or a number of dimensions that the library does not take. Shapes are for the
// library to check. Needs the GIL, to be destroyed too.
class Arrays {
 public:
  ConstTensorView tensor(nb::handle object, const char* name);              // read-only arrays are welcome
  TensorView writable_tensor(nb::handle object, const char* name);          // [batch, rows, heads, dim]
  ConstLseView lse(nb::handle object, const char* name);                    // float32 [batch, heads, rows]
  LseView writable_lse(nb::handle object, const char* name);                // None is the null view
  std::span<const index_t> positions(nb::handle object, const char* name);  // int64 [rows]; None is empty

 private:
  template <class Array>
  struct Imported;
  template <class Array>
  Imported<Array> import(nb::handle object, const char* name);
  std::vector<nb::ndarray<nb::ro>> read_;
  std::vector<nb::ndarray<>> written_;
};

}  // namespace ringattn::python
