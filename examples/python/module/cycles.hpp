// Python's collector of cycles, told of the objects that this half keeps. It finds what refers to itself through an
// owner or through an error's traceback only if each of the objects on the way says what it refers to.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

namespace tensorpull::python {

namespace py = pybind11;

/// The object of this half in an object of Python; null if its constructor has not come to its end.
template <class T>
T* made_in(PyObject* self) {
  const auto of = reinterpret_cast<py::detail::instance*>(self)->get_value_and_holder();
  return of.holder_constructed() ? of.template value_ptr<T>() : nullptr;
}

/// For a class of Python, from a class T. `each_object(f)` calls `f` with every object that it keeps, as often as it
/// keeps it, and throws nothing; `let_go_of_objects()` is called once nothing but a cycle refers to it, while all that
/// is in the cycle is still as it was. Both are called with the interpreter's lock.
template <class T>
py::custom_type_setup in_cycles() {
  return py::custom_type_setup([](PyHeapTypeObject* heap) {
    PyTypeObject& type = heap->ht_type;
    type.tp_flags |= Py_TPFLAGS_HAVE_GC;
    type.tp_traverse = [](PyObject* self, visitproc visit, void* with) {
      int found = 0;
      const auto look = [&](PyObject* object) {
        if (found == 0 && object != nullptr) found = visit(object, with);
      };
      look(reinterpret_cast<PyObject*>(Py_TYPE(self)));
      if (T* const of = made_in<T>(self)) of->each_object([&](const py::object& object) { look(object.ptr()); });
      return found;
    };
    type.tp_finalize = [](PyObject* self) {
      const py::error_scope as_it_was;
      if (T* const of = made_in<T>(self)) of->let_go_of_objects();
    };
  });
}

}  // namespace tensorpull::python
