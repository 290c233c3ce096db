// The sending half of one end of a byte stream. What waits to be sent is turned into spans when the transport can take
// them. A reply is kept as a few words and written anew for each send, so a slow peer holds no memory for payload.
#pragma once

#include <tensorpull/core/buffer_pool.hpp>
#include <tensorpull/framing/concept.hpp>
#include <tensorpull/framing/detail/payload_prefix.hpp>
#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/protocol/connection/write_plan.hpp>
#include <tensorpull/protocol/pending_reply.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tensorpull::detail {

template <framing Framing, class Limits, class Owner>
class stream_output {
 public:
  /// Bytes for the requests and confirmations of this end. They are short, encoded at once, and kept as bytes.
  static constexpr std::size_t control_bytes = 288;
  /// Bytes that are hashed at most for one plan.
  static constexpr std::uint64_t digest_bytes = 256 * 1024;
  static constexpr std::size_t reply_capacity = Owner::waiting_replies;
  using pool_type = buffer_pool<typename Owner::lock_type>;
  using plan_type = std::conditional_t<Owner::owns, write_plan, short_write_plan>;
  using item = typename plan_type::item;
  using source = typename plan_type::source;

  bool idle() const noexcept { return control_end_ == 0 && long_ == nullptr && reply_count_ == 0; }
  /// Whether the next plan has something to write: not if all that waits is behind a digest.
  bool ready() const noexcept {
    const bool digested = reply_count_ > 0 && replies_[reply_first_].chunk_digest == digest_kind::none;
    return digested || control_end_ > 0 || (long_ != nullptr && (long_after_ == 0 || long_sent_ > 0));
  }
  /// How far the next digest was when the last plan was made.
  digest_state digesting() const noexcept { return digesting_; }
  bool replies_full() const noexcept { return reply_count_ == reply_capacity; }
  bool long_free() const noexcept { return long_ == nullptr; }
  bool control_full() const noexcept { return control_end_ + 128 > control_bytes; }

  void push(const pending_reply& r) noexcept { reply(reply_count_++) = r; }

  /// Encodes a short frame of this end. False: there is no room now; try again after sent().
  bool push_control(const frame& m) noexcept {
    if (control_full()) return false;
    const auto n = Framing::encode(m, {control_ + control_end_, control_bytes - control_end_});
    if (!n) return false;
    control_end_ += static_cast<std::uint32_t>(*n);
    return true;
  }

  /// Encodes a long frame into a buffer of the pool. busy: another one is on its way, or no buffer is free.
  /// does_not_fit: it is longer than `most` or than a buffer.
  result<void> push_long(const frame& m, pool_type& pool, std::size_t most = ~std::size_t{0}) noexcept {
    std::byte* const buffer = long_ == nullptr ? pool.acquire() : nullptr;
    if (buffer == nullptr) return failure(errc::busy);
    const auto n = Framing::encode(m, {buffer, std::min(most, pool.buffer_bytes())});
    if (!n) return pool.release(buffer), failure(n.error());
    long_ = buffer;
    long_bytes_ = *n;
    long_sent_ = 0;
    long_after_ = 0;
    return {};
  }
  /// The same for an answer, which is sent after the replies that wait now.
  result<void> push_answer(const frame& m, pool_type& pool) noexcept {
    const auto ok = push_long(m, pool);
    if (ok) long_after_ = reply_count_;
    return ok;
  }

  /// The same for a message. does_not_fit: also if body or references are above the limits.
  result<void> push_message(std::uint32_t kind, std::span<const reference> references, std::span<const std::byte> body,
                            pool_type& pool) noexcept {
    if (body.size() > Limits::application_body_bytes || references.size() > Limits::application_references)
      return failure(errc::does_not_fit, body.size());
    frame m;
    m.kind = frame_kind::application;
    m.application = kind;
    m.references = references;
    m.body = body;
    return push_long(m, pool);
  }

