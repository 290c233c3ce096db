// Errors as the tools print them: the code's name for programs, a sentence for people.
#pragma once

#include "text.hpp"

#include <tensorpull/core/error.hpp>

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

namespace tools {

using tensorpull::errc;
using tensorpull::error;

/// The enumerator, as in "bad_file".
constexpr std::string_view code_name(errc code) {
  switch (code) {
    case errc::invalid_argument: return "invalid_argument";
    case errc::size_overflow: return "size_overflow";
    case errc::unsupported_dtype: return "unsupported_dtype";
    case errc::unsupported_layout: return "unsupported_layout";
    case errc::duplicate_name: return "duplicate_name";
    case errc::reserved_name: return "reserved_name";
    case errc::too_many_tensors: return "too_many_tensors";
    case errc::table_full: return "table_full";
    case errc::out_of_memory: return "out_of_memory";
    case errc::does_not_fit: return "does_not_fit";
    case errc::bad_frame: return "bad_frame";
    case errc::too_large: return "too_large";
    case errc::unexpected_message: return "unexpected_message";
    case errc::unknown_reference: return "unknown_reference";
    case errc::withdrawn: return "withdrawn";
    case errc::stale_version: return "stale_version";
    case errc::out_of_range: return "out_of_range";
    case errc::busy: return "busy";
    case errc::bad_request: return "bad_request";
    case errc::unsupported_request: return "unsupported_request";
    case errc::schema_mismatch: return "schema_mismatch";
    case errc::wrong_payload: return "wrong_payload";
    case errc::digest_mismatch: return "digest_mismatch";
    case errc::chunk_digest_mismatch: return "chunk_digest_mismatch";
    case errc::cancelled_by_peer: return "cancelled_by_peer";
    case errc::already_final: return "already_final";
    case errc::cancelled: return "cancelled";
    case errc::too_many_partial_updates: return "too_many_partial_updates";
    case errc::partial_update: return "partial_update";
    case errc::no_updates: return "no_updates";
    case errc::missing_field: return "missing_field";
    case errc::unknown_field: return "unknown_field";
    case errc::wrong_kind: return "wrong_kind";
    case errc::value_out_of_range: return "value_out_of_range";
    case errc::bad_file: return "bad_file";
    case errc::bad_address: return "bad_address";
    case errc::connection_failed: return "connection_failed";
    case errc::connection_lost: return "connection_lost";
    case errc::timed_out: return "timed_out";
    case errc::io: return "io";
    case errc::disk_full: return "disk_full";
  }
  return "unknown";
}

/// Why, without the place: the system's reason where there is one.
inline std::string reason_text(const error& e) {
  if (e.code == errc::io && e.system == 0) return "it became shorter while it was read";
  return e.system != 0 ? std::strerror(e.system) : std::string(to_string(e.code));
}

/// What is wrong with the file that was read: whether it could not be read, or was, and is not what it should be.
inline bool is_unreadable(const error& e) { return e.code == errc::io || e.code == errc::out_of_memory || e.code == errc::invalid_argument; }
inline std::string file_error_text(std::string_view path, const error& e) {
  if (is_unreadable(e)) return printable(path) + " cannot be read: " + (e.system == EINVAL ? "it is no regular file" : reason_text(e));
  std::string text = printable(path) + " is rejected (" + std::string(code_name(e.code));
  if (e.code == errc::bad_file) text += " at byte " + std::to_string(e.at);
  const std::string_view file = path.substr(path.find_last_of('/') + 1);
  if (!e.name.empty() && e.name.view() != tensorpull::error_name(file).view()) text += ", tensor '" + printable(e.name.view()) + "'";
  text += "): ";
  if (e.code == errc::does_not_fit) return text + "its header is longer than any of safetensors, or it is no safetensors, npy or npz file";
  return text + std::string(to_string(e.code));
}

/// JSON in ASCII for anything: what is no UTF-8 becomes U+FFFD.
inline std::string json_text(const nlohmann::ordered_json& value) { return value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace); }

}  // namespace tools
