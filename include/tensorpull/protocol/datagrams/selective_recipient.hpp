// The recipient's state machine over datagrams: selective repeat. Requests for chunks are repeated one by one, and
// answers are matched by what they carry and not by their order. It shares everything but the chunks with
// recipient.hpp.
#pragma once

#include <tensorpull/protocol/datagrams/congestion_window.hpp>
#include <tensorpull/protocol/datagrams/detail/chunk_window.hpp>
#include <tensorpull/protocol/datagrams/detail/requests_in_flight.hpp>
#include <tensorpull/protocol/datagrams/round_trip.hpp>
#include <tensorpull/protocol/recipient/recipient.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/chrono.hpp>

#include <bit>
#include <cstdint>
#include <span>

namespace tensorpull {

/// Where the payload of a wanted chunk goes.
enum class landing_place : std::uint8_t {
  next,   ///< behind what has landed
  early,  ///< further on in the consumer's memory
  held,   ///< into the memory that was given for early chunks
};

/// The frames of one transfer over datagrams. It asks for at most `window` chunks from the first missing byte on. Of a
/// chunk and of its last request it remembers 8 bytes and 3 bits: 34 KiB with the default limits.
///
/// A request is lost if one that left three later was answered, or if nothing arrived for the time-out of round_trip.
/// Doubled and late answers, and those of another version or range than was asked for, are nothing.
template <chunking_strategy Chunking, class Limits = default_limits>
class selective_recipient : private recipient<Chunking, Limits> {
  using base = recipient<Chunking, Limits>;
  using phase = typename base::phase;
  using base::answers_last, base::ask_, base::ask_for, base::chunker_, base::confirms_, base::description_came_,
      base::first_id_, base::next_id_, base::nonce_, base::part_, base::phase_, base::received_, base::request_,
      base::request_sent_, base::version_;

 public:
  // what stays as it is
  using base::anew, base::resume, base::confirm, base::part_end, base::is_last_part, base::in_parts, base::settle,
      base::farewell, base::describing, base::description, base::nonce, base::expected_digest, base::own_digest,
      base::verified, base::request, base::next_id, base::delay;
  /// Points in time, and durations.
  using time = std::chrono::microseconds;
  /// Chunks from the first missing one on that may be asked for: a power of two.
  static constexpr std::uint32_t slots = static_cast<std::uint32_t>(
      std::bit_ceil(std::max<std::size_t>(Limits::window, 64)));
  static_assert(slots <= 32768, "tensorpull: a window over datagrams has at most 32,768 requests (limits::window)");
  /// Requests that travel in one datagram at most: their answers leave in one burst.
  static constexpr std::uint32_t most_in_one = 8;

  /// As recipient; the request's `window` is the most that the congestion window grows to. An owner that allows one
  /// request is asked for one at a time.
  selective_recipient(const pull_request& what, Chunking chunking, std::uint32_t first_id) noexcept
      : base(what, chunking, first_id),
        window_(std::min(what.window != 0 ? what.window : slots, static_cast<std::uint32_t>(Limits::window))) {}

  /// Tells a strategy that adapts how the transfer gets on. Where each chunk on its way begins is remembered, so its
  /// length may change at any time.
  void measured(std::uint64_t landed, std::chrono::nanoseconds time_passed) noexcept
    requires detail::adapts<Chunking>
  {
    chunker_.measured({ask_.offset, ask_.offset, landed, time_passed});
  }
  /// The longest chunk that the link carries, in bytes; call it before the first request.
  void fits(std::uint64_t payload_bytes) noexcept {
    most_payload_ = std::min<std::uint64_t>(payload_bytes, 0xffffffffu / slots);
  }
  /// The ranges that the consumer can take: any range at any time, or only the next bytes. `hold`: memory for chunks
  /// that arrive too early for that; the window is then as many chunks as fit, at least one.
  void lands(bool any_order, std::span<std::byte> hold) noexcept {
    any_order_ = any_order;
    hold_ = hold;
  }
  /// Any of several owners of the content may answer for a chunk, so that its nonce tells nothing. Their answers
  /// overtake each other and are seldom lost: the window stays as it begins, and a request is lost if one that left
  /// four windows later was answered, or if nothing arrived for half a second.
  void from_any_owner() noexcept {
    any_owner_ = true;
    window_ = congestion_window(std::min(request_.window != 0 ? request_.window : 4, slots / 8), true);
  }

  /// The next request that is no pull: one at a time. False: there is none now.
  bool next(frame& out) noexcept {
    if (phase_ == phase::pulling) return false;
    if (phase_ == phase::describing && (!request_.by_name() || !description_came_))
      return false;  // nothing is asked ahead of the description
    return base::next(out);
  }
  /// Whether the next request may be longer than 100 bytes.
  bool next_is_long() const noexcept { return base::next_is_long() && description_came_; }

