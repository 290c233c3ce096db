// One connection that one thread uses with blocking calls: receive a message, download, publish, send, serve. Works
// over any link that a wire is written for: stream_session.hpp and datagram_session.hpp have one each.
#pragma once

#include <tensorpull/consumers/land.hpp>
#include <tensorpull/core/buffer_pool.hpp>
#include <tensorpull/core/peer_identity.hpp>
#include <tensorpull/links/posix/establish.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/memory.hpp>
#include <tensorpull/tensors/concept.hpp>
#include <tensorpull/transports/blocking/stream_pull.hpp>
#include <tensorpull/transports/blocking/tries.hpp>
#include <tensorpull/transports/concept.hpp>
#include <tensorpull/transports/publisher.hpp>
#include <tensorpull/transports/publishing_owner.hpp>
#include <tensorpull/transports/session/connect_options.hpp>
#include <tensorpull/transports/session/inbox.hpp>
#include <tensorpull/transports/session/wire.hpp>
#include <tensorpull/transports/until_settled.hpp>

#include <new>
#include <utility>

namespace tensorpull {

namespace detail {
/// A session keeps messages in an inbox. A link that knows its peer is asked for its identity.
template <class Limits, class Link>
struct session_handler : inbox<Limits> {
  explicit session_handler(const Link&) noexcept {}
};
template <class Limits, knows_peer Link>
struct session_handler<Limits, Link> : inbox<Limits> {
  explicit session_handler(const Link& l) noexcept : link(l) {}
  peer_identity peer() const noexcept { return link.peer(); }
  const Link& link;
};
}  // namespace detail

/// One connection in both roles; it publishes as any owner does (publishing). Movable. All its memory is one allocation
/// made at start; `state_bytes` and `buffer_bytes` are how much. Only models that are handed over add to it. A TCP line
/// that carries nothing any more is lost after 11 s of a call that waits (byte_stream, 8), and in less than a minute
/// between calls. Over datagrams nobody sends a goodbye, and an end between two calls is as silent as one that is gone:
/// that is only noticed by the time that each call is given. Over UDP an end that waits keeps the path known to
/// firewalls, and hears within a minute from the other machine that nobody listens there (connection_lost). If both are
/// silent between calls for longer than an address translator remembers, they have to connect anew.
template <class Parts, class Wire>
class basic_session : public publishing<basic_session<Parts, Wire>, typename Parts::tensors> {
  static_assert(session_wire<Wire>);
  using limits = typename Parts::limits;
  using link_type = typename Wire::link_type;
  static constexpr std::size_t most_references = std::min(std::size_t{limits::references},
                                                          std::size_t{limits::session_references});
  using published_type = image_publisher<owner_parts_of<Parts>, no_lock, 2 * most_references, most_references>;
  static constexpr std::size_t frame_bytes = frame_buffer_bytes<limits>;
  using handler_type = detail::session_handler<limits, link_type>;
  using owner_type = typename published_type::owner_type;

  struct state {
    state(link_type l, const owner_room_size& room) noexcept : wire(std::move(l)), published(room) {
      published.machine().has_one_peer();
    }
    /// Called after every step: delivers settlements, and looks at the budgets every 50 ms.
    void pass_time() noexcept {
      const auto now = std::chrono::steady_clock::now();
      if (now - ticked < detail::wait_step) return published.deliver();
      ticked = now;
      published.tick();
    }
    Wire wire;
    published_type published;
    handler_type box{wire.link()};
    alignas(64) std::array<std::byte, 2 * frame_bytes> memory;  // one for a frame that arrives, one for a frame that
                                                                // leaves
    buffer_pool<> pool{memory, frame_bytes};
    alignas(64) std::array<std::byte, Wire::scratch_bytes> scratch;
    typename Wire::template end<owner_type, handler_type> end = wire.template make_end<owner_type>(published.machine(),
                                                                                                   pool, box);
    optional<error> broken;
    bool pulls = false;  // a pull reads what arrives, and its callbacks may call this session
    std::chrono::steady_clock::time_point ticked{};
    recipient_id me{system_entropy{}() | 1};  // a session is one recipient, however often it pulls
  };