  /// Collects what is to be sent: no reply is added once there are `most` bytes. `scratch` (64 KiB) holds prefixes,
  /// header text and packed elements until sent(). Goes on with the digest of the first reply that waits for one, so
  /// that it is ready when its turn comes; a peer that reads nothing causes no other. connection_lost: a part of a
  /// frame was sent when its image was withdrawn, so the stream cannot continue.
  result<void> plan(plan_type& out, Owner& owner, std::span<std::byte> scratch, std::size_t most) noexcept {
    out.span_count = out.item_count = out.bytes = 0;
    out.descriptors = {};
    digesting_ = digest_state::ready;
    std::uint64_t allowance = digest_bytes;
    if (reply_sent_ > 0) {  // a frame that was begun comes first
      if (const auto more = add_reply(out, owner, scratch, 0); !more) return failure(more.error());
      else if (!*more) return digest(owner, scratch, 1, allowance), result<void>{};
    }
    if (long_sent_ > 0) add_long(out);
    if (control_end_ > control_sent_) {
      add(out, {control_ + control_sent_, control_end_ - control_sent_});
      push_item(out, {source::control, false, true, control_end_ - control_sent_});
    }
    bool long_waits = long_ != nullptr && long_sent_ == 0;
    for (std::size_t i = reply_sent_ > 0 ? 1 : 0; out.has_room(); ++i) {
      if (long_waits && i >= long_after_) {
        add_long(out);
        long_waits = false;
      }
      if (i >= reply_count_ || !digest(owner, scratch, i, allowance) || out.bytes >= most || !out.has_room()) break;
      const auto more = add_reply(out, owner, scratch, i);
      if (!more) return failure(more.error());
      if (!*more) {
        digest(owner, scratch, i + 1, allowance);
        break;
      }
    }
    return {};
  }

  /// The transport took the first n bytes of the plan (0 after a failure). Call it once for each plan.
  void sent(const plan_type& p, std::size_t n, Owner& owner, pool_type& pool) noexcept {
    std::size_t replies = 0, finished = 0, partly = reply_sent_;
    for (std::size_t i = 0; i < p.item_count; ++i) {
      const item& it = p.items[i];
      const std::size_t took = n < it.bytes ? n : it.bytes;
      n -= took;
      if (it.from == source::control) {
        control_sent_ += static_cast<std::uint32_t>(took);
        if (control_sent_ == control_end_) control_sent_ = control_end_ = 0;
      } else if (it.from == source::long_frame) {
        long_sent_ += took;
        if (long_sent_ == long_bytes_) drop_long(pool);
      } else {
        const pending_reply& r = reply(replies++);
        if (it.pinned)
          owner.unpin(r,
                      r.kind == frame_kind::chunk ? payload_within(r, partly + took) - payload_within(r, partly) : 0);
        if (took == it.bytes && it.whole) ++finished, partly = 0;
        else partly += took;  // only the first unfinished one can have been taken in part
      }
    }
    reply_first_ = (reply_first_ + finished) % reply_capacity;
    reply_count_ -= finished;
    long_after_ -= std::min(long_after_, finished);
    if (replies > 0) reply_sent_ = partly;
  }

  void drop_long(pool_type& pool) noexcept {
    if (long_ != nullptr) pool.release(long_);
    long_ = nullptr;
    long_sent_ = 0;
  }

 private:
  /// The i-th waiting reply, or the place for the next one.
  pending_reply& reply(std::size_t i) noexcept { return replies_[(reply_first_ + i) % reply_capacity]; }

  /// Bytes of payload among the first n of a chunk's frame.
  static std::uint64_t payload_within(const pending_reply& r, std::size_t n) noexcept {
    return n <= payload_prefix::bytes ? 0 : std::min<std::uint64_t>(n - payload_prefix::bytes, r.length);
  }

  /// Bytes of scratch memory that a control frame can need.
  static constexpr std::size_t frame_room = Limits::control_frame_bytes;

  static void add(plan_type& out, std::span<const std::byte> bytes) noexcept {
    if (!bytes.empty()) out.spans[out.span_count++] = bytes;
  }
  static void push_item(plan_type& out, const item& it) noexcept {
    out.items[out.item_count++] = it;
    out.bytes += it.bytes;
  }
  void add_long(plan_type& out) noexcept {
    add(out, {long_ + long_sent_, long_bytes_ - long_sent_});
    push_item(out, {source::long_frame, false, true, long_bytes_ - long_sent_});
  }

  /// Goes on with the digest of the i-th waiting reply if it needs one. False: it is not ready.
  bool digest(Owner& owner, std::span<std::byte> scratch, std::size_t i, std::uint64_t& allowance) noexcept {
    if constexpr (Owner::owns)
      if (i < reply_count_)
        if (pending_reply& r = replies_[(reply_first_ + i) % reply_capacity];
            r.chunk_digest != digest_kind::none && scratch.size() >= frame_room) {
          digesting_ = owner.digest(r, allowance, scratch);
          return digesting_ == digest_state::ready;
        }
    return true;
  }

