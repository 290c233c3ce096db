// For serve() and run(): how long to serve.
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

/// Something that was sent, and that knows what it published.
template <class M>
concept sent_message = requires(const M& m) {
  m.references();
  m.body();
};

/// The argument of serve() and run(): asked after each step whether to stop.
template <class Until, class Owner>
constexpr void check_until() noexcept {
  static_assert(!std::is_convertible_v<Until, reference>, "tensorpull: serve(until_settled(ref)) or run(until_settled(ref)), not serve(ref) or run(ref)");
  static_assert(std::is_convertible_v<Until, reference> || std::predicate<Until&, const Owner&>,
                "tensorpull: serve() and run() take something that is called with the session or the owner and says whether to stop: until_settled(ref), or a lambda");
}

}  // namespace detail

/// Until every expected recipient of each of the references has confirmed or given up.
template <std::same_as<reference>... More>
auto until_settled(const reference& first, const More&... more) noexcept {
  return detail::all_settled<1 + sizeof...(More)>{{first, more...}};
}
/// The same of a list, which is borrowed.
inline auto until_settled(std::span<const reference> all) noexcept {
  return [all](const auto& owner) noexcept {
    for (const reference& r : all)
      if (!owner.settled(r)) return false;
    return true;
  };
}
/// Until what a message published is settled. Borrows the message (tensor_decomposer's send() and decompose() give it).
template <detail::sent_message Message>
auto until_settled(const Message& m) noexcept {
  return [&m](const auto& owner) noexcept { return m.settled(owner); };
}
template <detail::sent_message Message>
  requires(!std::is_lvalue_reference_v<Message>)
void until_settled(Message&&) = delete;

}  // namespace tensorpull
