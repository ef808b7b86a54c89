// The parts of the extension, each of which adds its classes and functions to the module.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>

namespace ringattn::python {

// What a dict holds, as type checkers are told.
using Seconds = nanobind::typed<nanobind::dict, nanobind::str, double>;
using Counts = nanobind::typed<nanobind::dict, nanobind::str, std::uint64_t>;
using Data = nanobind::typed<nanobind::dict, nanobind::str, nanobind::any>;

void bind_communicator(nanobind::module_& module);
void bind_problem(nanobind::module_& module);
void bind_plan(nanobind::module_& module);
void bind_attention(nanobind::module_& module);

}  // namespace ringattn::python
