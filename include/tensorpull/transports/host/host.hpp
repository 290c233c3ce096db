// Many connections on an event loop, over any pollable stream: accepts, connects, serves and pulls on the threads that
// run the loop. It starts no thread.
#pragma once

#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/std/memory.hpp>
#include <tensorpull/std/optional.hpp>
#include <tensorpull/transports/host/connection.hpp>
#include <tensorpull/transports/host/detail/acceptor.hpp>
#include <tensorpull/transports/host/detail/handshake_turns.hpp>
#include <tensorpull/transports/host/detail/host_parts.hpp>
#include <tensorpull/transports/host/detail/thread_lock.hpp>
#include <tensorpull/transports/host/event_loop.hpp>
#include <tensorpull/transports/host/host_options.hpp>
#include <tensorpull/transports/over/stream_transport.hpp>
#include <tensorpull/transports/publisher.hpp>
#include <tensorpull/transports/send_limiter.hpp>

#include <atomic>
#include <new>
#include <utility>

namespace tensorpull {

namespace detail {
/// A handler that does nothing.
struct silent_handler {
  template <class C> void connected(C&) noexcept {}
  template <class C> void message(C&, const tensorpull::message&) noexcept {}
  template <class C> void pulled(C&, const result<receipt>&) noexcept {}
  template <class C> void closed(C&, const error&) noexcept {}
};
}  // namespace detail

/// `Handler` has connected(connection&), message(connection&, const message&), pulled(connection&, const
/// result<receipt>&) and closed(connection&, const error&). Their exceptions are caught and dropped. A connection that
/// was never established (a connect or a handshake that failed) has closed() without connected(). `Consumer`: what
/// connections pull into, or no_consumer.
/// If the transport's `threads` is true, several threads may run the loop; the callbacks of one connection never
/// overlap.
template <class Parts, class Handler, class Consumer>
  requires listening_transport<typename Parts::transport>
class host<Parts, Handler, Consumer> {
  using checks = detail::consumer_checks<Consumer, (std::is_same_v<Consumer, no_consumer> || consumer<Consumer>)>;
  static_assert(sizeof(checks) != 0);  // next to the user's line
  using transport = typename Parts::transport;
  using listener_type = typename detail::listener_of<transport>::type;

 public:
  using parts = Parts;  ///< the pipeline's policies
  using consumer_type = Consumer;  ///< what connections pull into
  using stream_type = typename transport::stream;  ///< the transport's stream
  static constexpr bool threads = transport::threads;  ///< whether several threads may run the loop
  using lock_type = std::conditional_t<threads, detail::thread_lock, no_lock>;  ///< no lock for one thread
  using publisher_type = typename decltype(detail::publisher_of<Parts, lock_type>())::type;  ///< what publishes
  using owner_type = typename publisher_type::owner_type;  ///< the owner's state machine
  using connection = tensorpull::connection<host>;  ///< what handlers are given
  using destinations = typename detail::destinations_of<transport>::type;  ///< the addresses that connect() tries
  /// if not, connections refuse long messages
  static constexpr bool takes_messages = !std::is_same_v<Handler, detail::silent_handler>;

