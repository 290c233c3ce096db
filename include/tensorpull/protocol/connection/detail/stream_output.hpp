// The sending half of one end of a byte stream. Replies that wait are turned into spans when the transport can take
// them. A reply is kept as a few words and written anew for each send, so a slow peer holds no memory for payload.
#pragma once

#include <tensorpull/core/buffer_pool.hpp>
#include <tensorpull/framing/concept.hpp>
#include <tensorpull/protocol/connection/write_plan.hpp>
#include <tensorpull/protocol/detail/message_frame.hpp>
#include <tensorpull/protocol/detail/reply_queue.hpp>
#include <tensorpull/protocol/detail/reply_writer.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <cstdint>
#include <type_traits>

namespace tensorpull::detail {

template <framing Framing, class Limits, class Owner>
class stream_output {
 public:
  /// Bytes for the requests and confirmations of this end. They are short, encoded at once, and kept as bytes.
  static constexpr std::size_t control_bytes = 288;
  /// Three requests of 80 bytes wait at most. Behind them a farewell has room, since it is not repeated.
  static constexpr std::size_t farewell_bytes = 32;
  /// Bytes that are hashed at most for one plan.
  static constexpr std::uint64_t digest_bytes = 256 * 1024;
  using pool_type = buffer_pool<typename Owner::lock_type>;
  using plan_type = std::conditional_t<Owner::owns, write_plan, short_write_plan>;
  using item = typename plan_type::item;
  using source = typename plan_type::source;

  bool idle() const noexcept { return control_end_ == 0 && long_ == nullptr && replies.size() == 0; }
  /// Whether the next plan has something to write: not if all that waits is behind a digest.
  bool ready() const noexcept {
    bool digested = false;
    if constexpr (Owner::owns) digested = replies.size() > 0 && replies[0].chunk_digest == digest_kind::none;
    return digested || control_end_ > 0 || (long_ != nullptr && (long_after_ == 0 || long_sent_ > 0));
  }
  /// How far the next digest was when the last plan was made.
  digest_state digesting() const noexcept { return digesting_; }
  bool long_free() const noexcept { return long_ == nullptr; }
  bool control_full() const noexcept { return control_end_ + 128 > control_bytes; }

  /// Encodes a short frame of this end. False: there is no room now; try again after sent(). `farewell`: also if no
  /// request has room.
  bool push_control(const frame& m, bool farewell = false) noexcept {
    if (!farewell && control_full()) return false;
    const auto n = Framing::encode(m, {control_ + control_end_, sizeof control_ - control_end_});
    if (!n) return false;
    control_end_ += static_cast<std::uint32_t>(*n);
    return true;
  }

  /// Encodes a long frame into a buffer of the pool, `buffer` if it is given. busy: another one is on its way, or no
  /// buffer is free. does_not_fit: it is longer than `most` or than a buffer.
  result<void> push_long(const frame& m, pool_type& pool, std::size_t most = ~std::size_t{0},
                         std::byte* buffer = nullptr) noexcept {
    if (buffer == nullptr && long_ == nullptr) buffer = pool.acquire();
    if (buffer == nullptr) return failure(errc::busy);
    const auto n = Framing::encode(m, {buffer, std::min(most, pool.buffer_bytes())});
    if (!n) {
      pool.release(buffer);
      return failure(n.error());
    }
    long_ = buffer;
    long_bytes_ = static_cast<std::uint32_t>(*n);
    long_sent_ = 0;
    long_after_ = 0;
    return {};
  }
  /// The same for an answer, which is sent after the replies that wait now.
  result<void> push_answer(const frame& m, pool_type& pool) noexcept {
    const auto ok = push_long(m, pool);
    if (ok) long_after_ = static_cast<std::uint32_t>(replies.size());
    return ok;
  }

  /// The same for a message. does_not_fit: also if body or references are above the limits.
  result<void> push_message(std::uint32_t kind, std::span<const reference> references, std::span<const std::byte> body,
                            pool_type& pool) noexcept {
    frame m;
    if (const auto ok = make_message<Limits>(kind, references, body, m); !ok) return ok;
    return push_long(m, pool);
  }

