// One end of a datagram connection, without the link: datagrams in, datagrams out. It has both roles, as the endpoint
// of a stream has, over the same owner and the same message handler; its transfer is a datagram_transfer. Drivers (a
// blocking pull, a socket with many peers, a simulation) move the datagrams and say what time it is.
//
// A datagram is one or more whole frames, one after the other, each exactly as on a stream: prefix, payload, padding.
// No frame is cut. A frame that is longer than a datagram travels as numbered pieces, which are frames themselves, and
// so does each message of the application.
//
// The end that needs what was lost asks for it again: requests are repeated until they are answered, pieces until they
// are taken. An owner repeats nothing by itself, so a peer that is gone costs it nothing.
#pragma once

#include <tensorpull/framing/detail/segment_table.hpp>
#include <tensorpull/protocol/datagrams/detail/datagram_answering.hpp>
#include <tensorpull/protocol/datagrams/detail/long_input.hpp>
#include <tensorpull/protocol/datagrams/detail/long_output.hpp>
#include <tensorpull/protocol/datagrams/detail/pull_requests.hpp>
#include <tensorpull/protocol/datagrams/detail/repeated_request.hpp>
#include <tensorpull/protocol/detail/frame_intake.hpp>
#include <tensorpull/protocol/detail/message_frame.hpp>

#include <type_traits>

namespace tensorpull {

/// `Owner`: what this end serves (owner_role; no_owner if nothing). `Handler`: takes messages, from within received()
/// (message_handler; ignore_messages if there are none). `Transfer`, in the members: what this end pulls (a
/// datagram_transfer; no_transfer if nothing). One thread at a time. Not movable. Under 2 KiB with the default limits.
/// It has no clock: `now` is the time of a monotonic clock with any origin, in microseconds.
template <framing Framing, class Limits, class Owner, class Handler>
class datagram_endpoint {
  static_assert(sizeof(detail::owner_requirements<Owner, owner_role<Owner>>) != 0);

 public:
  /// Where buffers come from for frames that do not fit one datagram, and for messages.
  using pool_type = buffer_pool<typename Owner::lock_type>;
  /// plan_datagram() fills it in.
  using plan_type = datagram_plan;
  /// Points in time, and durations.
  using time = std::chrono::microseconds;
  /// The shortest datagram that any link carries, in bytes: see datagram_link.
  static constexpr std::size_t least_datagram_bytes = 128;

  /// Borrows all three: the owner and the pool until closed(), the handler as long as the endpoint lives.
  /// `datagram_bytes`: the longest datagram that the link carries, without what a driver puts in front; at least
  /// least_datagram_bytes. `number`: random; it tells this endpoint from an earlier one at the same address, and the
  /// ids of its requests begin there.
  datagram_endpoint(Owner& owner, pool_type& pool, Handler& handler, std::size_t datagram_bytes,
                    std::uint64_t number) noexcept
      : line_{pool, datagram_bytes / 8 * 8}, answers_(owner), intake_(handler), out_(number),
        next_id_(static_cast<std::uint32_t>(number >> 32)) {}
  datagram_endpoint(datagram_endpoint&&) = delete;
  ~datagram_endpoint() { closed(); }

  /// Frees what the connection held at the owner and in the pool; neither is used afterwards. The destructor calls it.
  void closed() noexcept {
    if (!answers_.close(line_.pool)) return;
    request_.end(line_, out_);
    out_.end(line_.pool);
    in_.drop(line_.pool);
  }
  /// The link carries longer or shorter datagrams from now on.
  void resize(std::size_t datagram_bytes) noexcept { line_.datagram_bytes = datagram_bytes / 8 * 8; }

  /// From now on answers may arrive; call it before a transfer is driven for the first time. One transfer at a time.
  void begin_pull() noexcept { intake_.begin_pull(); }
  /// Ends the use of a transfer.
  template <class Transfer>
  void end_pull(const Transfer& t) noexcept {
    request_.end(line_, out_);
    next_id_ = t.next_id();
  }
  /// The first id of the next transfer on this connection.
  std::uint32_t next_id() const noexcept { return next_id_; }