  /// Adds the i-th waiting reply. False: the plan is full, or ends within this frame.
  result<bool> add_reply(plan_type& out, Owner& owner, std::span<std::byte>& scratch, std::size_t i) noexcept {
    if constexpr (!Owner::owns) {
      return false;
    } else {
      if (scratch.size() < frame_room + 16) return false;
      scratch = scratch.subspan((8 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 8) % 8);  // header text of odd
                                                                                                  // length lies before
      pending_reply& r = reply(i);
      const std::size_t skip = i == 0 ? reply_sent_ : 0;
      const bool of_slot = r.kind != frame_kind::refused && r.kind != frame_kind::confirmed;
      const source_view* const image = of_slot ? owner.pin(r) : nullptr;
      if (of_slot && image == nullptr) {
        if (skip > 0) return failure(errc::connection_lost);  // the rest of a frame that cannot be produced any more
        owner.refuse_gone(r);
      }
      if (image != nullptr && r.kind == frame_kind::chunk) {
        const std::size_t spans = out.span_count;
        const std::span<std::byte> room = scratch;
        if (const auto more = add_chunk(out, r, *image, scratch, skip)) return *more;
        owner.unreadable(r);
        owner.unpin(r, 0);
        if (skip > 0) return failure(errc::connection_lost);
        out.span_count = spans;
        scratch = room;
        owner.refuse_gone(r);
      }
      const bool pinned = image != nullptr && r.kind != frame_kind::refused;
      if constexpr (requires { owner.descriptors(r); })
        if (r.memory && pinned) out.descriptors = owner.descriptors(r);
      const auto n = Framing::encode(owner.expand(r), scratch.first(frame_room));
      const std::size_t length = n ? *n : 0;
      add(out, scratch.subspan(skip, length - skip));
      scratch = scratch.subspan(length);
      push_item(out, {source::reply, pinned, true, length - skip});
      return true;
    }
  }

  /// io: the image could not be read.
  result<bool> add_chunk(plan_type& out, const pending_reply& r, const source_view& image,
                         std::span<std::byte>& scratch, std::size_t skip) noexcept {
    using prefix = payload_prefix;
    const std::size_t before = skip < prefix::bytes ? prefix::bytes - skip : 0;
    if (before > 0) {
      prefix::write(frame_of(r), scratch.template first<prefix::bytes>());
      add(out, scratch.subspan(skip, before));
      scratch = scratch.subspan(prefix::bytes);
    }
    const std::size_t done = skip > prefix::bytes ? skip - prefix::bytes : 0;
    std::size_t included = before, payload_left = done < r.length ? r.length - done : 0;
    if (payload_left > 0) {
      const std::size_t free_spans = plan_type::max_spans - out.span_count - 3;  // without padding, control and a long
                                                                                 // frame
      const std::span<std::span<const std::byte>> room{out.spans.data() + out.span_count, free_spans};
      const gathered g = gather(image, r.offset + done, payload_left, room, scratch);
      if (g.failed && g.bytes == 0) return failure(errc::io);  // after some bytes: the next call fails
      scratch = scratch.subspan(g.sliced);
      out.span_count += g.pieces;
      included += static_cast<std::size_t>(g.bytes);
      payload_left -= static_cast<std::size_t>(g.bytes);
    }
    if (payload_left == 0) {
      const std::size_t padding = static_cast<std::size_t>(prefix::frame_bytes(r.length)) - (skip + included);
      add(out, {zeros, padding});
      included += padding;
    }
    push_item(out, {source::reply, true, payload_left == 0, included});
    return payload_left == 0;
  }

  static constexpr std::byte zeros[8]{};

  alignas(8) std::byte control_[control_bytes];
  std::array<pending_reply, Owner::owns ? reply_capacity : 0> replies_;
  std::uint32_t control_sent_ = 0, control_end_ = 0;
  std::size_t reply_first_ = 0, reply_count_ = 0, reply_sent_ = 0;
  std::byte* long_ = nullptr;
  std::size_t long_bytes_ = 0, long_sent_ = 0;
  std::size_t long_after_ = 0;  // replies that go before a long frame that has not begun
  digest_state digesting_ = digest_state::ready;
};

}  // namespace tensorpull::detail
