// Pulls what a locator names, from the first of its addresses that has it.
#pragma once

#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/messages/locator.hpp>
#include <tensorpull/transports/concept.hpp>

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

/// `pull(address)` for each address in order. A failure that landed bytes does not stop the next attempt: it starts
/// from the first byte.
template <class Pull>
result<receipt> try_addresses(const locator& from, Pull pull) noexcept {
  if (!from || from.addresses() == 0) return failure(errc::bad_address);
  result<receipt> last = failure(errc::bad_address);
  for (std::size_t i = 0; i < from.addresses(); ++i) {
    last = pull(from.address(i));
    if (last || !another_address_may_do(last.error().code)) break;
  }
  return last;
}

}  // namespace detail

/// Net::download_tensors from the locator's addresses in order, until one succeeds; each has the whole of the options'
/// time-out and retries. The locator's version is asked for, so that no address can give other bytes (0: whatever is
/// published). The error is that of the last address that was tried; bad_address if there is none. Addresses come from
/// the maker of the locator: a program that must not connect everywhere checks them first. Allocates nothing besides
/// what Net::download_tensors allocates.
template <class Net>
result<receipt> download_tensors(const locator& from, typename Net::model_type& model, const pull_options& options = {},
                                 typename Net::chunking cut = {}) noexcept {
  return detail::try_addresses(from, [&](std::string_view address) {
    return Net::download_tensors(address, from.reference, model, options, cut);
  });
}
/// The same into any consumer that can start again: one that cannot undo (`irrevocable`) is pulled from one address
/// with Net::pull.
template <class Net, class Consumer>
  requires(!Consumer::irrevocable)
result<receipt> pull(const locator& from, Consumer& to, const pull_options& options = {},
                     typename Net::chunking cut = {}) noexcept {
  return detail::try_addresses(
      from, [&](std::string_view address) { return Net::pull(address, from.reference, to, options, cut); });
}

}  // namespace tensorpull
