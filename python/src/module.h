// The parts of the extension, each of which adds its classes and functions to the module.
#pragma once
#include <nanobind/nanobind.h>

namespace ringattn::python {

void bind_communicator(nanobind::module_& module);
void bind_problem(nanobind::module_& module);
void bind_plan(nanobind::module_& module);
void bind_attention(nanobind::module_& module);

}  // namespace ringattn::python
