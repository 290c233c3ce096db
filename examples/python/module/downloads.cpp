// Recipients: pulls into tensors, into a file, and looks at what is published.
#include "confirming.hpp"
#include "download.hpp"
#include "file.hpp"
#include "listing.hpp"
#include "parts.hpp"
#include "route.hpp"
#include "view.hpp"

#include <pybind11/stl.h>

namespace tensorpull::python {

void bind_downloads(py::module_& m) {
  py::class_<download_cursor>(m, "Cursor")
      .def(py::init<>())
      .def_property_readonly("offset", [](const download_cursor& c) { return c.offset; });
  py::class_<source>(m, "Source").def("reference_of", &source::reference_of);
  py::class_<route, source>(m, "Route")
      .def(py::init<const std::vector<std::string>&, const tls_settings&, py::object, const py::object&>())
      .def("use_connections", &route::use_connections)
      .def_property_readonly("current", &route::current);
  m.def("one_route", &route::is_one, "Whether one pull can go on from one of these addresses to the other.");
  m.def("download_into", &download_into, py::arg(), py::arg(), py::arg(), py::arg(), py::arg(), py::arg(), py::arg(),
        py::arg("slices") = named_slices());
  m.def("download_new", &download_new);
  m.def("download_file", &download_file);
  m.def("look", &look);
  m.def("confirm", &confirm);
  py::class_<view>(m, "View", py::buffer_protocol())
      .def(py::init<std::string_view, std::string_view, bool, std::uint64_t, std::uint64_t, const py::object&>())
      .def_buffer(&view::buffer)
      .def_property_readonly("tensors", &view::tensors)
      .def_property_readonly("metadata", &view::metadata)
      .def_property_readonly("receipt", &view::how)
      .def_property_readonly("owner_can_write", &view::owner_can_write);
}

}  // namespace tensorpull::python
