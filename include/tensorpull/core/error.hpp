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
  ended,
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
  not_delivered,
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
  misplaced_tensor,
  trailing_bytes,
  cut_file,
  bad_address,
  unknown_host,
  connection_failed,
  connection_lost,
  timed_out,
  io,
  disk_full,
  truncated,
  not_authenticated,
  handshake_failed,
  proxy_refused,
  not_permitted,
  owner_lost,
};

namespace detail {
struct errc_row {
  std::string_view name, sentence;
};
// clang-format off: a table, in the order of the enumerators
inline constexpr errc_row errc_rows[] = {
    {"invalid_argument", "an argument is not valid"},
    {"size_overflow", "a size does not fit 64 bits"},
    {"unsupported_dtype", "this dtype is not supported here"},
    {"unsupported_layout", "this layout is not supported here"},
    {"duplicate_name", "two tensors have the same name"},
    {"reserved_name", "a tensor may not be named __metadata__"},
    {"too_many_tensors", "there are more tensors than the limit allows"},
    {"table_full", "a table of fixed size is full"},
    {"out_of_memory", "memory could not be allocated"},
    {"does_not_fit", "it does not fit the limit"},
    {"bad_frame", "the other side sent a frame that is not valid"},
    {"too_large", "the other side sent a frame above the limit"},
    {"unexpected_frame", "the other side sent a frame that has no place here"},
    {"unknown_reference", "nothing is published there under this reference"},
    {"withdrawn", "what was published under the reference has been withdrawn"},
    {"ended", "this publication has ended: those that were expected have ended, or nobody has asked for too long"},
    {"unreadable", "the other side cannot read what it published any more"},
    {"stale_version", "another version is published there now"},
    {"out_of_range", "the range lies outside the image"},
    {"busy", "the other side is busy; try again later"},
    {"bad_request", "the other side found the request not valid"},
    {"unsupported_request", "the other side does not support this request"},
    {"schema_mismatch", "the model on the other side has another schema"},
    {"wrong_payload", "the payload is not the range that was asked for"},
    {"digest_mismatch", "the digest of the received bytes differs from the published one"},
    {"chunk_digest_mismatch", "the digest of a received chunk differs from the one sent with it"},
    {"not_verifiable", "there is no digest of what is published, and the recipient requires one"},
    {"version_required", "anybody could answer first over this link: give the version (48 digits), or say that an answer is believed"},
    {"cancelled_by_peer", "the other side cancelled the transfer"},
    {"already_final", "this recipient has ended this transfer before"},
    {"not_delivered", "fewer recipients than were expected have what was published"},
    {"cancelled", "the transfer was cancelled"},
    {"too_many_partial_updates", "too many updates stopped half-way to keep count of them"},
    {"partial_update", "an update stopped half-way"},
    {"no_updates", "no update has reached this element"},
    {"update_under_way", "an update of this peer is under way already"},
    {"update_changed", "a part of another update of this peer was added before"},
    {"unread_messages", "messages that the program has not received are in the way"},
    {"memory_not_shared", "the owner does not share the memory of what it published"},
    {"memory_not_sealed", "the memory that the other side shares could still be changed by everybody, or shrink"},
    {"bad_shared_memory", "the index of the memory that the other side shares is not valid"},
    {"missing_field", "the message lacks a field of the struct"},
    {"unknown_field", "the message has a field that the struct does not have there"},
    {"wrong_kind", "the message's field is of another kind than the struct's member"},
    {"value_out_of_range", "a value from the other side does not fit the member or the tensor that takes it"},
    {"bad_file", "the file is not valid"},
    {"misplaced_tensor", "a tensor of the file does not begin where the one before it ends, or its length is not that of its shape"},
    {"trailing_bytes", "the file has bytes behind its last tensor"},
    {"cut_file", "the file ends before its last tensor does"},
    {"bad_address", "the address is not valid"},
    {"unknown_host", "the name of the host is not known here, or not yet"},
    {"connection_failed", "the connection could not be made"},
    {"connection_lost", "the connection was lost"},
    {"timed_out", "the time ran out"},
    {"io", "the operating system reported an error"},
    {"disk_full", "the disk is full"},
    {"truncated", "the connection ended without the notice that its end must have"},
    {"not_authenticated", "the other side has not proved who it is"},
    {"handshake_failed", "the two ends could not agree on TLS"},
    {"proxy_refused", "the proxy on the way refused the connection"},
    {"not_permitted", "the server on the way does not let this user do that"},
    {"owner_lost", "the owner that coordinates the transaction is gone"},
};
// clang-format on
static_assert(std::size(errc_rows) == static_cast<std::size_t>(errc::owner_lost), "a code has no row here");

constexpr errc_row row_of(errc code) noexcept {
  const auto i = static_cast<std::size_t>(code);
  return i - 1 < std::size(errc_rows) ? errc_rows[i - 1] : errc_row{{}, "unknown error"};
}
}  // namespace detail

/// One sentence for people, without a final stop.
constexpr std::string_view to_string(errc code) noexcept { return detail::row_of(code).sentence; }

/// The enumerator's name, such as "bad_file"; empty for a value that is no enumerator. It is meant for logs and for
/// bindings.
constexpr std::string_view code_name(errc code) noexcept { return detail::row_of(code).name; }

/// Calls f once with each code, in ascending order.
template <class F>
constexpr void for_each_code(F f) {
  for (std::size_t i = 1; i <= std::size(detail::errc_rows); ++i) f(static_cast<errc>(i));
}

namespace detail {
/// The name of an enumerator in a list of all, of which `Last` is the last.
template <auto Last, std::size_t N>
constexpr std::string_view name_among(const std::string_view (&names)[N], decltype(Last) e) noexcept {
  static_assert(N == static_cast<std::size_t>(Last) + 1, "an enumerator has no name");
  const auto i = static_cast<std::size_t>(e);
  return i < N ? names[i] : "unknown";
}
}  // namespace detail

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

}  // namespace tensorpull
