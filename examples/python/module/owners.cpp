// Owners and sessions, as Python sees them.
#include "cycles.hpp"
#include "owner.hpp"
#include "parts.hpp"
#include "session.hpp"

#include <pybind11/stl.h>

namespace tensorpull::python {

void bind_owners(py::module_& m) {
  py::class_<opened_image>(m, "OpenedImage");
  py::class_<owner>(m, "Owner", in_cycles<owner>())
      .def(py::init<std::string_view, std::size_t, std::int64_t, std::int64_t, std::int64_t, std::uint64_t,
                    std::uint64_t, const tls_settings&, std::size_t, std::size_t, py::object>())
      .def_property_readonly("port", &owner::port)
      .def_property_readonly("closed", &owner::closed)
      .def_property_readonly("connections", &owner::connections)
      .def("open_door", &owner::open_door)
      .def("name_recipient", &owner::name_recipient)
      .def("name_publication", &owner::name_publication)
      .def("add", &owner::add)
      .def("add_held", &owner::add_held)
      .def("add_all", &owner::add_all)
      .def("withdraw", &owner::withdraw)
      .def("status", &owner::status)
      .def("settled", &owner::settled)
      .def("outcome", &owner::outcome)
      .def("recipient_state", &owner::recipient_state)
      .def("serve", &owner::serve)
      .def("close", &owner::close);
  py::class_<session, source>(m, "Session", in_cycles<session>())
      .def_static("connect", &session::connect)
      .def_property_readonly("closed", &session::closed)
      .def("add", &session::add)
      .def("withdraw", &session::withdraw)
      .def("status", &session::status)
      .def("settled", &session::settled)
      .def("send", &session::send)
      .def("receive", &session::receive)
      .def("serve", &session::serve)
      .def("relay_to", &session::relay_to)
      .def("tunnel_to", &session::tunnel_to)
      .def("through_tunnel", &session::through_tunnel)
      .def_property_readonly("peer_name", &session::peer_name)
      .def("close", &session::close);
  py::class_<listener>(m, "Listener", in_cycles<listener>())
      .def(py::init<std::string_view, const tls_settings&, py::object>())
      .def_property_readonly("port", &listener::port)
      .def_property_readonly("closed", &listener::closed)
      .def("accept", &listener::accept)
      .def("close", &listener::close);
}

}  // namespace tensorpull::python
