// One end of a byte-stream connection, without the stream: bytes in, bytes out. Both roles live here, since either end may own
// references and pull others. Drivers (a blocking socket, an event loop, a simulation, two ends in one process) move the bytes.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/framing/segment_table.hpp>
#include <tensorpull/protocol/frame_buffer.hpp>
#include <tensorpull/protocol/stream_output.hpp>

#include <algorithm>
#include <utility>

namespace tensorpull {

/// The recipient role of an end that only owns.
struct no_transfer {
  static constexpr std::size_t read_piece_bytes = 64 * 1024;
  static constexpr bool next(message&) noexcept { return false; }
  static constexpr bool next_is_long() noexcept { return false; }
  static constexpr void fail(const error&) noexcept {}
  static constexpr void on(const message&) noexcept {}
  static constexpr bool on_chunk(const message&) noexcept { return false; }
  static constexpr prepared prepare(std::span<std::span<std::byte>>, std::uint64_t) noexcept { return {}; }
  static constexpr void landed(std::span<const std::byte>) noexcept {}
  static constexpr std::uint64_t chunk_left() noexcept { return 0; }
  static constexpr bool awaiting_chunk() noexcept { return false; }
  static constexpr bool ended() noexcept { return true; }
  static constexpr std::uint32_t next_id() noexcept { return 1; }
};

/// `Handler` has on_application(const message&), called from received(), and ready(): whether it can take one now. Size: under 2 KiB.
template <framing Framing, class Limits, class Owner, class Handler>
class endpoint {
 public:
  using pool_type = buffer_pool<typename Owner::lock_type>;
  static constexpr std::size_t input_bytes = 512;

  endpoint(Owner& owner, pool_type& pool, Handler& handler) noexcept : owner_(&owner), pool_(pool), handler_(handler) {}
  endpoint(const endpoint&) = delete;
  endpoint& operator=(const endpoint&) = delete;
  ~endpoint() { closed(); }

  /// Frees what the connection held at the owner and in the pool, and lets go of both. Called by the destructor.
  void closed() noexcept {
    if (owner_ == nullptr) return;
    std::exchange(owner_, nullptr)->forget(serves_);
    output_.drop_parcel(pool_);
    if (large_ != nullptr) pool_.release(std::exchange(large_, nullptr));
  }

  /// From now on answers may come; call it before a transfer is driven for the first time. One transfer at a time.
  void begin_pull() noexcept { pulls_ = true; }
  /// Ends the use of a transfer; its payload that is still under way will be thrown away.
  template <class Transfer>
  void end_pull(const Transfer& t) noexcept {
    if (landing_ > 0) discard_ = std::exchange(landing_, 0);
    next_id_ = t.next_id();
  }
  /// The first id of the next transfer on this connection.
  std::uint32_t next_id() const noexcept { return next_id_; }

  /// busy: the message before has not been sent yet, or the pool is empty. does_not_fit: too long.
  result<void> send_application(std::uint32_t kind, std::span<const reference> references, std::span<const std::byte> body) noexcept {
    if (body.size() > Limits::application_body_bytes || references.size() > Limits::application_references) return failure(errc::does_not_fit, body.size());
    message m;
    m.kind = message_kind::application;
    m.application = kind;
    m.references = references;
    m.body = body;
    return output_.push_parcel(m, pool_);
  }
  bool send_control(const message& m) noexcept { return output_.push_control(m); }

  /// A frame of the peer's waits here for memory, or for its answers to be taken.
  bool blocked() const noexcept { return blocked_; }
  /// What has arrived waits in the buffer for memory: call parse() when some became free.
  bool stalled() const noexcept { return blocked_ || (landing_ > 0 && !input_.empty()); }
  /// The peer has begun a frame and not finished it.
  bool mid_frame() const noexcept { return landing_ > 0 || discard_ > 0 || large_ != nullptr || !input_.empty(); }

  /// Everything has been handed to the transport.
  bool output_idle() const noexcept { return output_.idle(); }

  /// Collects what to write; nothing in the plan: nothing to write now.
  template <class Transfer>
  result<void> plan_write(Transfer& t, write_plan& plan, std::span<std::byte> scratch, std::size_t most) noexcept {
    if (blocked_)
      if (const auto ok = parse(t); !ok) return ok;
    message m;
    while (!output_.control_full() && (!t.next_is_long() || (output_.parcel_free() && pool_.available() > 0)) && t.next(m)) {
      if (m.kind == message_kind::locate) {
        // more names than one control frame carries: the transfer fails, the connection goes on
        if (const auto ok = output_.push_parcel(m, pool_, Limits::control_frame_bytes); !ok) t.fail(ok.error());
      } else {
        output_.push_control(m);
      }
    }
    return output_.plan(plan, *owner_, scratch, most);
  }
  template <class Transfer>
  result<void> written(Transfer& t, const write_plan& plan, std::size_t n) noexcept {
    output_.sent(plan, n, *owner_, pool_);
    return blocked_ && n > 0 ? parse(t) : result<void>{};
  }