  /// Queues a message, which travels in pieces and arrives once. busy: the message before it has not arrived yet, or
  /// the pool is empty. does_not_fit: body or references are above the limits, or the frame is longer than a buffer.
  result<void> send_message(std::uint32_t kind, std::span<const reference> references,
                            std::span<const std::byte> body) noexcept {
    frame m;
    if (const auto ok = detail::make_message<Limits>(kind, references, body, m); !ok) return ok;
    return out_.push(m, line_);
  }
  /// Queues a short frame that is not answered, such as a transfer's farewell(). It is sent three times, since nobody
  /// acknowledges it. False: there is no room now.
  bool send_control(const frame& m) noexcept {
    if (request_.waits()) return false;
    frame numbered = m;
    numbered.id = next_id_++;
    return request_.say(numbered, line_, out_);
  }
  /// Whether the last message, or other frame in pieces, has arrived at the other end.
  bool long_frame_sent() const noexcept { return !out_.busy(); }
  /// Whether there is nothing left to send, and nothing that may have to be sent again.
  bool output_idle() const noexcept {
    return !request_.waits() && !out_.busy() && answers_.replies.empty() && !in_.answer_due();
  }

  /// Whether answers of the owner wait to be planned. There is room for those to one datagram of requests, and not for
  /// many: plan before more is received.
  bool answers_wait() const noexcept { return answers_.replies.wait(); }

  /// Whether a digest is being computed that an answer waits for: plan again at once, but let other peers go first.
  bool works() const noexcept { return answers_.replies.digesting() == digest_state::working || answers_.locating(); }
  /// Whether an answer waits for a digest that can go on only when time has passed at the owner (owner::advance()).
  bool awaits_time() const noexcept { return answers_.replies.digesting() == digest_state::waiting; }
  /// From now on no buffer is taken for the peer's frames before it has asked for something that this end has, this end
  /// has pulled from it, or trust() is called: pieces are thrown away.
  void doubt() noexcept { intake_.doubt(); }
  /// The peer may have buffers for its frames, as at the start.
  void trust() noexcept { intake_.trust(); }
  /// Grows with everything of the peer's that counts: requests that are not refused, messages that are taken, answers
  /// to what was asked here.
  std::uint32_t heard() const noexcept { return intake_.heard(); }
  /// The number of the frame that is arriving in pieces in a buffer of the pool; 0: none.
  std::uint32_t long_frame() const noexcept { return in_.number(); }

  /// Frees buffers of the pool that others wait for: those of frames in pieces of which nothing has moved since `idle`,
  /// or that began before `begun`. Such a peer gets none until `again`. Nothing is lost: its frame is sent, or asked
  /// for, again.
  void give_up_buffers(time idle, time begun, time again) noexcept {
    const bool goes = out_.give_up(idle, begun, line_.pool);
    const bool comes = in_.give_up(idle, begun, line_.pool);
    if (goes || comes) line_.no_buffer_until = again;
  }

