// Which link a tool uses, and what that needs, as its command line says.
#pragma once

#include "command_line.hpp"
#include "facade/facade.hpp"
#include "text.hpp"

#include <tensorpull/system/address.hpp>
#include <tensorpull/system/without_secrets.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tools {

namespace tp = tensorpull;
namespace facade = tensorpull::facade;

/// A link, an address on it, and what some links need besides.
struct link_choice {
  std::optional<facade::place> at{};
  std::string text{};  ///< as it was written, without passwords and queries: it is printed
  facade::tls_arguments tls{};
  facade::http_settings http{};
  facade::door_settings door{};  ///< of send
  /// Of recv: other senders of the same, over the same kind of link, as they were written.
  std::vector<std::string> also_text{};
  std::vector<facade::place> also{};
  std::uint32_t connections = 0;  ///< of recv, at a time; 0: one to each sender

  bool uses_tls() const {
    const auto& t = tls;
    return t.require_client_certificates ||
           !(t.ca_file + t.cert_file + t.key_file + t.crl_file + t.check_hostname).empty();
  }
};

inline bool is_url(std::string_view text) { return text.starts_with("http://") || text.starts_with("https://"); }
/// Refuses a link that this program was built without.
inline void need(std::string_view scheme) {
  if (const auto why = facade::missing(scheme); !why.empty()) throw option_error(std::string(why));
}
/// Reads an address. `wants`: what is wanted, for one that is none.
inline facade::place parse_place(std::string_view text, const std::string& wants) {
  if (const auto scheme = facade::scheme_of(text)) need(*scheme);
  auto place = facade::place::read(text);
  if (!place) throw option_error("'" + printable(text) + "' is no address: " + wants);
  return std::move(*place);
}
/// Reads an address that is no URL, into a choice.
inline void parse_link(std::string_view text, const std::string& wants, link_choice& to) {
  if (is_url(text)) throw option_error("'" + printable(text) + "' is no address: " + wants);
  to.at = parse_place(text, wants);
  to.text.clear();
  if (to.at->scheme == "nats")  // users, passwords and options are this end's own
    tp::detail::each_shown_piece(text.substr(0, text.find('?')),
                                 [&](std::string_view piece) { to.text.append(piece); });
  else to.text = text;
}
/// Reads a URL. A query may be a signature or have a key, and is not shown.
inline void parse_url(std::string_view text, const std::string& wants, link_choice& to) {
  to.at = parse_place(text, wants);
  to.text = std::string(text.substr(0, text.find('?'))) + (text.find('?') == text.npos ? "" : "?...");
}

/// The options of all tools for their links.
inline constexpr option_form link_forms[]{{"tls-ca", true}, {"tls-cert", true}, {"tls-key", true}, {"tls-crl", true}};
/// Takes one of them. False: it is another.
inline bool set_link_option(std::string_view name, std::string_view value, link_choice& to) {
  std::string* file = nullptr;
  if (name == "tls-ca") file = &to.tls.ca_file;
  if (name == "tls-cert") file = &to.tls.cert_file;
  if (name == "tls-key") file = &to.tls.key_file;
  if (name == "tls-crl") file = &to.tls.crl_file;
  if (file == nullptr) return false;
  *file = parse_path("--" + std::string(name), value);
  return true;
}
/// The same options as they are written, to be put behind another command. A proxy's password is left out.
inline std::string link_options(const link_choice& link) {
  std::string out;
  const auto add = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) out += " --" + std::string(name) + " " + shell_word(value);
  };
  add("tls-ca", link.tls.ca_file), add("tls-cert", link.tls.cert_file), add("tls-key", link.tls.key_file),
      add("tls-crl", link.tls.crl_file);
  add("tls-name", link.tls.check_hostname), add("proxy", link.tls.proxy);
  return out + (link.tls.require_client_certificates ? " --tls-clients" : "");
}
/// Refuses options of a link that is not used, which might be taken for a protection that is not there.
inline void check_link_options(const link_choice& link) {
  const facade::link_traits& is = link.at->is;
  if (link.uses_tls() && !is.encrypted && !is.web)
    throw option_error("the options --tls-... are for tls://HOST:PORT, and '" + printable(link.text) +
                       "' is not encrypted");
  if (!link.tls.check_hostname.empty() && is.web)
    throw option_error("--tls-name is for tls://HOST:PORT: over https the certificate has to have the host of the URL");
  if (!link.tls.proxy.empty() && link.at->scheme != "tcp" && !is.encrypted && !is.web)
    throw option_error("--proxy is for TCP, tls://HOST:PORT and URLs");
  if (!link.tls.proxy.empty()) need("http");
}

/// Places with what the command line says besides. Errors: those of tls_context::make.
inline tp::result<std::vector<facade::place>> places_of(const link_choice& link, std::vector<facade::place> all) {
  std::shared_ptr<facade::any_tls> tls;
  // a redirect may lead from http to https
  if (all.front().is.encrypted || (all.front().is.web && facade::missing("https").empty())) {
    auto made = facade::features.tls(link.tls);
    if (!made) return tp::failure(made.error());
    tls = std::move(*made);
  }
  for (facade::place& at : all) {
    at.tls = tls;
    at.proxy = {link.tls.proxy, link.tls.proxy_user, link.tls.proxy_password};
    at.http = link.http;
  }
  return all;
}

/// A pull over the link of the command line.
struct pull_call {
  const link_choice& link;
  tp::reference ref;
  const tp::pull_options& options;
  /// bytes that are asked for at a time; 0: all at once. Datagrams have a length of their own
  std::uint64_t chunk = tp::default_chunk_bytes;
  bool digest = true;  ///< whether the digest of the whole is checked; over datagrams it always is
  bool first_alone = false;  ///< over one connection, to the first sender

  template <tp::consumer Consumer>
  tp::result<tp::receipt> into(Consumer& to) const {
    std::vector<facade::place> all{*link.at};
    if (!first_alone) all.insert(all.end(), link.also.begin(), link.also.end());
    auto from = places_of(link, std::move(all));
    if (!from) return tp::failure(from.error());
    facade::any_pull how{
        .from = std::move(*from), .chunk_bytes = chunk == 0 ? tp::max_payload_bytes : chunk, .digest = digest};
    if (!first_alone && (!link.also.empty() || link.connections > 1)) how.connections = link.connections;
    facade::consumer_for as(to);
    return how(ref, as, options);
  }
};

}  // namespace tools
