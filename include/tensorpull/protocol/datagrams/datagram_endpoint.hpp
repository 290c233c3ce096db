// One end of a datagram connection, without the link: datagrams in, datagrams out. It has both roles, as the endpoint
// of a stream has, over the same owner and the same message handler; its transfer is a datagram_transfer. Drivers (a
// blocking pull, a socket with many peers, a simulation) move the datagrams and say what time it is.
//
// A datagram is one or more whole frames, one after the other, each exactly as on a stream: prefix, payload, padding.
// No frame is cut. A frame that is longer than a datagram travels as numbered pieces, which are frames themselves, and
// so does each message of the application.
//
// What is lost is asked for again by whoever needs it: requests are repeated until they are answered, pieces until they
// are taken. An owner repeats nothing by itself, so a peer that is gone costs it nothing.
#pragma once

#include <tensorpull/core/buffer_pool.hpp>
#include <tensorpull/framing/concept.hpp>
#include <tensorpull/framing/detail/control_words.hpp>
#include <tensorpull/framing/detail/payload_prefix.hpp>
#include <tensorpull/framing/detail/piece_prefix.hpp>
#include <tensorpull/framing/detail/segment_table.hpp>
#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/protocol/datagrams/datagram_plan.hpp>
#include <tensorpull/protocol/datagrams/detail/frame_pieces.hpp>
#include <tensorpull/protocol/datagrams/round_trip.hpp>
#include <tensorpull/protocol/pending_reply.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/chrono.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace tensorpull {

namespace detail {
/// What a transfer over datagrams has besides transfer_role: the time, and requests for chunks apart from the others
/// (datagram_transfer).
template <class T>
concept datagram_transfer_role = requires(T& t, const T& c, frame& request, bool& last, std::chrono::microseconds now) {
  t.at(now);
  { c.wakes(now) } -> std::same_as<std::chrono::microseconds>;
  { c.expects(std::uint32_t{}) } -> std::same_as<bool>;
  { c.batch() } -> std::same_as<std::uint32_t>;
  { c.wants_pulls(now) } -> std::same_as<bool>;
  { t.next_pull(request, last, now) } -> std::same_as<bool>;
  t.not_sent(std::uint32_t{}, std::uint32_t{});
};
}  // namespace detail

/// `Owner`: what this end serves (owner_role; no_owner if nothing). `Handler`: takes messages, from within received()
/// (message_handler; ignore_messages if none come). `Transfer`, in the members: what this end pulls (a
/// datagram_transfer; no_transfer if nothing). One thread at a time. Not movable. Under 2 KiB with the default limits.
/// It has no clock: `now` is the time of a monotonic clock with any origin, in microseconds.
template <framing Framing, class Limits, class Owner, class Handler>
class datagram_endpoint {
  static_assert(detail::assert_owner_role<Owner>());

 public:
  /// Where buffers come from for frames that do not fit one datagram, and for messages.
  using pool_type = buffer_pool<typename Owner::lock_type>;
  /// What plan_datagram() fills in.
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
      : owner_(&owner), pool_(pool), handler_(handler), datagram_bytes_(datagram_bytes / 8 * 8), long_(number | 1),
        next_id_(static_cast<std::uint32_t>(number >> 32)) {
    static_assert(detail::assert_message_handler<Handler>());  // a handler may hold its endpoint, and is complete only
                                                               // here
  }
  datagram_endpoint(datagram_endpoint&&) = delete;
  ~datagram_endpoint() { closed(); }

  /// Frees what the connection held at the owner and in the pool; neither is used afterwards. The destructor calls it.
  void closed() noexcept {
    if (owner_ == nullptr) return;
    std::exchange(owner_, nullptr)->forget(serves_);
    end_request();
    end_long();
    in_.drop(pool_);
    if (locate_ != nullptr) pool_.release(std::exchange(locate_, nullptr));
  }
  /// The link carries longer or shorter datagrams from now on.
  void resize(std::size_t datagram_bytes) noexcept { datagram_bytes_ = datagram_bytes / 8 * 8; }

  /// From now on answers may come; call it before a transfer is driven for the first time. One transfer at a time.
  void begin_pull() noexcept { pulls_ = true; }
  /// Ends the use of a transfer.
  template <class Transfer>
  void end_pull(const Transfer& t) noexcept {
    end_request();
    next_id_ = t.next_id();
  }
  /// The first id of the next transfer on this connection.
  std::uint32_t next_id() const noexcept { return next_id_; }

