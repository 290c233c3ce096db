// Error codes, and the error value that every fallible function of this library returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tensorpull {

/// The kinds of error; to_string() has a sentence for each. The numeric values are local to a program and never travel:
/// `framing/frame.hpp` has the statuses of the wire.
enum class errc : std::uint8_t {
  // local use
  invalid_argument = 1,
  size_overflow,
  unsupported_dtype,
  unsupported_layout,
  duplicate_name,
  reserved_name,
  too_many_tensors,
  table_full,
  out_of_memory,
  does_not_fit,
  // the other side's frames
  bad_frame,
  too_large,
  unexpected_frame,
  // what a request was answered
  unknown_reference,
  withdrawn,
  unreadable,
  stale_version,
  out_of_range,
  busy,
  bad_request,
  unsupported_request,
  // what was agreed on and what was received
  schema_mismatch,
  wrong_payload,
  digest_mismatch,
  chunk_digest_mismatch,
  not_verifiable,
  version_required,
  cancelled_by_peer,
  already_final,
  cancelled,
  too_many_partial_updates,
  partial_update,
  no_updates,
  update_under_way,
  update_changed,
  unread_messages,
  memory_not_shared,
  memory_not_sealed,
  bad_shared_memory,
  // a message struct from the other side
  missing_field,
  unknown_field,
  wrong_kind,
  value_out_of_range,
  // the world
  bad_file,
  bad_address,
  connection_failed,
  connection_lost,
  timed_out,
  io,
  disk_full,
  truncated,
  not_authenticated,
  proxy_refused,
  not_permitted,
  owner_lost,
};

/// One sentence for people, without a final stop.
constexpr std::string_view to_string(errc code) noexcept {
  switch (code) {
    case errc::invalid_argument: return "an argument is not valid";
    case errc::size_overflow: return "a size does not fit 64 bits";
    case errc::unsupported_dtype: return "this dtype is not supported here";
    case errc::unsupported_layout: return "this layout is not supported here";
    case errc::duplicate_name: return "two tensors have the same name";
    case errc::reserved_name: return "a tensor may not be named __metadata__";
    case errc::too_many_tensors: return "there are more tensors than the limit allows";
    case errc::table_full: return "a table of fixed size is full";
    case errc::out_of_memory: return "memory could not be allocated";
    case errc::does_not_fit: return "it does not fit the limit";
    case errc::bad_frame: return "the other side sent a frame that is not valid";
    case errc::too_large: return "the other side sent a frame above the limit";
    case errc::unexpected_frame: return "the other side sent a frame that has no place here";
    case errc::unknown_reference: return "the owner knows no such reference";
    case errc::withdrawn: return "the owner has withdrawn the reference";
    case errc::unreadable: return "the owner cannot read what it published any more";
    case errc::stale_version: return "the owner has published another version under this reference";
    case errc::out_of_range: return "the range lies outside the image";
    case errc::busy: return "the owner is busy; try again later";
    case errc::bad_request: return "the owner found the request not valid";
    case errc::unsupported_request: return "the owner does not support this request";
    case errc::schema_mismatch: return "the model on the other side has another schema";
    case errc::wrong_payload: return "the payload is not the range that was asked for";
    case errc::digest_mismatch: return "the digest of the received bytes differs from the published one";
    case errc::chunk_digest_mismatch: return "the digest of a received chunk differs from the one sent with it";
    case errc::not_verifiable: return "the owner has no digest of the image, and the recipient requires one";
    case errc::version_required:
      return "anybody could answer first over this link: give the version (48 digits), or say that an answer is believed";
    case errc::cancelled_by_peer: return "the other side cancelled the transfer";
    case errc::already_final: return "this recipient has ended this transfer before";
    case errc::cancelled: return "the transfer was cancelled";
    case errc::too_many_partial_updates: return "too many updates stopped half-way to keep count of them";
    case errc::partial_update: return "an update stopped half-way";
    case errc::no_updates: return "no update has reached this element";
    case errc::update_under_way: return "an update of this peer is under way already";
    case errc::update_changed: return "a part of another update of this peer was added before";
    case errc::unread_messages: return "messages that the program has not received are in the way";
    case errc::memory_not_shared: return "the owner does not share the memory of what it published";
    case errc::memory_not_sealed:
      return "the memory that the other side shares could still be changed by everybody, or shrink";
    case errc::bad_shared_memory: return "the index of the memory that the other side shares is not valid";
    case errc::missing_field: return "the message lacks a field of the struct";
    case errc::unknown_field: return "the message has a field that the struct does not have there";
    case errc::wrong_kind: return "the message's field is of another kind than the struct's member";
    case errc::value_out_of_range:
      return "a value from the other side does not fit the member or the tensor that takes it";
    case errc::bad_file: return "the file is not valid";
    case errc::bad_address: return "the address is not valid";
    case errc::connection_failed: return "the connection could not be made";
    case errc::connection_lost: return "the connection was lost";
    case errc::timed_out: return "the time ran out";
    case errc::io: return "the operating system reported an error";
    case errc::disk_full: return "the disk is full";
    case errc::truncated: return "the connection ended without the notice that its end must have";
    case errc::not_authenticated: return "the other side has not proved who it is";
    case errc::proxy_refused: return "the proxy on the way refused the connection";
    case errc::not_permitted: return "the server on the way does not let this user do that";
    case errc::owner_lost: return "the owner that coordinates the transaction is gone";
  }
  return "unknown error";
}

