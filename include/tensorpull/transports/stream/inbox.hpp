// Holds one application message for a program that waits for it. The next one stays with the connection until this one has been cleared.
#pragma once

#include <tensorpull/core/limits.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/transports/message.hpp>

#include <array>
#include <cstring>

namespace tensorpull {

/// The message handler of a session. Memory: the longest body and reference list that the limits allow (64 KiB by default).
template <class Limits = default_limits>
class inbox {
 public:
  /// Whether it can take a message.
  bool ready() const noexcept { return !full_; }
  /// Whether it holds a message.
  bool full() const noexcept { return full_; }
  /// Whether it holds a message that has not been read yet. It may have come while the connection was used for something else.
  bool unread() const noexcept { return full_ && !read_; }
  /// Drops the message, if there is one.
  void clear() noexcept { full_ = read_ = false; }

  /// For the endpoint: copies the message of a frame.
  void on_message(const frame& f) noexcept {
    const message m = detail::message_of(f);
    kind_ = m.kind;
    reference_count_ = std::min(m.references.size(), references_.size());
    for (std::size_t i = 0; i < reference_count_; ++i) references_[i] = m.references[i];
    body_bytes_ = std::min(m.body.size(), body_.size());
    if (body_bytes_ > 0) std::memcpy(body_.data(), m.body.data(), body_bytes_);
    full_ = true;
  }
  /// The message; valid until clear().
  message read() noexcept {
    read_ = true;
    return {kind_, {references_.data(), reference_count_}, {body_.data(), body_bytes_}};
  }

 private:
  std::array<reference, Limits::application_references> references_;
  alignas(8) std::array<std::byte, Limits::application_body_bytes> body_;
  std::size_t reference_count_ = 0, body_bytes_ = 0;
  std::uint32_t kind_ = 0;
  bool full_ = false, read_ = false;
};

}  // namespace tensorpull