  /// Queues a message, which travels in pieces and arrives once. busy: the message before it has not arrived yet, or
  /// the pool is empty. does_not_fit: body or references are above the limits, or the frame is longer than a buffer.
  result<void> send_message(std::uint32_t kind, std::span<const reference> references,
                            std::span<const std::byte> body) noexcept {
    if (body.size() > Limits::application_body_bytes || references.size() > Limits::application_references)
      return failure(errc::does_not_fit, body.size());
    frame m;
    m.kind = frame_kind::application;
    m.application = kind;
    m.references = references;
    m.body = body;
    return push_long(m);
  }
  /// Queues a short frame that is not answered, such as a transfer's farewell(). It is sent three times, since nobody
  /// says that it has come. False: there is no room now.
  bool send_control(const frame& m) noexcept {
    if (request_left_ > 0) return false;
    frame numbered = m;
    numbered.id = next_id_++;
    return set_request(numbered, 3);
  }
  /// Whether the last message, or other frame in pieces, has arrived at the other end.
  bool long_frame_sent() const noexcept { return !long_.busy(); }
  /// Whether there is nothing left to send, and nothing that may have to be sent again.
  bool output_idle() const noexcept { return request_left_ == 0 && !long_.busy() && reply_count_ == 0 && !answers_; }

  /// Whether answers of the owner wait to be planned. There is room for those to one datagram of requests, and not for
  /// many: plan before more is received.
  bool answers_wait() const noexcept { return reply_count_ > planned_; }

  /// Whether a digest is being computed that an answer waits for: plan again at once, but let other peers go first.
  bool works() const noexcept { return digesting_ == digest_state::working || locate_ != nullptr; }
  /// Whether an answer waits for a digest that can go on only when time has passed at the owner (owner::advance()).
  bool awaits_time() const noexcept { return digesting_ == digest_state::waiting; }
  /// From now on no buffer is taken for what the peer says before it has asked for something that this end has, this
  /// end has pulled from it, or trust() is called: pieces are thrown away.
  void doubt() noexcept { trusted_ = false; }
  /// The peer may have buffers for what it says, as at the start.
  void trust() noexcept { trusted_ = true; }
  /// Grows with all that the peer says and that counts: requests that are not refused, messages that are taken, answers
  /// to what was asked here.
  std::uint32_t heard() const noexcept { return heard_; }
  /// The number of the frame that is coming in pieces into a buffer of the pool; 0: none.
  std::uint32_t long_frame() const noexcept { return in_.begun() ? long_frames_ : 0; }

  /// Frees buffers of the pool that others wait for: those of frames in pieces of which nothing has moved since `idle`,
  /// or that began before `begun`. Such a peer gets none until `again`. Nothing is lost: its frame is sent, or asked
  /// for, again.
  void give_up_buffers(time idle, time begun, time again) noexcept {
    const bool goes = long_.busy() && long_answers_ && pieces_planned_ == 0 && long_.bytes() != short_answer_.data() &&
                      (long_moved_ < idle || long_began_ < begun);
    const bool comes = in_.begun() && !in_.whole() && (in_moved_ < idle || in_began_ < begun);
    if (goes) end_long();
    if (comes) in_.drop(pool_);
    if (goes || comes) no_buffer_until_ = again;
  }

