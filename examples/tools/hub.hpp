// Models of a hub: recv hf://ORG/MODEL[@REVISION] -o DIRECTORY/, and one safetensors file of them.
#pragma once

#include "directory.hpp"
#include "facade/hub.hpp"

#include <string>
#include <utility>

namespace tools {

/// Reads the address of a model, and finds the hub, into a choice.
inline facade::hub_model parse_hub(const std::string& text, link_choice& to) {
  if (!facade::features.bring_model)
    throw option_error(
        "hf:// is left out of this program: it was built without HTTP, TLS, directories or nlohmann-json");
  const auto model = facade::hub_model::read(text);
  if (!model)
    throw option_error(
        "'" + printable(text) +
        "' is no model of a hub: hf://ORG/MODEL is wanted, perhaps with @REVISION, in which %2F stands for "
        "a slash, and /FILE");
  const std::string endpoint = facade::hub_endpoint();
  auto at = facade::place::read(endpoint);
  if (!is_url(endpoint) || endpoint.find_first_of("?#") != endpoint.npos || !at)
    throw option_error("HF_ENDPOINT is no URL of a hub: http[s]://HOST[:PORT] is wanted");
  to.at = std::move(*at);
  to.text = text;
  if (to.http.bearer.empty()) to.http.bearer = facade::hub_token();
  return *model;
}

/// How a hub is asked for what the pull's options say. Errors: those of places_of.
inline tp::result<facade::hub_call> hub_call_of(const link_choice& link, const tp::pull_options& options) {
  auto from = places_of(link, {*link.at});
  if (!from) return tp::failure(from.error());
  return facade::hub_call{std::move(from->front()), options.per_request_timeout, options.stop, options.retry};
}

/// The same as bring_directory, of a hub's model.
inline tp::result<brought_directory> bring_model(const facade::hub_model& model, const wanted_directory& w) {
  const auto call = hub_call_of(w.link, w.options);
  if (!call) return tp::failure(call.error());
  const auto done = facade::features.bring_model(model, *call,
                                                 {.path = w.path,
                                                  .base = w.base,
                                                  .include = w.files.include,
                                                  .exclude = w.files.exclude,
                                                  .overwrite = w.overwrite,
                                                  .anew = w.anew,
                                                  .max_bytes = w.most_bytes,
                                                  .landed = w.landed});
  if (!done) return tp::failure(done.error());
  return brought_directory{{.outcome = tp::outcome::completed}, done->files, done->bytes, done->kept, done->commit};
}

/// Makes the choice of a hub's file that of its URL and its digest.
inline tp::result<void> find_in_hub(const facade::hub_model& model, const tp::pull_options& options,
                                    link_choice& link) {
  const auto call = hub_call_of(link, options);
  if (!call) return tp::failure(call.error());
  const auto found = facade::features.find_model_file(model, *call);
  if (!found) return tp::failure(found.error());
  auto at = facade::place::read(found->url);
  if (!at) return tp::failure(at.error());
  link.at = std::move(*at);
  link.http.digest = found->digest;
  return {};
}

/// Why a hub gives no model; empty: for a reason that other servers have, too.
inline std::string hub_error_text(const std::string& at, const error& e) {
  const std::string name = printable(e.name.view());
  if (name == "the list of files")
    return at + (e.code == errc::too_large ? " lists more files than are taken"
                                           : " gives no list of files that can be read");
  if (e.code == errc::not_permitted && name == "another host's text")
    return at + " leaves its list of files to another host";
  if (e.code == errc::not_verifiable)
    return at + " states no digest of " + name + ", so nobody could say whether its bytes are right";
  if (e.code == errc::stale_version && name == "another commit")
    return at + " gives files of another commit than the one that it was asked for";
  if (e.code == errc::stale_version && name == "another file")
    return at + " gives another file than the one in its list";
  if (e.code == errc::wrong_payload)
    return at + " gives a file of another length than its list has, or other bytes of it (" + name + ")";
  if (e.code == errc::not_permitted && (name.starts_with("401 ") || name.starts_with("403 ")))
    return at +
           " is not there, or not for whoever asks: HF_TOKEN or --bearer-file has the token of one who may have it (" +
           name + ")";
  if (e.code == errc::unknown_reference) return "there is nothing at " + at + " (" + name + ")";
  return {};
}

}  // namespace tools
