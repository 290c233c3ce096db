// One end of a byte-stream connection, without the stream: bytes in, bytes out. It has both roles, since either end may
// own references and pull others. Drivers (a blocking socket, an event loop, a simulation, two ends in one process)
// move the bytes.
#pragma once

#include <tensorpull/core/spans.hpp>
#include <tensorpull/framing/detail/segment_table.hpp>
#include <tensorpull/protocol/connection/detail/answering.hpp>
#include <tensorpull/protocol/connection/detail/frame_input.hpp>
#include <tensorpull/protocol/detail/frame_intake.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <utility>

namespace tensorpull {

/// `Owner`: what this end serves (owner_role; no_owner if nothing). `Handler`: takes messages, from within received(),
/// written(), plan_write() and parse() (message_handler; ignore_messages if there are none). `Transfer`, in the
/// members: what this end pulls (transfer_role; no_transfer if nothing). roles.hpp has the three. One thread at a time.
/// Not movable. Under 2 KiB with the default limits. A model of connection_end (connection_end.hpp).
template <framing Framing, class Limits, class Owner, class Handler>
class endpoint {
  static_assert(sizeof(detail::owner_requirements<Owner, owner_role<Owner>>) != 0);

 public:
  /// Where buffers come from for frames that are longer than `input_bytes`.
  using pool_type = buffer_pool<typename Owner::lock_type>;
  /// plan_write() fills it in.
  using plan_type = typename detail::answering<Framing, Limits, Owner>::plan_type;
  /// Bytes of the buffer in which frames are recognised.
  static constexpr std::size_t input_bytes = 512;

  /// Borrows all three: the owner and the pool until closed(), the handler as long as the endpoint lives.
  endpoint(Owner& owner, pool_type& pool, Handler& handler) noexcept : answers_(owner, pool), intake_(handler) {}
  endpoint(endpoint&&) = delete;
  ~endpoint() { closed(); }

  /// Frees what the connection held at the owner and in the pool; neither is used afterwards. The destructor calls it.
  void closed() noexcept {
    answers_.close();
    long_.end(answers_.pool);
  }

  /// From now on answers may arrive; call it before a transfer is driven for the first time. One transfer at a time.
  void begin_pull() noexcept { intake_.begin_pull(); }
  /// Ends the use of a transfer. Its payload that is still under way will be thrown away.
  template <class Transfer>
  void end_pull(const Transfer& t) noexcept {
    if (landing_ > 0) discard_ = std::exchange(landing_, 0);
    next_id_ = t.next_id();
  }
  /// The first id of the next transfer on this connection.
  std::uint32_t next_id() const noexcept { return next_id_; }

  /// Queues a message. busy: the long frame before it has not been sent yet, or the pool is empty. does_not_fit: body
  /// or references are above the limits, or the frame is longer than a buffer.
  result<void> send_message(std::uint32_t kind, std::span<const reference> references,
                            std::span<const std::byte> body) noexcept {
    return answers_.output.push_message(kind, references, body, answers_.pool);
  }
  /// Queues a transfer's farewell(), for which there is room behind the requests that wait. False: others wait, too.
  bool send_control(const frame& m) noexcept { return answers_.output.push_control(m, true); }

  /// Whether what has arrived waits in the buffer for memory. Call parse() when some has become free.
  bool stalled() const noexcept { return blocked_; }
  /// Whether the peer has begun a frame and not finished it.
  bool mid_frame() const noexcept { return landing_ > 0 || discard_ > 0 || long_.begun() || !input_.empty(); }

