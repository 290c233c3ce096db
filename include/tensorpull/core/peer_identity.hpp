// The identity of a connection's other end, as far as the transport has proved it.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>

namespace tensorpull {

/// The proof of an identity.
enum class identity_kind : std::uint8_t {
  none,         ///< nothing: anybody may be there
  user,         ///< the operating system: a user of this machine
  certificate,  ///< a certificate of an authority that this end trusts, and the other end has its key
  account,      ///< the account with which the other end is known to a server between the two
};

/// The other end of a connection. The views belong to the connection and are valid as long as it is.
struct peer_identity {
  identity_kind kind = identity_kind::none;           ///< what proved it
  std::uint32_t user = 0;                             ///< of `user`: the user's number
  std::uint32_t group = 0;                            ///< of `user`: the number of the user's first group
  std::int32_t process = 0;                           ///< of `user`: the process that connected; 0: not known
  std::string_view name{};  ///< of `certificate`: the subject's common name; of `account`: the account
  std::string_view subject{};  ///< of `certificate`: the whole subject, as RFC 2253 writes it
  /// of `certificate`: the alternative names, each with its type before a colon ("DNS:", "IP:", "URI:", "email:")
  std::span<const std::string_view> alternatives{};
};

/// Whether something knows who is at the other end: a stream, or a connection.
template <class P>
concept knows_peer = requires(const P& p) {
  { p.peer() } noexcept -> std::same_as<peer_identity>;
};

/// Asks for an identity only if somebody wants to know it. Borrows what it asks.
class identity_source {
 public:
  /// Nobody is known.
  constexpr identity_source() noexcept = default;
  /// Asks `of`.
  template <knows_peer P>
  constexpr explicit identity_source(const P& of) noexcept
      : of_(&of), ask_([](const void* p) noexcept { return static_cast<const P*>(p)->peer(); }) {}

  peer_identity operator()() const noexcept { return ask_ != nullptr ? ask_(of_) : peer_identity{}; }

 private:
  const void* of_ = nullptr;
  peer_identity (*ask_)(const void*) noexcept = nullptr;
};

}  // namespace tensorpull