  /// Borrows the loop and the handler; allocates the message buffers. Throws std::bad_alloc.
  host(event_loop& io, Handler& handler, const host_options& options = {}) : host(io, handler, options, nullptr) {}
  /// The same over what another publishes, which is borrowed; none: over its own.
  host(event_loop& io, Handler& handler, const host_options& options, publisher_type* published)
      : io_(io), handler_(handler), options_(options),
        published_(published != nullptr ? *published : own_.emplace(options.room)),
        memory_(options.message_buffers * frame_bytes / sizeof(block)),
        pool_({reinterpret_cast<std::byte*>(memory_.data()), memory_.size() * sizeof(block)}, frame_bytes),
        limiter_(options.limits), acceptor_(new acceptor_type(io, *this)),
        timer_(new target(io, *this, &host::pass_time)), sender_(new target(io, *this, &host::send_more)) {
    static_assert(
        requires(Handler& h, connection& c) { h.connected(c); },
        "tensorpull: a host's handler is told of each connection: void connected(auto& connection)");
    static_assert(
        requires(Handler& h, connection& c, const tensorpull::message& m) { h.message(c, m); },
        "tensorpull: a host's handler is given messages: void message(auto& connection, const message&)");
    static_assert(
        requires(Handler& h, connection& c, const result<receipt>& r) { h.pulled(c, r); },
        "tensorpull: a host's handler is told how a pull ended: void pulled(auto& connection, const result<receipt>&)");
    static_assert(
        requires(Handler& h, connection& c, const error& e) { h.closed(c, e); },
        "tensorpull: a host's handler is told of each connection's end: void closed(auto& connection, const error&)");
    if (!published_.has_room() || memory_.size() * sizeof(block) != options.message_buffers * frame_bytes ||
        !io.reserve(options.reserved_connections))
      throw std::bad_alloc();
    if (options.authorise) published_.authorise(options.authorise);
    start_timer();
    if (limiter_.limited()) start_send_timer();
  }
  /// No thread may run the loop meanwhile; it may run again afterwards. Connections are closed without a call of
  /// closed().
  ~host() {
    while (first_ != nullptr) {
      first_->abandon();
      release(*first_);
    }
  }

  /// The publisher: add_tensors(), withdraw() and the rest.
  publisher_type& published() noexcept { return published_; }
  /// The object that its connections share, if the transport has one (http_owner.hpp).
  auto& shared() noexcept { return shared_; }

  /// Starts to listen. Returns the port, which the system has chosen if it was 0; 0 if the transport has no ports.
  /// Errors: those of the transport's listen(); invalid_argument: it listens already; cancelled: stop() was called; io:
  /// the event loop cannot watch the listener; out_of_memory. One thread calls it at a time.
  result<std::uint16_t> listen(std::string_view address) noexcept
    requires requires { transport::listen(address); }
  {
    return listen_by([&] { return transport::listen(address); }, address);
  }
  /// The same with an address that is more than text.
  template <detail::listens<listener_type> Address>
  result<std::uint16_t> listen(const Address& address) noexcept {
    return listen_by([&] { return address.listen(); }, {});
  }

  /// Starts to connect; the handler's connected() or closed() is told how it ended, with a connection of this `tag`,
  /// perhaps on another thread before this returns. A name's addresses are tried in turn, each within the accept
  /// budget; closed() has the error of the last one. Errors: those of the transport's resolve() and, if no address can
  /// be tried, start_connect(); cancelled: stop() was called; io; out_of_memory.
  result<void> connect(std::string_view address, std::uint64_t tag = 0) noexcept
    requires requires { transport::resolve(address); }
  {
    return connect_to(transport::resolve(address), tag);
  }
  /// The same with an address that is more than text.
  template <class Address>
    requires requires(const Address& address) {
      { address.resolve() } noexcept -> std::same_as<result<destinations>>;
    }
  result<void> connect(const Address& address, std::uint64_t tag = 0) noexcept {
    return connect_to(address.resolve(), tag);
  }
  /// Takes over a connection that the program has made, and treats it as one that was accepted: the handler's
  /// connected() may trust() it. Errors, after which the stream is still the caller's: cancelled: stop() was called;
  /// io: the event loop cannot watch it, with errno; out_of_memory.
  result<void> adopt(stream_type&& stream, std::uint64_t tag = 0) noexcept { return begin(stream, tag); }

  /// How many connections there are, those that are still connecting included.
  std::size_t connections() const noexcept { return count_; }

  /// Stops listening and closes all connections, on the event loop, which then has no more work. May be called on any
  /// thread.
  void stop() noexcept {
    if (!stopping_.exchange(true)) acceptor_->stop();
  }

