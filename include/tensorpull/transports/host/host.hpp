// Many connections on an io_context, over any pollable stream: accepts, connects, serves and pulls on the threads that
// run the io_context. It starts no thread.
#pragma once

#include <tensorpull/links/posix/posix_stream.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/transports/host/connection.hpp>
#include <tensorpull/transports/host/detail/thread_lock.hpp>
#include <tensorpull/transports/over/stream_transport.hpp>
#include <tensorpull/transports/publisher.hpp>
#include <tensorpull/transports/send_limiter.hpp>

#include <boost/asio/steady_timer.hpp>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <new>
#include <optional>
#include <vector>

namespace tensorpull {

/// The limits of a host.
struct host_options {
  /// No more are accepted: others wait in the system's queue. If some wait there, or no descriptor is left for them,
  /// the oldest that have shown nothing (connection_budgets::accept) for a second are ended to make room. connect() and
  /// adopt() are not limited.
  std::size_t max_connections = 4096;
  std::size_t message_buffers = 8;  ///< for frames above 512 bytes; shared by all connections
  /// For how many connections the event loop's records are allocated at start. Up to this number, later connections
  /// leave no more records behind.
  std::size_t reserved_connections = 0;
  connection_budgets budgets{};  ///< when a connection is ended
  send_limits limits{};  ///< how fast it may send, to all connections and to each
  /// decides what each peer may have, as publisher::authorise; none: everybody may have everything
  authorise_callback authorise{};
  /// for how much it has room to publish; more than the limits say: with heap_owner_room
  /// (protocol/owner/owner_room.hpp)
  owner_room_size room{};
};

namespace detail {
/// How often a host of this process could not take a connection, for lack of a descriptor or of memory.
inline std::atomic<std::uint32_t> connections_missed{0};

/// A handler that does nothing.
struct silent_handler {
  template <class C> void connected(C&) noexcept {}
  template <class C> void message(C&, const tensorpull::message&) noexcept {}
  template <class C> void pulled(C&, const result<receipt>&) noexcept {}
  template <class C> void closed(C&, const error&) noexcept {}
};

/// What publishes for a host's connections: its own, or another's. Only that of a whole pipeline takes models.
template <class Parts, class Lock>
constexpr auto publisher_of() noexcept {
  if constexpr (requires { typename Parts::shared_publisher; })
    return std::type_identity<typename Parts::shared_publisher>{};
  else if constexpr (requires { typename Parts::tensors; })
    return std::type_identity<publisher<Parts, Lock, Parts::limits::recipients>>{};
  else return std::type_identity<image_publisher<Parts, Lock, Parts::limits::recipients>>{};
}
/// What the connections of a host share: nothing, unless the transport says otherwise.
template <class Parts, class Lock>
struct shared_of {
  struct type {};
};
template <class Parts, class Lock>
  requires requires { typename Parts::transport::template shared_type<Parts, Lock>; }
struct shared_of<Parts, Lock> {
  using type = typename Parts::transport::template shared_type<Parts, Lock>;
};

/// Where a host of this transport connects to.
template <class Transport>
struct destinations_of {
  struct type {};  // it connects to nothing
};
template <class Transport>
  requires requires(std::string_view address) { Transport::resolve(address); }
struct destinations_of<Transport> {
  using type = std::remove_cvref_t<decltype(*Transport::resolve(std::string_view{}))>;
};
}  // namespace detail

/// `Handler` has connected(connection&), message(connection&, const message&), pulled(connection&, const
/// result<receipt>&) and closed(connection&, const error&). What they throw is caught and dropped. A connection that
/// was never established (a connect or a handshake that failed) has closed() without connected(). `Consumer`: what
/// connections pull into, or no_consumer.
/// If the transport's `threads` is true, several threads may run the io_context; the callbacks of one connection never
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
  using executor = boost::asio::io_context::executor_type;  ///< where callbacks run
  static constexpr bool threads = transport::threads;  ///< whether several threads may run the io_context
  using lock_type = std::conditional_t<threads, detail::thread_lock, no_lock>;  ///< no lock for one thread
  using publisher_type = typename decltype(detail::publisher_of<Parts, lock_type>())::type;  ///< what publishes
  using owner_type = typename publisher_type::owner_type;  ///< the owner's state machine
  using connection = tensorpull::connection<host>;  ///< what handlers are given
  using destinations = typename detail::destinations_of<transport>::type;  ///< the places that connect() tries
  /// if not, connections refuse long messages
  static constexpr bool takes_messages = !std::is_same_v<Handler, detail::silent_handler>;

