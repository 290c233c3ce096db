// An owner over datagrams without its face: what it keeps, and how it serves.
#pragma once

#include <tensorpull/core/buffer_pool.hpp>
#include <tensorpull/framing/detail/segment_table.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/protocol/datagrams/datagram_endpoint.hpp>
#include <tensorpull/pull/detail/take_datagram.hpp>
#include <tensorpull/std/memory.hpp>
#include <tensorpull/system/entropy.hpp>
#include <tensorpull/transports/blocking/datagram_pull.hpp>
#include <tensorpull/transports/concept.hpp>
#include <tensorpull/transports/peers/cookie.hpp>
#include <tensorpull/transports/peers/owner_options.hpp>
#include <tensorpull/transports/peers/peer_table.hpp>
#include <tensorpull/transports/publisher.hpp>
#include <tensorpull/transports/send_limiter.hpp>

#include <array>

namespace tensorpull {

namespace detail {

/// The answerer of an owner's peers: the owner itself, or the transport's layer in front of it,
/// `transport::role<Owner>`, made from an `Owner&`.
template <class Transport, class Owner>
struct role_in_front {
  using type = Owner&;
};
template <class Transport, class Owner>
  requires requires { typename Transport::template role<Owner>; }
struct role_in_front<Transport, Owner> {
  using type = typename Transport::template role<Owner>;
};

/// The state of an owner over datagrams, whatever its models are: a link, and the peers at its other side.
template <class Parts>
struct datagram_owner_state {
  using transport = typename Parts::transport;
  using limits = typename Parts::limits;
  using link_type = typename transport::link;
  using address = typename link_type::address;
  using clock = std::chrono::steady_clock;
  static constexpr std::size_t front = link_type::addresses_are_proved ? 0 : cookie_bytes;
  static constexpr std::size_t buffer_bytes = (std::size_t{limits::control_frame_bytes} + 63) / 64 * 64;
  /// Datagrams that one peer is sent before another has its turn.
  static constexpr std::size_t turn_datagrams = 32;
  /// Datagrams that are taken before those get their turn that could not be answered at once.
  static constexpr std::size_t most_taken = 64;
  using publisher_type = image_publisher<Parts, no_lock, limits::recipients>;
  using role_type = typename role_in_front<transport, typename publisher_type::owner_type>::type;
  using endpoint_type =
      datagram_endpoint<typename Parts::framing, limits, std::remove_reference_t<role_type>, ignore_messages>;
  struct member;
  using table = peer_table<address, member>;
  using peer_entry = typename table::entry;

  struct member : send_limiter<>::share {
    template <class... Arguments>
    explicit member(Arguments&&... arguments) noexcept : end(std::forward<Arguments>(arguments)...) {}
    endpoint_type end;
    std::uint64_t word = 0;  ///< the cookie that it uses
    /// in the ring of those that have something to send, or will have
    peer_entry *self = nullptr, *before = nullptr, *after = nullptr;
    typename endpoint_type::time due{};  ///< when
  };
  struct block {
    alignas(64) std::byte bytes[64];
  };

  datagram_owner_state(link_type l, const datagram_owner_options& o) noexcept
      : link(std::move(l)), published(o.room), long_memory(o.long_buffers * buffer_bytes / sizeof(block)),
        pool({reinterpret_cast<std::byte*>(long_memory.data()), long_memory.size() * sizeof(block)}, buffer_bytes),
        pool_wanted(o.long_buffers > 0), door(system_entropy{}, clock::now()), limiter(o.limits), budgets(o.budgets),
        peers(o.peers, o.budgets) {
    if (o.authorise) published.authorise(o.authorise);
  }
  datagram_owner_state(datagram_owner_state&&) = delete;
  bool has_pool() const noexcept { return !pool_wanted || long_memory.size() > 0; }

  link_type link;
  publisher_type published;
  role_type role{published.machine()};
  ignore_messages handler;
  heap_array<block> long_memory;
  buffer_pool<> pool;
  bool pool_wanted;
  cookie_door door;
  send_limiter<> limiter;
  peer_budgets budgets;
  datagram_owner_counts counts;
  alignas(64) std::array<std::byte, std::max(slice_bytes<limits>, datagram_scratch_bytes<link_type, limits>)> scratch;
  datagram_memory<link_type> memory;
  peer_entry* next = nullptr;  // whose turn it is
  clock::time_point ticked{};
  bool blocked = false;  // the link takes nothing now
  bool stuck = false;    // nor has it for as long as one wait
  table peers;  // the last: endpoints give buffers back

