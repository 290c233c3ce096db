// The intake of one end of a connection, whatever carries it: the record of what the peer has shown of itself, and the
// one function in which a whole control frame is decoded, refused, or given to its handler.
#pragma once

#include <tensorpull/core/peer_identity.hpp>
#include <tensorpull/framing/concept.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace tensorpull::detail {

/// The record of what the peer has shown of itself.
class peer_standing {
 public:
  /// From now on answers may arrive.
  void begin_pull() noexcept { pulls_ = true; }
  bool pulls() const noexcept { return pulls_; }

  void doubt() noexcept { trusted_ = false; }
  void trust() noexcept { trusted_ = true; }
  /// Whether a buffer may be taken for the peer's frames.
  bool may_have_buffers() const noexcept { return trusted_ || pulls_ || served_; }
  /// Whether the peer has asked for something that this end has.
  bool has_asked() const noexcept { return served_; }
  /// Grows with everything of the peer's that counts.
  std::uint32_t heard() const noexcept { return heard_; }
  /// The peer has sent something that counts.
  void count() noexcept { ++heard_; }
  /// A request was answered: it counts, unless it was refused for another reason than that there is no room now.
  void count_answer(frame_kind kind, status why) noexcept {
    if (kind == frame_kind::refused && why != status::busy) return;
    served_ = true;
    ++heard_;
  }

 private:
  std::uint32_t heard_ = 0;
  bool trusted_ = true;
  bool pulls_ = false;  // this end has asked for something, so answers may arrive
  bool served_ = false;  // the peer has asked for something that this end has
};

template <framing Framing, class Limits, class Owner, class Handler>
class frame_intake : public peer_standing {
 public:
  /// The longest frame that is no chunk.
  static constexpr std::size_t largest_frame = std::max(
      detail::takes_messages<Handler> ? message_frame_bytes<Limits> : 0, std::size_t{Limits::control_frame_bytes});

  /// Borrows the handler as long as it lives.
  explicit frame_intake(Handler& handler) noexcept : handler_(handler) {
    // a handler may hold its endpoint, and is complete only here
    static_assert(sizeof(handler_requirements<Handler, message_handler<Handler>>) != 0);
  }

  /// The identity of the other end, as far as the handler knows it.
  identity_source who() const noexcept {
    if constexpr (knows_peer<Handler>) return identity_source(handler_);
    else return {};
  }

  /// One whole control frame: `end` is given a message (take_message), a request (take_request) or an answer
  /// (take_answer). An error: no end sends it. A function of its own, so that landing a chunk takes no stack for the
  /// lists of a frame.
  template <class End, class Transfer>
  [[gnu::noinline]] result<void> accept(End& end, Transfer& t, std::span<const std::byte> bytes) noexcept {
    if constexpr (reads_short) {
      typename Framing::short_storage lists;
      frame m;
      if (const auto ok = Framing::decode(bytes, m, lists); !ok && !refuses(m.kind)) return ok;
      const bool names = Owner::owns && m.kind == frame_kind::locate;
      const bool references = hears_messages && m.kind == frame_kind::application;
      if (!names && !references) return give(end, t, m, bytes);
    }
    if constexpr (takes_lists || !reads_short) return accept_lists(end, t, bytes);
    else return {};
  }
  /// Gives a message to the handler. False: it cannot take one now.
  bool deliver(const frame& m) noexcept {
    if (!handler_.ready()) return false;
    this->count();
    handler_.on_message(m);
    return true;
  }

 private:
  static constexpr bool reads_short = requires { typename Framing::short_storage; };
  static constexpr bool hears_messages = !std::is_same_v<Handler, ignore_messages>;
  static constexpr bool takes_lists = Owner::owns || hears_messages;
  /// Whether a frame that cannot be read is answered. For an end that owns nothing it can only be a wrong answer.
  static constexpr bool refuses(frame_kind kind) noexcept { return Owner::owns && is_newer(kind); }

  /// The same for any frame. A function of its own, because the memory for the lists is the largest piece of stack that
  /// a connection takes.
  template <class End, class Transfer>
  [[gnu::noinline]] result<void> accept_lists(End& end, Transfer& t, std::span<const std::byte> bytes) noexcept {
    typename Framing::decode_storage lists;
    frame m;
    if (const auto ok = Framing::decode(bytes, m, lists); !ok && !refuses(m.kind)) return ok;
    return give(end, t, m, bytes);
  }

  template <class End, class Transfer>
  result<void> give(End& end, Transfer& t, const frame& m, std::span<const std::byte> bytes) noexcept {
    if (m.kind == frame_kind::application) return end.take_message(m);
    if (bytes.size() > Limits::control_frame_bytes) return failure(errc::too_large, bytes.size());
    if (is_request(m.kind) || refuses(m.kind)) return end.take_request(m, bytes);
    if (m.kind == frame_kind::nothing || !this->pulls())
      return failure(errc::unexpected_frame, static_cast<std::uint64_t>(m.kind));
    end.take_answer(t, m);
    return {};
  }

  Handler& handler_;
};

}  // namespace tensorpull::detail