  /// Collects the next datagram: answers, then requests. An empty plan: there is nothing to send now, see next_time().
  /// Several plans may be made in a row, each with its own part of the scratch memory (plan.scratch says how much of it
  /// one took), before sent() is called for each in the same order. `scratch`: aligned to 8 bytes, at least
  /// scratch_bytes() of them; it holds what is not in memory as it is sent. It is not used any more after sent().
  template <class Transfer>
  void plan_datagram(Transfer& t, plan_type& plan, std::span<std::byte> scratch, time now) noexcept {
    static_assert(detail::assert_transfer_role<Transfer>());
    static_assert(timed<Transfer> || std::is_same_v<Transfer, no_transfer>,
                  "tensorpull: over datagrams an endpoint drives a datagram_transfer, or no_transfer");
    now_ = now;
    plan.span_count = plan.bytes = plan.scratch = 0;
    plan.pulls = plan.replies = 0;
    plan.for_any_owner = plan.request = plan.piece = plan.taken = false;
    writing out{plan, scratch, datagram_bytes_};
    if constexpr (timed<Transfer>) t.at(now);
    if (answers_ && out.room >= prefix::bytes) {
      add_piece(out, in_.answer(), {});
      plan.taken = true;
      answers_ = false;
    }
    add_request(t, out);
    add_long(out);
    if constexpr (Owner::owns) add_replies(out);
    if constexpr (timed<Transfer>) add_pulls(t, out);
    plan.scratch = scratch.size() - out.scratch.size();
  }
  /// Bytes of scratch memory that a plan may need: one datagram; of an owner two, since packed elements are gathered
  /// and then put together, and a control frame.
  std::size_t scratch_bytes() const noexcept { return scratch_bytes(datagram_bytes_); }
  /// The same for any length of a datagram.
  static constexpr std::size_t scratch_bytes(std::size_t datagram_bytes) noexcept {
    return Owner::owns ? 2 * datagram_bytes + Limits::control_frame_bytes : datagram_bytes;
  }
  /// The link took the plan's datagram, or did not; then everything in it will be planned again. For each plan that is
  /// not empty, in the order in which they were made. After one that was not taken, the later ones must not have been
  /// sent.
  template <class Transfer>
  void sent(Transfer& t, const plan_type& plan, bool taken) noexcept {
    for (std::size_t i = 0; i < plan.replies; ++i) {
      const pending_reply& r = reply(taken ? 0 : i);
      if (of_slot(r)) owner_->unpin(r, taken && r.kind == frame_kind::chunk ? r.length : 0);
      if (taken) pop();
    }
    planned_ -= plan.replies;
    pieces_planned_ -= plan.piece;
    if (taken) {
      if (plan.piece && once_ == once::planned) end_long();
      return;
    }
    if constexpr (timed<Transfer>) t.not_sent(plan.first_pull, plan.pulls);
    if (plan.request && request_left_ != until_answered) ++request_left_;
    if (plan.request) request_due_ = {};
    if (plan.piece && once_ == once::planned) once_ = once::waits;
    else if (plan.piece) long_.not_sent();
    answers_ |= plan.taken;
  }

