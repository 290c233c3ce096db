// The owner's side of a swarm: a port at which recipients pull, as at the owner's own, and learn of each other, so that
// each can pass on what it has proved.
#pragma once

#include <tensorpull/core/digits.hpp>
#include <tensorpull/links/posix/ip_address.hpp>
#include <tensorpull/satellites/parallel/swarm/members.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/mutex.hpp>
#include <tensorpull/system/address.hpp>
#include <tensorpull/system/entropy.hpp>
#include <tensorpull/transports/host/host.hpp>
#include <tensorpull/transports/host/owner.hpp>
#include <tensorpull/transports/over/tcp/tcp.hpp>

#include <cstring>
#include <memory>
#include <string_view>

namespace tensorpull {

namespace detail::swarm {

/// From where an address can be reached. None: from nowhere else, as it counts for one line only.
inline optional<swarm_reach> reach_of(const ip_address& a) noexcept {
  const std::uint8_t* const b = a.bytes();
  if (a.is_v4()) {
    const std::uint8_t *const v4 = b + 12, first = v4[0], second = v4[1];
    if (first == 127) return swarm_reach::machine;
    const bool shared = first == 100 && (second & 0xc0) == 64;
    const bool own = first == 10 || (first == 172 && (second & 0xf0) == 16) || (first == 192 && second == 168);
    return own || shared || (first == 169 && second == 254) ? swarm_reach::site : swarm_reach::internet;
  }
  if (a == ip_address::of_digits("::1")) return swarm_reach::machine;
  if (b[0] == 0xfe && (b[1] & 0xc0) == 0x80) return {};
  return (b[0] & 0xfe) == 0xfc ? swarm_reach::site : swarm_reach::internet;
}

/// Where a member can be reached that is at `from` and names `said`: a port, or an address with any host, or with its
/// own. The host is always the one that the connection is from. None: `said` is something else.
inline optional<address_text> listening_at(const ip_address& from, std::string_view said) noexcept {
  std::uint16_t port = 0;
  if (said.find(':') == said.npos) {
    const auto number = decimal_number(said);
    if (!number || *number > 65'535) return {};
    port = static_cast<std::uint16_t>(*number);
  } else {
    const auto at = parse_address(said);
    if (!at) return {};
    port = at->number;
    const std::string_view host = at->host.data();
    if (!host.empty() && host != "0.0.0.0" && host != "::" && !(ip_address::of_digits(at->host.data()) == from))
      return {};
  }
  if (port == 0) return {};
  char text[address_text::longest];
  std::size_t size = 0;
  const auto put = [&](std::string_view more) {
    std::memcpy(text + size, more.data(), more.size());
    size += more.size();
  };
  if (!from.is_v4()) put("[");
  put(from.to_text());
  put(from.is_v4() ? ":" : "]:");
  char digits[5];
  std::size_t first = sizeof digits;
  for (; port != 0; port = static_cast<std::uint16_t>(port / 10)) digits[--first] = static_cast<char>('0' + port % 10);
  put({digits + first, sizeof digits - first});
  return address_text::of({text, size});
}

/// Answers those who join, for a host. `Published`: its publisher; `Lock`: the owner's.
template <class Published, class Lock, std::size_t Groups>
class door_handler {
  using members_type = swarm_members<Groups>;
  using seat = typename members_type::seat;

 public:
  /// Borrows the publisher.
  explicit door_handler(Published& published) noexcept : published_(published), members_(system_entropy{}()) {}

  template <class C> void connected(C&) noexcept {}
  template <class C> void pulled(C&, const result<receipt>&) noexcept {}
  template <class C>
  void closed(C& c, const error&) noexcept {
    const lock_guard hold(lock_);
    members_.leave(seat_of(c));
  }
  template <class C>
  void message(C& c, const tensorpull::message& m) noexcept {
    if (m.kind != join_kind || m.references.size() != 1 || m.references[0].version == 0) return;
    const auto asks = decode_join(m.body);
    if (!asks) return;
    swarm::list answer;
    if (!answers(c, m.references[0], *asks, answer)) return;
    std::byte body[swarm::list::most_bytes];
    // one that has not taken the answer before asks again
    (void)c.send(list_kind, m.references, {body, encode(answer, body)});
  }

  std::size_t members() noexcept {
    const lock_guard hold(lock_);
    return members_.members();
  }
  std::size_t groups() noexcept {
    const lock_guard hold(lock_);
    return members_.groups();
  }

 private:
  struct whereabouts {
    swarm_origin from{};
    address_text address{};
  };

  /// False: nothing is answered, as if there were no swarm. A stranger cannot tell whether a reference is published,
  /// and causes nothing to be sent.
  template <class C>
  bool answers(C& c, const reference& model, const join& asks, swarm::list& answer) noexcept {
    seat held = seat_of(c);
    bool holds = false;
    {
      const lock_guard hold(lock_);
      holds = members_.holds(held, model);
    }
    // the program is asked once for each seat, and without the lock, since it may take its time
    const bool may = holds || published_.machine().allows({c.peer(), model.id, model.version, {}, false});
    const bool there = may && is_published(model);
    const auto where = there ? whereabouts_of(c, asks) : optional<whereabouts>();
    const lock_guard hold(lock_);
    const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now().time_since_epoch());
    if (there && where) {
      const system_entropy random;
      const auto take = [&] {
        return members_.join(held, model, where->from, where->address, asks.state, now, random);
      };
      seat taken = take();
      if (!taken && members_.full()) {
        members_.leave_all([this](const reference& other) { return !is_published(other); });
        taken = take();
      }
      held = taken;
    } else if (there || holds) {
      members_.leave(held);
      held = {};
    } else return false;
    put_seat(c, held);
    members_.list(held, asks.known, now, answer);
    return true;
  }
  /// Where the member is; none: it cannot be told to others.
  template <class C>
  static optional<whereabouts> whereabouts_of(const C& c, const join& asks) noexcept {
    if (const ip_address from = c.peer_address()) {
      const auto reach = reach_of(from);
      const auto address = listening_at(from, asks.address.view());
      if (!reach || !address) return {};
      return whereabouts{{from.neighbourhood(), *reach}, *address};
    }
    const peer_identity who = c.peer();
    if (who.kind != identity_kind::user || asks.address.view().front() != '/') return {};
    return whereabouts{{who.user, swarm_reach::machine}, asks.address};
  }
  /// Whether this version is published now.
  bool is_published(const reference& model) const noexcept {
    return published_.machine().look_over([&](const owner_tables& tables) {
      const publication* const p = tables.publications.find(model);
      return p != nullptr && p->now == publication::state::published;
    });
  }
  template <class C>
  static seat seat_of(const C& c) noexcept {
    return {static_cast<std::uint32_t>(c.tag), static_cast<std::uint32_t>(c.tag >> 32)};
  }
  template <class C>
  static void put_seat(C& c, seat s) noexcept {
    c.tag = s.place | std::uint64_t{s.generation} << 32;
  }

  Published& published_;
  members_type members_;  // guarded by the lock
  [[no_unique_address]] Lock lock_{};
};

template <class Parts, class Next, class Publisher>
struct door_parts : Parts {
  using transport = Next;
  using shared_publisher = Publisher;
  /// Nobody needs a long message here, so the memory of a few long buffers is that of many.
  struct limits : Parts::limits {
    static constexpr std::size_t application_body_bytes = 1024;
    static_assert(swarm::list::most_bytes <= application_body_bytes);
  };
  static constexpr std::size_t shorter = frame_buffer_bytes<typename Parts::limits> / frame_buffer_bytes<limits>;
};

}  // namespace detail::swarm

/// A port of an owner, or of a publisher, at which recipients pull what is published there, and those that send `join`
/// are told of each other. Others are served as at every host. It may be the only port of its owner. `Parts`: the
/// owner's; `Next`: the transport of the port (tcp, tls, unix_socket), whatever the owner's is; its `threads` is the
/// owner's. It has to end before the owner does. Movable.
///
/// A member has a seat in one group at a time, as long as its connection lives and it asks at least once a minute, and
/// only for a version that is published then and that the owner's authorise callback lets it have, which is asked once
/// for each seat, without a recipient. One that names anything else is not answered, and sees a host without a swarm. A
/// member is answered with an empty list, and has to pull from the owner alone, if there is no room for it
/// (swarm_members), or if it names an address that cannot be told to others.
///
/// The others connect to the address from which a member's connection is, at the port that it names, so a member cannot
/// have them connect to any other address: it names a port, an address of any host ("0.0.0.0:8003", "[::]:8003",
/// ":8003"), or its own address as the door sees it. Any other is refused: a member with several interfaces, or behind
/// a translation of addresses, has to be reachable at the one that the door sees. Members at addresses of a machine, of
/// a site and of the internet are in different groups, since one and the same private address is another machine
/// elsewhere. Link-local addresses of IPv6 are refused. Over a Unix socket it names an absolute path, which is taken as
/// it is: a member may name another program's socket, and unix_socket connects to those of its own user alone.
///
/// A poll allocates nothing. The answer, of 13 to 973 bytes, takes a buffer until it is sent, and none is sent while
/// another is, or while no buffer is free: a member asks again. There are as many as fit into the memory of
/// host_options::message_buffers (128 of 4 KiB with the defaults), since a message is at most 1 KiB here; a longer one
/// ends the connection.
template <class Parts, class Next, class Publisher>
class swarm_door {
  using parts = detail::swarm::door_parts<Parts, Next, Publisher>;
  static constexpr std::size_t groups_at_most = 64;
  using lock_type = typename Publisher::owner_type::lock_type;
  using handler_type = detail::swarm::door_handler<Publisher, lock_type, groups_at_most>;
  using host_type = host<parts, handler_type, no_consumer>;
  static_assert(std::is_same_v<lock_type, typename host_type::lock_type>,
                "tensorpull: the owner's transport and the door's are both for one thread, or both for several");