  /// Requests for chunks that may travel in one datagram, at least 1: as many as the owner states, but on a path that
  /// is no machine's own a 512th of the window, since their answers arrive at a queue in one burst.
  std::uint32_t batch() const noexcept {
    return window_.is_paced(trip_) ? std::max(std::min(batch_, window_.size() / 512), std::uint32_t{1}) : batch_;
  }
  /// Whether pulls should be sent now: a few at a time, as long as half of the window is on its way.
  bool wants_pulls(time now) const noexcept {
    return worth_asking() && (asked_.count() == 0 || window_.release() <= now);
  }
  /// The next pull. False: there is none now. `last`: it asks for the last bytes.
  bool next_pull(frame& out, bool& last, time now) noexcept {
    if (may_ask() == 0 || (asked_.count() > 0 && window_.release() > now)) return false;
    std::uint32_t k;
    if (chunks_.again_count() > 0) {
      k = chunks_.first_again();
      chunks_.not_again(k);
    } else {
      const std::uint64_t length = chunker_.length(ask_, request_);
      chunker_.wanted.advance(ask_, length);
      k = chunks_.add(length);
    }
    out = {};
    out.ref = request_.ref;
    out.version = version_;
    const auto from = chunker_.wanted.at(chunks_.begin_of(k));
    const std::uint64_t length = chunks_.length_of(k);
    ask_for(out, from.offset, length, chunker_.wanted.runs(from, length));
    out.id = next_id_++;
    last = chunks_.begin_of(k) + out.length == chunker_.wanted.total();
    if (asked_.count() == 0) deadline_ = now + timeout();
    asked_.add(out.id, static_cast<std::uint16_t>(k % slots), now);
    window_.left(trip_, now);
    filling_ = may_ask() > 0;
    return true;
  }
  /// Pulls that the link did not take: as if they had not been asked for.
  void not_sent(std::uint32_t first, std::uint32_t count) noexcept {
    for (; count > 0; --count, ++first)
      if (const std::uint16_t slot = asked_.take(first); slot != asked_.nobody)
        chunks_.ask_again(chunks_.of_slot(slot));
  }

  /// Time has passed: if nothing arrived for too long, everything is asked for again.
  void at(time now) noexcept {
    now_ = now;
    if (asked_.count() == 0 || now < deadline_) return;
    trip_.back_off();
    window_.timed_out();
    asked_.give_up_all(again());
  }
  /// When at() or next_pull() has something to do although nothing arrives; time::max(): never.
  time wakes() const noexcept {
    if (phase_ != phase::pulling) return time::max();
    const bool asks = worth_asking();
    if (asked_.count() > 0) return asks ? std::min(deadline_, window_.release()) : deadline_;
    return asks ? time::min() : time::max();
  }

  /// Checks an answer other than a chunk. An error ends the transfer. Answers that are late or doubled are nothing.
  result<recipient_event> on(const frame& m) noexcept {
    if (m.ref != request_.ref || !is_awaited(m)) return recipient_event::nothing;
    if (m.kind != frame_kind::description) return begun(base::on(m));
    frame fitting = m;
    fitting.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(m.length, most_payload_));
    batch_ = std::min<std::uint32_t>(std::max<std::uint32_t>(m.window, 1), most_in_one);
    if (m.window == 1) window_ = congestion_window(1, true);  // it drops requests while it answers
    if (m.window == 1) part_.sound_out();  // it may be a small machine's
    return begun(base::on(fitting));
  }