/// A name of at most 55 bytes, as an error carries it. A longer name is cut and ends in "...". Never allocates.
class error_name {
 public:
  constexpr error_name() noexcept = default;
  /// Copies `text`, or its first 52 bytes and "..." if it is longer than 55.
  constexpr error_name(std::string_view text) noexcept {
    const bool cut = text.size() > most_;
    size_ = static_cast<std::uint8_t>(cut ? most_ : text.size());
    for (std::size_t i = 0; i < size_; ++i) characters_[i] = cut && i + 3 >= size_ ? '.' : text[i];
  }
  /// The name, cut if it was too long; valid as long as this object is.
  constexpr std::string_view view() const noexcept { return {characters_, std::size_t{size_}}; }
  /// Whether there is no name.
  constexpr bool empty() const noexcept { return size_ == 0; }

 private:
  static constexpr std::size_t most_ = 55;
  char characters_[most_]{};
  std::uint8_t size_ = 0;
};

/// An error: a code, a position, and its subject. Copying it allocates nothing.
struct error {
  /// what went wrong
  errc code{};
  /// errno if the operating system reported the error; of withdrawn: the reason that the owner gave, a number of its
  /// application; of connection_lost to a child process: its exit status with a minus sign
  /// (transports/over/pipe/child_stream.hpp); otherwise 0
  std::int32_t system = 0;
  /// the position: for a transfer, how many bytes had landed (0: the destination is untouched); otherwise an offset in
  /// bytes, or the size or the index that was refused
  std::uint64_t at = 0;
  /// the tensor, field or file that the error is about, if any
  error_name name{};

  friend constexpr bool operator==(const error& a, errc b) noexcept { return a.code == b; }
};

/// The enumerator's name, such as "bad_file"; empty for a value that is no enumerator. It is meant for logs and for
/// bindings.
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
    case errc::unexpected_frame: return "unexpected_frame";
    case errc::unknown_reference: return "unknown_reference";
    case errc::withdrawn: return "withdrawn";
    case errc::unreadable: return "unreadable";
    case errc::stale_version: return "stale_version";
    case errc::out_of_range: return "out_of_range";
    case errc::busy: return "busy";
    case errc::bad_request: return "bad_request";
    case errc::unsupported_request: return "unsupported_request";
    case errc::schema_mismatch: return "schema_mismatch";
    case errc::wrong_payload: return "wrong_payload";
    case errc::digest_mismatch: return "digest_mismatch";
    case errc::chunk_digest_mismatch: return "chunk_digest_mismatch";
    case errc::not_verifiable: return "not_verifiable";
    case errc::version_required: return "version_required";
    case errc::cancelled_by_peer: return "cancelled_by_peer";
    case errc::already_final: return "already_final";
    case errc::cancelled: return "cancelled";
    case errc::too_many_partial_updates: return "too_many_partial_updates";
    case errc::partial_update: return "partial_update";
    case errc::no_updates: return "no_updates";
    case errc::update_under_way: return "update_under_way";
    case errc::update_changed: return "update_changed";
    case errc::unread_messages: return "unread_messages";
    case errc::memory_not_shared: return "memory_not_shared";
    case errc::memory_not_sealed: return "memory_not_sealed";
    case errc::bad_shared_memory: return "bad_shared_memory";
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
    case errc::truncated: return "truncated";
    case errc::not_authenticated: return "not_authenticated";
    case errc::proxy_refused: return "proxy_refused";
    case errc::not_permitted: return "not_permitted";
    case errc::owner_lost: return "owner_lost";
  }
  return {};
}

/// Calls f once with each code, in ascending order.
template <class F>
constexpr void for_each_code(F f) {
  for (int i = 0; i < 256; ++i)
    if (const auto code = static_cast<errc>(i); !code_name(code).empty()) f(code);
}

static_assert(
    [] {
      for (int i = 0; i < 256; ++i)
        if (const auto code = static_cast<errc>(i); code_name(code).empty() != (to_string(code) == "unknown error"))
          return false;
      return true;
    }(),
    "a code has no name here");

}  // namespace tensorpull
