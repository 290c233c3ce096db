// One connection that one thread uses with blocking calls: receive a message, download, publish, send, serve. Works
// over any byte_stream.
#pragma once

#include <tensorpull/consumers/land.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/memory.hpp>
#include <tensorpull/tensors/concept.hpp>
#include <tensorpull/transports/concept.hpp>
#include <tensorpull/transports/publisher.hpp>
#include <tensorpull/transports/retry.hpp>
#include <tensorpull/transports/stream/inbox.hpp>
#include <tensorpull/transports/stream/pull.hpp>
#include <tensorpull/transports/until_settled.hpp>

#include <new>
#include <utility>

namespace tensorpull {

/// How a session connects.
struct connect_options {
  /// How long each try may take.
  std::chrono::milliseconds timeout = std::chrono::seconds(10);
  /// How often to try again if the other end cannot be reached: a device that starts before its server waits for it.
  retry_policy retry{};
  /// Ends the wait; noticed within 0.1 s, except by the system's resolver.
  stop_token stop{};
};

/// One connection in both roles. Movable. All its memory is one allocation made at start; `state_bytes` and
/// `buffer_bytes` say how much. Only models that are handed over add to it.
template <class Parts, byte_stream Stream>
class session {
  using limits = typename Parts::limits;
  static constexpr std::size_t most_references = std::min(std::size_t{limits::references},
                                                          std::size_t{limits::session_references});
  using published_type = publisher<Parts, no_lock, 2 * most_references, most_references>;
  using inbox_type = inbox<limits>;
  static constexpr std::size_t frame_bytes = (std::max(message_frame_bytes<limits>,
                                                       std::size_t{limits::control_frame_bytes}) +
                                              63) /
                                             64 * 64;
  static constexpr std::size_t scratch_bytes = detail::slice_bytes<limits>;

  /// Messages are kept in an inbox; a stream that knows its peer is asked who it is.
  struct plain_handler : inbox_type {
    explicit plain_handler(const Stream&) noexcept {}
  };
  struct identified_handler : inbox_type {
    explicit identified_handler(const Stream& s) noexcept : stream(s) {}
    peer_identity peer() const noexcept
      requires knows_peer<Stream>
    {
      return stream.peer();
    }
    const Stream& stream;
  };
  using handler_type = std::conditional_t<knows_peer<Stream>, identified_handler, plain_handler>;

  struct state {
    explicit state(Stream s) noexcept : stream(std::move(s)) {}
    /// Called after every step: delivers settlements, and looks at the budgets every 50 ms.
    void pass_time() noexcept {
      const auto now = std::chrono::steady_clock::now();
      if (now - ticked < detail::wait_step) return published.deliver();
      ticked = now;
      published.tick();
    }
    Stream stream;
    published_type published;
    handler_type box{stream};
    alignas(64) std::array<std::byte, 2 * frame_bytes> memory;  // one for a frame that comes, one for a frame that goes
    buffer_pool<> pool{memory, frame_bytes};
    alignas(64) std::array<std::byte, scratch_bytes> scratch;
    endpoint<typename Parts::framing, limits, typename published_type::owner_type, handler_type> end{
        published.machine(), pool, box};
    optional<error> broken;
    std::chrono::steady_clock::time_point ticked{};
    recipient_id me{system_entropy{}() | 1};  // a session is one recipient, however often it pulls
  };

 public:
  using tensors = typename Parts::tensors;  ///< the pipeline's tensor policy
  using model_type = typename tensors::model_type;  ///< what is published and landed in
  using chunking_type = typename Parts::chunking;  ///< the pipeline's chunking policy

  /// Bytes of the buffers: for messages that come, go and wait, and for bytes to be sent that are not in memory as they
  /// are.
  static constexpr std::size_t buffer_bytes = 2 * frame_bytes + scratch_bytes + inbox_type::capacity;
  /// Bytes of all else that it allocates.
  static constexpr std::size_t state_bytes = sizeof(state) - buffer_bytes;

  /// Takes over a connected stream. Error: out_of_memory.
  static result<session> over(Stream stream) noexcept {
    detail::unique_ptr<state> s(new (std::nothrow) state(std::move(stream)));
    if (!s) return failure(errc::out_of_memory);
    return session(std::move(s));
  }
  /// Connects with the pipeline's transport. Errors: bad_address, connection_failed, timed_out, cancelled,
  /// out_of_memory.
  static result<session> connect(std::string_view address, const connect_options& options = {}) noexcept {
    static_assert(
        detail::connects<typename Parts::transport, Stream>,
        "tensorpull: a transport over streams connects: static result<stream> connect(std::string_view address, std::chrono::milliseconds timeout, "
        "const stop_token& stop) noexcept");
    if constexpr (detail::connects<typename Parts::transport, Stream>)
      return connect_by([&] { return Parts::transport::connect(address, options.timeout, options.stop); }, options);
    else return failure(errc::bad_address);  // refused above
  }
  /// The same with an address that is more than text: tls_address, proxied_address, or an object of your own with such
  /// a `connect(timeout, stop)`.
  template <detail::dials<Stream> Address>
  static result<session> connect(const Address& address, const connect_options& options = {}) noexcept {
    return connect_by([&] { return address.connect(options.timeout, options.stop); }, options);
  }