 public:
  using tensors = typename Parts::tensors;  ///< the pipeline's tensor policy
  using model_type = typename tensors::model_type;  ///< what is published and landed in
  using chunking_type = typename Parts::chunking;  ///< the pipeline's chunking policy

  /// Bytes of the buffers: for messages that arrive, leave and wait, for chunks that arrive early, and for bytes to be
  /// sent that are not in memory as they are.
  static constexpr std::size_t buffer_bytes = 2 * frame_bytes + Wire::scratch_bytes + Wire::buffer_bytes +
                                              handler_type::capacity;
  /// Bytes of all else that it allocates.
  static constexpr std::size_t state_bytes = sizeof(state) - buffer_bytes;

  /// Takes over a link to one peer: a connected stream (one with establish(), after that has returned `ok`), a link
  /// whose address is proved. `room`: as connect_options::room. Error: out_of_memory.
  static result<basic_session> over(link_type link, const owner_room_size& room = {}) noexcept {
    detail::unique_ptr<state> s(new (std::nothrow) state(std::move(link), room));
    if (!s || !s->published.has_room()) return failure(errc::out_of_memory);
    return basic_session(std::move(s));
  }
  /// Connects with the pipeline's transport; over datagrams nothing is sent before the first call. Errors: those of the
  /// transport's connect() (over streams bad_address, connection_failed, timed_out, cancelled), out_of_memory.
  static result<basic_session> connect(std::string_view address, const connect_options& options = {}) noexcept {
    return connect_by([&] { return Wire::connect(address, options.timeout, options.stop); }, options);
  }
  /// The same with an address that is more than text: tls_address, proxied_address, nats_meeting, or an object of your
  /// own with such a `connect(timeout, stop)`.
  template <detail::dials<link_type> Address>
  static result<basic_session> connect(const Address& address, const connect_options& options = {}) noexcept {
    return connect_by([&] { return address.connect(options.timeout, options.stop); }, options);
  }
  /// The other end of connect() over datagrams: a session with the first that calls this address, and with nobody else.
  /// Errors: those of the transport's open(), out_of_memory.
  template <class W = Wire>
  static auto open(std::string_view address) noexcept
    requires requires { W::open(address); }
  {
    auto link = W::open(address);
    using called = basic_session<Parts, typename W::template of<typename decltype(link)::value_type>>;
    return link ? called::over(std::move(*link)) : result<called>(failure(link.error()));
  }
  /// The same with an address that is more than text: nats_meeting, or an object of your own with such an `open()`.
  template <class Address>
    requires requires(const Address& where) {
      { where.open() } noexcept -> std::same_as<result<link_type>>;
    }
  static result<basic_session> open(const Address& where) noexcept {
    auto link = where.open();
    return link ? over(std::move(*link)) : result<basic_session>(failure(link.error()));
  }
  /// The port that it was opened on; 0 if the link has none.
  std::uint16_t port() const noexcept {
    if constexpr (requires(const link_type& l) { l.below().port(); }) return s_->wire.link().below().port();
    else return 0;
  }

