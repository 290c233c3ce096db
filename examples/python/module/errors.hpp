// Turns the library's errors into tensorpull.Error, the exception that Python's callers see.
#pragma once

#include <tensorpull/core/error.hpp>
#include <tensorpull/core/ids.hpp>
#include <tensorpull/core/result.hpp>

#include <pybind11/pybind11.h>

#include <string>
#include <string_view>
#include <utility>

namespace tensorpull::python {

namespace py = pybind11;

/// A name may be cut in the middle of a character, so invalid UTF-8 is replaced.
inline py::str to_text(std::string_view utf8) {
  return py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(utf8.data(), static_cast<py::ssize_t>(utf8.size()), "replace"));
}

/// The digits of an ID.
inline std::string digits_of(const ref_id& id) {
  const auto digits = to_digits(id);
  return {digits.data(), digits.size()};
}

/// Throws tensorpull.Error. `landed`: whether `at` counts bytes that have landed. `says`: its text; none: the code's.
/// `about`: its name in full, which an error has no room for.
[[noreturn]] inline void raise(const error& e, bool landed = false, std::string_view says = {},
                               std::string_view about = {}) {
  const py::object type = py::module_::import("tensorpull._errors").attr("Error");
  const py::object made = type(to_text(code_name(e.code)), to_text(says.empty() ? to_string(e.code) : says),
                               to_text(about.empty() ? e.name.view() : about), landed ? e.at : 0, e.system,
                               landed ? 0 : e.at);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  throw py::error_already_set();
}

[[noreturn]] inline void raise(errc code, std::string_view name = {}, std::string_view says = {}) {
  raise(error{code, 0, 0, name}, false, says);
}

template <class T>
T value_or_raise(result<T>&& r) {
  if (!r) raise(r.error());
  if constexpr (!std::is_void_v<T>) return std::move(*r);
}

}  // namespace tensorpull::python