  /// A datagram has arrived, in memory that is aligned to 8 bytes. Payload is copied from there into the consumer's
  /// memory. What is doubled, late or not wanted is thrown away and changes nothing. An error says that the datagram
  /// had something in it that no end of this protocol sends (bad_frame, too_large, unexpected_frame,
  /// unsupported_layout): the rest of it is thrown away, and the endpoint goes on.
  template <class Transfer>
  result<void> received(Transfer& t, std::span<const std::byte> datagram, time now) noexcept {
    now_ = now;
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
        if (const auto ok = accept(t, datagram.first(size)); !ok) return ok;
      }
      datagram = datagram.subspan(size);
    }
    return {};
  }

  /// How long the driver may wait before it plans again although nothing arrives; zero: plan now; time::max(): until
  /// something arrives.
  template <class Transfer>
  time next_time(const Transfer& t, time now) const noexcept {
    if (answers_ || locate_ != nullptr || digesting_ == digest_state::working ||
        (reply_count_ > planned_ && digesting_ == digest_state::ready))
      return time::zero();
    time at = request_left_ > 0 ? request_due_ : time::max();
    at = std::min(at, long_.wakes(piece_bytes()));
    if constexpr (timed<Transfer>) {
      if (request_left_ == 0 && !t.ended()) at = std::min(at, t.wakes(now));
    }
    return at == time::max() ? at : at <= now ? time::zero() : at - now;
  }

 private:
  using prefix = detail::payload_prefix;
  template <class Transfer>
  static constexpr bool timed = detail::datagram_transfer_role<Transfer>;
  static constexpr std::size_t reply_capacity = Owner::waiting_replies;
  static constexpr std::uint8_t until_answered = 255;
  static constexpr bool takes_messages = !std::is_same_v<Handler, ignore_messages>;
  static constexpr bool takes_lists = Owner::owns || takes_messages;
  static constexpr std::size_t largest_frame = detail::takes_messages<Handler> ? message_frame_bytes<Limits>
                                                                               : Limits::control_frame_bytes;
  /// Bytes of a request that is no locate.
  static constexpr std::size_t short_frame = prefix::bytes;
  /// A request with an id that is so little behind the last one that changed something is a late double of one that was
  /// made before.
  static constexpr std::uint32_t late_ids = 1u << 20;
  /// Requests of one id that are late in a row before they are believed: the peer was started again and chose its ids
  /// badly.
  static constexpr std::uint8_t most_late = 4;

  /// A plan that is being made: memory that is left for what it says, and bytes that are left in the datagram.
  struct writing {
    plan_type& plan;
    std::span<std::byte> scratch;
    std::size_t room;

    void add(std::span<const std::byte> bytes) noexcept {
      if (bytes.empty()) return;
      plan.bytes += bytes.size();
      room -= bytes.size();
      if (plan.span_count > 0)  // what was written one after the other is one span
        if (auto& last = plan.spans[plan.span_count - 1]; last.data() + last.size() == bytes.data())
          return void(last = {last.data(), last.size() + bytes.size()});
      plan.spans[plan.span_count++] = bytes;
    }
    /// The next `n` bytes of scratch memory.
    std::span<std::byte> take(std::size_t n) noexcept {
      const auto taken = scratch.first(n);
      scratch = scratch.subspan(n);
      return taken;
    }
    void align() noexcept { scratch = scratch.subspan((8 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 8) % 8); }
    bool has_spans() const noexcept { return plan.span_count + 4 <= plan_type::max_spans; }
  };

  std::size_t piece_bytes() const noexcept { return datagram_bytes_ - prefix::bytes; }
  pending_reply& reply(std::size_t i) noexcept { return replies_[(reply_first_ + i) % reply_capacity]; }
  void pop() noexcept {
    reply_first_ = (reply_first_ + 1) % reply_capacity;
    --reply_count_;
  }
  /// Whether an answer needs its image.
  static bool of_slot(const pending_reply& r) noexcept {
    return r.kind != frame_kind::refused && r.kind != frame_kind::confirmed && r.kind != frame_kind::nothing;
  }

  // what is sent

  void add_piece(writing& out, const detail::piece& p, std::span<const std::byte> payload) noexcept {
    out.align();
    const auto head = out.take(prefix::bytes);
    detail::piece_prefix::write(p, head.template first<prefix::bytes>());
    out.add(head);
    out.add(payload);
    out.add(std::span(zeros).first(prefix::padded(payload.size()) - payload.size()));
  }

  /// The request that is repeated until it is answered, or a new one.
  template <class Transfer>
  void add_request(Transfer& t, writing& out) noexcept {
    if constexpr (timed<Transfer>) {
      if (request_left_ == until_answered && !t.expects(request_id_)) end_request();
      frame m;
      const bool free = request_left_ == 0 || (request_left_ != until_answered && request_again_ > 0);  // a farewell
                                                                                                        // that was said
                                                                                                        // once waits
                                                                                                        // for nobody
      if (free && (!t.next_is_long() || (!long_.busy() && pool_.available() > 0)) && t.next(m) &&
          !set_request(m, until_answered))
        t.fail({errc::does_not_fit, 0, 0, {}});
    }
    if (request_left_ == 0 || now_ < request_due_) return;
    if (request_bytes_ > datagram_bytes_) {  // in pieces, out of the buffer in which it is kept
      if (long_.busy()) return void(request_due_ = now_ + trip_.timeout());
      long_.begin(request_, request_bytes_);
      once_ = once::no;
      long_answers_ = false;
    } else {
      if (request_bytes_ > out.room || !out.has_spans()) return;
      out.align();
      const auto copy = out.take(request_bytes_);
      std::memcpy(copy.data(), request_, request_bytes_);
      out.add(copy);
      out.plan.request = true;
    }
    if (request_again_++ == 0) asked_at_ = now_;
    else trip_.back_off();
    request_due_ = now_ + trip_.timeout();
    if (request_left_ != until_answered) --request_left_;
  }
  /// Keeps a request until it is answered, or until it was sent `times` times. False: there is no memory for it.
  bool set_request(const frame& m, std::uint8_t times) noexcept {
    request_ = short_request_;
    std::size_t room = sizeof short_request_;
    if (m.kind == frame_kind::locate) {
      request_ = pool_.acquire();
      if (request_ == nullptr) return request_ = short_request_, false;
      room = std::min(pool_.buffer_bytes(), Limits::control_frame_bytes);
    }
    const auto n = Framing::encode(m, {request_, room});
    request_left_ = times;
    if (!n) return end_request(), false;
    request_bytes_ = static_cast<std::uint32_t>(*n);
    request_id_ = m.id;
    request_due_ = {};
    request_again_ = 0;
    return true;
  }
  void end_request() noexcept {
    if (long_.busy() && long_.bytes() == request_) long_.end();
    if (request_ != short_request_) pool_.release(std::exchange(request_, short_request_));
    request_left_ = 0;
  }

  /// Whether a frame in pieces has to wait for the one before it. An answer waits for no other answer: the peer waits
  /// for one at a time, so whoever asked for the other has it, or is gone.
  bool has_to_wait(const frame& m) const noexcept {
    return long_.busy() &&
           (m.kind == frame_kind::application || !long_answers_ || long_id_ == m.id || pieces_planned_ > 0);
  }
  result<void> push_long(const frame& m) noexcept {
    if (has_to_wait(m)) return failure(errc::busy);
    end_long();
    std::byte* buffer = short_answer_.data();
    result<std::size_t> n = failure(errc::does_not_fit);
    if (Owner::owns && m.kind == frame_kind::description)
      n = Framing::encode(m, short_answer_);  // others may have all buffers of the pool
    if (!n) {
      buffer = m.kind == frame_kind::application || now_ >= no_buffer_until_ ? pool_.acquire() : nullptr;
      if (buffer == nullptr) return failure(errc::busy);
      n = Framing::encode(m, {buffer, pool_.buffer_bytes()});
      if (!n) return pool_.release(buffer), failure(n.error());
    }
    long_.begin(buffer, *n);
    once_ = m.kind != frame_kind::application && *n <= datagram_bytes_ ? once::waits : once::no;
    long_bytes_ = static_cast<std::uint32_t>(*n);
    long_id_ = m.id;
    long_answers_ = m.kind != frame_kind::application;
    long_began_ = long_moved_ = now_;
    return {};
  }
  void end_long() noexcept {
    if (std::byte* const buffer = long_.busy() ? long_.end() : nullptr;
        buffer != nullptr && buffer != request_ && buffer != short_answer_.data())
      pool_.release(buffer);
    once_ = once::no;
  }
  void add_long(writing& out) noexcept {
    if (once_ != once::no) {  // an answer that fits a datagram; who asked asks again if it is lost
      if (once_ == once::planned || long_bytes_ > out.room || !out.has_spans()) return;
      out.add({long_.bytes(), long_bytes_});
      out.plan.piece = true;
      ++pieces_planned_;
      once_ = once::planned;
      return;
    }
    if (!long_.ready(now_, piece_bytes()) || out.room <= prefix::bytes || !out.has_spans()) return;
    if (out.room < datagram_bytes_ && out.room < prefix::bytes + 64) return;
    detail::piece head;
    const auto payload = long_.next(head, (out.room - prefix::bytes) / 8 * 8, trip_, now_);
    add_piece(out, head, payload);
    out.plan.piece = true;
    ++pieces_planned_;
  }

  void add_replies(writing& out) noexcept {
    digesting_ = digest_state::ready;
    std::uint64_t allowance = 256 * 1024;
    if (locate_ != nullptr) go_on_locating();
    while (planned_ < reply_count_ && out.has_spans()) {
      pending_reply& r = reply(planned_);
      if (r.chunk_digest != digest_kind::none &&
          (digesting_ = owner_->digest(r, allowance, out.scratch)) != digest_state::ready)
        break;
      if (r.kind == frame_kind::chunk && prefix::frame_bytes(r.length) > out.room) break;
      if (!add_reply(out, r)) break;
      ++planned_;
      ++out.plan.replies;
    }
    if (out.plan.bytes > 0) return;
    planned_ -= out.plan.replies;  // answers that travel in pieces instead
    out.plan.replies = 0;
    while (planned_ == 0 && reply_count_ > 0 && reply(0).kind == frame_kind::nothing) pop();
  }
  /// Adds an answer, whose image is pinned from then on. False: it does not fit this datagram any more.
  bool add_reply(writing& out, pending_reply& r) noexcept {
    if (r.kind == frame_kind::nothing) return true;
    const source_view* image = of_slot(r) ? owner_->pin(r) : nullptr;
    if (image == nullptr && of_slot(r)) owner_->refuse_gone(r);
    if (image != nullptr && r.kind == frame_kind::chunk) {
      if (add_chunk(out, r, *image)) return true;
      owner_->unreadable(r);
      owner_->unpin(r, 0);
      owner_->refuse_gone(r);
      image = nullptr;
    }
    out.align();
    frame m = owner_->expand(r);
    if (m.kind == frame_kind::description)
      m.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(m.length, piece_bytes()));
    const auto n = Framing::encode(m, out.scratch.first(std::min(out.scratch.size(), Limits::control_frame_bytes)));
    if (n && *n <= out.room) return out.add(out.take(*n)), true;
    const bool too_long = !n || *n > datagram_bytes_;
    if (too_long && n) (void)push_long(m);  // if there is no buffer, the request will come again
    if (image != nullptr) owner_->unpin(r, 0);
    if (too_long) r.kind = frame_kind::nothing;
    return too_long;
  }
  /// False: the image could not be read.
  bool add_chunk(writing& out, const pending_reply& r, const source_view& image) noexcept {
    out.align();
    const auto before = out;
    const std::size_t spans = out.plan.span_count, bytes = out.plan.bytes;
    const auto last = spans > 0 ? out.plan.spans[spans - 1] : std::span<const std::byte>{};
    const auto head = out.take(prefix::bytes);
    prefix::write(frame_of(r), head.template first<prefix::bytes>());
    out.add(head);
    std::array<std::span<const std::byte>, 16> pieces;
    const std::size_t most = std::min(pieces.size(), plan_type::max_spans - out.plan.span_count - 1);
    const gathered g = gather(image, r.offset, r.length, std::span(pieces).first(most),
                              out.scratch.first(std::min(out.scratch.size(), datagram_bytes_)));
    if (g.bytes == r.length) {
      (void)out.take(g.sliced);
      for (std::size_t i = 0; i < g.pieces; ++i) out.add(pieces[i]);
    } else {  // many small tensors: their bytes are put together
      const auto whole = out.take(r.length);
      for (std::size_t done = 0; done < r.length;) {
        const gathered some = gather(image, r.offset + done, r.length - done, pieces,
                                     out.scratch.first(std::min(out.scratch.size(), datagram_bytes_)));
        if (some.bytes == 0) {
          out.scratch = before.scratch, out.room = before.room;
          out.plan.span_count = spans, out.plan.bytes = bytes;
          if (spans > 0) out.plan.spans[spans - 1] = last;
          return false;
        }
        for (std::size_t i = 0; i < some.pieces; done += pieces[i++].size())
          std::memcpy(whole.data() + done, pieces[i].data(), pieces[i].size());
      }
      out.add(whole);
    }
    out.add(std::span(zeros).first(prefix::padded(r.length) - r.length));
    return true;
  }

  template <class Transfer>
  void add_pulls(Transfer& t, writing& out) noexcept {
    if (t.ended() || request_left_ > 0 || !t.wants_pulls(now_)) return;
    const bool alone = out.plan.bytes == 0;
    bool any = true, last = false;
    frame m;
    while (out.room >= short_frame && out.plan.pulls < t.batch() && out.has_spans() && t.next_pull(m, last, now_)) {
      out.align();
      const auto n = Framing::encode(m, out.scratch);
      if (!n) break;
      if (out.plan.pulls++ == 0) out.plan.first_pull = m.id;
      any = any && !last;
      out.add(out.take(*n));
    }
    out.plan.for_any_owner = alone && any && out.plan.pulls > 0;
  }

  // what comes

  template <class Transfer>
  result<std::size_t> take_chunk(Transfer& t, std::span<const std::byte> datagram) noexcept {
    if (!pulls_) return failure(errc::unexpected_frame, static_cast<std::uint64_t>(frame_kind::chunk));
    if (datagram.size() < prefix::bytes) return failure(errc::bad_frame, datagram.size());
    const auto m = prefix::read(datagram.template first<prefix::bytes>());
    if (!m) return failure(m.error());
    const std::uint64_t size = prefix::frame_bytes(m->length);
    if (size > datagram.size()) return failure(errc::bad_frame, size);
    if (!t.ended() && t.on_chunk(*m)) {
      ++heard_;
      land(t, datagram.subspan(prefix::bytes, m->length));
    }
    return static_cast<std::size_t>(size);
  }
  template <class Transfer>
  static void land(Transfer& t, std::span<const std::byte> payload) noexcept {
    std::array<std::span<std::byte>, 16> room;
    while (!payload.empty()) {
      const prepared p = t.prepare(room, payload.size());
      if (p.bytes == 0) return;
      for (std::size_t i = 0; i < p.pieces && !t.ended(); ++i) {
        const std::size_t n = std::min(room[i].size(), payload.size());
        std::memcpy(room[i].data(), payload.data(), n);
        payload = payload.subspan(n);
        t.landed(room[i].first(n));
      }
      if (t.ended()) return;
    }
  }

  template <class Transfer>
  result<std::size_t> take_piece(Transfer& t, std::span<const std::byte> datagram) noexcept {
    if (datagram.size() < prefix::bytes) return failure(errc::bad_frame, datagram.size());
    const auto p = detail::piece_prefix::read(datagram.template first<prefix::bytes>());
    if (!p) return failure(p.error());
    const std::uint64_t size = prefix::frame_bytes(p->length);
    if (size > datagram.size()) return failure(errc::bad_frame, size);
    if (p->kind == frame_kind::taken) {
      const auto before = long_.arrived();
      if (long_.taken(*p, trip_, now_) && once_ == once::no) end_long();
      else if (long_.arrived() > before) long_moved_ = now_;
      return static_cast<std::size_t>(size);
    }
    if (const auto ok = add_to_long(t, *p, datagram.subspan(prefix::bytes, p->length)); !ok) return failure(ok.error());
    return static_cast<std::size_t>(size);
  }
  template <class Transfer>
  result<void> add_to_long(Transfer& t, const detail::piece& p, std::span<const std::byte> payload) noexcept {
    using standing = detail::incoming_frame::standing;
    if (p.total > std::max(largest_frame, Limits::control_frame_bytes) ||
        (p.total > pool_.buffer_bytes() && p.length < p.total))
      return failure(errc::too_large, p.total);
    if (!trusted_ && !pulls_ && !served_) return {};
    const standing what = in_.judge(p, pool_);
    if (what == standing::forgotten) return {};
    answers_ = true;
    if (what == standing::old) return {};
    if (p.length == p.total) return finish_long(t, payload, p.length);
    const bool begins = !in_.begun();
    if (begins && now_ < no_buffer_until_) return {};
    if (!in_.add(p, payload, pool_)) return {};
    in_moved_ = now_;
    if (begins) in_began_ = now_;
    if (begins && ++long_frames_ == 0) long_frames_ = 1;
    return in_.whole() ? finish_long(t, in_.bytes(), p.length) : result<void>{};
  }
  /// A frame has come in pieces. If it cannot be taken now, its last piece has to come again.
  template <class Transfer>
  result<void> finish_long(Transfer& t, std::span<const std::byte> whole, std::uint32_t last) noexcept {
    const auto measured = detail::measure_frame(whole, whole.size(), Limits::control_frame_segments);
    const bool one = measured && *measured && **measured == whole.size();
    in_pieces_ = true;
    const auto ok = one ? accept(t, whole) : result<void>(failure(errc::bad_frame, whole.size()));
    if (in_pieces_) in_.end(pool_);
    else if (in_.begun()) in_.take_back(last);
    in_pieces_ = false;
    return ok;
  }

  /// One whole control frame.
  template <class Transfer>
  [[gnu::noinline]] result<void> accept(Transfer& t, std::span<const std::byte> bytes) noexcept {
    if constexpr (requires { typename Framing::short_storage; }) {
      typename Framing::short_storage lists;
      frame m;
      if (const auto ok = Framing::decode(bytes, m, lists); !ok) return ok;
      if (!wants_lists(m.kind)) return take(t, m, bytes);
    }
    if constexpr (takes_lists || !requires { typename Framing::short_storage; }) return accept_lists(t, bytes);
    else return {};
  }
  template <class Transfer>
  [[gnu::noinline]] result<void> accept_lists(Transfer& t, std::span<const std::byte> bytes) noexcept {
    typename Framing::decode_storage lists;
    frame m;
    if (const auto ok = Framing::decode(bytes, m, lists); !ok) return ok;
    return take(t, m, bytes);
  }
  static constexpr bool wants_lists(frame_kind kind) noexcept {
    return (Owner::owns && kind == frame_kind::locate) || (takes_messages && kind == frame_kind::application);
  }

  template <class Transfer>
  result<void> take(Transfer& t, const frame& m, std::span<const std::byte> bytes) noexcept {
    if (m.kind != frame_kind::application && bytes.size() > Limits::control_frame_bytes)
      return failure(errc::too_large, bytes.size());
    if (m.kind == frame_kind::application) {
      if (!in_pieces_)
        return failure(errc::unexpected_frame, static_cast<std::uint64_t>(m.kind));  // it could come twice
      if (!handler_.ready()) return in_pieces_ = false, result<void>{};
      ++heard_;
      handler_.on_message(m);
      return {};
    }
    if (is_request(m.kind)) {
      if constexpr (Owner::owns) answer(m, bytes);
      return {};
    }
    if (m.kind == frame_kind::nothing || !pulls_)
      return failure(errc::unexpected_frame, static_cast<std::uint64_t>(m.kind));
    if (request_left_ == until_answered && m.id == request_id_) {
      if (request_again_ == 1) trip_.took(now_ - asked_at_);
      ++heard_;
      end_request();
    } else if (m.kind != frame_kind::refused) {
      return {};  // an answer that has come before
    }
    t.on(m);
    return {};
  }

  /// Whether a request is a late double of one that came before the last that changed something, which it must not
  /// undo.
  bool is_late(const frame& m) noexcept {
    const std::uint32_t behind = newest_ - m.id;
    if (newest_known_ && behind != 0 && behind < late_ids) {
      if (m.kind != frame_kind::describe || late_id_ != m.id) return late_id_ = m.id, late_ = 1, true;
      if (++late_ < most_late) return true;
    }
    if (m.kind != frame_kind::pull) newest_ = m.id, newest_known_ = true;
    late_ = 0;
    return false;
  }
  /// Answers a request. Without room for the answer it counts as lost.
  void answer(const frame& m, std::span<const std::byte> bytes) noexcept {
    if (is_late(m)) return;
    if (m.kind == frame_kind::locate) return locate(m, bytes);
    if (reply_count_ == reply_capacity) return;
    pending_reply r;
    bool answers;
    if (m.kind == frame_kind::pull && m.length > piece_bytes()) {
      frame fitting = m;
      fitting.length = static_cast<std::uint32_t>(piece_bytes());
      answers = owner_->handle(serves_, fitting, r);
    } else {
      answers = owner_->handle(serves_, m, r);
    }
    if (!answers) return;
    count_served(r.kind, r.status);
    reply(reply_count_++) = r;
  }
  void count_served(frame_kind kind, status s) noexcept {
    if (kind == frame_kind::refused && s != status::busy) return;
    served_ = true;
    ++heard_;
  }
  /// Answers a request for named tensors, or keeps it as long as the digest is being computed.
  void locate(const frame& m, std::span<const std::byte> bytes) noexcept {
    if (has_to_wait(m) || reply_count_ == reply_capacity || bytes.size() > pool_.buffer_bytes()) return;
    byte_range ranges[Limits::control_frame_bytes / 32];
    frame located;
    const bool here = bytes.data() == locate_;
    if (owner_->locate(serves_, m, ranges, located) == digest_state::working) {
      if (here) return;
      if (locate_ == nullptr) locate_ = pool_.acquire();
      if (locate_ == nullptr) return;
      std::memcpy(locate_, bytes.data(), bytes.size());
      locate_bytes_ = static_cast<std::uint32_t>(bytes.size());
      return;
    }
    if (locate_ != nullptr) pool_.release(std::exchange(locate_, nullptr));
    count_served(located.kind, located.status);
    if (located.kind != frame_kind::refused && push_long(located)) return;
    if (located.kind != frame_kind::refused)
      located.status = status::busy, located.version = m.version;  // there is no buffer
    reply(reply_count_++) = {frame_kind::refused,
                             located.status,
                             m.id,
                             0,
                             0,
                             located.delay_ms,
                             0,
                             m.ref,
                             located.version,
                             located.offset,
                             0,
                             0,
                             digest_kind::none};
  }
  [[gnu::noinline]] void go_on_locating() noexcept {
    typename Framing::decode_storage lists;
    frame m;
    if (Framing::decode(std::span<const std::byte>(locate_, locate_bytes_), m, lists))
      locate(m, {locate_, locate_bytes_});
  }

  alignas(8) static constexpr std::byte zeros[8]{};

  alignas(8) std::byte short_request_[short_frame];
  alignas(8) std::array<std::byte, Owner::owns ? detail::short_frame_bytes : 0> short_answer_;  // a description that is
                                                                                                // longer than a
                                                                                                // datagram
  std::array<pending_reply, Owner::owns ? reply_capacity : 0> replies_;
  Owner* owner_;  // null once closed() was called
  pool_type& pool_;
  Handler& handler_;
  std::size_t datagram_bytes_;
  detail::outgoing_frame long_;
  detail::incoming_frame in_{};
  round_trip trip_{};
  time now_{}, request_due_{}, asked_at_{};
  time long_began_{}, long_moved_{}, in_began_{}, in_moved_{}, no_buffer_until_{};  // see give_up_buffers()
  std::byte* request_ = short_request_;  // what is repeated until it is answered
  std::byte* locate_ = nullptr;  // a request for named tensors whose digest is not ready
  std::size_t reply_first_ = 0, reply_count_ = 0, planned_ = 0;  // the first `planned_` replies are in plans that were
                                                                 // not sent yet
  std::uint32_t next_id_, heard_ = 0, long_frames_ = 0, long_bytes_ = 0;
  std::uint32_t request_bytes_ = 0, request_id_ = 0, request_again_ = 0, locate_bytes_ = 0;
  std::uint32_t newest_ = 0, late_id_ = 0;  // the id of the last request that changed something
  std::uint32_t long_id_ = 0, pieces_planned_ = 0;  // of the frame in pieces: what it answers, and how many of its
                                                    // pieces are in plans that were not sent yet
  std::uint8_t request_left_ = 0, late_ = 0;
  digest_state digesting_ = digest_state::ready;
  bool long_answers_ = false;  // the frame in pieces is an answer of the owner
  bool answers_ = false;  // the other end has to hear how much of its frame has come
  enum class once : std::uint8_t {
    no,
    waits,
    planned
  } once_ = once::no;  // the long frame fits a datagram, and is sent once
  bool in_pieces_ = false;  // the frame that is being taken has come in pieces
  bool trusted_ = true, pulls_ = false, served_ = false, newest_known_ = false;
  [[no_unique_address]] typename Owner::peer serves_{};
};

}  // namespace tensorpull
