// Keeps application messages for a program that receives them one at a time and does other things in between.
#pragma once

#include <tensorpull/core/limits.hpp>
#include <tensorpull/transports/message.hpp>

#include <array>
#include <cstring>

namespace tensorpull {

/// The message handler of a session: a queue in memory of fixed size. It takes a message as long as there is room for
/// one of the greatest length, so it holds the message that was read last, and at least `Limits::unread_messages` more.
/// A message that it does not take stays with the connection.
template <class Limits = default_limits>
class inbox {
  struct head {
    std::uint32_t kind;
    std::uint32_t references;
    std::size_t body_bytes;
  };
  static constexpr std::size_t bytes_of(std::size_t references, std::size_t body) noexcept {
    return sizeof(head) + references * sizeof(reference) + (body + 7) / 8 * 8;
  }
  static constexpr std::size_t longest = bytes_of(Limits::application_references, Limits::application_body_bytes);

 public:
  /// Bytes of its memory.
  static constexpr std::size_t capacity = (Limits::unread_messages + 1) * longest;

  /// Whether it can take a message.
  bool ready() noexcept {
    refused_ = capacity - end_ < longest;
    return !refused_;
  }
  /// Whether a message waits at the connection because there is no room here. Nothing behind it is looked at.
  bool refused() const noexcept { return refused_; }
  /// Whether it holds a message that has not been read.
  bool unread() const noexcept { return read_ < end_; }

  /// For the endpoint, after ready() was true: copies the message of a frame.
  void on_message(const frame& f) noexcept {
    const message m = detail::message_of(f);
    const head h{m.kind, static_cast<std::uint32_t>(m.references.size()), m.body.size()};
    std::byte* const at = bytes_.data() + end_;
    std::memcpy(at, &h, sizeof h);
    if (h.references > 0) std::memcpy(at + sizeof h, m.references.data(), m.references.size_bytes());
    if (h.body_bytes > 0) std::memcpy(at + bytes_of(h.references, 0), m.body.data(), h.body_bytes);
    end_ += bytes_of(h.references, h.body_bytes);
  }
  /// Drops the message that was read last, if there is one.
  void clear() noexcept {
    std::memmove(bytes_.data(), bytes_.data() + read_, end_ - read_);
    end_ -= read_;
    read_ = 0;
    refused_ = false;
  }
  /// The oldest message; valid until clear(), which has to precede the next read(). Requires unread().
  message read() noexcept {
    head h;
    std::memcpy(&h, bytes_.data(), sizeof h);
    read_ = bytes_of(h.references, h.body_bytes);
    return {h.kind,
            {reinterpret_cast<const reference*>(bytes_.data() + sizeof h), h.references},
            {bytes_.data() + bytes_of(h.references, 0), h.body_bytes}};
  }

 private:
  alignas(8) std::array<std::byte, capacity> bytes_;  // first the message that was read, then those that were not
  std::size_t read_ = 0, end_ = 0;
  bool refused_ = false;
};

}  // namespace tensorpull
