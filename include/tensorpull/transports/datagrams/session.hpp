// One connection over datagrams that one thread uses with blocking calls: receive a message, download, publish, send,
// serve.
#pragma once

#include <tensorpull/consumers/land.hpp>
#include <tensorpull/protocol/datagrams/datagram_endpoint.hpp>
#include <tensorpull/std/memory.hpp>
#include <tensorpull/tensors/concept.hpp>
#include <tensorpull/transports/datagrams/called_link.hpp>
#include <tensorpull/transports/datagrams/datagram_transport.hpp>
#include <tensorpull/transports/publisher.hpp>
#include <tensorpull/transports/publishing_owner.hpp>
#include <tensorpull/transports/stream/inbox.hpp>
#include <tensorpull/transports/stream/session.hpp>

#include <new>
#include <utility>

namespace tensorpull {

/// One connection in both roles, as `session` is over a stream. Movable. All its memory is one allocation made at
/// start; `state_bytes` and `buffer_bytes` say how much. Only models that are handed over add to it. Nobody says
/// goodbye over datagrams: that the other end is gone is only noticed by the time that each call is given.
template <class Parts, datagram_link Link>
  requires(Link::addresses_are_proved)
class datagram_session : public publishing<datagram_session<Parts, Link>> {
  using limits = typename Parts::limits;
  using transport = typename Parts::transport;
  static constexpr std::size_t most_references = std::min(std::size_t{limits::references},
                                                          std::size_t{limits::session_references});
  using published_type = publisher<Parts, no_lock, 2 * most_references, most_references>;
  using inbox_type = inbox<limits>;
  static constexpr std::size_t frame_bytes = (std::max(message_frame_bytes<limits>,
                                                       std::size_t{limits::control_frame_bytes}) +
                                              63) /
                                             64 * 64;
  static constexpr std::size_t scratch_bytes = std::max(detail::slice_bytes<limits>,
                                                        detail::datagram_scratch_bytes<Link, limits>);
  using endpoint_type =
      datagram_endpoint<typename Parts::framing, limits, typename published_type::owner_type, inbox_type>;
  using time = typename endpoint_type::time;

  struct state {
    explicit state(Link l) noexcept : link(std::move(l)) {}
    /// Called after every step: delivers settlements, and looks at the budgets every 50 ms.
    void pass_time() noexcept {
      const auto now = std::chrono::steady_clock::now();
      if (now - ticked < detail::wait_step) return published.deliver();
      ticked = now;
      published.tick();
    }
    Link link;
    published_type published;
    inbox_type box;
    alignas(64) std::array<std::byte, 2 * frame_bytes> memory;  // one for a frame that comes, one for a frame that goes
    buffer_pool<> pool{memory, frame_bytes};
    alignas(64) std::array<std::byte, scratch_bytes> scratch;
    alignas(8) std::array<std::byte, detail::held_chunk_bytes> held;
    detail::datagram_memory<Link> come;
    endpoint_type end{published.machine(), pool, box, link.datagram_bytes(), system_entropy{}()};
    optional<error> broken;
    std::chrono::steady_clock::time_point ticked{};
    recipient_id me{system_entropy{}() | 1};  // a session is one recipient, however often it pulls
  };

 public:
  using tensors = typename Parts::tensors;  ///< the pipeline's tensor policy
  using model_type = typename tensors::model_type;  ///< what is published and landed in
  using chunking_type = typename Parts::chunking;  ///< the pipeline's chunking policy

  /// Bytes of the buffers: for messages that come, go and wait, for chunks that come early, and for bytes to be sent
  /// that are not in memory as they are.
  static constexpr std::size_t buffer_bytes = 2 * frame_bytes + scratch_bytes + detail::held_chunk_bytes +
                                              inbox_type::capacity;
  /// Bytes of all else that it allocates.
  static constexpr std::size_t state_bytes = sizeof(state) - buffer_bytes;

  /// Takes over a link to one peer. Error: out_of_memory.
  static result<datagram_session> over(Link link) noexcept {
    detail::unique_ptr<state> s(new (std::nothrow) state(std::move(link)));
    if (!s) return failure(errc::out_of_memory);
    return datagram_session(std::move(s));
  }
  /// Reaches the address with the pipeline's transport; nothing is said before the first call. Errors: those of the
  /// transport's connect(), out_of_memory.
  static result<datagram_session> connect(std::string_view address, const connect_options& options = {}) noexcept {
    for (retry_state tries(options.retry);;) {
      auto link = detail::as_guest(transport::connect(address, options.timeout, options.stop));
      if (link) return over(std::move(*link));
      const auto delay = tries.after(link.error().code, 0, {}, system_entropy{}());
      if (!delay) return failure(link.error());
      if (!detail::wait_out(*delay, options.stop, [](std::chrono::milliseconds left) { detail::pause(left); }))
        return failure(errc::cancelled);
    }
  }
  /// The other end of connect(): a session with the first who calls this address, and with nobody else. Errors: those
  /// of the transport's open(), out_of_memory.
  static auto open(std::string_view address) noexcept {
    using called = datagram_session<Parts, called_link<typename transport::link>>;
    auto link = transport::open(address);
    if (!link) return result<called>(failure(link.error()));
    return called::over(called_link<typename transport::link>(std::move(*link)));
  }
  /// The port that it was opened on; 0 if the link has none.
  std::uint16_t port() const noexcept {
    if constexpr (requires { s_->link.below().port(); }) return s_->link.below().port();
    else return 0;
  }