  static typename endpoint_type::time time_of(clock::time_point t) noexcept {
    return std::chrono::duration_cast<typename endpoint_type::time>(t.time_since_epoch());
  }

  // the ring
  void enlist(peer_entry& e, typename endpoint_type::time due) noexcept {
    member& m = e.peer;
    m.due = due;
    if (m.after != nullptr) return;
    if (next == nullptr) {
      next = m.before = m.after = &e;
    } else {  // the last in turn
      m.after = next;
      m.before = next->peer.before;
      m.before->peer.after = m.after->peer.before = &e;
    }
  }
  void strike(peer_entry& e) noexcept {
    member& m = e.peer;
    if (m.after == nullptr) return;
    if (next == &e) next = m.after != &e ? m.after : nullptr;
    m.before->peer.after = m.after;
    m.after->peer.before = m.before;
    m.before = m.after = nullptr;
  }

  void leave(peer_entry& e) noexcept {
    strike(e);
    limiter.leave(e.peer);
  }
  void forget(peer_entry& e) noexcept {
    leave(e);
    ++counts.aged;
  }

  /// Takes datagrams that have arrived. False: none has. While the link takes no answers, requests wait in it; but the
  /// other end may wait until they are taken before it takes an answer.
  bool take_some(clock::time_point now) noexcept {
    std::size_t n = 0;
    for (; n < most_taken && (!blocked || stuck); ++n) {
      std::span<const std::byte> datagram;
      address from{};
      if (take_datagram(link, memory, datagram, from).status != io_status::ok) break;
      take(datagram, from, now);
    }
    return n > 0;
  }
  void take(std::span<const std::byte> datagram, const address& from, clock::time_point now) noexcept {
    std::uint64_t word = 0;
    if constexpr (front > 0) {
      const auto worth = datagram.size() < front ? cookie_verdict::wrong : door.check(from, cookie_in(datagram));
      if (worth != cookie_verdict::right) {
        counts.strangers += worth == cookie_verdict::wrong;
        const cookie_answer answer = door.answer(from, datagram);
        const std::array alone{answer.bytes()};
        if (!alone[0].empty()) (void)send_or_collect(link, alone, from);
        if (worth == cookie_verdict::wrong) return;
      }
      word = cookie_in(datagram);
      datagram = datagram.subspan(front);
    }
    if (datagram.empty()) return;
    peer_entry* e = peers.find(from);
    const bool newcomer = e == nullptr;
    if (newcomer) {
      e = peers.admit(from, now, role, pool, handler, link.datagram_bytes() - front, system_entropy{}());
      if (e == nullptr) return say_busy(datagram, from, word);
      e->peer.self = e;
      e->peer.end.doubt();
    }
    e->peer.word = word;
    const auto heard = e->peer.end.heard();
    no_transfer none;
    counts.malformed += !e->peer.end.received(none, datagram, time_of(now));
    // a digest that is being computed is one of what is published
    const bool progress = e->peer.end.heard() != heard || (newcomer && e->peer.end.works());
    if (progress) peers.progressed(*e, now, [this](peer_entry& gone) { forget(gone); });
    if (!limiter.waits(e->peer)) enlist(*e, {});
    if (!blocked && !limiter.waits(e->peer))
      (void)turn(*e, now);  // at once: an endpoint has room for few answers, and each datagram buys one turn at most
    if (!newcomer || progress) return;
    leave(*e);  // a proved address alone is worth an answer, and no entry
    peers.remove(*e);
  }
  /// The table is full: the first request of the datagram is refused, and nothing is remembered. The address is
  /// proved, so the answer may be longer.
  [[gnu::noinline]] void say_busy(std::span<const std::byte> frames, const address& to, std::uint64_t word) noexcept {
    ++counts.refused_busy;
    const auto bytes = measure_frame(frames, std::min(frames.size(), std::size_t{limits::control_frame_bytes}),
                                     limits::control_frame_segments);
    if (!bytes || !*bytes || **bytes > frames.size()) return;
    typename Parts::framing::decode_storage lists;
    frame asked;
    if (!Parts::framing::decode(frames.first(**bytes), asked, lists) || !is_request(asked.kind)) return;
    frame no;
    no.kind = frame_kind::refused;
    no.status = status::busy;
    no.id = asked.id;
    no.ref = asked.ref;
    no.version = asked.version;
    no.delay_ms = static_cast<std::uint32_t>(limits::busy_delay.count());
    const auto written = Parts::framing::encode(no, scratch);
    if (!written) return;
    const std::array one{std::span<const std::byte>(scratch).first(*written)};
    (void)put(one, to, word);
  }