  /// Pulls what is published under `ref` into `model`. A model of another schema is refused before data moves. After an
  /// error the model is unspecified from its first landed byte on; the error's `at` is how many landed. One more error
  /// over streams: unread_messages: more messages have arrived meanwhile than the session keeps (limits,
  /// `unread_messages`), and what the pull waits for is behind them; receive() first.
  result<receipt> download_tensors(const reference& ref, model_type& model, const pull_options& options = {},
                                   chunking_type chunking = {}) noexcept {
    static_assert(
        detail::lands<tensors>,
        "tensorpull: models of this tensor policy are only read: it has no destination(model) (requirement 5)");
    if constexpr (detail::lands<tensors>) {
      land to(tensors::destination(model));
      return pull_into(ref, to, options, chunking);
    } else return failure(errc::invalid_argument);  // refused above
  }
  /// The same without a version: whatever the other end has under `id` now (receipt::believed). Over a link where
  /// anybody can answer first: version_required, unless pull_options::believe is set.
  result<receipt> download_tensors(ref_id id, model_type& model, const pull_options& options = {},
                                   chunking_type chunking = {}) noexcept {
    return download_tensors(reference{id, 0, 0}, model, options, chunking);
  }
  /// The same into any consumer. Leave out the last argument: its type makes the compiler say what a consumer lacks.
  template <class Consumer>
  result<receipt> pull(const reference& ref, Consumer& to, const pull_options& options = {},
                       chunking_type chunking = {}, detail::consumer_checks<Consumer> = {}) noexcept {
    if constexpr (consumer<Consumer>) return pull_into(ref, to, options, chunking);
    else return failure(errc::bad_address);  // refused by the last argument
  }
  /// The same without a version, as download_tensors.
  template <class Consumer>
  result<receipt> pull(ref_id id, Consumer& to, const pull_options& options = {}, chunking_type chunking = {},
                       detail::consumer_checks<Consumer> = {}) noexcept {
    return pull(reference{id, 0, 0}, to, options, chunking);
  }

  /// Decides what a peer may have of what is published here, as publisher::authorise. Call it before anything is
  /// served.
  void authorise(const authorise_callback& may) noexcept { s_->published.authorise(may); }
  /// The identity of the other end, as far as the link knows it. Its views are valid as long as the session.
  peer_identity peer() const noexcept
    requires knows_peer<link_type>
  {
    return s_->wire.link().peer();
  }

  /// Sends an application message; returns when the system has taken it, and over datagrams when the other end has it.
  /// Serves while it waits, and over a stream reads nothing if the message leaves at once. Errors: does_not_fit: body
  /// or references are above the limits; timed_out; cancelled; or why the connection is lost. If that happens after the
  /// message was taken, it is the error of a later call: the next that reads, or that the system takes nothing from.
  /// Within a callback of a pull of this session it returns at once, and the message leaves with the pull; busy: the
  /// message before it has not left yet.
  result<void> send(std::uint32_t kind, std::span<const reference> references, std::span<const std::byte> body,
                    std::chrono::milliseconds timeout = std::chrono::seconds(600),
                    const stop_token& stop = {}) noexcept {
    const auto start = std::chrono::steady_clock::now();
    for (;;) {
      if (s_->broken) return failure(*s_->broken);
      const auto queued = s_->end.send_message(kind, references, body);
      if (!queued && (queued.error().code != errc::busy || s_->pulls)) return queued;
      const auto left = timeout - since(start);
      if (!queued && left.count() <= 0) return failure(errc::timed_out);
      if constexpr (byte_stream<link_type>)
        if (queued) {  // if it leaves at once, bytes that have arrived stay in the stream, which the caller may hand to
                       // a relay
          const auto at_once = run_until([&] { return s_->end.long_frame_sent(); }, {}, stop,
                                         session_moves::what_is_due);
          if (at_once || at_once.error().code != errc::timed_out) return at_once;
        }
      if (s_->pulls) return {};
      // not until all output has left: a peer that goes on asking would keep this call for as long as it likes
      bool stepped = queued.has_value();  // if the peer's frames have all buffers, only a step makes one free
      const auto sent = run_until([&] { return std::exchange(stepped, true) && s_->end.long_frame_sent(); }, left,
                                  stop);
      if (queued || !sent) return sent;
    }
  }

