// Reads addresses, and asks the tables for what is done with them.
#include "table.hpp"

#include <tensorpull/system/link_url.hpp>
#include <tensorpull/system/without_secrets.hpp>

#include <algorithm>

namespace tensorpull::facade {
namespace {

/// The links of this library that have addresses, also those that this build has not.
result<link_url> link_of(std::string_view text) noexcept {
  const auto url = parse_link_url(text, "shm");
  if (!url) return failure(url.error());
  const auto named = [&](const auto& kind) { return std::string_view(kind.name) == url->scheme; };
  const bool known = std::ranges::any_of(kinds, [&](const link_kind* k) { return named(*k); }) ||
                     std::ranges::any_of(missing_kinds, named);
  const bool is_url = url->scheme == "nats" || url->scheme == "http" || url->scheme == "https";
  if (!known || is_url != (url->form == link_form::url)) return failure(errc::bad_address, 0, without_secrets(text));
  return *url;
}

}  // namespace

result<place> place::read(std::string_view text) {
  const auto url = link_of(text);
  if (!url) return failure(url.error());
  const auto kind = std::ranges::find(kinds, url->scheme, &link_kind::name);
  if (kind == kinds.end()) return failure(errc::unsupported_request, 0, without_secrets(text));
  place made{*kind, (*kind)->is, (*kind)->name, std::string(url->address)};
  if (made.is.web) {
    const auto id = (*kind)->url_id(text);
    if (!id) return failure(id.error());
    made.id = *id;
  }
  return made;
}
std::string place::with(std::string_view other) const {
  const std::string name = scheme == "tcp" ? "" : std::string(scheme) + (is.port ? "://" : ":");
  return name + std::string(other);
}
result<std::string_view> scheme_of(std::string_view address) noexcept {
  const auto url = link_of(address);
  if (!url) return failure(url.error());
  return url->scheme;
}
std::string_view missing(std::string_view scheme) noexcept {
  const auto found = std::ranges::find(missing_kinds, scheme, &missing_kind::name);
  return found == missing_kinds.end() ? std::string_view() : found->why;
}

tls_options options_of(const tls_arguments& a) noexcept {
  const auto given = [](const std::string& text) noexcept {
    return text.empty() ? std::string_view{} : std::string_view(text);
  };
  tls_options o;
  o.authorities = {given(a.ca_text), given(a.ca_file)};
  o.certificate = {given(a.cert_text), given(a.cert_file)};
  o.key = {given(a.key_text), given(a.key_file)};
  o.key_password = a.key_password;
  o.revocations = {{}, given(a.crl_file)};
  o.clients_have_certificates = a.require_client_certificates;
  o.minimum = a.only_tls_1_3 ? tls_version::v1_3 : tls_version::v1_2;
  o.session_tickets = a.session_tickets;
  return o;
}
result<receipt> any_pull::operator()(const reference& ref, any_consumer& to, const pull_options& options) {
  wrong = 0;
  auto done = from.front().kind->pull(*this, ref, to, options);
  pulled.add(done);
  return done;
}
pull_counts pulled;

}  // namespace tensorpull::facade
