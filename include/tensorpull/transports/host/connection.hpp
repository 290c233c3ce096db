// One connection of an event-driven host: a stream, an endpoint, and the waits for them. Only host.hpp makes them.
#pragma once

#include <tensorpull/core/peer_identity.hpp>
#include <tensorpull/links/posix/ip_address.hpp>
#include <tensorpull/links/posix/pollable_stream.hpp>
#include <tensorpull/links/pump.hpp>
#include <tensorpull/protocol/connection/connection_end.hpp>
#include <tensorpull/std/memory.hpp>
#include <tensorpull/std/optional.hpp>
#include <tensorpull/transports/blocking/stream_pull.hpp>
#include <tensorpull/transports/host/detail/handshake_turns.hpp>
#include <tensorpull/transports/host/detail/host_parts.hpp>
#include <tensorpull/transports/host/detail/hosted_pull.hpp>
#include <tensorpull/transports/host/detail/thread_scratch.hpp>
#include <tensorpull/transports/host/event_loop.hpp>
#include <tensorpull/transports/host_budget.hpp>
#include <tensorpull/transports/message.hpp>
#include <tensorpull/transports/pull_options.hpp>
#include <tensorpull/transports/send_limiter.hpp>

#include <sys/socket.h>

#include <atomic>

namespace tensorpull {

/// A connection as the host's handler sees it. Valid until the handler's closed() has returned; use it only from within
/// the handler's calls.
template <class Host>
class connection : private event_target,
                   private send_limiter<typename Host::lock_type>::share,
                   private detail::handshake_turns::turn {
  using parts = typename Host::parts;
  using transport = typename parts::transport;
  using stream_type = typename transport::stream;
  using consumer_type = typename Host::consumer_type;
  using pull_type = detail::hosted_pull<parts, consumer_type>;
  using clock = std::chrono::steady_clock;
  using end_type = typename detail::endpoint_of<parts, typename Host::owner_type, connection>::type;
  using share = typename send_limiter<typename Host::lock_type>::share;  // of what the host may send
  static constexpr bool pulls = !std::is_same_v<consumer_type, no_consumer>;

 public:
  /// Takes the stream over. `connecting`: this end has begun it, so closed() may be called without connected().
  connection(Host& host, event_loop& on, stream_type& stream, bool connecting) noexcept
      : event_target(on), turn(connecting ? detail::no_neighbours : detail::neighbours_of(stream.native_handle())),
        host_(host), stream_(std::move(stream)), end_(host.machine(), host.pool(), *this), connecting_(connecting) {
    static_assert(sizeof(detail::connection_end_requirements<end_type, connection_end<end_type>>) != 0);
    if (!connecting) end_.doubt();
  }

  /// For the application: a number by which it recognises the connection. Not sent.
  std::uint64_t tag = 0;

  /// Starts to send an application message, which is copied. Errors: busy: the message before it has not left yet;
  /// does_not_fit: above the limits; connection_lost: the connection is closed.
  result<void> send(std::uint32_t kind, std::span<const reference> references,
                    std::span<const std::byte> body) noexcept {
    if (closed_) return failure(errc::connection_lost);
    const auto ok = end_.send_message(kind, references, body);
    if (ok) again();
    return ok;
  }

  /// The other end's identity, as far as the stream knows it, from connected() on. Its views live as long as this.
  peer_identity peer() const noexcept {
    if constexpr (knows_peer<stream_type>) return stream_.peer();
    else return {};
  }
  /// The IP address of the other end; none if the stream is no socket of IP. Cost: a system call.
  ip_address peer_address() const noexcept { return ip_address::of_peer(stream_.native_handle()); }

  /// Whether the other end has asked for something that is published here, and may have it.
  bool has_asked() const noexcept { return end_.has_asked(); }

  /// The other end is known to the program: it need not ask for something first to have a buffer for a frame above 512
  /// bytes and to outlive the accept budget. A connection that this end has begun is trusted; any other is until then
  /// only by what it asks for: a request for something published here, or a pull from it, gives it buffers, and a
  /// message that is taken lets it outlive the accept budget.
  void trust() noexcept {
    end_.trust();
    trusted_.store(true, std::memory_order_relaxed);
  }

  /// Starts to pull into a consumer that is made from `arguments` inside the connection; the handler's pulled() is told
  /// how it ended. The options are copied; what they point to must live until then. Tries are made over this connection
  /// only: if it ends, so does the pull, and a path that carries nothing any more ends it (byte_stream, 8). The host's
  /// budgets hold, too, and no time passes while a consumer has no memory. Without a `recipient` the connection is one,
  /// however often it pulls. Error: busy: one is under way, or it is closed. Throws what the constructor throws.
  template <class... Arguments>
  result<void> pull(const reference& ref, const pull_options& options, Arguments&&... arguments)
    requires pulls
  {
    if (pull_ || closed_) return failure(errc::busy);
    pull_.emplace(ref, options, end_.next_id(), std::forward<Arguments>(arguments)...);
    pull_->run.begin(end_);
    host_.pull_begun();
    again();
    return {};
  }

  /// Closes; closed() is called from the event loop.
  void close() noexcept { again(error{errc::cancelled}); }

  /// For the endpoint: whether the handler takes messages.
  static constexpr bool takes_messages = Host::takes_messages;
  /// For the endpoint: a message can be taken at any time.
  bool ready() const noexcept { return true; }
  /// For the endpoint: what the connections of this host share.
  auto& shared() noexcept { return host_.shared(); }
  /// For the endpoint: gives a message to the handler.
  void on_message(const frame& f) noexcept { host_.handler().message(*this, detail::message_of(f)); }

 private:
  friend Host;

  /// Whether the stream may have to write before it can read, or the other way round (TLS).
  static constexpr bool mixes_directions = requires(const stream_type& s) { s.interest(io_ready{}); };
  /// Whether the stream notices that its path carries nothing any more (byte_stream, 8).
  static constexpr bool looks_after_line = requires(stream_type& s) { s.expect_bytes(true); };
  /// How often the path is looked after while nothing arrives during a pull.
  static constexpr std::chrono::milliseconds line_look{1000};

  /// Makes the event loop look at this connection. May be called on any thread, but with `end` only from within the
  /// connection's own callbacks.
  void again(const optional<error>& end = {}) noexcept {
    if (end) ending_ = end;
    post(own);
  }
  /// Ends the connection with `why`. May be called on any thread.
  void end_later(errc why) noexcept {
    told_to_end_ = why;
    again();
  }
  void happened(std::uint32_t what) noexcept override {
    if ((what & readable) != 0 || (mixes_directions && (what & writable) != 0)) readable_ = true;
    if (const errc why = told_to_end_; why != errc{} && !ending_) ending_ = error{why, 0, 0, {}};
    move_bytes();
  }
  void wait_for(io_ready wanted) noexcept {
    if (closed_) return;
    if constexpr (mixes_directions) wanted = stream_.interest(wanted);
    wait(wanted);
  }

  /// Moves bytes in a bounded number of rounds, then waits until the stream or memory is ready.
  void move_bytes() noexcept {
    if (closed_) return;
    if (!established_ && !(connecting_ && ending_) && !establish()) return;
    if (ending_) return shut(*ending_);
    if constexpr (pulls)
      if (pull_) {
        if (pull_->rest && pull_->rest_left() == std::chrono::milliseconds::zero()) pull_->begin_again(end_);
        look_after_line(*pull_);
      }
    pumped did;
    // the first answer on its own, so that the other end works while the rest is collected: both would sleep in turn
    std::size_t most = 1;
    bool done = false;
    for (int round = 0; round < 16 && !done; ++round) {
      const auto moved = step(most);
      if (!moved) return shut(moved.error());
      did = *moved;
      if (did.sent > 0) most = write_piece_bytes;
      bytes_.fetch_add(did.received + did.sent, std::memory_order_relaxed);
      if (!pull_stepped(awaits_us(did))) return;
      // only a round without a read can be the last: what was read may need an answer
      done = did.received == 0 && (did.sent == 0 || (!readable_ && (did.write_blocked || !end_.output_ready())));
      if (did.works || end_.works()) {  // other connections first
        done = false;
        break;
      }
    }
    if constexpr (requires { end_.said_all(); })
      if (!encrypts() && end_.said_all())
        // the other end need not wait until what it still sends has been thrown away
        ::shutdown(stream_.native_handle(), SHUT_WR);
    host_.published().deliver();
    const bool waits = lacks_memory(did);
    const bool gave_back = long_frame_.load(std::memory_order_relaxed) != 0 && end_.long_frame() == 0;
    if (gave_back || (waited_ && !waits)) host_.retry_one();  // there may be one for the next that waits
    waited_ = waits;
    const bool limited = host_.limiter().limited() && host_.limiter().waits(*this);
    // nothing can arrive before we have computed a digest, or may send again
    note(awaits_us(did) || limited || did.works || end_.works() || end_.awaits_time());
    if (!done && !limited)
      // other connections first; not a wait, because what was read last may need an answer and no more bytes may follow
      return again();
    if (waits) host_.await_memory(*this);
    awaits_time_.store(end_.awaits_time(), std::memory_order_relaxed);
    wait_for({did.wants_read, end_.output_ready() && !did.write_ended && !limited});
  }
  /// Whether bytes are encrypted: the transport knows, or the stream, if they are of several kinds.
  bool encrypts() const noexcept {
    if constexpr (requires { stream_.encrypted(); }) return stream_.encrypted();
    else return transport::encrypted;
  }
  /// Whether the other end waits for memory of ours, and not we for the other end to take our answers.
  bool awaits_us(const pumped& did) const noexcept { return lacks_memory(did) && end_.output_idle(); }
  /// Whether no buffer is free for the next frame. One that reads no more for another reason does not queue for memory.
  bool lacks_memory(const pumped& did) const noexcept {
    if constexpr (requires { end_.holds_back(); })
      if (end_.holds_back()) return false;
    return !did.wants_read || end_.stalled();
  }
  /// Tells the timer where the connection is.
  void note(bool awaits_us) noexcept {
    constexpr auto relaxed = std::memory_order_relaxed;
    bool tries = false;
    auto look = clock::time_point::max();
    if constexpr (pulls)
      if (pull_) {
        tries = !pull_->rest;
        auto left = std::min<std::chrono::milliseconds>(tries ? pull_->run.left() : pull_->rest_left(),
                                                        std::chrono::hours(1));
        if (looks_after_line && tries) left = std::min(left, line_look);
        if (pull_->options.stop.stop_possible()) left = std::min(left, detail::wait_step);
        look = clock::now() + left;
      }
    look_at_.store(look.time_since_epoch().count(), relaxed);
    heard_.store(end_.heard(), relaxed);
    long_frame_.store(end_.long_frame(), relaxed);
    awaits_us_.store(awaits_us, relaxed);
    owing_.store(end_.mid_frame() || !end_.output_idle() || tries, relaxed);
  }
  /// For the timer, which may run on another thread.
  detail::connection_activity activity() const noexcept {
    constexpr auto relaxed = std::memory_order_relaxed;
    return {bytes_.load(relaxed),   heard_.load(relaxed), long_frame_.load(relaxed),
            trusted_.load(relaxed), owing_.load(relaxed), awaits_us_.load(relaxed)};
  }

  result<pumped> step(std::size_t most) noexcept {
    no_transfer none;
    if constexpr (pulls)
      if (pull_ && !pull_->rest) return step(pull_->run.transfer(), most);
    return step(none, most);
  }
  template <class Transfer>
  result<pumped> step(Transfer& t, std::size_t most) noexcept {
    pumped did;
    if (const auto ok = write(t, did, most); !ok) return failure(ok.error());
    did.wants_read = true;
    if (!readable_) {  // the wait is under way; a buffer may have become free meanwhile
      if (const auto ok = end_.parse(t); !ok) return failure(ok.error());
      return did;
    }
    if (const auto ok = detail::pump_read(end_, t, stream_, did); !ok) return failure(ok.error());
    if (did.read_drained) readable_ = false;
    return did;
  }

  /// Writes as much as the host may send now.
  template <class Transfer>
  result<void> write(Transfer& t, pumped& did, std::size_t most) noexcept {
    if (!host_.limiter().limited()) return detail::pump_write(end_, t, stream_, detail::thread_scratch(), did, most);
    struct limit {
      connection& c;
      std::uint64_t& admitted;
      std::uint64_t admit(std::uint64_t bytes) noexcept { return admitted = c.host_.take(c, bytes); }
      void wrote(std::uint64_t bytes) noexcept { c.host_.limiter().put_back(c, admitted - bytes); }
    };
    std::uint64_t admitted = 0;
    const auto ok = detail::pump_write(end_, t, stream_, detail::thread_scratch(), did, most, limit{*this, admitted});
    if (!did.wants_write) host_.limiter().leave(*this);
    return ok;
  }

  /// When nothing has arrived for a while during a pull: a path that carries nothing any more wakes nobody, but a read
  /// fails, as in a pull that waits. Bytes are due from the first look on, so a short pull asks nothing of the kernel.
  void look_after_line(pull_type& p) noexcept {
    if constexpr (looks_after_line) {
      if (p.rest || readable_ || p.looked.left(line_look) != std::chrono::milliseconds::zero()) return;
      p.looked.restart();
      stream_.expect_bytes(true);
      readable_ = true;
    }
  }

  /// After a step of a pull: judges the try, and tells the handler if the pull has ended. False: closed meanwhile.
  bool pull_stepped([[maybe_unused]] bool awaits_us) noexcept {
    if constexpr (pulls)
      if (pull_) {
        auto& run = pull_->run;
        run.note();
        if (awaits_us) run.excuse();
        if (!run.ended() && !run.stopped() && !pull_->rest)
          if (const errc why = run.judge(); why != errc{}) {
            (void)run.finish(end_);
            pull_->rest = run.try_again({why, 0, 0, {}});
            pull_->rested.restart();
          }
        if (run.ended()) {
          (void)run.finish(end_);
          end_pull();
          host_.retry_one();
        }
      }
    if (ending_) shut(*ending_);
    return !closed_;
  }
  /// Tells the handler how the pull ended; it may begin another, unless the connection is closed.
  void end_pull() noexcept {
    const auto outcome = pull_->run.outcome();
    pull_.reset();
    if constexpr (looks_after_line) stream_.expect_bytes(false);
    host_.pull_ended();
    host_.handler().pulled(*this, outcome);
  }

  /// Continues the connect or the handshake; tells the handler when it is done. False: not done yet, or closed.
  bool establish() noexcept {
    if constexpr (requires { stream_.establish(); }) {
      if (!connecting_ && !host_.may_shake(*this)) return ending_ && ends(*ending_);
      const establishment now = stream_.establish();
      if (now.status == io_status::would_block) {
        if (ending_) return ends(*ending_);
        wait(now.waits_for);
        return false;
      }
      if (now.status != io_status::ok) return ends({now.code, now.system, 0, now.why});
    }
    established_ = true;
    host_.has_shaken(*this);
    others_.reset();
    if (connecting_) trusted_.store(true, std::memory_order_relaxed);
    if constexpr (requires { transport::connected(stream_); })
      if (connecting_) transport::connected(stream_);
    host_.handler().connected(*this);
    return !closed_;
  }

  void shut(error why) noexcept {
    if (closed_) return;
    closed_ = true;
    if constexpr (pulls)
      if (pull_) {
        pull_->run.fail(why);
        end_pull();
      }
    end_.closed();
    close_stream();
    host_.published().deliver();  // the last that was heard may have settled something
    if (!goes_on_elsewhere(why)) host_.handler().closed(*this, why);
    host_.retry_one();
    host_.has_shaken(*this);
    host_.release(*this);
  }

  /// The same, for a function whose result is whether the connection goes on.
  bool ends(const error& why) noexcept {
    shut(why);
    return false;
  }

  /// Whether the next destination is tried, since this one was not reached; if not, `why` is the last one's error.
  bool goes_on_elsewhere(error& why) noexcept {
    if constexpr (requires { others_->more(); }) {
      if (!others_ || why == errc::cancelled) return false;
      const auto next = host_.connect_next(others_, tag, why);
      if (!next) why = next.error();
      return next.has_value();
    } else return false;
  }

  /// Ends the waits for the descriptor, then lets the stream close it.
  void close_stream() noexcept {
    unwatch();
    const stream_type gone(std::move(stream_));
  }

  /// The host is being destroyed: nothing may refer to it afterwards. Operations that are still pending find the
  /// connection closed.
  void abandon() noexcept {
    closed_ = true;
    pull_.reset();
    end_.closed();
    close_stream();
  }

  Host& host_;
  stream_type stream_;
  end_type end_;
  detail::maybe<pull_type> pull_;
  detail::budget_watch watch_{std::chrono::steady_clock::now()};
  optional<error> ending_;
  connection *previous_ = nullptr, *next_ = nullptr, *next_awaiting_memory_ = nullptr;
  std::atomic<std::uint64_t> bytes_{0};
  // when the timer should wake it for its pull
  std::atomic<clock::rep> look_at_{clock::time_point::max().time_since_epoch().count()};
  std::atomic<std::uint32_t> heard_{0}, long_frame_{0};
  std::atomic<bool> awaits_time_{false};  // the timer looks at it
  std::atomic<bool> trusted_{false}, owing_{false}, awaits_us_{false};
  std::atomic<errc> told_to_end_{};
  detail::unique_ptr<typename Host::destinations> others_;  // to be tried if this one is not established
  bool connecting_, established_ = false, awaits_memory_ = false, waited_ = false, closed_ = false, readable_ = true;
};

}  // namespace tensorpull