  /// The next application message, which may have arrived during an earlier call; valid until the next receive().
  /// Serves while it waits. Errors: timed_out; cancelled; why the connection is lost, once there is no earlier message;
  /// busy: there is none, and it is called from a callback of a pull of this session, which reads what arrives.
  result<message> receive(std::chrono::milliseconds timeout = std::chrono::seconds(600),
                          const stop_token& stop = {}) noexcept {
    s_->box.clear();
    if (s_->pulls) return s_->box.unread() ? result<message>(s_->box.read()) : failure(errc::busy);
    if (const auto ok = s_->wire.resume(s_->end); !ok) {
      const unexpected lost = broke(ok.error());
      if (!s_->box.unread()) return lost;
    }
    if (const auto ok = run_until([&] { return s_->box.unread(); }, timeout, stop); !ok) return failure(ok.error());
    return s_->box.read();
  }

  /// Serves the other end until `until(session)` is true: until_settled(ref), or a lambda. Errors: timed_out;
  /// cancelled; why the connection is lost; or, of until_settled, that what was published was not taken
  /// (not_delivered).
  template <class Until>
  result<void> serve(Until until, std::chrono::milliseconds timeout = std::chrono::seconds(600),
                     const stop_token& stop = {}) {
    detail::check_until<Until, basic_session>();
    if constexpr (std::predicate<Until&, const basic_session&>) {
      const auto held = run_until([&] { return until(std::as_const(*this)); }, timeout, stop);
      // The last answer may not have left yet, and the caller may close the connection now. Requests of the peer from
      // now on are for the next call: one that goes on asking keeps nobody.
      if (!held) return held;
      (void)run_until([&] { return s_->end.output_idle(); }, timeout, stop, session_moves::what_is_due);
      return detail::outcome_of(until, *this);
    } else {
      return {};
    }
  }

  /// For drivers of a transfer that is not a pull (relay.hpp), over streams. Begins one; returns the first request id
  /// that it may use. Until end_transfer() only step_transfer() serves the other end: a call that waits, such as
  /// receive(), would throw away the answers to the transfer.
  std::uint32_t begin_transfer() noexcept
    requires byte_stream<link_type>
  {
    s_->end.begin_pull();
    return s_->end.next_id();
  }
  /// Reads and writes once, without waiting. An error: the connection cannot be used any more. The transfer fails with
  /// unread_messages if messages that nobody receives are in its way.
  template <class Transfer>
    requires byte_stream<link_type>
  result<pumped> step_transfer(Transfer& t) noexcept {
    if (s_->broken) return failure(*s_->broken);
    const auto did = s_->wire.step(s_->end, t, s_->scratch, session_moves::everything);
    if (!did) return broke(did.error());
    s_->pass_time();
    if (s_->box.refused() && !t.ended()) t.fail({errc::unread_messages});
    return did;
  }
  /// Ends the transfer, and tells the owner if it has to know.
  template <class Transfer>
    requires byte_stream<link_type>
  void end_transfer(Transfer& t) noexcept {
    s_->end.end_pull(t);
    no_transfer none;
    if (const auto bye = t.farewell(); bye && s_->end.send_control(*bye)) (void)step_transfer(none);
  }
  /// The stream, to wait for.
  link_type& stream() noexcept
    requires byte_stream<link_type>
  {
    return s_->wire.link();
  }
  /// Whether the stream is between two frames in both directions, as far as this end has read and written: no message
  /// is unread, nothing that has arrived waits, and nothing is left to send. Then a driver may take the stream over, as
  /// the recipient of a relay, and the session sends nothing any more.
  bool between_frames() const noexcept
    requires byte_stream<link_type>
  {
    return !s_->broken && !s_->box.unread() && !s_->end.stalled() && !s_->end.mid_frame() && s_->end.output_idle();
  }

 private:
  friend class publishing<basic_session, typename Parts::tensors>;
  /// Steps that a call still takes when its time is over, as long as something moves: earlier bytes are received
  /// although there is no time to wait, and a peer that goes on talking keeps nobody.
  static constexpr int most_late_steps = 16;

  explicit basic_session(detail::unique_ptr<state> s) noexcept : s_(std::move(s)) {}
  published_type& published() noexcept { return s_->published; }
  const published_type& published() const noexcept { return s_->published; }
  static std::chrono::milliseconds since(std::chrono::steady_clock::time_point start) noexcept {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
  }