 private:
  using acceptor_type = detail::acceptor<host, listener_type>;
  friend connection;
  friend acceptor_type;
  static constexpr std::size_t frame_bytes = frame_buffer_bytes<typename Parts::limits>;
  static constexpr std::chrono::milliseconds timer_interval{200};
  /// A target of the loop for the host itself.
  class target : public event_target {
   public:
    target(event_loop& on, host& to, void (host::*call)()) noexcept : event_target(on), host_(to), call_(call) {}

   private:
    void happened(std::uint32_t) noexcept override { (host_.*call_)(); }
    host& host_;
    void (host::*call_)();
  };
  struct alignas(64) block {
    std::byte bytes[64];
  };

  /// The handler; catches its exceptions.
  struct guarded {
    Handler& handler;
    template <class C> void connected(C& c) noexcept {
      contain([&] { handler.connected(c); });
    }
    template <class C> void message(C& c, const tensorpull::message& m) noexcept {
      if constexpr (requires { handler.message(c, m); })
        contain([&] { handler.message(c, m); });  // if not, the constructor's static_assert has refused the handler
    }
    template <class C> void pulled(C& c, const result<receipt>& r) noexcept {
      contain([&] { handler.pulled(c, r); });
    }
    template <class C> void closed(C& c, const error& e) noexcept {
      contain([&] { handler.closed(c, e); });
    }
    template <class F>
    static void contain(F f) noexcept {
      try {
        f();
      } catch (...) {
      }
    }
  };
  guarded handler() noexcept { return {handler_}; }
  owner_type& machine() noexcept { return published_.machine(); }
  buffer_pool<lock_type>& pool() noexcept { return pool_; }
  send_limiter<lock_type>& limiter() noexcept { return limiter_; }
  /// Takes some of what may be sent, or makes the connection wait for it.
  std::uint64_t take(connection& c, std::uint64_t bytes) noexcept {
    const std::uint64_t n = limiter_.take(c, bytes, std::chrono::steady_clock::now().time_since_epoch());
    if (n == 0 && limiter_.needs_ticks()) start_send_timer();
    return n;
  }

  template <class Listen>
  result<std::uint16_t> listen_by(Listen listen, const error_name& address) noexcept {
    if (acceptor_->listens()) return failure(errc::invalid_argument, 0, address);
    if (stopping_) return failure(errc::cancelled, 0, address);
    auto listener = listen();
    if (!listener) return failure(listener.error());
    return acceptor_->listen(std::move(*listener), address);
  }
  result<void> connect_to(result<destinations> found, std::uint64_t tag) noexcept {
    if (!found) return failure(found.error());
    detail::unique_ptr<destinations> to(new (std::nothrow) destinations(std::move(*found)));
    if (!to) return failure(errc::out_of_memory);
    return connect_next(to, tag, {errc::bad_address});
  }
  /// Begins a connection to the first of these destinations that lets one begin. `why`: the error, if none is left.
  result<void> connect_next(detail::unique_ptr<destinations>& to, std::uint64_t tag, error why) noexcept {
    while (to->more()) {
      auto stream = to->start_connect();
      if (stream) return begin(*stream, tag, &to);
      why = stream.error();
    }
    return failure(why);
  }
  /// Makes a connection, and makes the event loop look at it. `to`: this end has begun the connection, which takes over
  /// the other destinations. After an error the stream is still the caller's.
  result<void> begin(stream_type& stream, std::uint64_t tag, detail::unique_ptr<destinations>* to = nullptr) noexcept {
    if (stopping_) return failure(errc::cancelled);
    auto* const c = new (std::nothrow) connection(*this, io_, stream, to != nullptr);
    if (c == nullptr) return failure(errc::out_of_memory);
    if (const int failed = c->watch(c->stream_.native_handle()); failed != 0) {
      stream = std::move(c->stream_);
      c->retire();
      return failure(detail::not_watched(failed, {}));
    }
    c->tag = tag;
    if (to != nullptr) c->others_ = std::move(*to);
    const lock_guard hold(lock_);  // another thread may call the handler, and release it, as soon as this is over
    c->next_ = first_;
    if (first_ != nullptr) first_->previous_ = c;
    first_ = c;
    ++count_;
    if (stopping_) c->end_later(errc::cancelled);  // stop() may have ended the others before this one was among them
    else c->again();
    return {};
  }
  /// Takes a closed connection out of the lists, and destroys it.
  void release(connection& c) noexcept {
    bool was_full = false;
    {
      const lock_guard hold(lock_);
      was_full = full();
      (c.previous_ != nullptr ? c.previous_->next_ : first_) = c.next_;
      if (c.next_ != nullptr) c.next_->previous_ = c.previous_;
      if (c.awaits_memory_) {
        connection* before = nullptr;
        for (connection* s = first_awaiting_memory_; s != &c; s = s->next_awaiting_memory_) before = s;
        (before != nullptr ? before->next_awaiting_memory_ : first_awaiting_memory_) = c.next_awaiting_memory_;
        if (last_awaiting_memory_ == &c) last_awaiting_memory_ = before;
      }
      --count_;
    }
    limiter_.leave(c);
    c.retire();
    if (was_full) acceptor_->look_again();
  }

