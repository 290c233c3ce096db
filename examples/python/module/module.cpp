// The compiled half of the Python package, which moves bytes without the interpreter's lock. What users call is in
// src/tensorpull.
#include "average.hpp"
#include "cycles.hpp"
#include "difference.hpp"
#include "download.hpp"
#include "file.hpp"
#include "listing.hpp"
#include "owner.hpp"
#include "route.hpp"
#include "session.hpp"
#include "weighing.hpp"

#include <tensorpull/tensors/numpy/numpy_descr.hpp>

#include <pybind11/stl.h>

namespace tp = tensorpull::python;
namespace py = pybind11;

PYBIND11_MODULE(_native, m) {
  tp::interpreters_end::watch();
  m.doc() = "The compiled half of tensorpull; use the package.";
  m.attr("max_chunk_bytes") = tensorpull::max_payload_bytes;
  m.attr("error_codes") = [] {
    py::list names;
    tensorpull::for_each_code([&](tensorpull::errc code) { names.append(tp::to_text(tensorpull::code_name(code))); });
    return py::tuple(names);
  }();
  // The version that a reference's digits contain; 0: none, or they are no reference.
  m.def("version_of", [](const std::string& digits) {
    const auto ref = tensorpull::parse_reference(digits);
    return ref ? ref->version : 0;
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

  py::class_<tp::pull_settings>(m, "PullSettings", tp::in_cycles<tp::pull_settings>())
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
      .def_readwrite("believe", &tp::pull_settings::believe)
      .def_readwrite("progress", &tp::pull_settings::progress)
      .def_readwrite("abort", &tp::pull_settings::abort)
      .def_readwrite("cursor", &tp::pull_settings::cursor)
      .def_readwrite("agrees", &tp::pull_settings::agrees);
  py::class_<tp::publish_settings>(m, "PublishSettings", tp::in_cycles<tp::publish_settings>())
      .def(py::init<>())
      .def_readwrite("id", &tp::publish_settings::id)
      .def_readwrite("recipients", &tp::publish_settings::recipients)
      .def_readwrite("least", &tp::publish_settings::least)
      .def_readwrite("version", &tp::publish_settings::version)
      .def_readwrite("named", &tp::publish_settings::named)
      .def_readwrite("acquire_ms", &tp::publish_settings::acquire_ms)
      .def_readwrite("recipient_idle_ms", &tp::publish_settings::recipient_idle_ms)
      .def_readwrite("transaction_idle_ms", &tp::publish_settings::transaction_idle_ms)
      .def_readwrite("progress_interval_ms", &tp::publish_settings::progress_interval_ms)
      .def_readwrite("settled", &tp::publish_settings::settled)
      .def_readwrite("progress", &tp::publish_settings::progress);

#if TENSORPULL_PYTHON_TLS
  py::class_<tp::tls_arguments>(m, "TlsArguments")
      .def(py::init<>())
      .def_readwrite("ca_file", &tp::tls_arguments::ca_file)
      .def_readwrite("ca_text", &tp::tls_arguments::ca_text)
      .def_readwrite("cert_file", &tp::tls_arguments::cert_file)
      .def_readwrite("cert_text", &tp::tls_arguments::cert_text)
      .def_readwrite("key_file", &tp::tls_arguments::key_file)
      .def_readwrite("key_text", &tp::tls_arguments::key_text)
      .def_readwrite("key_password", &tp::tls_arguments::key_password)
      .def_readwrite("crl_file", &tp::tls_arguments::crl_file)
      .def_readwrite("check_hostname", &tp::tls_arguments::check_hostname)
      .def_readwrite("proxy", &tp::tls_arguments::proxy)
      .def_readwrite("proxy_user", &tp::tls_arguments::proxy_user)
      .def_readwrite("proxy_password", &tp::tls_arguments::proxy_password)
      .def_readwrite("require_client_certificates", &tp::tls_arguments::require_client_certificates)
      .def_readwrite("only_tls_1_3", &tp::tls_arguments::only_tls_1_3)
      .def_readwrite("session_tickets", &tp::tls_arguments::session_tickets);
  py::class_<tp::tls_settings>(m, "Tls")
      .def(py::init<const tp::tls_arguments&>())
      .def("reload", &tp::tls_settings::reload);
#else
  py::class_<tp::tls_settings>(m, "Tls");
#endif
  m.attr("has_tls") = bool(TENSORPULL_PYTHON_TLS);
  m.attr("has_nats") = bool(TENSORPULL_PYTHON_NATS);

  py::class_<tensorpull::resume_cursor>(m, "Cursor")
      .def(py::init<>())
      .def_readonly("offset", &tensorpull::resume_cursor::offset);
  py::class_<tp::http_settings>(m, "HttpSettings")
      .def(py::init<>())
      .def_readwrite("digest", &tp::http_settings::digest)
      .def_readwrite("bearer", &tp::http_settings::bearer)
      .def_readwrite("recipient", &tp::http_settings::recipient)
      .def_readwrite("max_header_bytes", &tp::http_settings::max_header_bytes);
  py::class_<tp::route>(m, "Route")
      .def(py::init<std::vector<std::string>, const tp::tls_settings*, py::object, tp::http_settings>(),
           py::keep_alive<1, 3>())
      .def("reference_of", &tp::route::reference_of)
      .def("use_connections", &tp::route::use_connections)
      .def_property_readonly("wrong", &tp::route::wrong)
      .def_property_readonly("current", &tp::route::current);
  m.def("one_route", &tp::route::is_one, "Whether one pull can go on from one of these addresses to the other.");
  m.def("download_into", [](const tp::route& from, std::string_view ref, const py::sequence& described, bool subset,
                            tp::name_ties ties, std::uint64_t max_header_bytes, const tp::pull_settings& s) {
    return tp::download_into(from.puller(), ref, described, subset, std::move(ties), max_header_bytes, s);
  });
  m.def("download_new", [](const tp::route& from, std::string_view ref, const py::object& make, const py::object& clear,
                           std::uint64_t max_bytes, std::uint64_t max_header_bytes, std::uint64_t max_tensors,
                           const tp::pull_settings& s) {
    return tp::download_new(from.puller(), ref, make, clear, {max_bytes, max_header_bytes, max_tensors}, s);
  });
  m.def("download_difference",
        [](const tp::route& from, std::string_view ref, const py::sequence& described, const tp::pull_settings& s) {
          return tp::download_difference(from.puller(), ref, described, s);
        });
  m.def("download_narrowed",
        [](const tp::route& from, std::string_view ref, const py::sequence& described, const tp::pull_settings& s,
           int bits) { return tp::download_narrowed(from.puller(), ref, described, s, bits); });
  m.def("look", [](const tp::route& from, std::string_view ref, std::uint64_t max_header_bytes,
                   std::uint64_t max_tensors, const tp::pull_settings& s) {
    return tp::look(from.puller(), ref, {~std::uint64_t{0}, max_header_bytes, max_tensors}, s);
  });
  m.def("download_file", &tp::download_file);
  m.attr("reference_bytes") = sizeof(tensorpull::publication) + sizeof(tensorpull::transaction) + 128;
  m.attr("recipient_bytes") = sizeof(tensorpull::recipient_record) + sizeof(std::uint32_t);

  tp::bind_view(m);
  tp::bind_images(m);
  tp::bind_difference(m);
  tp::bind_weighing(m);
  tp::bind_messages(m);

  py::class_<tp::owner>(m, "Owner", tp::in_cycles<tp::owner>())
      .def(py::init<std::string_view, std::size_t, std::int64_t, std::int64_t, std::int64_t, std::uint64_t,
                    std::uint64_t, const tp::tls_settings*, std::size_t, std::size_t>())
      .def_property_readonly("port", &tp::owner::port)
      .def_property_readonly("closed", &tp::owner::closed)
      .def_property_readonly("connections", &tp::owner::connections)
      .def("open_door", &tp::owner::open_door)
      .def("add", &tp::owner::add)
      .def("add_all", &tp::owner::add_all)
      .def("withdraw", &tp::owner::withdraw)
      .def("status", &tp::owner::status)
      .def("settled", &tp::owner::settled)
      .def("outcome", &tp::owner::outcome)
      .def("recipient_state", &tp::owner::recipient_state)
      .def("serve", &tp::owner::serve)
      .def("close", &tp::owner::close);
  py::class_<tp::session>(m, "Session", tp::in_cycles<tp::session>())
      .def_static("connect", &tp::session::connect)
      .def_property_readonly("closed", &tp::session::closed)
      .def("download_into", &tp::session::download_into)
      .def("download_new", &tp::session::download_new)
      .def("download_difference", &tp::session::download_difference)
      .def("download_narrowed", &tp::session::download_narrowed)
      .def("look", &tp::session::look)
      .def("add", &tp::session::add)
      .def("withdraw", &tp::session::withdraw)
      .def("status", &tp::session::status)
      .def("settled", &tp::session::settled)
      .def("send", &tp::session::send)
      .def("receive", &tp::session::receive)
      .def("serve", &tp::session::serve)
      .def("relay_to", &tp::session::relay_to)
      .def_property_readonly("peer_name", &tp::session::peer_name)
      .def("close", &tp::session::close);
  py::class_<tp::listener>(m, "Listener")
      .def(py::init<std::string_view, const tp::tls_settings*>())
      .def_property_readonly("port", &tp::listener::port)
      .def_property_readonly("closed", &tp::listener::closed)
      .def("accept", &tp::listener::accept)
      .def("close", &tp::listener::close);

  tp::bind_average<tensorpull::partial_updates::divide_by_reached>(m, "ReachedAverage");
  tp::bind_average<tensorpull::partial_updates::error_on_partial>(m, "WholeAverage");
  tp::bind_average<tensorpull::partial_updates::staged>(m, "StagedAverage");
}