  /// Sends a datagram, with the peer's word in front if there are words.
  io_result put(gather_list frames, const address& to, std::uint64_t word) noexcept {
    if constexpr (front == 0) {
      return send_or_collect(link, frames, to);
    } else {
      std::array<std::span<const std::byte>, datagram_plan::max_spans + 1> all;
      all[0] = std::as_bytes(std::span(&word, 1));
      for (std::size_t i = 0; i < frames.size(); ++i) all[i + 1] = frames[i];
      return send_or_collect(link, {all.data(), frames.size() + 1}, to);
    }
  }

  /// One turn of each peer in the ring. False: nobody had anything to send.
  bool send_some(clock::time_point now) noexcept {
    bool any = false;
    blocked = false;
    if (limiter.limited())
      (void)limiter.tick(now.time_since_epoch(),
                         [this](send_limiter<>::share& s) noexcept { enlist(*static_cast<member&>(s).self, {}); });
    peer_entry* const last = next != nullptr ? next->peer.before : nullptr;
    while (next != nullptr && !blocked) {
      peer_entry& e = *next;
      next = e.peer.after;
      if (e.peer.due <= time_of(now)) any |= turn(e, now);
      if (&e == last) break;
    }
    return any;
  }
  bool turn(peer_entry& e, clock::time_point now) noexcept {
    member& m = e.peer;
    no_transfer none;
    for (std::size_t n = 0; n < turn_datagrams; ++n) {
      typename endpoint_type::plan_type plan;
      m.end.plan_datagram(none, plan, scratch, time_of(now));
      if (plan.bytes == 0) {
        limiter.leave(m);
        const auto wait = m.end.next_time(none, time_of(now));
        if (wait == endpoint_type::time::max()) strike(e);
        else m.due = time_of(now) + wait;
        return n > 0 || m.end.works();
      }
      const std::uint64_t whole = plan.bytes + front;
      if (limiter.limited() && limiter.take(m, whole, now.time_since_epoch(), whole) == 0) {
        // the limiter's tick() gives it its next turn
        m.end.sent(none, plan, false);
        strike(e);
        return n > 0;
      }
      const io_result io = put(std::span(plan.spans).first(plan.span_count), e.address(), m.word);
      blocked = io.status == io_status::would_block;
      m.end.sent(none, plan, !blocked);
      if (blocked) {
        if (limiter.limited()) limiter.put_back(m, whole);
        return n > 0;
      }
    }
    return true;
  }

  /// When somebody in the ring has to be looked at.
  std::chrono::milliseconds left(clock::time_point now) const noexcept {
    auto least = limiter.limited() ? send_limiter<>::tick_interval : wait_step;
    if (next == nullptr || blocked) return least;
    for (const peer_entry* e = next;;) {
      const auto wait = std::chrono::ceil<std::chrono::milliseconds>(e->peer.due - time_of(now));
      least = std::max(std::chrono::milliseconds(0), std::min(least, wait));
      e = e->peer.after;
      if (e == next) return least;
    }
  }
  void pass_time(clock::time_point now) noexcept {
    if (now - ticked < wait_step) return published.deliver();
    ticked = now;
    published.tick();
    door.pass_time(system_entropy{}, now);
    peers.age(now, 64, [this](peer_entry& gone) { forget(gone); });
    if (!pool_wanted || pool.available() > 0) return;
    using time = typename endpoint_type::time;
    const auto of = [](std::chrono::milliseconds budget) {
      return time(std::min<std::chrono::milliseconds>(budget, std::chrono::hours(24)));
    };  // one that means "never" would wrap
    const time present = time_of(now), idle = of(budgets.idle_if_full);
    peers.for_each([&](peer_entry& e) {
      e.peer.end.give_up_buffers(present - idle, present - of(budgets.idle), present + 2 * idle);
    });
  }
  void serve_a_while() noexcept {
    // rounds until there is nothing to do; it waits only if that was so from the beginning, since what has moved may
    // be what the caller waits for
    for (int round = 0; round < 16; ++round) {
      const auto now = clock::now();
      const bool took = take_some(now), sent = send_some(now);
      pass_time(now);
      stuck = stuck && !sent;
      if (took || sent) continue;
      if (round > 0) return;
      const io_ready ready = link.wait(!blocked, blocked, left(now));
      stuck = blocked && !ready.write;
      return;
    }
  }
};

}  // namespace detail

}  // namespace tensorpull
