// Many TCP connections on an io_context: accepts, connects, serves and pulls on the thread (or threads) that run it. Starts none.
#pragma once

#include <tensorpull/transports/publisher.hpp>
#include <tensorpull/transports/tcp/tcp_connect.hpp>
#include <tensorpull/transports/host/tcp_connection.hpp>
#include <tensorpull/transports/tcp/tcp_listener.hpp>

#include <boost/asio/steady_timer.hpp>

#include <atomic>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace tensorpull {

/// How a host treats its connections.
struct host_options {
  std::size_t max_connections = 4096;   ///< further ones wait in the system's queue
  std::size_t message_buffers = 8;      ///< for frames above 512 bytes, shared by all connections
  /// Connections whose bookkeeping in the event loop is made at start, so that later ones, up to this number, add nothing to keep.
  std::size_t reserved_connections = 0;
  connection_budgets budgets{};
};

namespace detail {
struct thread_lock {
  std::mutex mutex;
  void lock() noexcept { mutex.lock(); }
  void unlock() noexcept { mutex.unlock(); }
  void relax() noexcept { std::this_thread::yield(); }
};
/// What a host's handler may leave out.
struct silent_handler {
  template <class C> void connected(C&) noexcept {}
  template <class C> void message(C&, const tensorpull::frame&) noexcept {}
  template <class C> void pulled(C&, const result<receipt>&) noexcept {}
  template <class C> void closed(C&, const error&) noexcept {}
};
}  // namespace detail

/// `Handler`: connected(connection&), message(connection&, const frame&), pulled(connection&, const result<receipt>&),
/// closed(connection&, const error&). What it throws is caught and dropped. `Consumer`: what connections pull into, or no_consumer.
/// With `Threads` several threads may run the io_context; a connection's callbacks never overlap.
template <class Parts, class Handler = detail::silent_handler, class Consumer = no_consumer, bool Threads = false>
class tcp_host {
 public:
  using parts = Parts;
  using consumer_type = Consumer;
  using executor = boost::asio::io_context::executor_type;
  static constexpr bool threads = Threads;
  using lock_type = std::conditional_t<Threads, detail::thread_lock, no_lock>;
  using publisher_type = publisher<Parts, lock_type, Parts::limits::recipients>;
  using owner_type = typename publisher_type::owner_type;
  using connection = tcp_connection<tcp_host>;

  /// Borrows both; allocates the message buffers. Throws std::bad_alloc if it cannot (it is made at start).
  tcp_host(boost::asio::io_context& io, Handler& handler, const host_options& options = {})
      : io_(io), handler_(handler), options_(options), memory_(options.message_buffers * frame_bytes / 64 + 1),
        pool_({reinterpret_cast<std::byte*>(memory_.data()), options.message_buffers * frame_bytes}, frame_bytes), acceptor_(io), timer_(io) {
    static_assert(requires(Handler& h, connection& c) { h.connected(c); }, "tensorpull: a host's handler is told of each connection: void connected(auto& connection)");
    static_assert(requires(Handler& h, connection& c, const frame& m) { h.message(c, m); },
                  "tensorpull: a host's handler is given messages: void message(auto& connection, const frame&)");
    static_assert(requires(Handler& h, connection& c, const result<receipt>& r) { h.pulled(c, r); },
                  "tensorpull: a host's handler is told how a pull ended: void pulled(auto& connection, const result<receipt>&)");
    static_assert(requires(Handler& h, connection& c, const error& e) { h.closed(c, e); },
                  "tensorpull: a host's handler is told of each connection's end: void closed(auto& connection, const error&)");
    reserve(options.reserved_connections);
    tick();
  }
  /// Nobody may run the io_context meanwhile; it may run on afterwards.
  ~tcp_host() {
    anchor_->host = nullptr;
    while (first_ != nullptr) {
      first_->abandon();
      release(*first_);
    }
  }

  publisher_type& published() noexcept { return published_; }