  /// Checks a chunk. True: its payload is wanted, at `place()`; call arrived() or damaged() when all of it is there.
  bool on_chunk(const frame& m) noexcept {
    if (phase_ != phase::pulling || m.ref != request_.ref || m.version != version_) return false;
    const bool ours = m.nonce == nonce_ || any_owner_;
    if (ours && asked_.was_late(m.id)) window_.was_not_lost(m.id);
    const std::uint32_t k = find(m);
    if (k == chunks_.last() || m.length != chunks_.length_of(k)) return false;
    if (!ours) {
      // another serve: the owner was started again or has published the content again, if it answers what was asked
      // just now
      anew_ = asked_.has(m.id) && asked_.slot(m.id) == k % slots;
      return false;
    }
    if (asked_.has(m.id)) acknowledge(m.id);
    if (chunks_.here.test(k)) return false;
    chunks_.not_again(k);
    if (confirms_) {
      phase_ = phase::confirming;  // this serve has reached its end, and everything is here already
      request_sent_ = false;
      return false;
    }
    current_ = k;
    done_ = 0;
    place_ = place_of(k);
    if (wants_order(chunks_.begin_of(k)) && k - chunks_.first() >= std::max<std::uint32_t>(held_slots(), 1)) {
      chunks_.ask_again(k);
      return false;
    }
    return true;
  }
  /// Whether the last chunk was of another serve than was described, so that restart() has to ask for the description
  /// again if `anew` allows it.
  bool served_anew() const noexcept { return anew_; }
  /// Where the payload of the chunk that on_chunk() has accepted goes.
  landing_place place() const noexcept { return place_; }
  /// The position of its next byte, among the bytes that are wanted.
  std::uint64_t position() const noexcept { return chunks_.begin_of(current_) + done_; }
  /// The memory for what is missing of it, if it is held.
  std::span<std::byte> hold() const noexcept { return memory_of(current_).subspan(static_cast<std::size_t>(done_)); }
  /// These many bytes of it are there.
  void filled(std::size_t bytes) noexcept { done_ += bytes; }
  /// All of it is there. One in order is passed at once, the others are told by first_held() and first_early() in their
  /// turn.
  void arrived() noexcept {
    if (phase_ != phase::pulling) return;
    if (place_ == landing_place::next) {
      pass();
    } else {
      chunks_.here.set(current_);
      if (place_ == landing_place::held) chunks_.held.set(current_);
      else chunks_.held.clear(current_);
    }
  }
  /// It was damaged: it is asked for again.
  void damaged() noexcept { chunks_.ask_again(current_); }
  /// Bytes of the next chunk in order if it has landed early; 0: it has not.
  std::uint64_t first_early() const noexcept {
    return first_is_here() && !chunks_.held.test(chunks_.first()) ? chunks_.length_of(chunks_.first()) : 0;
  }
  /// The next chunk in order if it is held; empty: it is not.
  std::span<const std::byte> first_held() const noexcept {
    return first_is_here() && chunks_.held.test(chunks_.first()) ? memory_of(chunks_.first()) : std::span<std::byte>{};
  }
  /// The next chunk in order has been taken.
  void pass() noexcept {
    received_ += chunks_.length_of(chunks_.first());
    anew = {};
    chunks_.pass();
  }
  /// The consumer has no memory: what is missing is asked for again from `received` on.
  void go_back(std::uint64_t received) noexcept {
    received_ = received;
    begin_window();
  }

  /// As recipient::restart().
  void restart(std::uint64_t received) noexcept {
    base::restart(received);
    begin_window();
  }
  /// As recipient::next_part().
  void next_part() noexcept {
    base::next_part();
    begin_window();
  }
  /// Whether an answer to this request is still awaited.
  bool expects(std::uint32_t id) const noexcept {
    return !detail::comes_before(id, first_id_) && phase_ != phase::settled;
  }
  /// Whether a chunk may arrive.
  bool awaiting_chunk() const noexcept { return asked_.count() > 0; }
  /// The round trip of its requests.
  const round_trip& trip() const noexcept { return trip_; }
  /// The congestion window.
  const congestion_window& window() const noexcept { return window_; }

 private:
  /// Whether this is the first answer to what was asked last.
  bool is_awaited(const frame& m) const noexcept {
    if (detail::comes_before(m.id, first_id_) || !detail::comes_before(m.id, next_id_)) return false;
    const bool describes = phase_ == phase::describing;
    switch (m.kind) {
      case frame_kind::description: return describes && !description_came_ && m.id == first_id_;
      case frame_kind::located: return describes && description_came_ && request_.by_name() && m.id == first_id_ + 1;
      case frame_kind::schema_page: return phase_ == phase::comparing && answers_last(m);
      case frame_kind::confirmed:
        return phase_ == phase::confirming && answers_last(m) && m.nonce == nonce_ && m.version == version_;
      case frame_kind::refused:
        if (describes) return m.id == next_id_ - 1;
        return phase_ == phase::pulling ? asked_.has(m.id) : answers_last(m);
      default: return false;
    }
  }
  /// Looks at what an answer has brought about.
  result<recipient_event> begun(result<recipient_event> event) noexcept {
    if (!event) return event;
    if (*event == recipient_event::described || *event == recipient_event::described_again ||
        *event == recipient_event::busy || phase_ == phase::start)
      begin_window();
    return event;
  }
  /// Nothing is asked for, and what is missing begins at received_.
  void begin_window() noexcept {
    asked_.give_up_all([](std::uint32_t, std::uint16_t) noexcept {});
    chunks_.begin(received_);
    anew_ = false;
    if (phase_ == phase::pulling) ask_ = chunker_.wanted.at(received_);
  }