  /// Collects what is to be sent: no reply is added once there are `most` bytes. `scratch` (64 KiB) holds prefixes,
  /// header text and packed elements until sent(). Goes on with the digest of the first reply that waits for one, so
  /// that it is ready in its turn; a peer that reads nothing causes no other. connection_lost: a part of a frame was
  /// sent when its image was withdrawn, so the stream cannot continue.
  result<void> plan(plan_type& out, Owner& owner, std::span<std::byte> scratch, std::size_t most) noexcept {
    out.span_count = out.item_count = out.bytes = 0;
    out.descriptors = {};
    digesting_ = digest_state::ready;
    std::uint64_t allowance = digest_bytes;
    const bool begun = reply_sent_ > 0;
    if (begun) {  // a frame that was begun goes first
      const auto more = add_reply(out, owner, scratch, 0);
      if (!more) return failure(more.error());
      if (!*more) {
        digest(owner, scratch, 1, allowance);
        return {};
      }
    }
    if (long_sent_ > 0) add_long(out);
    if (control_end_ > control_sent_) {
      add(out, {control_ + control_sent_, control_end_ - control_sent_});
      push_item(out, {source::control, false, true, control_end_ - control_sent_});
    }
    bool long_waits = long_ != nullptr && long_sent_ == 0;
    for (std::size_t i = begun ? 1 : 0; out.has_room(); ++i) {
      if (long_waits && i >= long_after_) {
        add_long(out);
        long_waits = false;
      }
      if (i >= replies.size() || !digest(owner, scratch, i, allowance) || out.bytes >= most || !out.has_room()) break;
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
    std::size_t looked_at = 0, finished = 0, partly = reply_sent_;
    for (std::size_t i = 0; i < p.item_count; ++i) {
      const item& it = p.items[i];
      const std::size_t took = n < it.bytes ? n : it.bytes;
      n -= took;
      if (it.from == source::control) {
        control_sent_ += static_cast<std::uint32_t>(took);
        if (control_sent_ == control_end_) control_sent_ = control_end_ = 0;
      } else if (it.from == source::long_frame) {
        long_sent_ += static_cast<std::uint32_t>(took);
        if (long_sent_ == long_bytes_) drop_long(pool);
      } else {
        const pending_reply& r = replies[looked_at++];
        const bool has_payload = it.pinned && r.kind == frame_kind::chunk;
        const std::size_t payload = has_payload
                                        ? payload_within(partly + took, r.length) - payload_within(partly, r.length)
                                        : 0;
        if (it.pinned) owner.unpin(r, payload);
        partly += took;  // only the first unfinished one can have been taken in part
        if (took == it.bytes && it.whole) {
          ++finished;
          partly = 0;
        }
      }
    }
    replies.pop(finished);
    long_after_ -= static_cast<std::uint32_t>(std::min<std::size_t>(long_after_, finished));
    if (looked_at > 0) reply_sent_ = partly;
  }

  void drop_long(pool_type& pool) noexcept {
    if (long_ != nullptr) pool.release(long_);
    long_ = nullptr;
    long_sent_ = 0;
  }

  replies_of<Owner> replies{};

 private:
  /// Bytes of scratch memory that a reply without payload can need.
  static constexpr std::size_t frame_room = made_frame_bytes<Limits>;

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
    if constexpr (Owner::owns) {
      if (i >= replies.size() || scratch.size() < frame_room) return true;
      pending_reply& r = replies[i];
      if (r.chunk_digest == digest_kind::none) return true;
      digesting_ = owner.digest(r, allowance, scratch);
      return digesting_ == digest_state::ready;
    } else {
      return true;
    }
  }

  /// Adds the i-th waiting reply. False: the plan is full, or ends within this frame.
  result<bool> add_reply(plan_type& out, Owner& owner, std::span<std::byte>& scratch, std::size_t i) noexcept {
    if constexpr (!Owner::owns) {
      return false;
    } else {
      if (scratch.size() < frame_room + 16) return false;
      // header text of odd length lies before
      scratch = scratch.subspan((8 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 8) % 8);
      pending_reply& r = replies[i];
      const std::size_t skip = i == 0 ? reply_sent_ : 0;
      chunk_part part;
      const reply_form form = form_of(owner, r, skip > 0, [&](const source_view& image) noexcept {
        // without the spans of padding, control and a long frame
        const std::span<std::span<const std::byte>> room{out.spans.data() + out.span_count,
                                                         plan_type::max_spans - out.span_count - 2};
        part = write_chunk<Limits::slices>(frame_of<Limits::slices>(r), image, skip, r.length, room, scratch);
        return !part.failed;
      });
      if (form == reply_form::lost) return failure(errc::connection_lost);
      if (form == reply_form::payload) {
        out.span_count += part.spans;
        scratch = scratch.subspan(part.scratch);
        push_item(out, {source::reply, true, part.whole, part.bytes});
        return part.whole;
      }
      const bool pinned = form == reply_form::about_image;
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

  alignas(8) std::byte control_[control_bytes + farewell_bytes];
  std::uint32_t control_sent_ = 0, control_end_ = 0;
  std::size_t reply_sent_ = 0;  // bytes of the first reply's frame that were sent
  std::byte* long_ = nullptr;
  std::uint32_t long_bytes_ = 0, long_sent_ = 0;
  std::uint32_t long_after_ = 0;  // replies that go before a long frame that has not begun
  digest_state digesting_ = digest_state::ready;
};

}  // namespace tensorpull::detail
