// The owner's side of every transport over datagrams: publishes, and serves many recipients over one link on the
// caller's thread.
#pragma once

#include <tensorpull/std/memory.hpp>
#include <tensorpull/transports/peers/detail/datagram_owner_state.hpp>
#include <tensorpull/transports/peers/owner_options.hpp>
#include <tensorpull/transports/publishing_owner.hpp>

#include <concepts>
#include <new>
#include <string_view>

namespace tensorpull {

/// A pipeline's `downloader` over datagrams. Movable. One thread at a time. Its end settles what is open: callbacks are
/// called once more, with the outcome so far. open() allocates everything; nothing is allocated afterwards, whichever
/// peers appear and leave. Peers take turns of at most `turn_datagrams`. `Parts`: owner_parts; `Tensors`: the tensor
/// policy.
template <class Parts, class Tensors>
class datagram_owner : public publishing_owner<datagram_owner<Parts, Tensors>, Tensors> {
  using transport = typename Parts::transport;
  using link_type = typename transport::link;
  using state = detail::datagram_owner_state<Parts>;

 public:
  using options = datagram_owner_options;  ///< where and how it listens
  /// Datagrams that one peer is sent before another has its turn.
  static constexpr std::size_t turn_datagrams = state::turn_datagrams;

  /// Starts to listen. Errors: those of the transport's open() (bad_address, connection_failed with errno, ...),
  /// out_of_memory.
  static result<datagram_owner> open(const datagram_owner_options& options = {}) noexcept {
    std::string_view listen = options.listen;
    if constexpr (requires { transport::any_address; })
      if (listen.data() == nullptr) listen = transport::any_address;
    auto link = transport::open(listen);
    if (!link) return failure(link.error());
    return over(std::move(*link), options);
  }
  /// The same for an address that is given first, as owners over streams take it; `listen` is not used.
  template <std::convertible_to<std::string_view> Address>
  static result<datagram_owner> open(const Address& listen, datagram_owner_options options = {}) noexcept {
    options.listen = listen;
    return open(options);
  }
  /// Serves those at the other side of a link that the program has made. Error: out_of_memory.
  static result<datagram_owner> over(link_type link, const datagram_owner_options& options = {}) noexcept {
    detail::unique_ptr<state> s(new (std::nothrow) state(std::move(link), options));
    if (!s || !s->peers.has_memory() || !s->has_pool() || !s->published.has_room()) return failure(errc::out_of_memory);
    return datagram_owner(std::move(s));
  }

  /// The port that it listens on; 0 if the link has none.
  std::uint16_t port() const noexcept {
    if constexpr (requires { s_->link.port(); }) return s_->link.port();
    else return 0;
  }
  /// How many peers it remembers now.
  std::size_t peers() const noexcept { return s_->peers.size(); }
  /// How it has fared.
  datagram_owner_counts counts() const noexcept {
    datagram_owner_counts c = s_->counts;
    c.pushed_out = s_->peers.pushed_out();
    return c;
  }

  // The parts of this one that an owner takes over.

  /// The publisher behind it.
  auto& published() noexcept { return s_->published; }
  const auto& published() const noexcept { return s_->published; }  ///< the same
  /// The answerer of its peers.
  auto& role() noexcept { return s_->role; }
  /// The link below.
  link_type& link() noexcept { return s_->link; }
  /// Serves on this thread for at most 0.05 s.
  void serve_a_while() noexcept { s_->serve_a_while(); }

 private:
  explicit datagram_owner(detail::unique_ptr<state> s) noexcept : s_(std::move(s)) {}

  detail::unique_ptr<state> s_;
};

}  // namespace tensorpull