  /// Spans to read into, at most `most` bytes of payload among them. 0 spans: do not read now (no memory, or the peer has to take
  /// our answers first).
  template <class Transfer>
  std::size_t plan_read(Transfer& t, std::span<std::span<std::byte>> out, std::size_t most) noexcept {
    std::size_t n = 0;
    drop_if_ended(t);
    if (large_ != nullptr) {
      if (large_have_ == large_size_) return 0;  // whole, and waiting to be taken; an empty span would read like the end of the stream
      out[0] = {large_ + large_have_, large_size_ - large_have_};
      return 1;
    }
    if (landing_ > 0 && input_.empty()) {
      const prepared p = t.prepare(out.first(out.size() - 1), most);
      if (p.bytes == 0) return 0;
      n = p.pieces;
      if (p.bytes < landing_ || !t.awaiting_chunk()) return n;
      // the padding and the next prefix, in the same call
      const std::size_t padding = static_cast<std::size_t>((8 - (phase_ + landing_) % 8) % 8);
      const auto rest = input_.space(static_cast<std::size_t>((phase_ + landing_) % 8), padding + detail::payload_prefix::bytes);
      out[n++] = rest;
      return n;
    }
    if (blocked_ && input_.full()) return 0;
    const auto rest = input_.space(phase_ % 8, input_bytes);
    if (!rest.empty()) out[n++] = rest;
    return n;
  }

  /// n bytes arrived in the spans of the last plan_read(). An error: close the connection; the peer broke the protocol.
  template <class Transfer>
  result<void> received(Transfer& t, std::span<const std::span<std::byte>> spans, std::size_t n) noexcept {
    phase_ = static_cast<std::uint8_t>((phase_ + n) % 8);
    if (large_ != nullptr) {
      large_have_ += n;
      return parse(t);
    }
    for (const auto& s : spans) {
      const std::size_t here = std::min(n, s.size());
      if (here == 0) break;
      n -= here;
      if (landing_ > 0 && input_.empty()) {
        land(t, s.first(here));
      } else {
        input_.filled_more(here);
      }
    }
    return parse(t);
  }