  /// Borrows the io_context and the handler; allocates the message buffers. Throws std::bad_alloc, or
  /// boost::system::system_error from the event loop.
  host(boost::asio::io_context& io, Handler& handler, const host_options& options = {})
      : host(io, handler, options, nullptr) {}
  /// The same over what another publishes, which is borrowed; none: over its own.
  host(boost::asio::io_context& io, Handler& handler, const host_options& options, publisher_type* published)
      : io_(io), handler_(handler), options_(options),
        published_(published != nullptr ? *published : own_.emplace(options.room)),
        memory_(options.message_buffers * frame_bytes / 64 + 1),
        pool_({reinterpret_cast<std::byte*>(memory_.data()), options.message_buffers * frame_bytes}, frame_bytes),
        acceptor_(io), timer_(io), send_timer_(io), limiter_(options.limits) {
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
    if (!published_.has_room()) throw std::bad_alloc();
    if (options.authorise) published_.authorise(options.authorise);
    reserve(options.reserved_connections);
    start_timer();
    if (limiter_.limited()) start_send_timer();
  }
  /// No thread may run the io_context meanwhile; it may run again afterwards. Connections are closed without a call of
  /// closed().
  ~host() {
    anchor_->to = nullptr;
    (void)acceptor_.release();
    while (first_ != nullptr) {
      first_->abandon();
      release(*first_);
    }
  }

  /// What publishes: add_tensors(), withdraw() and the rest.
  publisher_type& published() noexcept { return published_; }
  /// What its connections share, if the transport gives them something (http_owner.hpp).
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

  /// Starts to connect; the handler's connected() or closed() says how it ended, with a connection of this `tag`,
  /// perhaps on another thread before this returns. A name's addresses are tried in turn, each within the accept
  /// budget; closed() has the error of the last one. Errors: those of the transport's resolve() and, if no address can
  /// be tried, start_connect(); cancelled: stop() was called; out_of_memory.
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
  /// out_of_memory.
  result<void> adopt(stream_type&& stream, std::uint64_t tag = 0) noexcept { return begin(stream, tag); }

  /// How many connections there are, those that are still connecting included.
  std::size_t connections() const noexcept { return count_; }

  /// Stops listening and closes all connections, on the event loop, which then has no more work. May be called on any
  /// thread.
  void stop() noexcept {
    if (stop_posted_.exchange(true)) return;
    boost::asio::post(io_, detail::in_memory(anchor_->stop_memory, [a = anchor_] {
                        if (a->to != nullptr) a->to->stop_here();
                      }));
  }

 private:
  friend connection;
  static constexpr std::size_t frame_bytes = (std::max(message_frame_bytes<typename Parts::limits>,
                                                       std::size_t{Parts::limits::control_frame_bytes}) +
                                              63) /
                                             64 * 64;
  static constexpr std::chrono::milliseconds timer_interval{200};
  /// Shared by the pending operations of the listener and the timer: their memory, and whether the host still exists.
  struct anchor {
    explicit anchor(host* h) noexcept : to(h) {}
    host* to;
    detail::handler_memory accept_memory, timer_memory, send_memory, stop_memory;
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
    if (listening_) return failure(errc::invalid_argument, 0, address);
    if (stop_posted_) return failure(errc::cancelled, 0, address);
    auto listener = listen();
    if (!listener) return failure(listener.error());
    boost::system::error_code failed;
    try {
      acceptor_.assign(listener->native_handle(), failed);
    } catch (...) {  // the event loop's record of the descriptor
      return failure(errc::out_of_memory, 0, address);
    }
    if (failed) return failure(errc::io, 0, address, failed.value());
    listener_.emplace(std::move(*listener));
    listening_ = true;  // another thread's timer may look at both from now on
    accept_event(recheck);
    if constexpr (requires { listener_->port(); }) return listener_->port();
    else return std::uint16_t{0};
  }
  result<void> connect_to(result<destinations> found, std::uint64_t tag) noexcept {
    if (!found) return failure(found.error());
    std::unique_ptr<destinations> to(new (std::nothrow) destinations(std::move(*found)));
    if (to == nullptr) return failure(errc::out_of_memory);
    return connect_next(to, tag, {errc::bad_address, 0, 0, {}});
  }
  /// Begins a connection to the first of these destinations that lets one begin. `why`: the error, if none is left.
  result<void> connect_next(std::unique_ptr<destinations>& to, std::uint64_t tag, error why) noexcept {
    while (to->more()) {
      auto stream = to->start_connect();
      if (stream) return begin(*stream, tag, &to);
      why = stream.error();
    }
    return failure(why);
  }
  /// Makes a connection and makes the event loop look at it. Another thread may call the handler, and release it,
  /// before this returns. `to`: this end has begun the connection, which takes over the other destinations.
  result<void> begin(stream_type& stream, std::uint64_t tag, std::unique_ptr<destinations>* to = nullptr) noexcept {
    if (stop_posted_) return failure(errc::cancelled);
    const auto c = make(stream, tag, to);
    if (!c) return failure(errc::out_of_memory);
    if (stop_posted_) c->end_later(errc::cancelled);  // stop() may have ended the others before this one was among them
    else c->again();
    return {};
  }
  /// nullptr: out of memory, and the stream is still the caller's.
  std::shared_ptr<connection> make(stream_type& stream, std::uint64_t tag, std::unique_ptr<destinations>* to) noexcept {
    try {
      auto c = std::make_shared<connection>(*this, io_.get_executor(), stream, to != nullptr);
      c->tag = tag;
      if (to != nullptr) c->others_ = std::move(*to);
      const lock_guard hold(lock_);
      c->self_ = c;
      c->next_ = first_;
      if (first_ != nullptr) first_->previous_ = c.get();
      first_ = c.get();
      ++count_;
      return c;
    } catch (...) {
      return nullptr;
    }
  }
  /// Takes a closed connection out of the lists and gives up the host's share of it.
  void release(connection& c) noexcept {
    std::shared_ptr<connection> share;
    bool was_full = false;
    {
      const lock_guard hold(lock_);
      was_full = count_ >= options_.max_connections;
      (c.previous_ != nullptr ? c.previous_->next_ : first_) = c.next_;
      if (c.next_ != nullptr) c.next_->previous_ = c.previous_;
      if (c.awaits_memory_) {
        connection* before = nullptr;
        for (connection* s = first_awaiting_memory_; s != &c; s = s->next_awaiting_memory_) before = s;
        (before != nullptr ? before->next_awaiting_memory_ : first_awaiting_memory_) = c.next_awaiting_memory_;
        if (last_awaiting_memory_ == &c) last_awaiting_memory_ = before;
      }
      --count_;
      share = std::move(c.self_);
    }
    limiter_.leave(c);
    if (was_full && anchor_->to != nullptr) accept_event(recheck);
  }