  /// Collects the next datagram: answers, then requests. An empty plan: there is nothing to send now, see next_time().
  /// Several plans may be made in a row, each with its own part of the scratch memory (plan.scratch is how much of it
  /// one took), before sent() is called for each in the same order. `scratch`: aligned to 8 bytes, at least
  /// scratch_bytes() of them; it holds what is not in memory as it is sent. It is not used any more after sent().
  template <class Transfer>
  void plan_datagram(Transfer& t, plan_type& plan, std::span<std::byte> scratch, time now) noexcept {
    static_assert(sizeof(detail::transfer_requirements<Transfer, transfer_role<Transfer>>) != 0);
    static_assert(timed<Transfer> || std::is_same_v<Transfer, no_transfer>,
                  "tensorpull: over datagrams an endpoint drives a datagram_transfer, or no_transfer");
    line_.now = now;
    plan.span_count = plan.bytes = plan.scratch = 0;
    plan.pulls = plan.replies = 0;
    plan.for_any_owner = plan.request = plan.piece = plan.taken = false;
    detail::datagram_writer out{plan, scratch, line_.datagram_bytes};
    in_.plan(out);
    if constexpr (timed<Transfer>) {
      t.at(now);
      request_.next(t, line_, out_);
    }
    request_.plan(out, line_, out_);
    out_.plan(out, line_);
    if constexpr (Owner::owns) answers_.plan(out, intake_, line_, out_);
    if constexpr (timed<Transfer>)
      if (!request_.waits()) detail::plan_pull_requests<Framing>(t, out, now);
    plan.scratch = scratch.size() - out.scratch.size();
  }
  /// Bytes of scratch memory that a plan may need: one datagram; of an owner two, since packed elements are gathered
  /// and then put together, and a control frame.
  std::size_t scratch_bytes() const noexcept { return scratch_bytes(line_.datagram_bytes); }
  /// The same for any length of a datagram.
  static constexpr std::size_t scratch_bytes(std::size_t datagram_bytes) noexcept {
    return Owner::owns ? 2 * datagram_bytes + Limits::control_frame_bytes : datagram_bytes;
  }
  /// The link took the plan's datagram, or did not; then everything in it will be planned again. For each plan that is
  /// not empty, in the order in which they were made. After one that was not taken, the later ones must not have been
  /// sent.
  template <class Transfer>
  void sent(Transfer& t, const plan_type& plan, bool taken) noexcept {
    answers_.sent(plan, taken);
    if (plan.piece) out_.sent(taken, line_.pool);
    if (taken) return;
    if constexpr (timed<Transfer>) t.not_sent(plan.first_pull, plan.pulls);
    if (plan.request) request_.not_sent();
    if (plan.taken) in_.not_sent();
  }

  /// A datagram has arrived, in memory that is aligned to 8 bytes. Payload is copied from there into the consumer's
  /// memory. Anything doubled, late or not wanted is thrown away and changes nothing. An error: the datagram had
  /// something in it that no end of this protocol sends (bad_frame, too_large, unexpected_frame, unsupported_layout):
  /// the rest of it is thrown away, and the endpoint goes on.
  template <class Transfer>
  result<void> received(Transfer& t, std::span<const std::byte> datagram, time now) noexcept {
    line_.now = now;
    if constexpr (timed<Transfer>) t.at(now);
    while (!datagram.empty()) {
      if (datagram.size() < 24) return failure(errc::bad_frame, datagram.size());
      std::size_t size = 0;
      if (prefix::announces_payload(datagram)) {
        const auto ok = take_chunk(t, datagram);
        if (!ok) return failure(ok.error());
        size = *ok;
      } else if (detail::piece_prefix::announced(datagram)) {
        const auto ok = take_piece(t, datagram);
        if (!ok) return failure(ok.error());
        size = *ok;
      } else {
        const auto measured = detail::measure_frame(datagram, std::min(datagram.size(), Limits::control_frame_bytes),
                                                    Limits::control_frame_segments);
        if (!measured) return failure(measured.error());
        if (!*measured) return failure(errc::bad_frame, datagram.size());
        size = **measured;
        in_pieces_ = false;
        if (const auto ok = intake_.accept(*this, t, datagram.first(size)); !ok) return ok;
      }
      datagram = datagram.subspan(size);
    }
    return {};
  }

  /// How long the driver may wait before it plans again although nothing arrives; zero: plan now; time::max(): until
  /// something arrives.
  template <class Transfer>
  time next_time(const Transfer& t, time now) const noexcept {
    const auto& replies = answers_.replies;
    const bool replies_leave = replies.wait() && replies.digesting() == digest_state::ready;
    if (in_.answer_due() || works() || replies_leave) return time::zero();
    time at = std::min(request_.wakes(), out_.wakes(line_));
    if constexpr (timed<Transfer>)
      if (!request_.waits() && !t.ended()) at = std::min(at, t.wakes(now));
    if (at == time::max()) return at;
    return at <= now ? time::zero() : at - now;
  }