  /// Listens; gives the port (useful with port 0). bad_address, connection_failed with errno.
  result<std::uint16_t> listen(std::string_view address) noexcept;
  /// Starts to connect; the handler's connected() or closed() tells. The connection may be marked with `tag`.
  result<connection*> connect(std::string_view address, std::uint64_t tag = 0) noexcept;

  /// Connections that exist, and how many there were.
  std::size_t connections() const noexcept { return count_; }

  /// Stops listening and closes all connections, from the event loop, which then runs out of work. May be called on any thread.
  void stop() noexcept {
    if (stop_posted_.exchange(true)) return;
    boost::asio::post(io_, detail::in_memory(anchor_->stop_memory, [a = anchor_] {
      if (a->host != nullptr) a->host->stop_here();
    }));
  }

 private:
  friend connection;
  static constexpr std::size_t frame_bytes = (message_frame_bytes<typename Parts::limits> + 63) / 64 * 64;
  static constexpr std::chrono::milliseconds tick_interval{200};
  /// What the handlers of the listener and the clock hold: their memory, and whether the host is still there.
  struct anchor {
    explicit anchor(tcp_host* h) noexcept : host(h) {}
    tcp_host* host;
    detail::handler_memory accept_memory, timer_memory, stop_memory;
  };
  struct alignas(64) block {
    std::byte bytes[64];
  };

  /// A handler whose exceptions end here.
  struct guarded {
    Handler& handler;
    template <class C> void connected(C& c) noexcept { contain([&] { handler.connected(c); }); }
    template <class C> void message(C& c, const tensorpull::frame& m) noexcept {
      if constexpr (requires { handler.message(c, m); }) contain([&] { handler.message(c, m); });  // otherwise it was refused by the constructor
    }
    template <class C> void pulled(C& c, const result<receipt>& r) noexcept { contain([&] { handler.pulled(c, r); }); }
    template <class C> void closed(C& c, const error& e) noexcept { contain([&] { handler.closed(c, e); }); }
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

  connection* make(int fd, bool connecting, std::uint64_t tag) noexcept;
  static constexpr std::uint32_t arrived = 1, looked = 2, passed = 4, stopped = 8;
  /// At the listener: connections have arrived, or it is to be looked at again.
  void at_door(std::uint32_t what) noexcept;
  /// At the clock: an interval has passed, or there is nothing to wait for any more.
  void at_clock(std::uint32_t what) noexcept;
  bool accept_more() noexcept;
  void await_accept() noexcept;
  void stop_here() noexcept {
    stopping_ = true;
    at_door(looked);
    at_clock(stopped);
    const lock_guard hold(lock_);
    for (connection* c = first_; c != nullptr; c = c->next_) c->end_later(errc::cancelled);
  }
  void reserve(std::size_t count);
  void tick();  // throws where the event loop has no memory for its first timer, so only from the constructor
  void ticked() noexcept;
  void release(connection& c) noexcept;
  void starving(connection& c) noexcept;
  void feed() noexcept;

  boost::asio::io_context& io_;
  Handler& handler_;
  host_options options_;
  publisher_type published_;
  std::vector<block> memory_;
  buffer_pool<lock_type> pool_;
  boost::asio::posix::basic_stream_descriptor<executor> acceptor_;
  boost::asio::basic_waitable_timer<std::chrono::steady_clock, boost::asio::wait_traits<std::chrono::steady_clock>, executor> timer_;
  std::shared_ptr<anchor> anchor_ = std::make_shared<anchor>(this);
  [[no_unique_address]] lock_type lock_{};
  connection *first_ = nullptr, *starving_first_ = nullptr, *starving_last_ = nullptr;
  std::atomic<std::size_t> count_{0};
  std::atomic<bool> stopping_{false}, stop_posted_{false};
  bool accept_waits_ = false;
  [[no_unique_address]] detail::event_gate<Threads> door_{};
  [[no_unique_address]] detail::event_gate<Threads> clock_{};
};

}  // namespace tensorpull

#include <tensorpull/transports/host/tcp_host_impl.hpp>