  /// As session::download_tensors.
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

  /// Sends an application message; returns when the other end has it. Serves while it waits. Errors: does_not_fit: body
  /// or references are above the limits; timed_out; cancelled; or why the link is lost.
  result<void> send(std::uint32_t kind, std::span<const reference> references, std::span<const std::byte> body,
                    std::chrono::milliseconds timeout = std::chrono::seconds(600),
                    const stop_token& stop = {}) noexcept {
    const auto start = std::chrono::steady_clock::now();
    for (;;) {
      if (s_->broken) return failure(*s_->broken);
      const auto queued = s_->end.send_message(kind, references, body);
      if (!queued && queued.error().code != errc::busy) return queued;
      const auto left = timeout -
                        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
      if (!queued && left.count() <= 0) return failure(errc::timed_out);
      bool stepped = queued.has_value();  // if what the peer says has all buffers, only a step makes one free
      const auto sent = run_until([&] { return std::exchange(stepped, true) && s_->end.long_frame_sent(); }, left,
                                  stop);
      if (queued || !sent) return sent;
    }
  }
  /// The next application message, which may have come during an earlier call; valid until the next receive(). Serves
  /// while it waits. Errors: timed_out; cancelled; or why the link is lost.
  result<message> receive(std::chrono::milliseconds timeout = std::chrono::seconds(600),
                          const stop_token& stop = {}) noexcept {
    s_->box.clear();
    if (const auto ok = run_until([&] { return s_->box.unread(); }, timeout, stop); !ok) return failure(ok.error());
    return s_->box.read();
  }
  /// Serves the other end until `until(session)` is true: until_settled(ref), or a lambda. Errors: timed_out;
  /// cancelled; or why the link is lost.
  template <class Until>
  result<void> serve(Until until, std::chrono::milliseconds timeout = std::chrono::seconds(600),
                     const stop_token& stop = {}) {
    detail::check_until<Until, datagram_session>();
    if constexpr (std::predicate<Until&, const datagram_session&>) {
      const auto held = run_until([&] { return until(std::as_const(*this)); }, timeout, stop);
      // the last answer may not have left yet, and the caller may end the session now
      if (held) (void)run_until([&] { return s_->end.output_idle(); }, timeout, stop);
      return held;
    } else {
      return {};
    }
  }

 private:
  friend publishing<datagram_session>;
  explicit datagram_session(detail::unique_ptr<state> s) noexcept : s_(std::move(s)) {}
  published_type& published() noexcept { return s_->published; }
  const published_type& published() const noexcept { return s_->published; }

  template <consumer Consumer>
  result<receipt> pull_into(const reference& ref, Consumer& to, const pull_options& options,
                            chunking_type chunking) noexcept {
    if (s_->broken) return failure(*s_->broken);
    detail::running_datagram_pull<Parts, Consumer> pull(ref, to, options, chunking, s_->end.next_id(), s_->me);
    pull.transfer().hold(s_->held);
    pull.transfer().fits(s_->link.datagram_bytes());
    while (!pull.ended()) {
      const auto why = detail::drive_datagrams(pull, s_->end, s_->link, s_->scratch, s_->come, s_->broken,
                                               [&]() noexcept { s_->pass_time(); });
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

  template <class Done>
  result<void> run_until(Done done, std::chrono::milliseconds timeout, const stop_token& stop) {
    if (s_->broken) return failure(*s_->broken);
    const auto start = std::chrono::steady_clock::now();
    no_transfer none;
    while (!done()) {
      if (stop.stop_requested()) return failure(errc::cancelled);
      const auto did = step_datagrams(s_->end, none, s_->link, s_->scratch, s_->come,
                                      detail::endpoint_time<endpoint_type>());
      if (!did) {
        s_->broken = did.error();
        return failure(did.error());
      }
      s_->pass_time();
      if (did->received > 0 || did->sent > 0) continue;
      const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                                               start);
      if (spent >= timeout) return failure(errc::timed_out);
      detail::wait_for_datagrams(s_->end, none, s_->link, did->blocked, std::min(detail::wait_step, timeout - spent));
    }
    (void)s_->link.wait(false, false, {});  // what the link has collected leaves
    return {};
  }

  detail::unique_ptr<state> s_;
};

}  // namespace tensorpull
