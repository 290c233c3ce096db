// Settings, which are objects of Python's: their attributes are read when a call begins.
#pragma once

#include "facade/facade.hpp"

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

namespace tensorpull::python {

namespace py = pybind11;
namespace facade = tensorpull::facade;

/// How something is pulled.
struct pull_settings : pull_options {
  std::uint64_t chunk_bytes;
  bool native;  ///< the image in one chunk, or an error
  py::object tell, abort;
  py::object from;  ///< a Cursor, if a pull goes on that another one began
  /// Asked by download_into when all has arrived, before the owner hears of it. False: it forgets this recipient.
  py::object agrees;

  static void each(auto& s, auto take) {
    take("per_request_timeout_ms", s.per_request_timeout), take("progress_interval_ms", s.progress_interval);
    take("chunk_bytes", s.chunk_bytes), take("version", s.version), take("recipient", s.recipient.value);
    take("window", s.window), take("retries", s.retry.retries);
    take("longest_delay_ms", s.retry.longest_delay);
    take("native", s.native), take("unverified", s.unverified), take("believe", s.believe);
    take("progress", s.tell), take("abort", s.abort), take("cursor", s.from), take("agrees", s.agrees);
  }
};
/// How something is published. A version of 0 is computed.
struct publish_settings : publish_options {
  std::string digits, beside_digits;  ///< of IDs, or empty
  py::object recipients_named, tell_settled, tell_progress;

  static void each(auto& s, auto take) {
    take("id", s.digits), take("beside", s.beside_digits), take("recipients", s.recipients), take("least", s.least);
    take("version", s.version), take("named", s.recipients_named);
    take("acquire_ms", s.budgets.acquire), take("recipient_idle_ms", s.budgets.recipient_idle);
    take("transaction_idle_ms", s.budgets.transaction_idle), take("progress_interval_ms", s.progress_interval);
    take("settled", s.tell_settled), take("progress", s.tell_progress);
  }
};
struct http_settings : facade::http_settings {
  static void each(auto& s, auto take) {
    take("digest", s.digest), take("bearer", s.bearer), take("recipient", s.recipient);
    take("max_header_bytes", s.max_header_bytes);
  }
};
struct tls_arguments : facade::tls_arguments {
  static void each(auto& s, auto take) {
    take("ca_file", s.ca_file), take("ca_text", s.ca_text), take("cert_file", s.cert_file);
    take("cert_text", s.cert_text), take("key_file", s.key_file), take("key_text", s.key_text);
    take("key_password", s.key_password), take("crl_file", s.crl_file), take("check_hostname", s.check_hostname);
    take("proxy", s.proxy), take("proxy_user", s.proxy_user), take("proxy_password", s.proxy_password);
    take("require_client_certificates", s.require_client_certificates), take("only_tls_1_3", s.only_tls_1_3);
    take("session_tickets", s.session_tickets);
  }
};

/// Of an object of Python's.
template <class Settings>
Settings settings_of(const py::object& given) {
  Settings made{};
  Settings::each(made, [&]<class T>(const char* name, T& to) {
    if constexpr (std::is_same_v<T, std::chrono::milliseconds>) to = T(given.attr(name).cast<std::int64_t>());
    else to = given.attr(name).template cast<T>();
  });
  return made;
}

}  // namespace tensorpull::python
