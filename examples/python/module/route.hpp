// Pulls over connections of their own, whatever link the address names; over streams, from several addresses in turn,
// or from all of them at once.
#pragma once

#include "http.hpp"
#include "links.hpp"
#include "other_links.hpp"
#include "parallel.hpp"

#include <tensorpull/satellites/parallel/several_addresses.hpp>

#include <atomic>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tensorpull::python {

/// One address; or several of one stream transport, between which a pull may change when it needs another connection.
class route {
 public:
  /// `tell(index, connections before, code or "", errno)`: called with each attempt to connect; None: nobody wants to
  /// know.
  route(std::vector<std::string> addresses, const tls_settings* tls, py::object tell, http_settings web = {})
      : texts_(std::move(addresses)), tell_(std::move(tell)), web_(std::move(web)), tls_(tls) {
    if (texts_.size() == 1 && is_web_url(texts_.front())) {
      check_web_url(texts_.front(), tls);
      return;
    }
    for (const std::string& text : texts_) places_.push_back(place_of(text, tls));
    if (places_.empty() || (places_.size() > 1 && !is_one(texts_))) raise(errc::bad_address);
  }
  route(const route&) = delete;
  route& operator=(const route&) = delete;

  /// Whether they make one route.
  static bool is_one(const std::vector<std::string>& addresses) {
    for (const std::string& text : addresses)
      if (is_web_url(text)) return addresses.size() == 1;
    const auto scheme = [](const std::string& text) { return link_of(text).scheme; };
    const link_scheme first = addresses.empty() ? link_scheme::pipe_url : scheme(addresses.front());
    for (const std::string& text : addresses)
      if (scheme(text) != first) return false;
    return addresses.size() == 1 || first == link_scheme::tcp_url || first == link_scheme::tls_url ||
           first == link_scheme::unix_url;
  }
  /// Whether it is a URL of a web server.
  bool is_web() const noexcept { return places_.empty(); }
  /// The reference that is pulled there, in digits: that which was given, or the URL's own.
  std::string reference_of(std::string_view given, std::uint64_t version) const {
    if (!is_web()) return std::string(given);
    const auto digits = to_digits(
        web_reference(texts_.front(), given.empty() ? ref_id{} : id_or_raise(given), version));
    return std::string(digits.data(), digits.size());
  }
  /// Which address was tried last.
  std::size_t current() const noexcept { return current_; }

  /// Connections at a time, if what they land in takes bytes in any order. Raises invalid_argument for more than one
  /// over links that have but one.
  void use_connections(std::size_t most) {
    if (most > 1 && !is_one({texts_.front(), texts_.front()})) raise(errc::invalid_argument);
    connections_ = most;
  }
  /// Those whose bytes were other ones than what was published, in the last pull.
  const std::vector<std::size_t>& wrong() const noexcept { return wrong_; }

  /// What download_into and the others call. `As`: any_update for what cannot be undone, which no web server has.
  template <class As = any_consumer>
  auto puller() const noexcept {
    return
        [this](const reference& from, auto& to, const pull_options& o, chunks c) { return pull<As>(from, to, o, c); };
  }

 private:
  template <class As, class Consumer>
  result<receipt> pull(const reference& from, Consumer& to, const pull_options& o, chunks c) const {
    wrong_.clear();
    if constexpr (std::is_same_v<Consumer, landing>) {
      return connections_ > 1 ? pull_over_all(from, &to, o, c) : pull_into(from, &to, o, c);
    } else {
      if constexpr (requires { requires Consumer::any_order; } && std::is_same_v<As, any_consumer>) {
        if (connections_ > 1) {
          consumer_for<Consumer, any_order_consumer> as(to);
          return pull_over_all(from, static_cast<any_order_consumer*>(&as), o, c);
        }
      }
      consumer_for<Consumer, As> as(to);
      return pull_into(from, static_cast<As*>(&as), o, c);
    }
  }
  result<receipt> pull_over_all(const reference& from, parallel_target to, const pull_options& o, chunks c) const {
    const auto told = [this](const address_attempt& a) { tell(a); };
    return pull_in_parallel({places_, connections_, told, wrong_}, from, to, o, c);
  }
  result<receipt> pull_into(const reference& from, pull_target to, const pull_options& o, chunks c) const {
    if (is_web()) return pull_web(texts_.front(), web_, tls_, from, to, o, c);
    const place& at = places_.front();
    switch (at.url.scheme) {
      case link_scheme::shm_url: return pull_shared_memory(at.url.address, from, to, o, c);
      case link_scheme::pipe_url: return pull_pipe(at.url.address, from, to, o, c);
      case link_scheme::udp_url: return pull_udp(at.url.address, from, to, o, c);
      case link_scheme::serial_url: return pull_serial(at.url.address, from, to, o, c);
#if TENSORPULL_PYTHON_NATS
      case link_scheme::nats_url: return pull_nats(at.url.address, from, to, o, c);
#endif
      default: break;
    }
    return over(at, [&]<class Transport>(std::type_identity<Transport>, const auto& first) {
      using address = std::remove_cvref_t<decltype(first)>;
      const auto all = addresses_over<address>(places_);
      const auto told = [this](const address_attempt& a) { tell(a); };
      const several_addresses<Transport, address> where(all, std::chrono::seconds(10), told);
      return std::visit(
          [&](auto* target) {
            return net_into<Transport, std::remove_pointer_t<decltype(target)>>::pull(where, from, *target, o, c);
          },
          to);
    });
  }
  void tell(const address_attempt& a) const {
    current_ = a.index;
    if (tell_.is_none()) return;
    const interpreter_lock lock;
    try {
      or_rest([&] {
        tell_(a.index, a.before, to_text(a.failed == errc{} ? std::string_view() : code_name(a.failed)), a.system);
      });
    } catch (py::error_already_set& thrown) {
      if (thrown.matches(PyExc_KeyboardInterrupt)) interrupt_main_thread();
      else thrown.discard_as_unraisable("a log handler of tensorpull");
    }
  }

  std::vector<std::string> texts_;
  std::vector<place> places_;
  py::object tell_;
  http_settings web_;
  const tls_settings* tls_;
  std::size_t connections_ = 1;
  mutable std::vector<std::size_t> wrong_;
  mutable std::atomic<std::size_t> current_{0};
};

}  // namespace tensorpull::python
