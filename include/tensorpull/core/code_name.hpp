// The names of the error codes for programs: in logs, in JSON, in other languages. For people there is to_string(errc).
#pragma once

#include <tensorpull/core/error.hpp>

#include <string_view>

namespace tensorpull {

/// The enumerator, as in "bad_file"; empty for a value that is none. These names do not change.
constexpr std::string_view code_name(errc code) noexcept {
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
  return {};
}

/// Calls f with each code.
template <class F>
constexpr void for_each_code(F f) {
  for (int i = 0; i < 256; ++i)
    if (const auto code = static_cast<errc>(i); !code_name(code).empty()) f(code);
}

static_assert([] {
  for (int i = 0; i < 256; ++i)
    if (const auto code = static_cast<errc>(i); code_name(code).empty() != (to_string(code) == "unknown error")) return false;
  return true;
}(), "a code has no name here");

}  // namespace tensorpull