  /// Pulls what is published under `ref` into `model`. A model of another schema is refused before data moves.
  /// After an error the model is unspecified from its first landed byte on; the error's `at` says how many landed. One
  /// more error: unread_messages: more messages have come meanwhile than the session keeps (limits, `unread_messages`),
  /// and what the pull waits for is behind them; receive() first.
  result<receipt> download_tensors(const reference& ref, model_type& model, const pull_options& options = {},
                                   chunking_type chunking = {}) noexcept {
    static_assert(
        detail::lands<tensors>,
        "tensorpull: models of this tensor policy are only read: it has no destination(model) (requirement 5)");
    if constexpr (detail::lands<tensors>) {
      land to(tensors::destination(model));
      const auto done = pull_into(ref, to, options, chunking);
      if (done) detail::after_landing<tensors>(model);
      return done;
    } else return failure(errc::invalid_argument);  // refused above
  }
  /// The same into any consumer. Leave out the last argument: its type makes the compiler say what a consumer lacks.
  template <class Consumer>
  result<receipt> pull(const reference& ref, Consumer& to, const pull_options& options = {},
                       chunking_type chunking = {}, detail::consumer_checks<Consumer> = {}) noexcept {
    if constexpr (consumer<Consumer>) return pull_into(ref, to, options, chunking);
    else return failure(errc::bad_address);  // refused by the last argument
  }

 private:
  template <class Connect>
  static result<session> connect_by(Connect connect, const connect_options& options) noexcept {
    for (retry_state tries(options.retry);;) {
      auto stream = connect();
      if (stream) return over(std::move(*stream));
      const auto delay = tries.after(stream.error().code, 0, {}, system_entropy{}());
      if (!delay) return failure(stream.error());
      if (!detail::wait_out(*delay, options.stop, [](std::chrono::milliseconds time) { detail::pause(time); }))
        return failure(errc::cancelled);
    }
  }
  template <consumer Consumer>
  result<receipt> pull_into(const reference& ref, Consumer& to, const pull_options& options,
                            chunking_type chunking) noexcept {
    if (s_->broken) return failure(*s_->broken);
    detail::running_pull<Parts, Consumer> pull(ref, to, options, chunking, s_->end.next_id(), s_->me);
    while (!pull.ended()) {
      const auto why = pull.drive(s_->end, s_->stream, s_->scratch, s_->broken, [&]() noexcept {
        s_->pass_time();
        if (s_->box.refused() && !pull.ended())
          pull.fail({errc::unread_messages, 0, 0, {}});  // what the pull waits for is behind the message
      });
      if (!why) break;
      if (s_->broken) {  // only a new session can continue, from the cursor
        pull.fail(*why);
        break;
      }
      const auto delay = pull.try_again(*why);
      if (!delay) break;
      // it serves meanwhile: run_until looks at its time-out only when nothing moves, so the delay is a condition, too
      const auto start = std::chrono::steady_clock::now();
      const auto over = [&] {
        return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start) >=
               *delay;
      };
      const auto waited = run_until(over, *delay, options.stop);
      if (!waited && waited.error().code != errc::timed_out) pull.fail(waited.error());
      pull.transfer().restart();
    }
    return pull.outcome();
  }

 public:
  /// Publishes a model, as publisher::add_tensors: an lvalue is borrowed, an rvalue or a pointer that owns a model is
  /// kept.
  template <class Model>
  result<reference> add_tensors(Model&& model, const publish_options& options = {}) {
    return s_->published.add_tensors(std::forward<Model>(model), options);
  }
  /// Publishes any image, as publisher::add_image. The memory behind the view is the caller's, or that of `keep`.
  result<reference> add_image(const source_view& image, const publish_options& options, unique_any keep = {}) noexcept {
    return s_->published.add_image(image, options, std::move(keep));
  }
  /// As publisher::withdraw.
  result<void> withdraw(const reference& ref, std::uint32_t reason = 0) noexcept {
    return s_->published.withdraw(ref, reason);
  }
  /// As publisher::status_of.
  result<publication_status> status_of(const reference& ref) const noexcept { return s_->published.status_of(ref); }
  /// As publisher::recipient_of.
  result<recipient_record> recipient_of(const reference& ref, recipient_id who) noexcept {
    return s_->published.recipient_of(ref, who);
  }
  /// As publisher::settled.
  bool settled(const reference& ref) const noexcept { return s_->published.settled(ref); }

  /// Who may have what is published here, as publisher::authorise. Call it before anything is served.
  void authorise(const authorise_callback& may) noexcept { s_->published.authorise(may); }
  /// Who is at the other end, as far as the stream knows. Its views are valid as long as the session.
  peer_identity peer() const noexcept
    requires knows_peer<Stream>
  {
    return s_->stream.peer();
  }