  /// Whether a digest is being computed that an answer waits for: make another step at once, but let other connections
  /// go first.
  bool works() const noexcept {
    return answers_.output.digesting() == digest_state::working || (blocked_ && answers_.locating());
  }
  /// Whether an answer waits for a digest that can go on only when time has passed at the owner (owner::advance()).
  bool awaits_time() const noexcept { return answers_.output.digesting() == digest_state::waiting; }
  /// Whether the next plan_write() has something to write; false also while all answers wait for a digest.
  bool output_ready() const noexcept { return answers_.output.ready(); }
  /// From now on no buffer is taken for the peer's frames before it has asked for something that this end has, this end
  /// has pulled from it, or trust() is called: a frame that needs one ends the connection (too_large).
  void doubt() noexcept { intake_.doubt(); }
  /// The peer may have buffers for its frames, as at the start.
  void trust() noexcept { intake_.trust(); }
  /// Whether the peer has asked for something that this end has, and that it may have.
  bool has_asked() const noexcept { return intake_.has_asked(); }
  /// Grows with everything of the peer's that counts: requests that are not refused, messages that are taken, answers
  /// to what was asked here.
  std::uint32_t heard() const noexcept { return intake_.heard(); }
  /// The number of the frame that is arriving in a buffer of the pool; 0: none.
  std::uint32_t long_frame() const noexcept { return long_.begun() ? long_frames_ : 0; }

  /// Whether everything has been handed to the transport.
  bool output_idle() const noexcept { return answers_.output.idle(); }

  /// Whether the last message, or other long frame, has been handed to the transport.
  bool long_frame_sent() const noexcept { return answers_.output.long_free(); }

  /// Collects what to write, about `most` bytes; an empty plan: there is nothing to write now. The spans are valid
  /// until written(), which has to follow. connection_lost: a chunk was withdrawn when a part of it had been sent, so
  /// the connection has to be closed.
  template <class Transfer>
  result<void> plan_write(Transfer& t, plan_type& plan, std::span<std::byte> scratch, std::size_t most) noexcept {
    static_assert(sizeof(detail::transfer_requirements<Transfer, transfer_role<Transfer>>) != 0);
    if (blocked_)
      if (const auto ok = parse(t); !ok) return ok;
    frame m;
    std::byte* room = nullptr;  // taken before the transfer is asked: another thread may take the last one meanwhile
    const auto has_room = [&]() noexcept {
      if (room == nullptr && answers_.output.long_free()) room = answers_.pool.acquire();
      return room != nullptr;
    };
    while (!answers_.output.control_full() && (!t.next_is_long() || has_room()) && t.next(m)) {
      if (m.kind == frame_kind::locate) {
        // a name that no control frame carries, or too many: the transfer fails, the connection goes on
        if (const auto ok = answers_.output.push_long(m, answers_.pool, Limits::control_frame_bytes,
                                                      std::exchange(room, nullptr));
            !ok)
          t.fail({ok.error().code, 0, 0, m.names.size() == 1 ? error_name(m.names[0]) : error_name()});
      } else {
        answers_.output.push_control(m);
      }
    }
    if (room != nullptr) answers_.pool.release(room);
    return answers_.plan(plan, scratch, most);
  }
  /// The transport took the first n bytes of the plan; 0 after a failure. Call it once for each plan that is not empty.
  template <class Transfer>
  result<void> written(Transfer& t, const plan_type& plan, std::size_t n) noexcept {
    answers_.sent(plan, n);
    return blocked_ && n > 0 ? parse(t) : result<void>{};
  }

  /// Spans to read into, with at most `most` bytes of payload among them; how many there are. 0: do not read now (there
  /// is no memory, or the peer has to take our answers first).
  template <class Transfer>
  std::size_t plan_read(Transfer& t, std::span<std::span<std::byte>> out, std::size_t most) noexcept {
    static_assert(sizeof(detail::transfer_requirements<Transfer, transfer_role<Transfer>>) != 0);
    std::size_t n = 0;
    drop_if_ended(t);
    if (long_.begun()) {
      if (long_.whole()) return 0;  // waiting to be taken; an empty span would read like the end of the stream
      out[0] = long_.room();
      return 1;
    }
    if (landing_ > 0 && input_.empty()) {
      const prepared p = t.prepare(out.first(out.size() - 1), most);
      if (p.bytes == 0) return 0;
      n = p.pieces;
      if (p.bytes < landing_ || !t.awaiting_chunk()) return n;
      const auto end = static_cast<std::size_t>((phase_ + landing_) % 8);
      out[n++] = input_.space(end, (8 - end) % 8 + prefix::bytes);  // the padding and the next prefix, in the same call
      return n;
    }
    if (blocked_ && input_.full()) return 0;
    out[0] = input_.space(phase_ % 8, input_wanted(t));
    return out[0].empty() ? 0 : 1;
  }