  /// How many connections may shake hands at a time, which is when a stranger takes most memory.
  static constexpr std::size_t most_handshakes = [] {
    if constexpr (requires { transport::most_handshakes; }) return transport::most_handshakes;
    else return ~std::size_t{0};
  }();
  static constexpr bool limits_handshakes = most_handshakes != ~std::size_t{0};
  /// Whether there is no room for another connection that is accepted.
  bool full() const noexcept { return count_ >= options_.max_connections; }
  /// Whether a connection that was accepted may shake hands. If not, it is woken when it may.
  bool may_shake(connection& c) noexcept {
    if constexpr (!limits_handshakes) return true;
    const lock_guard hold(lock_);
    return turns_.begins(c, std::chrono::steady_clock::now());
  }
  /// It does not, or not any more.
  void has_shaken(connection& c) noexcept {
    if constexpr (!limits_handshakes) return;
    const lock_guard hold(lock_);
    if (auto* const next = turns_.ends(c, std::chrono::steady_clock::now())) static_cast<connection*>(next)->again();
  }
  void start_timer() noexcept { timer_->alarm_after(pulls_ > 0 ? detail::wait_step : timer_interval); }
  /// While connections wait until they may send.
  void start_send_timer() noexcept { sender_->alarm_after(send_limiter<lock_type>::tick_interval); }
  void send_more() noexcept {
    const auto wake = [](typename send_limiter<lock_type>::share& s) noexcept { static_cast<connection&>(s).again(); };
    if (limiter_.tick(std::chrono::steady_clock::now().time_since_epoch(), wake)) start_send_timer();
  }
  /// An interval has passed, or is another one now.
  void pass_time() noexcept {
    if (stopping_) return;
    bool yields = false;
    {
      const lock_guard hold(lock_);
      const auto now = std::chrono::steady_clock::now();
      connection* oldest = nullptr;
      for (connection* c = first_; c != nullptr; c = c->next_) {
        oldest = c;
        if (c->watch_.over(options_.budgets, now, c->activity())) c->end_later(errc::timed_out);
        else if (now.time_since_epoch().count() >= c->look_at_.load(std::memory_order_relaxed)) c->again();
      }
      if constexpr (limits_handshakes)
        turns_.make_room(now, [](auto& t) noexcept { static_cast<connection&>(t).end_later(errc::timed_out); });
      // each makes room for the others, and leaves what it has freed to them for one interval: otherwise peers that
      // connect again at once would have it again
      const auto lacks = acceptor_->take_shortage();
      yields = (lacks.here || lacks.elsewhere) && make_room(oldest, now) && lacks.elsewhere;
    }
    published_.tick();
    {
      const lock_guard hold(lock_);  // the owner's budgets are as exact as its ticks
      for (connection* c = first_; c != nullptr; c = c->next_)
        if (c->awaits_time_.exchange(false, std::memory_order_relaxed)) c->again();
    }
    retry_one();
    if (!yields) acceptor_->look_again();
    start_timer();
  }
  /// Nobody is accepted any more.
  void stopped() noexcept {
    timer_->drop_alarm();
    const lock_guard hold(lock_);
    for (connection* c = first_; c != nullptr; c = c->next_) c->end_later(errc::cancelled);
  }

