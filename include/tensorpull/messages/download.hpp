// Pulls what a locator names, from the first of its addresses that has it.
#pragma once

#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/messages/locator.hpp>
#include <tensorpull/transports/concept.hpp>

#include <concepts>
#include <optional>

namespace tensorpull {

namespace detail {

/// Whether another address may do better: false if this end, or the model at this end, is the reason.
constexpr bool another_address_may_do(errc code) noexcept {
  switch (code) {
    case errc::cancelled:
    case errc::schema_mismatch:
    case errc::does_not_fit:
    case errc::invalid_argument:
    case errc::out_of_memory:
    case errc::io: return false;
    default: return true;
  }
}

/// An address as the transport takes it; nothing if it is one of another link. A plain host:port is one of each link
/// that has such addresses. A transport that does not say how its addresses are called takes every address as it is.
template <class Transport>
std::optional<std::string_view> address_on(std::string_view address) noexcept {
  if constexpr (requires { Transport::scheme; }) {
    const auto url = parse_link_url(address);
    if (!url) return std::nullopt;
    constexpr std::string_view ours = Transport::scheme;
    const bool plain = url->form == link_form::port && url->address.size() == address.size();
    if (url->scheme != ours && !(plain && requires { requires Transport::takes_host_and_port; })) return std::nullopt;
    return url->address;
  } else {
    return address;
  }
}

/// The addresses that a transport of text takes.
struct as_text {
  constexpr std::string_view operator()(std::string_view address) const noexcept { return address; }
};

/// `pull(address)` for each address in order. A failure that landed bytes does not stop the next attempt: it starts
/// from the first byte. If the consumer begins once only (`invalid_argument` at the second attempt, such as that of a
/// file, which is closed then), the failure that ended it is the result.
template <class Net, class Pull>
result<receipt> try_addresses(const locator& from, Pull pull) noexcept {
  if (!from || from.addresses() == 0) return failure(errc::bad_address);
  result<receipt> last = failure(errc::bad_address);
  for (std::size_t i = 0; i < from.addresses(); ++i) {
    const auto address = address_on<typename Net::parts::transport>(from.address(i));
    if (!address) continue;  // of a link that this program has not chosen
    const result<receipt> now = pull(*address);
    if (!now && now.error().code == errc::invalid_argument && last.error().code != errc::bad_address) break;
    last = now;
    if (last || !another_address_may_do(last.error().code)) break;
  }
  return last;
}

}  // namespace detail

/// Net::download_tensors from the locator's addresses in order, until one succeeds. `where(address)` makes what Net's
/// transport takes of an address, which has no name of a link before it any more:
/// `[&](std::string_view a) { return tls_address{a, context}; }`. In all else as the next.
template <class Net, class Where>
  requires std::invocable<Where&, std::string_view>
result<receipt> download_tensors(const locator& from, Where where, typename Net::model_type& model,
                                 const pull_options& options = {}, typename Net::chunking cut = {}) noexcept {
  return detail::try_addresses<Net>(from, [&](std::string_view address) {
    return Net::download_tensors(where(address), from.reference, model, options, cut);
  });
}
/// Net::download_tensors from the locator's addresses in order, until one succeeds; Net's transport takes text. Each
/// has the whole of the options' time-out and retries. The locator's version is asked for, so that no address can give
/// other bytes (0: whatever is published). Addresses of other links than Net's are passed over. The error is that of
/// the last address that was tried; bad_address if there is none. Addresses come from the maker of the locator: a
/// program that must not connect everywhere checks them first. Allocates nothing besides what Net::download_tensors
/// allocates.
template <class Net>
result<receipt> download_tensors(const locator& from, typename Net::model_type& model, const pull_options& options = {},
                                 typename Net::chunking cut = {}) noexcept {
  return download_tensors<Net>(from, detail::as_text{}, model, options, cut);
}
/// The same into any consumer: one that cannot undo (`irrevocable`) is pulled from one address with Net::pull. A file
/// takes one attempt in which bytes land: make another one for the next.
template <class Net, class Where, class Consumer>
  requires(!Consumer::irrevocable) && std::invocable<Where&, std::string_view>
result<receipt> pull(const locator& from, Where where, Consumer& to, const pull_options& options = {},
                     typename Net::chunking cut = {}) noexcept {
  return detail::try_addresses<Net>(
      from, [&](std::string_view address) { return Net::pull(where(address), from.reference, to, options, cut); });
}
/// The same for a transport that takes text.
template <class Net, class Consumer>
  requires(!Consumer::irrevocable)
result<receipt> pull(const locator& from, Consumer& to, const pull_options& options = {},
                     typename Net::chunking cut = {}) noexcept {
  return pull<Net>(from, detail::as_text{}, to, options, cut);
}

}  // namespace tensorpull
