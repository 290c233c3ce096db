// The compiled half of the Python package, which moves bytes without the interpreter's lock. What users call is in src/tensorpull.
#include "average.hpp"
#include "download.hpp"
#include "owner.hpp"

#include <tensorpull/tensors/numpy/numpy_descr.hpp>

#include <pybind11/stl.h>

namespace tp = tensorpull::python;
namespace py = pybind11;

PYBIND11_MODULE(_native, m) {
  m.doc() = "The compiled half of tensorpull; use the package.";
  m.attr("max_chunk_bytes") = tensorpull::max_payload_bytes;
  m.attr("error_codes") = [] {
    py::list names;
    tensorpull::for_each_code([&](tensorpull::errc code) { names.append(tp::to_text(tensorpull::code_name(code))); });
    return py::tuple(names);
  }();
  m.def("recipient_named", [](const std::string& name) { return tensorpull::recipient_named(name).value; });

  // Gives for a dtype's str or name the library's dtype, and how many bytes of each number to swap; None if it cannot be sent.
  m.def("numpy_format", [](const std::string& descr) -> std::optional<std::pair<std::string, int>> {
    const auto format = tensorpull::parse_numpy_descr(descr);
    if (!format) return std::nullopt;
    return std::pair(std::string(to_string(format->type)), int{format->swap_bytes});
  });
  m.def("numpy_name", [](const std::string& ours) {
    const auto type = tensorpull::dtype_from_string(ours);
    return std::string(type ? tensorpull::numpy_name(*type) : std::string_view());
  });

  py::class_<tp::pull_settings>(m, "PullSettings")
      .def(py::init<>())
      .def_readwrite("per_request_timeout_ms", &tp::pull_settings::per_request_timeout_ms)
      .def_readwrite("chunk_bytes", &tp::pull_settings::chunk_bytes)
      .def_readwrite("version", &tp::pull_settings::version)
      .def_readwrite("recipient", &tp::pull_settings::recipient)
      .def_readwrite("window", &tp::pull_settings::window)
      .def_readwrite("retries", &tp::pull_settings::retries)
      .def_readwrite("progress_interval_ms", &tp::pull_settings::progress_interval_ms)
      .def_readwrite("native", &tp::pull_settings::native)
      .def_readwrite("unverified", &tp::pull_settings::unverified)
      .def_readwrite("progress", &tp::pull_settings::progress)
      .def_readwrite("abort", &tp::pull_settings::abort);
  py::class_<tp::publish_settings>(m, "PublishSettings")
      .def(py::init<>())
      .def_readwrite("id", &tp::publish_settings::id)
      .def_readwrite("recipients", &tp::publish_settings::recipients)
      .def_readwrite("least", &tp::publish_settings::least)
      .def_readwrite("named", &tp::publish_settings::named)
      .def_readwrite("acquire_ms", &tp::publish_settings::acquire_ms)
      .def_readwrite("recipient_idle_ms", &tp::publish_settings::recipient_idle_ms)
      .def_readwrite("transaction_idle_ms", &tp::publish_settings::transaction_idle_ms)
      .def_readwrite("progress_interval_ms", &tp::publish_settings::progress_interval_ms)
      .def_readwrite("settled", &tp::publish_settings::settled)
      .def_readwrite("progress", &tp::publish_settings::progress);

  m.def("download_into", &tp::download_into);
  m.def("download_new", &tp::download_new);

  py::class_<tp::owner>(m, "Owner")
      .def(py::init<std::string_view, std::size_t, std::int64_t, std::int64_t, std::int64_t>())
      .def_property_readonly("port", &tp::owner::port)
      .def_property_readonly("closed", &tp::owner::closed)
      .def_property_readonly("connections", &tp::owner::connections)
      .def("add", &tp::owner::add)
      .def("withdraw", &tp::owner::withdraw)
      .def("status", &tp::owner::status)
      .def("settled", &tp::owner::settled)
      .def("outcome", &tp::owner::outcome)
      .def("recipient_state", &tp::owner::recipient_state)
      .def("serve", &tp::owner::serve)
      .def("close", &tp::owner::close);

  tp::bind_average<tensorpull::partial_updates::divide_by_reached>(m, "ReachedAverage");
  tp::bind_average<tensorpull::partial_updates::error_on_partial>(m, "WholeAverage");
  tp::bind_average<tensorpull::partial_updates::staged>(m, "StagedAverage");
}