  /// n bytes arrived in the spans of the last plan_read(). An error: the peer broke the protocol; close the connection.
  template <class Transfer>
  result<void> received(Transfer& t, scatter_list spans, std::size_t n) noexcept {
    arrived(t, spans, n);
    return parse(t);
  }
  /// The first half of received(): the spans are not used any more. parse() has to follow, and may be called when their
  /// memory is gone.
  template <class Transfer>
  void arrived(Transfer& t, scatter_list spans, std::size_t n) noexcept {
    phase_ = static_cast<std::uint8_t>((phase_ + n) % 8);
    for (const auto& s : spans) {
      const std::size_t here = std::min(n, s.size());
      if (here == 0) break;
      n -= here;
      if (long_.begun()) long_.filled_more(here);
      else if (landing_ > 0 && input_.empty()) land(t, s.first(here));
      else input_.filled_more(here);
    }
  }

  /// Continues with what is in the buffer after memory has become free. Errors are those of received().
  template <class Transfer>
  result<void> parse(Transfer& t) noexcept {
    static_assert(sizeof(detail::transfer_requirements<Transfer, transfer_role<Transfer>>) != 0);
    blocked_ = false;
    while (!blocked_) {
      drop_if_ended(t);
      if (long_.begun()) {
        if (!long_.whole()) return {};
        if (const auto ok = intake_.accept(*this, t, long_.bytes()); !ok) return ok;
        if (!blocked_) long_.end(answers_.pool);
        continue;
      }
      const auto have = input_.filled();
      if (landing_ > 0) {
        if (have.empty()) return {};
        // sent before it was asked for
        return failure(errc::unexpected_frame, static_cast<std::uint64_t>(frame_kind::chunk));
      } else if (discard_ > 0 || padding_ > 0) {
        if (!skip(discard_ > 0 ? discard_ : padding_)) return {};
      } else {
        const auto more = parse_frame(t, have);
        if (!more) return failure(more.error());
        if (!*more) return {};
      }
    }
    return {};
  }

 private:
  using prefix = detail::payload_prefix;
  using intake_type = detail::frame_intake<Framing, Limits, Owner, Handler>;
  friend intake_type;
  /// No valid layout of a description is shorter: segment table, root pointer, a word of Frame, its pointer, eight
  /// words of Description.
  static constexpr std::size_t smallest_description = 12 * 8;
  static constexpr std::size_t largest_frame = intake_type::largest_frame;

  /// Bytes to read into the buffer. While a chunk is awaited: at most up to the end of its prefix, so that payload only
  /// ever goes from the transport to the consumer's memory. A system call then checks that memory: a destination that
  /// may not be written is an error, not a crash.
  template <class Transfer>
  std::size_t input_wanted(const Transfer& t) const noexcept {
    if (!t.awaiting_chunk()) return input_bytes;
    const auto have = input_.filled();
    // an owner that has not described has sent no chunk
    std::uint64_t head = discard_ + padding_ + (t.described() ? 0 : smallest_description);
    if (have.size() >= 24 && !prefix::announces_payload(have))
      if (const auto size = detail::measure_frame(have, largest_frame, Limits::control_frame_segments); size && *size)
        head = **size;
    const auto whole = std::min<std::uint64_t>(head + prefix::bytes, input_bytes);
    return have.size() < whole ? static_cast<std::size_t>(whole) - have.size() : 0;
  }

