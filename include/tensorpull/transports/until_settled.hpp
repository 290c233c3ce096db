// Conditions for serve() and run(), which say how long to serve.
#pragma once

#include <tensorpull/core/ids.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

namespace tensorpull {

namespace detail {

template <std::size_t N>
struct all_settled {
  std::array<reference, N> references;
  template <class Owner>
  bool operator()(const Owner& owner) const noexcept {
    for (const reference& r : references)
      if (!owner.settled(r)) return false;
    return true;
  }
};

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
/// the owner's budgets are over.
template <std::same_as<reference>... More>
auto until_settled(const reference& first, const More&... more) noexcept {
  return detail::all_settled<1 + sizeof...(More)>{{first, more...}};
}
/// The same for a list, which is borrowed.
inline auto until_settled(std::span<const reference> all) noexcept {
  return [all](const auto& owner) noexcept {
    for (const reference& r : all)
      if (!owner.settled(r)) return false;
    return true;
  };
}
/// Until everything that was published for a message has settled. Borrows the message, which tensor_decomposer's send()
/// and decompose() return.
template <detail::sent_message Message>
auto until_settled(const Message& m) noexcept {
  return [&m](const auto& owner) noexcept { return m.settled(owner); };
}
/// Refuses a temporary message, which would be gone.
template <detail::sent_message Message>
  requires(!std::is_lvalue_reference_v<Message>)
void until_settled(Message&&) = delete;

}  // namespace tensorpull