  bool first_is_here() const noexcept { return chunks_.size() > 0 && chunks_.here.test(chunks_.first()); }
  std::uint32_t held_slots() const noexcept {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(hold_.size() / room_for_one(), slots));
  }
  std::size_t room_for_one() const noexcept {
    return static_cast<std::size_t>(
        (std::max<std::uint64_t>(std::min(chunker_.cap(), Chunking::max_chunk_bytes), 1) + 7) & ~std::uint64_t{7});
  }
  std::span<std::byte> memory_of(std::uint32_t k) const noexcept {
    return hold_.subspan((k % held_slots()) * room_for_one(), static_cast<std::size_t>(chunks_.length_of(k)));
  }

  /// Whether what begins at a position has to land behind what has landed: everything, or the header, which no consumer
  /// keeps.
  bool wants_order(std::uint64_t position) const noexcept {
    return !any_order_ || (!request_.by_name() && position < chunker_.image().data_start);
  }
  /// How many pulls may leave now, as far as windows and memory are concerned.
  std::uint32_t may_ask() const noexcept {
    if (phase_ != phase::pulling || asked_.count() >= window_.size()) return 0;
    const std::uint32_t room = std::min(window_.size() - asked_.count(), asked_.room(next_id_));
    return std::min(room, chunks_.again_count() + new_chunks(room));
  }
  /// Whether there are enough of them for a datagram, too few on their way to wait for more, or the rest of those that
  /// have begun to leave, one after the other.
  bool worth_asking() const noexcept {
    const std::uint32_t room = may_ask();
    const std::uint32_t part = (window_.size() + 3) / 4;
    return room > 0 && (filling_ || room >= std::min(batch(), part) || asked_.count() + part <= window_.size() ||
                        !more_after(room));
  }
  /// Up to `most` chunks that were not asked for yet and may be.
  std::uint32_t new_chunks(std::uint32_t most) const noexcept {
    if (chunker_.wanted.over(ask_)) return 0;
    const std::uint32_t span = wants_order(chunks_.end()) ? std::max<std::uint32_t>(held_slots(), 1) : slots;
    return chunks_.size() < span ? std::min(most, span - chunks_.size()) : 0;
  }
  /// Whether there would be more to ask for than this.
  bool more_after(std::uint32_t n) const noexcept {
    return chunks_.again_count() > n || (!chunker_.wanted.over(ask_) && chunks_.size() + n < slots);
  }

  /// Where a chunk goes. One that has to be passed on in order is held if there is memory for that, unless it is the
  /// next one of a consumer of any order, which has memory at any time.
  landing_place place_of(std::uint32_t k) const noexcept {
    const bool next = k == chunks_.first();
    if (!wants_order(chunks_.begin_of(k))) return next ? landing_place::next : landing_place::early;
    return held_slots() == 0 || (any_order_ && next) ? landing_place::next : landing_place::held;
  }
  /// The chunk that an answer is about, or chunks_.last().
  std::uint32_t find(const frame& m) const noexcept {
    const auto at = chunker_.wanted.position_of(m.offset);
    if (!at || *at < received_ || *at >= chunks_.end()) return chunks_.last();
    if (asked_.has(m.id))
      if (const std::uint32_t k = chunks_.of_slot(asked_.slot(m.id)); chunks_.has(k) && chunks_.begin_of(k) == *at)
        return k;
    return chunks_.find(*at);
  }

  time timeout() const noexcept { return any_owner_ ? std::max(trip_.timeout(), time(500'000)) : trip_.timeout(); }
  /// An awaited request was answered.
  void acknowledge(std::uint32_t id) noexcept {
    const time took = asked_.took(id, now_);
    const bool in_order = asked_.is_first(id);
    const std::uint32_t before = asked_.count();
    asked_.take(id);
    if (in_order || !trip_.known()) trip_.took(took);
    else trip_.go_on();
    window_.answered(trip_, in_order ? took : time{}, id, next_id_, before, chunks_.again_count() + new_chunks(1) > 0,
                     now_);
    deadline_ = now_ + timeout();
    if (any_owner_) return asked_.give_up_before(id - 4 * window_.size() + 1, again());
    asked_.answered(id, trip_, [this](std::uint32_t gone, std::uint16_t slot) noexcept {
      again()(gone, slot);
      window_.lost(gone, next_id_);
    });
  }
  /// The chunk of a request that was lost is asked for again.
  auto again() noexcept {
    return [this](std::uint32_t, std::uint16_t slot) noexcept { chunks_.ask_again(chunks_.of_slot(slot)); };
  }

  round_trip trip_{};
  congestion_window window_;
  detail::chunk_window<slots> chunks_{};
  detail::requests_in_flight<slots> asked_{};
  std::span<std::byte> hold_{};
  std::uint64_t done_ = 0, most_payload_ = max_payload_bytes;
  time now_{}, deadline_{};
  std::uint32_t current_ = 0, batch_ = 1;
  landing_place place_ = landing_place::next;
  bool any_order_ = false, any_owner_ = false, anew_ = false;
  bool filling_ = false;  // requests have begun to leave, and the window has room for more
};

}  // namespace tensorpull