  /// The event loop keeps one record for each descriptor that it has watched at the same time, and reuses the records.
  /// They are made here with copies of one descriptor, so that memory does not depend on how many participants come
  /// later.
  void reserve(std::size_t count) {
    std::deque<boost::asio::posix::basic_stream_descriptor<executor>> watched;  // of a type that Asio 1.74 cannot move
    const posix_stream original(count == 0 ? -1 : ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (original.native_handle() < 0) return;
    for (std::size_t i = 0; i < count; ++i) {
      posix_stream copy(::fcntl(original.native_handle(), F_DUPFD_CLOEXEC, 0));
      if (copy.native_handle() < 0)
        return;  // fewer descriptors than asked for: then there will not be as many connections either
      watched.emplace_back(io_.get_executor(), copy.native_handle());
      (void)copy.release();
    }
  }

  static constexpr std::uint32_t connections_wait = 1, recheck = 2, interval_over = 4, changed = 8;
  /// An event of the listener: connections are waiting, or it has to be decided again whether to accept.
  void accept_event(std::uint32_t what) noexcept {
    accept_gate_.pass(what, [this](std::uint32_t events) noexcept {
      if (events & connections_wait) accept_waits_ = false;
      if (stopping_) {
        if (!listening_) return;
        (void)acceptor_.release();
        listener_.reset();
        listening_ = false;
      } else if (!(events & connections_wait) || accept_more()) {
        await_connections();
      }
    });
  }
  void await_connections() noexcept {
    if (accept_waits_ || !listening_) return;
    accept_waits_ = true;
    acceptor_.async_wait(acceptor_.wait_read,
                         detail::in_memory(anchor_->accept_memory, [a = anchor_](const boost::system::error_code&) {
                           if (a->to != nullptr) a->to->accept_event(connections_wait);
                         }));
  }
  /// False: no place, memory or descriptor is left for another connection. The timer tries again, so that the loop does
  /// not spin.
  bool accept_more() noexcept {
    for (int i = 0; i < 64; ++i) {
      if (count_ >= options_.max_connections) {
        crowded_ = crowded_ || detail::others_wait(listener_->native_handle());
        return false;
      }
      auto stream = listener_->accept();
      if (!stream) {
        if (stream.error().code != errc::out_of_memory) return true;
        crowded_ = true;
        missed_.fetch_add(1, std::memory_order_relaxed);
        detail::connections_missed.fetch_add(1, std::memory_order_relaxed);
        return false;
      }
      if (!begin(*stream, 0)) return false;
    }
    return true;
  }

  void start_timer() {  // can throw only in the constructor: the event loop allocates for its first timer
    timer_.expires_after(pulls_ > 0 ? detail::wait_step : timer_interval);
    timer_.async_wait(detail::in_memory(anchor_->timer_memory, [a = anchor_](const boost::system::error_code&) {
      if (a->to != nullptr) a->to->timer_event(interval_over);
    }));
  }
  /// While connections wait until they may send, one call is pending. The first one is made in the constructor, as for
  /// the other timer.
  void start_send_timer() {
    send_timer_.expires_after(send_limiter<lock_type>::tick_interval);
    send_timer_.async_wait(detail::in_memory(anchor_->send_memory, [a = anchor_](const boost::system::error_code&) {
      if (a->to != nullptr) a->to->send_more();
    }));
  }
  void send_more() noexcept {
    const auto wake = [](typename send_limiter<lock_type>::share& s) noexcept { static_cast<connection&>(s).again(); };
    if (limiter_.tick(std::chrono::steady_clock::now().time_since_epoch(), wake)) start_send_timer();
  }
  /// An event of the timer: an interval has passed, the host stops, or the interval is another one now.
  void timer_event(std::uint32_t what) noexcept {
    timer_gate_.pass(what, [this](std::uint32_t events) noexcept {
      if (!stopping_ && (events & interval_over)) pass_time();
      else timer_.cancel();  // its interval ends at once
    });
  }
  void pass_time() noexcept {
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
      const std::uint32_t others = missed_by_others();
      const bool by_others = std::exchange(missed_by_others_, others) != others;
      const bool by_us = crowded_.exchange(false);
      yields = (by_us || by_others) && make_room(oldest, now) && by_others;
    }
    published_.tick();
    {
      const lock_guard hold(lock_);  // the owner's budgets are as exact as its ticks
      for (connection* c = first_; c != nullptr; c = c->next_)
        if (c->awaits_time_.exchange(false, std::memory_order_relaxed)) c->again();
    }
    retry_one();
    if (!yields) accept_event(recheck);
    start_timer();
  }
  void stop_here() noexcept {
    stopping_ = true;
    accept_event(recheck);
    timer_event(changed);
    const lock_guard hold(lock_);
    for (connection* c = first_; c != nullptr; c = c->next_) c->end_later(errc::cancelled);
  }

