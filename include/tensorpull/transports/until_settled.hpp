// Conditions for serve() and run(), which say how long to serve.
#pragma once

#include <tensorpull/core/ids.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/protocol/owner/transaction.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

namespace tensorpull {

namespace detail {

/// The answer to a program that waited for this settlement.
inline result<void> delivered(const settlement& s) noexcept {
  const std::uint32_t confirmed = s.counts.completed + s.counts.completed_unverified;
  switch (s.verdict) {
    case verdict::completed:
    case verdict::completed_unverified:
    case verdict::quorum: return {};
    case verdict::uncertified: return confirmed != 0 ? result<void>{} : failure(errc::not_delivered);
    case verdict::withdrawn: return failure(errc::withdrawn, confirmed);
    case verdict::owner_lost: return failure(errc::owner_lost);
    default: return failure(errc::not_delivered, confirmed);
  }
}

template <class References>
struct all_settled {
  References references;
  template <class Owner>
  bool operator()(const Owner& owner) const noexcept {
    for (const reference& r : references)
      if (!owner.settled(r)) return false;
    return true;
  }
  /// After that: the first reference's that was not delivered.
  template <class Owner>
  result<void> outcome(Owner& owner) const noexcept {
    for (const reference& r : references) {
      const result<settlement> s = owner.settlement_of(r);
      if (!s) return failure(s.error());
      if (const auto ok = delivered(*s); !ok) return ok;
    }
    return {};
  }
};
template <class Message>
struct message_settled {
  const Message* message;
  template <class Owner>
  bool operator()(const Owner& owner) const noexcept {
    return message->settled(owner);
  }
  template <class Owner>
  result<void> outcome(Owner& owner) const noexcept {
    return message->outcome(owner);
  }
};

/// How it went, once `until` holds.
template <class Until, class Owner>
result<void> outcome_of(const Until& until, Owner& owner) noexcept {
  if constexpr (requires { until.outcome(owner); }) return until.outcome(owner);
  else return {};
}

/// A message that was sent, and that knows what was published for it.
template <class M>
concept sent_message = requires(const M& m) {
  m.references();
  m.body();
};

/// Checks the argument of serve() and run(), which is asked after each step whether to stop.
template <class Until, class Owner>
constexpr void check_until() noexcept {
  static_assert(!std::is_convertible_v<Until, reference>,
                "tensorpull: serve(until_settled(ref)) or run(until_settled(ref)), not serve(ref) or run(ref)");
  static_assert(
      std::is_convertible_v<Until, reference> || std::predicate<Until&, const Owner&>,
      "tensorpull: serve() and run() take something that is called with the session or the owner and says whether to stop: until_settled(ref), or a lambda");
}

}  // namespace detail

/// Until each of the references has settled: every expected recipient is final (confirmed, failed, or out of time), or
/// the owner's budgets are over. serve() then gives, and run() is false with: not_delivered (the verdict is `failed`,
/// or `uncertified` and nobody has confirmed; `at` is how many recipients have); withdrawn; owner_lost;
/// unknown_reference.
template <std::same_as<reference>... More>
auto until_settled(const reference& first, const More&... more) noexcept {
  return detail::all_settled<std::array<reference, 1 + sizeof...(More)>>{{first, more...}};
}
/// The same for a list, which is borrowed.
inline auto until_settled(std::span<const reference> all) noexcept {
  return detail::all_settled<std::span<const reference>>{all};
}
/// Until everything that was published for a message has settled. Borrows the message, which tensor_decomposer's send()
/// and decompose() return.
template <detail::sent_message Message>
auto until_settled(const Message& m) noexcept {
  return detail::message_settled<Message>{&m};
}
/// Refuses a temporary message, which would be gone.
template <detail::sent_message Message>
  requires(!std::is_lvalue_reference_v<Message>)
void until_settled(Message&&) = delete;

}  // namespace tensorpull
