// Python arrays as the library's views, without copies.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <vector>

#include "src/attention.h"

namespace ringattn::python {

namespace nb = nanobind;

// Keeps the arrays of one call alive and hands out views of them. Every function takes any object that offers
// DLPack or the buffer protocol and throws UsageError naming the argument if it offers neither, lies in
// another memory than `space`, or has an element type or a number of dimensions that the library does not
// take. Shapes are for the library to check. Needs the GIL, to be destroyed too.
class Arrays {
 public:
  // stream: the cudaStream_t on which arrays in cuda memory will be used, null for those of the host. The
  // library of an array is asked to make that stream wait for what it still has to do on another.
  Arrays(MemorySpace space, void* stream) : space_(space), stream_(stream) {}

  ConstTensorView tensor(nb::handle object, const char* name);      // read-only arrays are welcome
  TensorView writable_tensor(nb::handle object, const char* name);  // [batch, rows, heads, dim]
  ConstLseView lse(nb::handle object, const char* name);            // float32 [batch, heads, rows]
  LseView writable_lse(nb::handle object, const char* name);        // None is the null view
  // int64 [rows], of the host; None is empty.
  std::span<const index_t> positions(nb::handle object, const char* name);

 private:
  template <class Array>
  struct Imported;
  template <class Array>
  Imported<Array> import(nb::handle object, const char* name, MemorySpace space);
  nb::object exported(nb::handle object, const char* name) const;

  MemorySpace space_;
  void* stream_;
  std::vector<nb::ndarray<nb::ro>> read_;
  std::vector<nb::ndarray<>> written_;
};

}  // namespace ringattn::python