  /// Sends an application message; returns when the system has taken it. Serves while it waits. Errors: does_not_fit:
  /// body or references are above the limits; timed_out; cancelled; or why the connection is lost. If that happens
  /// after the message was taken, it is the error of the next call.
  result<void> send(std::uint32_t kind, std::span<const reference> references, std::span<const std::byte> body,
                    std::chrono::milliseconds timeout = std::chrono::seconds(600),
                    const stop_token& stop = {}) noexcept {
    for (;;) {
      if (s_->broken) return failure(*s_->broken);
      const auto queued = s_->end.send_message(kind, references, body);
      if (!queued && queued.error().code != errc::busy) return queued;
      // not until all output has left: a peer that goes on asking would keep this call for as long as it likes
      const auto sent = run_until([&] { return s_->end.long_frame_sent(); }, timeout, stop);
      if (queued || !sent) return sent;
    }
  }

  /// The next application message, which may have come during an earlier call; valid until the next receive(). Serves
  /// while it waits. Errors: timed_out; cancelled; or why the connection is lost, once there is no message that came
  /// before.
  result<message> receive(std::chrono::milliseconds timeout = std::chrono::seconds(600),
                          const stop_token& stop = {}) noexcept {
    s_->box.clear();
    no_transfer none;
    if (s_->end.stalled())
      if (const auto ok = s_->end.parse(none); !ok) {
        const unexpected lost = broke(ok.error());
        if (!s_->box.unread()) return lost;
      }
    if (const auto ok = run_until([&] { return s_->box.unread(); }, timeout, stop); !ok) return failure(ok.error());
    return s_->box.read();
  }

  /// Serves the other end until `until(session)` is true: until_settled(ref), or a lambda. Errors: timed_out;
  /// cancelled; or why the connection is lost.
  template <class Until>
  result<void> serve(Until until, std::chrono::milliseconds timeout = std::chrono::seconds(600),
                     const stop_token& stop = {}) {
    detail::check_until<Until, session>();
    if constexpr (std::predicate<Until&, const session&>) {
      const auto held = run_until([&] { return until(std::as_const(*this)); }, timeout, stop);
      // the last answer may not have left yet, and the caller may close the connection now
      if (held) (void)run_until([&] { return s_->end.output_idle(); }, timeout, stop);
      return held;
    } else {
      return {};
    }
  }

  /// For drivers of a transfer that is not a pull (relay.hpp). Begins one; returns the first request id that it may
  /// use.
  std::uint32_t begin_transfer() noexcept { return s_->end.begin_pull(), s_->end.next_id(); }
  /// Reads and writes once, without waiting. An error: the connection cannot be used any more. The transfer fails with
  /// unread_messages if messages that nobody receives are in its way.
  template <class Transfer>
  result<pumped> step_transfer(Transfer& t) noexcept {
    if (s_->broken) return failure(*s_->broken);
    const auto did = pump_once(s_->end, t, s_->stream, s_->scratch);
    if (!did) return broke(did.error());
    s_->pass_time();
    if (s_->box.refused() && !t.ended()) t.fail({errc::unread_messages, 0, 0, {}});
    return did;
  }
  /// Ends the transfer, and tells the owner if it has to know.
  template <class Transfer>
  void end_transfer(Transfer& t) noexcept {
    s_->end.end_pull(t);
    no_transfer none;
    if (const auto bye = t.farewell(); bye && s_->end.send_control(*bye)) (void)step_transfer(none);
  }
  /// The stream, to wait for.
  Stream& stream() noexcept { return s_->stream; }

 private:
  explicit session(detail::unique_ptr<state> s) noexcept : s_(std::move(s)) {}

  unexpected broke(const error& e) noexcept {
    s_->broken = e;
    s_->published.tick();  // what was heard last may have completed a recipient, or settled something
    return failure(e);
  }

  template <class Done>
  result<void> run_until(Done done, std::chrono::milliseconds timeout, const stop_token& stop) {
    if (s_->broken && !done()) return failure(*s_->broken);
    const auto start = std::chrono::steady_clock::now();
    no_transfer none;
    std::size_t most = 1;  // the first answer after a wait is sent on its own, as on a host
    while (!done()) {
      if (stop.stop_requested()) return failure(errc::cancelled);
      const auto did = pump_once(s_->end, none, s_->stream, s_->scratch, {}, most);
      if (!did) {
        const unexpected lost = broke(did.error());
        if (!done()) return lost;
        break;  // what was waited for came, or left, with the last bytes: that nothing can follow is for the next call
      }
      s_->pass_time();
      if (did->sent > 0) most = write_piece_bytes;
      if (did->received > 0 || did->sent > 0 || did->works) continue;
      most = 1;
      const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                                               start);
      if (spent >= timeout) return failure(errc::timed_out);
      s_->stream.wait(did->wants_read, did->wants_write, std::min(detail::wait_step, timeout - spent));
    }
    return {};
  }

  detail::unique_ptr<state> s_;
};

}  // namespace tensorpull