 private:
  using prefix = detail::payload_prefix;
  using intake_type = detail::frame_intake<Framing, Limits, Owner, Handler>;
  friend intake_type;
  template <class Transfer>
  static constexpr bool timed = detail::datagram_transfer_role<Transfer>;

  template <class Transfer>
  result<std::size_t> take_chunk(Transfer& t, std::span<const std::byte> datagram) noexcept {
    if (!intake_.pulls()) return failure(errc::unexpected_frame, static_cast<std::uint64_t>(frame_kind::chunk));
    if (datagram.size() < prefix::bytes) return failure(errc::bad_frame, datagram.size());
    const auto m = prefix::read(datagram.template first<prefix::bytes>());
    if (!m) return failure(m.error());
    const std::uint64_t size = prefix::frame_bytes(m->length);
    if (size > datagram.size()) return failure(errc::bad_frame, size);
    if (!t.ended() && t.on_chunk(*m)) {
      intake_.count();
      detail::land_copied(t, datagram.subspan(prefix::bytes, m->length));
    }
    return static_cast<std::size_t>(size);
  }

  template <class Transfer>
  result<std::size_t> take_piece(Transfer& t, std::span<const std::byte> datagram) noexcept {
    if (datagram.size() < prefix::bytes) return failure(errc::bad_frame, datagram.size());
    const auto p = detail::piece_prefix::read(datagram.template first<prefix::bytes>());
    if (!p) return failure(p.error());
    const std::uint64_t size = prefix::frame_bytes(p->length);
    if (size > datagram.size()) return failure(errc::bad_frame, size);
    if (p->kind == frame_kind::taken) {
      out_.taken(*p, line_);
    } else {
      const auto ok = take_part(t, *p, datagram.subspan(prefix::bytes, p->length));
      if (!ok) return failure(ok.error());
    }
    return static_cast<std::size_t>(size);
  }
  template <class Transfer>
  result<void> take_part(Transfer& t, const detail::piece& p, std::span<const std::byte> payload) noexcept {
    constexpr std::size_t longest = intake_type::largest_frame;
    if (p.total > longest || (p.total > line_.pool.buffer_bytes() && p.length < p.total))
      return failure(errc::too_large, p.total);
    if (!intake_.may_have_buffers()) return {};
    const auto whole = in_.take(p, payload, line_);
    if (whole.empty()) return {};
    const auto size = detail::measure_frame(whole, whole.size(), Limits::control_frame_segments);
    const bool one = size && *size && **size == whole.size();
    in_pieces_ = true;
    const auto ok = one ? intake_.accept(*this, t, whole) : result<void>(failure(errc::bad_frame, whole.size()));
    if (in_pieces_) in_.end(line_.pool);
    else in_.take_back(p.length);
    return ok;
  }

  // Takes the intake's result. A message outside of pieces could arrive twice.
  result<void> take_message(const frame& m) noexcept {
    if (!in_pieces_) return failure(errc::unexpected_frame, static_cast<std::uint64_t>(m.kind));
    if (!intake_.deliver(m)) in_pieces_ = false;
    return {};
  }
  result<void> take_request(const frame& m, std::span<const std::byte> bytes) noexcept {
    if constexpr (Owner::owns) answers_.take(m, bytes, intake_, line_, out_);
    return {};
  }
  template <class Transfer>
  void take_answer(Transfer& t, const frame& m) noexcept {
    if (request_.awaits(m.id)) {
      intake_.count();
      request_.answered(line_, out_);
    } else if (m.kind != frame_kind::refused) {
      return;  // it has arrived before
    }
    t.on(m);
  }

  detail::datagram_line<pool_type> line_;
  detail::datagram_answering<Framing, Limits, Owner> answers_;
  intake_type intake_;
  detail::long_output<Framing, Owner> out_;
  detail::long_input<pool_type> in_{};
  detail::repeated_request<Framing, Limits, Owner> request_{};
  std::uint32_t next_id_;
  bool in_pieces_ = false;  // the frame that is being taken has arrived in pieces; false when it cannot be taken now
};

}  // namespace tensorpull
