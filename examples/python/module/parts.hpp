// The parts of the module that are files of their own.
#pragma once

#include <pybind11/pybind11.h>

namespace tensorpull::python {

void bind_downloads(pybind11::module_& m);
void bind_owners(pybind11::module_& m);
void bind_averages(pybind11::module_& m);
void bind_weighing(pybind11::module_& m);
void bind_images(pybind11::module_& m);
/// Not there in a build without differences (TENSORPULL_PYTHON_DIFFERENCES).
void bind_difference(pybind11::module_& m);
/// Not there in a build without directories (TENSORPULL_PYTHON_DIRECTORIES).
void bind_directories(pybind11::module_& m);
/// Not there in a build without proofs (TENSORPULL_PYTHON_PROOFS).
void bind_proofs(pybind11::module_& m);

}  // namespace tensorpull::python