  /// How often other hosts of this process had no descriptor for a connection. All of them draw on the same number, so
  /// each makes room for the others, and leaves what it has freed to them for one interval: otherwise those who come to
  /// it again at once would have it again.
  std::uint32_t missed_by_others() const noexcept {
    return detail::connections_missed.load(std::memory_order_relaxed) - missed_.load(std::memory_order_relaxed);
  }
  /// Others wait for a place: ends those that have shown nothing, the oldest first. Whether there were any.
  bool make_room(connection* c, std::chrono::steady_clock::time_point now) noexcept {
    detail::room_maker room;
    for (; c != nullptr; c = c->previous_)
      if (!c->connecting_ && room.ends(c->watch_, now, c->activity())) c->end_later(errc::timed_out);
    return room.made();
  }

  /// While connections pull, the timer looks more often for stop requests, time-outs and the ends of pauses.
  void pull_begun() noexcept {
    if (pulls_++ == 0) timer_event(changed);
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

  boost::asio::io_context& io_;
  Handler& handler_;
  host_options options_;
  std::optional<publisher_type> own_;
  publisher_type& published_;
  [[no_unique_address]] typename detail::shared_of<Parts, lock_type>::type shared_{};
  std::vector<block> memory_;
  buffer_pool<lock_type> pool_;
  boost::asio::posix::basic_stream_descriptor<executor> acceptor_;  // borrows the listener's descriptor
  std::optional<listener_type> listener_;
  boost::asio::basic_waitable_timer<std::chrono::steady_clock, boost::asio::wait_traits<std::chrono::steady_clock>,
                                    executor>
      timer_, send_timer_;
  send_limiter<lock_type> limiter_;
  std::shared_ptr<anchor> anchor_ = std::make_shared<anchor>(this);
  [[no_unique_address]] lock_type lock_{};
  connection *first_ = nullptr, *first_awaiting_memory_ = nullptr, *last_awaiting_memory_ = nullptr;
  std::atomic<std::size_t> count_{0}, pulls_{0};
  std::atomic<bool> crowded_{false};  ///< someone waits for a place among the connections
  std::atomic<std::uint32_t> missed_{0};  ///< this host's part of detail::connections_missed
  std::uint32_t missed_by_others_ = missed_by_others();  ///< as the timer has seen it
  std::atomic<bool> stopping_{false}, stop_posted_{false};
  std::atomic<bool> listening_{false};  ///< acceptor_ and listener_ are there
  bool accept_waits_ = false;
  [[no_unique_address]] detail::event_gate<threads> accept_gate_{};
  [[no_unique_address]] detail::event_gate<threads> timer_gate_{};
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