  template <class Connect>
  static result<basic_session> connect_by(Connect connect, const connect_options& options) noexcept {
    auto link = detail::keep_trying([&] { return detail::established(connect, options.timeout, options.stop); },
                                    retry_state(options.retry), options.stop,
                                    [] { return std::chrono::milliseconds(); });
    if (!link) return failure(link.error());
    return over(std::move(*link), options.room);
  }

  template <consumer Consumer>
  result<receipt> pull_into(const reference& ref, Consumer& to, const pull_options& options,
                            chunking_type chunking) noexcept {
    if (s_->broken) return failure(*s_->broken);
    if (s_->pulls) return failure(errc::busy);  // within a callback of another one
    typename Wire::template pull<Consumer> pull(ref, to, options, chunking, s_->end.next_id(), s_->me);
    s_->wire.prepare(pull);
    const auto besides = [&](const result<bool>& moved) noexcept {
      if (!moved) s_->broken = moved.error();
      s_->pass_time();
      if (Wire::messages_block && s_->box.refused() && !pull.ended())
        pull.fail({errc::unread_messages});  // what the pull waits for is behind the message
    };
    if (pull.ended()) return pull.outcome();
    const auto once = [&]() noexcept {
      s_->pulls = true;
      const auto how = s_->wire.drive(pull, s_->end, s_->scratch, besides);
      s_->pulls = false;
      if (!how && s_->broken) pull.fail(*s_->broken);  // only a new session can continue, from the cursor
      return how;
    };
    auto serve = [&](std::chrono::milliseconds time) noexcept {
      (void)run_until([] { return false; }, time, options.stop);
      if (s_->broken) pull.fail(*s_->broken);
    };
    return pull.run(once, serve);
  }

  unexpected broke(const error& e) noexcept {
    s_->broken = e;
    s_->published.tick();  // what was heard last may have completed a recipient, or settled something
    return failure(e);
  }

  template <class Done>
  result<void> run_until(Done done, std::chrono::milliseconds timeout, const stop_token& stop,
                         session_moves what = session_moves::everything) {
    if (s_->broken && !done()) return failure(*s_->broken);
    const auto how = step_until(done, timeout, stop, what);
    if (!s_->broken) s_->wire.leave();
    return how;
  }
  template <class Done>
  result<void> step_until(Done& done, std::chrono::milliseconds timeout, const stop_token& stop, session_moves what) {
    // only a step that reads nothing leaves the pull its chunks
    if (s_->pulls && what == session_moves::everything) return done() ? result<void>{} : failure(errc::busy);
    const auto start = std::chrono::steady_clock::now();
    no_transfer none;
    bool alone = true;  // the first answer after a wait is sent on its own, as on a host
    detail::maybe<detail::awaited_link<link_type>> due;
    for (int late = 0; !done();) {
      if (stop.stop_requested()) return failure(errc::cancelled);
      const bool answers = what == session_moves::everything;
      const auto did = s_->wire.step(s_->end, none, s_->scratch,
                                     answers && alone ? session_moves::one_answer_first : what);
      if (!did) {
        const unexpected lost = broke(did.error());
        if (!done()) return lost;
        return {};  // the awaited bytes arrived, or left, as the last ones: anything that cannot follow is for the next
                    // call
      }
      s_->pass_time();
      if (did->sent > 0) alone = false;
      const auto spent = since(start), left = timeout - spent;
      const bool more = s_->wire.goes_on(*did);
      if (left.count() <= 0) {
        if (more && ++late <= most_late_steps) continue;
        if (!done()) return failure(errc::timed_out);
        return {};
      }
      if (more) continue;
      alone = true;
      if (!due && spent >= detail::wait_step) due.emplace(s_->wire.link());
      s_->wire.wait(s_->end, *did, std::min(detail::wait_step, left));
    }
    return {};
  }

  detail::unique_ptr<state> s_;
};

}  // namespace tensorpull
