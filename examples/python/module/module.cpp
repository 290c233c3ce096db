// The compiled half of the Python package, which moves bytes without the interpreter's lock. What users call is in
// src/tensorpull.
#include "interpreter.hpp"
#include "parts.hpp"
#include "places.hpp"

#include <tensorpull/core/limits.hpp>
#include <tensorpull/messages/locator.hpp>
#include <tensorpull/protocol/owner/owner_memory.hpp>
#include <tensorpull/tensors/numpy/numpy_descr.hpp>

#include <pybind11/stl.h>

namespace tp = tensorpull::python;
namespace py = pybind11;

PYBIND11_MODULE(_native, m) {
  tp::interpreters_end::watch();
  m.doc() = "The compiled half of tensorpull; use the package.";
  m.attr("max_chunk_bytes") = tensorpull::max_payload_bytes;
  m.attr("error_codes") = [] {
    py::dict sentences;
    tensorpull::for_each_code([&](tensorpull::errc code) {
      sentences[tp::to_text(tensorpull::code_name(code))] = tp::to_text(tensorpull::to_string(code));
    });
    return sentences;
  }();
  // The version that a reference's digits contain; 0: none, or they are no reference.
  m.def("version_of", [](const std::string& digits) {
    const auto ref = tensorpull::parse_reference(digits);
    return ref ? ref->version : 0;
  });
  m.def("may_be_handed_on", [](std::string_view address) {
    return tensorpull::locator(tensorpull::reference{{0, 1}, 0, 0}).add(address).has_value();
  });
  m.def("recipient_named", [](const std::string& name) { return tensorpull::recipient_named(name).value; });

  // Gives for a dtype's str or name the library's dtype, and how many bytes of each number to swap; None if it cannot
  // be sent.
  m.def("numpy_format", [](const std::string& descr) -> std::optional<std::pair<std::string, int>> {
    const auto format = tensorpull::parse_numpy_descr(descr);
    if (!format) return std::nullopt;
    return std::pair(std::string(to_string(format->type)), int{format->swap_bytes});
  });
  m.def("numpy_name", [](const std::string& ours) {
    const auto type = tensorpull::dtype_from_string(ours);
    return std::string(type ? tensorpull::numpy_name(*type) : std::string_view());
  });

  // files are read without the interpreter's lock: one may be a pipe that another thread writes
  using tls = tensorpull::facade::any_tls;
  py::class_<tls, tp::tls_settings>(m, "Tls")
      .def(py::init([](const py::object& given) {
        const auto arguments = tp::settings_of<tp::tls_arguments>(given);
        return tp::value_or_raise(tp::without_lock([&] { return tensorpull::facade::features.tls(arguments); }));
      }))
      .def("reload", [](tls& of) { tp::value_or_raise(tp::without_lock([&] { return of.reload(); })); });
  m.def(
      "missing_link", [](std::string_view name) { return tp::to_text(tensorpull::facade::missing(name)); },
      "Why this build lacks a link of this name; empty: it has it.");
  m.attr("has_tls") = tensorpull::facade::missing("tls").empty();
  m.attr("has_proofs") = static_cast<bool>(TENSORPULL_PYTHON_PROOFS);
  m.attr("has_nats") = tensorpull::facade::missing("nats").empty();
  m.attr("reference_bytes") = sizeof(tensorpull::publication) + sizeof(tensorpull::transaction) + 128;
  m.attr("recipient_bytes") = sizeof(tensorpull::recipient_record) + sizeof(std::uint32_t);

  tp::bind_downloads(m);
  tp::bind_owners(m);
  tp::bind_averages(m);
  tp::bind_weighing(m);
  tp::bind_images(m);
  if constexpr (TENSORPULL_PYTHON_DIFFERENCES) tp::bind_difference(m);
  if constexpr (TENSORPULL_PYTHON_DIRECTORIES) tp::bind_directories(m);
  if constexpr (TENSORPULL_PYTHON_PROOFS) tp::bind_proofs(m);
}
