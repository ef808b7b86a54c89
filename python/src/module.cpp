#include "module.h"

#include "src/error.h"

namespace nb = nanobind;

NB_MODULE(_core, module) {
  using namespace ringattn;
  module.doc() =
      "Bindings of the C++ library. Use the package ringattn, which adds arrays of the caller's kind.";
  nb::exception<UsageError>(module, "UsageError", PyExc_ValueError);
  nb::exception<DataError>(module, "DataError", PyExc_ValueError);
  nb::exception<CommError>(module, "CommError", PyExc_RuntimeError);
  nb::exception<DeviceError>(module, "DeviceError", PyExc_RuntimeError);
  nb::exception<OutOfMemory>(module, "OutOfMemory", PyExc_MemoryError);
  python::bind_communicator(module);
  python::bind_problem(module);
  python::bind_plan(module);
  python::bind_attention(module);
}