  /// Others wait for room: ends those that have shown nothing, the oldest first. Whether there were any. An address may
  /// have an eighth of the connections in such ones.
  bool make_room(connection* oldest, std::chrono::steady_clock::time_point now) noexcept {
    detail::room_maker room(options_.max_connections / 8);
    for (connection* c = oldest; c != nullptr; c = c->previous_) room.counts(c->activity(), c->neighbours());
    for (connection* c = oldest; c != nullptr; c = c->previous_)
      if (!c->connecting_ && room.ends(c->watch_, now, c->activity(), c->neighbours())) c->end_later(errc::timed_out);
    return room.made();
  }
  /// While connections pull, the timer looks more often for stop requests, time-outs and the ends of pauses.
  void pull_begun() noexcept {
    if (pulls_++ == 0) timer_->post(event_target::own);
  }
  void pull_ended() noexcept { --pulls_; }

  /// Queues the connection, which continues when a buffer becomes free.
  void await_memory(connection& c) noexcept {
    const lock_guard hold(lock_);
    if (c.awaits_memory_) return;
    c.awaits_memory_ = true;
    c.next_awaiting_memory_ = nullptr;
    (last_awaiting_memory_ != nullptr ? last_awaiting_memory_->next_awaiting_memory_ : first_awaiting_memory_) = &c;
    last_awaiting_memory_ = &c;
  }
  /// A buffer may have become free: the connection that has waited longest tries again.
  void retry_one() noexcept {
    const lock_guard hold(lock_);
    connection* const c = first_awaiting_memory_;
    if (c == nullptr) return;
    first_awaiting_memory_ = c->next_awaiting_memory_;
    if (first_awaiting_memory_ == nullptr) last_awaiting_memory_ = nullptr;
    c->awaits_memory_ = false;
    c->again();
  }

  event_loop& io_;
  Handler& handler_;
  host_options options_;
  detail::maybe<publisher_type> own_;
  publisher_type& published_;
  [[no_unique_address]] typename detail::shared_of<Parts, lock_type>::type shared_{};
  detail::heap_array<block> memory_;
  buffer_pool<lock_type> pool_;
  send_limiter<lock_type> limiter_;
  target_ptr<acceptor_type> acceptor_;
  target_ptr<target> timer_, sender_;
  detail::handshake_turns turns_{most_handshakes};
  [[no_unique_address]] lock_type lock_{};
  connection *first_ = nullptr, *first_awaiting_memory_ = nullptr, *last_awaiting_memory_ = nullptr;
  std::atomic<std::size_t> count_{0}, pulls_{0};
  std::atomic<bool> stopping_{false};
};

/// A host of a transport that cannot listen, which is refused.
template <class Parts, class Handler, class Consumer>
  requires(!listening_transport<typename Parts::transport>)
class host<Parts, Handler, Consumer> {
  static_assert(
      detail::never<Parts>,
      "tensorpull: this transport has no host: it needs `static result<L> listen(std::string_view address) noexcept`, where L is a "
      "stream_listener and its stream a pollable_stream (links/posix/pollable_stream.hpp)");
};

}  // namespace tensorpull