  /// Goes on with what is in the buffer, after memory became free.
  template <class Transfer>
  result<void> parse(Transfer& t) noexcept {
    blocked_ = false;
    while (!blocked_) {
      drop_if_ended(t);
      if (large_ != nullptr) {
        if (large_have_ < large_size_) return {};
        const auto ok = accept(t, {large_, large_size_});
        if (!ok) return ok;
        if (!blocked_) pool_.release(std::exchange(large_, nullptr));
        continue;
      }
      const auto have = input_.filled();
      if (landing_ > 0) {
        if (have.empty()) return {};
        if (!land_from_input(t, have)) return blocked_ = true, result<void>{};
      } else if (discard_ > 0 || padding_ > 0) {
        std::uint64_t& left = discard_ > 0 ? discard_ : padding_;
        const auto here = std::min<std::uint64_t>(have.size(), left);
        input_.consume(static_cast<std::size_t>(here));
        left -= here;
        if (left > 0) return {};
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
  static constexpr std::size_t most_payload_frame = static_cast<std::size_t>(prefix::frame_bytes(max_payload_bytes));
  static constexpr std::size_t largest_frame = Limits::application_body_bytes + Limits::application_references * 32 + 256;

  /// One frame at the head of the buffer. False: more bytes are needed.
  template <class Transfer>
  result<bool> parse_frame(Transfer& t, std::span<const std::byte> have) noexcept {
    if (have.size() < 24) {
      // a short frame cannot be told from the head of a long one; its length can
      const auto size = detail::measure_frame(have, pulls_ ? most_payload_frame : largest_frame, Limits::control_frame_segments);
      if (!size) return failure(size.error());
      if (!*size || have.size() < **size) return false;
    } else if (prefix::announces_payload(have)) {
      if (!pulls_) return failure(errc::unexpected_message, static_cast<std::uint64_t>(message_kind::chunk));
      if (have.size() < prefix::bytes) return false;
      const auto m = prefix::read(have.template first<prefix::bytes>());
      if (!m) return failure(m.error());
      input_.consume(prefix::bytes);
      padding_ = prefix::padded(m->length) - m->length;
      (t.on_chunk(*m) ? landing_ : discard_) = m->length;
      return true;
    }
    const auto size = detail::measure_frame(have, largest_frame, Limits::control_frame_segments);
    if (!size) return failure(size.error());
    if (!*size) return false;
    if (have.size() >= **size) {
      const auto ok = accept(t, have.first(**size));
      if (!ok) return failure(ok.error());
      if (!blocked_) input_.consume(**size);
      return true;
    }
    if (**size + 8 <= input_bytes) return false;
    if (**size > pool_.buffer_bytes()) return failure(errc::too_large, **size);
    large_ = pool_.acquire();
    if (large_ == nullptr) return blocked_ = true, true;
    large_size_ = **size;
    large_have_ = have.size();
    std::memcpy(large_, have.data(), have.size());
    input_.consume(have.size());
    return true;
  }

  /// A transfer that failed half-way through a chunk: the rest of that chunk is thrown away.
  template <class Transfer>
  void drop_if_ended(const Transfer& t) noexcept {
    if (landing_ > 0 && t.ended()) discard_ = std::exchange(landing_, 0);
  }

  /// One whole control frame. Sets blocked_ where its answer has no room yet; the frame then stays where it is.
  template <class Transfer>
  result<void> accept(Transfer& t, std::span<const std::byte> frame) noexcept {
    typename Framing::decode_storage lists;
    message m;
    if (const auto ok = Framing::decode(frame, m, lists); !ok) return ok;
    if (m.kind != message_kind::application && frame.size() > Limits::control_frame_bytes) return failure(errc::too_large, frame.size());
    if (m.kind == message_kind::application) {
      if (!handler_.ready()) return blocked_ = true, result<void>{};
      handler_.on_application(m);
    } else if (m.kind == message_kind::locate) {
      if (!output_.parcel_free() || output_.replies_full()) return blocked_ = true, result<void>{};
      if (pool_.available() == 0) {  // waiting for a buffer while holding one could wait for ever
        output_.push({message_kind::refused, status::busy, m.id, 0, 0, 0, m.ref, m.version, 0, 0, 0});
        return {};
      }
      std::array<byte_range, Limits::control_frame_bytes / 32> ranges;
      message answer;
      owner_->locate(serves_, m, ranges, answer);
      return output_.push_answer(answer, pool_);
    } else if (is_request(m.kind)) {
      if (output_.replies_full()) return blocked_ = true, result<void>{};
      pending_reply r;
      if (owner_->handle(serves_, m, r)) output_.push(r);
    } else if (m.kind == message_kind::nothing || !pulls_) {
      return failure(errc::unexpected_message, static_cast<std::uint64_t>(m.kind));
    } else {
      t.on(m);
    }
    return {};
  }

  template <class Transfer>
  void land(Transfer& t, std::span<const std::byte> bytes) noexcept {
    t.landed(bytes);
    landing_ -= bytes.size();
  }
  /// The payload's first bytes came together with its prefix: they are copied. False: the consumer has no memory now.
  template <class Transfer>
  bool land_from_input(Transfer& t, std::span<const std::byte> have) noexcept {
    std::array<std::span<std::byte>, 8> to;
    const prepared p = t.prepare(to, std::min<std::uint64_t>(have.size(), landing_));
    if (p.bytes == 0) return false;
    for (std::size_t i = 0; i < p.pieces; ++i) {
      std::memcpy(to[i].data(), have.data(), to[i].size());
      have = have.subspan(to[i].size());
      land(t, to[i]);
      input_.consume(to[i].size());
    }
    return true;
  }

  Owner* owner_;  // null once closed() was called: what it points to may be gone
  pool_type& pool_;
  Handler& handler_;
  [[no_unique_address]] typename Owner::link serves_{};
  stream_output<Framing, Limits, Owner> output_{};
  detail::frame_buffer<input_bytes> input_{};
  std::byte* large_ = nullptr;
  std::size_t large_size_ = 0, large_have_ = 0;
  std::uint64_t landing_ = 0, discard_ = 0, padding_ = 0;
  std::uint32_t next_id_ = 1;
  std::uint8_t phase_ = 0;
  bool blocked_ = false;
  bool pulls_ = false;  // this end has asked for something, so answers may come
};

}  // namespace tensorpull
