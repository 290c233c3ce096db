// Whole updates for Python that are looked at before they are weighed.
#pragma once

#include "errors.hpp"
#include "interpreter.hpp"
#include "tensor_table.hpp"

namespace tensorpull::python {

void bind_weighing(py::module_& m);

}  // namespace tensorpull::python