 public:
  /// Starts to listen. Borrows the loop and the publisher. `options`: of its connections; `authorise` is not used,
  /// since the owner has one. Errors: those of listen(), io, out_of_memory. Allocates its buffers and 100 KiB for the
  /// members; each connection is one more allocation.
  template <class Address>
  static result<swarm_door> open(event_loop& io, Publisher& published, const Address& listen,
                                 host_options options = {}) noexcept {
    try {
      options.authorise = {};
      options.message_buffers *= std::max<std::size_t>(1, parts::shorter);
      std::unique_ptr<state> s(new state(io, options, published));
      const result<std::uint16_t> port = s->connections.listen(listen);
      if (!port) return failure(port.error());
      s->port = *port;
      return swarm_door(std::move(s));
    } catch (...) {
      return failure(errc::out_of_memory);
    }
  }

  /// The port that it listens on; 0 if the transport has none.
  std::uint16_t port() const noexcept { return s_->port; }
  /// Serves a connection that the program has made itself. Errors as host::adopt.
  result<void> adopt(typename Next::stream&& stream) noexcept { return s_->connections.adopt(std::move(stream)); }
  /// How many connections there are.
  std::size_t connections() const noexcept { return s_->connections.connections(); }
  /// How many of them have a seat.
  std::size_t members() const noexcept { return s_->handler.members(); }
  /// In how many groups.
  std::size_t groups() const noexcept { return s_->handler.groups(); }

 private:
  struct state {
    state(event_loop& io, const host_options& options, Publisher& published)
        : handler(published), connections(io, handler, options, &published) {}
    handler_type handler;
    host_type connections;
    std::uint16_t port = 0;
  };
  explicit swarm_door(std::unique_ptr<state> s) noexcept : s_(std::move(s)) {}
  std::unique_ptr<state> s_;
};

/// Opens a door of an owner: `auto door = open_swarm_door(*owner, std::string_view("0.0.0.0:8002"));`, or with
/// `open_swarm_door<tls>(*owner, tls_address{...})`. The owner's run() serves it. Errors: as swarm_door::open.
template <class Next = tcp, class Parts, class Tensors, class Address>
auto open_swarm_door(stream_owner<Parts, Tensors>& owner, const Address& listen,
                     const host_options& options = {}) noexcept {
  using publisher_type = std::remove_reference_t<decltype(owner.publications())>;
  return swarm_door<Parts, Next, publisher_type>::open(owner.event_loop(), owner.publications(), listen, options);
}

}  // namespace tensorpull