  /// One frame at the head of the buffer. False: more bytes are needed.
  template <class Transfer>
  result<bool> parse_frame(Transfer& t, std::span<const std::byte> have) noexcept {
    if (have.size() < 24) {
      // a short frame cannot be told from the head of a long one; its length can
      const auto most = intake_.pulls() ? static_cast<std::size_t>(prefix::frame_bytes(max_payload_bytes))
                                        : largest_frame;
      const auto size = detail::measure_frame(have, most, Limits::control_frame_segments);
      if (!size) return failure(size.error());
      if (!*size || have.size() < **size) return false;
    } else if (prefix::announces_payload(have)) {
      if (!intake_.pulls()) return failure(errc::unexpected_frame, static_cast<std::uint64_t>(frame_kind::chunk));
      if (have.size() < prefix::bytes) return false;
      if (const auto ok = begin_chunk(t, have.template first<prefix::bytes>()); !ok) return failure(ok.error());
      return true;
    }
    const auto size = detail::measure_frame(have, largest_frame, Limits::control_frame_segments);
    if (!size) return failure(size.error());
    if (!*size) return false;
    if (have.size() >= **size) {
      if (const auto ok = intake_.accept(*this, t, have.first(**size)); !ok) return failure(ok.error());
      if (!blocked_) input_.consume(**size);
    } else {
      if (**size + 8 <= input_bytes) return false;
      if (**size > answers_.pool.buffer_bytes() || !intake_.may_have_buffers()) return failure(errc::too_large, **size);
      blocked_ = !long_.begin(answers_.pool, **size, have);
      if (blocked_) return true;
      input_.consume(have.size());
      if (++long_frames_ == 0) long_frames_ = 1;
    }
    return true;
  }

  template <class Transfer>
  [[gnu::noinline]] result<void> begin_chunk(Transfer& t, std::span<const std::byte, prefix::bytes> head) noexcept {
    const auto m = prefix::read(head);
    if (!m) return failure(m.error());
    input_.consume(prefix::bytes);
    padding_ = prefix::padded(m->length) - m->length;
    (t.on_chunk(*m) ? landing_ : discard_) = m->length;
    intake_.count();
    return {};
  }

  /// If the transfer failed half-way through a chunk, the rest of that chunk is thrown away.
  template <class Transfer>
  void drop_if_ended(const Transfer& t) noexcept {
    if (landing_ > 0 && t.ended()) discard_ = std::exchange(landing_, 0);
  }

  // Takes the intake's result. blocked_: there is no room for it yet, and the frame stays where it is.
  result<void> take_message(const frame& m) noexcept {
    if (!intake_.deliver(m)) blocked_ = true;
    return {};
  }
  result<void> take_request(const frame& m, std::span<const std::byte>) noexcept {
    const auto answered = answers_.take(m, intake_);
    if (!answered) return failure(answered.error());
    blocked_ = !*answered;
    return {};
  }
  template <class Transfer>
  void take_answer(Transfer& t, const frame& m) noexcept {
    intake_.count();
    t.on(m);
  }

  template <class Transfer>
  void land(Transfer& t, std::span<const std::byte> bytes) noexcept {
    t.landed(bytes);
    landing_ -= bytes.size();
  }
  bool skip(std::uint64_t& left) noexcept {
    const auto here = std::min<std::uint64_t>(input_.filled().size(), left);
    input_.consume(static_cast<std::size_t>(here));
    return (left -= here) == 0;
  }

  detail::answering<Framing, Limits, Owner> answers_;
  intake_type intake_;
  detail::frame_buffer<input_bytes> input_{};
  detail::long_frame<pool_type> long_{};
  std::uint64_t landing_ = 0, discard_ = 0, padding_ = 0;
  std::uint32_t next_id_ = 1, long_frames_ = 0;
  std::uint8_t phase_ = 0;
  bool blocked_ = false;
};

}  // namespace tensorpull
