// The answers of an owner at one end of a datagram connection, as they leave: each once, whole, in the order of the
// requests.
#pragma once

#include <tensorpull/framing/concept.hpp>
#include <tensorpull/protocol/datagrams/detail/datagram_line.hpp>
#include <tensorpull/protocol/datagrams/detail/datagram_writer.hpp>
#include <tensorpull/protocol/datagrams/detail/long_output.hpp>
#include <tensorpull/protocol/detail/reply_queue.hpp>
#include <tensorpull/protocol/detail/reply_writer.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <array>
#include <cstring>

namespace tensorpull::detail {

template <framing Framing, class Limits, class Owner>
class datagram_replies {
 public:
  using pool_type = buffer_pool<typename Owner::lock_type>;
  using line_type = datagram_line<pool_type>;
  using long_type = long_output<Framing, Owner>;

  /// How far the next digest was when the last plan was made.
  digest_state digesting() const noexcept { return digesting_; }
  bool empty() const noexcept { return queue_.size() == 0; }
  bool full() const noexcept { return queue_.size() == Owner::waiting_replies; }
  /// Whether some are in no plan yet.
  bool wait() const noexcept { return queue_.size() > planned_; }
  void push(const pending_reply& r) noexcept { queue_.push(r); }

  /// Adds as many as fit. One that fits no datagram travels in pieces.
  void plan(datagram_writer& out, Owner& owner, line_type& line, long_type& pieces) noexcept {
    digesting_ = digest_state::ready;
    std::uint64_t allowance = digest_bytes;
    while (planned_ < queue_.size() && out.has_spans()) {
      pending_reply& r = queue_[planned_];
      if (r.chunk_digest != digest_kind::none) {
        digesting_ = owner.digest(r, allowance, out.scratch);
        if (digesting_ != digest_state::ready) break;
      }
      if (r.kind == frame_kind::chunk && payload_prefix::frame_bytes(r.length) > out.room) break;
      if (!add(out, r, owner, line, pieces)) break;
      ++planned_;
      ++out.plan.replies;
    }
    if (out.plan.bytes > 0) return;
    planned_ -= out.plan.replies;  // those that travel in pieces instead
    out.plan.replies = 0;
    while (planned_ == 0 && queue_.size() > 0 && queue_[0].kind == frame_kind::nothing) queue_.pop();
  }
  /// The link took a plan with the first `n`, or did not.
  void sent(std::size_t n, bool taken, Owner& owner) noexcept {
    for (std::size_t i = 0; i < n; ++i) {
      const pending_reply& r = queue_[taken ? 0 : i];
      if (is_about_image(r)) owner.unpin(r, taken && r.kind == frame_kind::chunk ? r.length : 0);
      if (taken) queue_.pop();
    }
    planned_ -= n;
  }

 private:
  /// Bytes that are hashed at most for one plan.
  static constexpr std::uint64_t digest_bytes = 256 * 1024;

  /// Adds one, whose image is pinned from then on. False: it does not fit this datagram any more.
  bool add(datagram_writer& out, pending_reply& r, Owner& owner, line_type& line, long_type& pieces) noexcept {
    if (r.kind == frame_kind::nothing) return true;
    const reply_form form = form_of(owner, r, false, [&](const source_view& image) noexcept {
      return add_chunk(out, frame_of<Limits::slices>(r), image, line.datagram_bytes);
    });
    if (form == reply_form::payload) return true;
    out.align();
    frame m = owner.expand(r);
    if (m.kind == frame_kind::description)
      m.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(m.length, line.piece_bytes()));
    const auto n = Framing::encode(m, out.scratch.first(std::min(out.scratch.size(), Limits::control_frame_bytes)));
    if (n && *n <= out.room) {
      out.add(out.take(*n));
      return true;
    }
    const bool too_long = !n || *n > line.datagram_bytes;
    if (too_long && n) (void)pieces.push(m, line);  // if there is no buffer, the request will be repeated
    if (form == reply_form::about_image) owner.unpin(r, 0);
    if (too_long) r.kind = frame_kind::nothing;
    return too_long;
  }
  /// False: the image could not be read, and nothing was added.
  static bool add_chunk(datagram_writer& out, const frame& m, const source_view& image,
                        std::size_t datagram_bytes) noexcept {
    out.align();
    std::array<std::span<const std::byte>, 18> spans;
    const std::size_t most = std::min(spans.size(), datagram_plan::max_spans - out.plan.span_count);
    const std::size_t memory = std::min(out.scratch.size(), payload_prefix::bytes + datagram_bytes);
    const chunk_part part = write_chunk<Limits::slices>(m, image, 0, m.length, std::span(spans).first(most),
                                                        out.scratch.first(memory));
    if (!part.whole) return add_copied(out, m, image, datagram_bytes);
    (void)out.take(part.scratch);
    for (std::size_t i = 0; i < part.spans; ++i) out.add(spans[i]);
    return true;
  }
  /// The same for many small tensors: their bytes are put together.
  static bool add_copied(datagram_writer& out, const frame& m, const source_view& image,
                         std::size_t datagram_bytes) noexcept {
    const std::size_t size = payload_prefix::bytes + m.length;
    const auto whole = out.scratch.first(size);
    const auto slice = out.scratch.subspan(size).first(std::min(out.scratch.size() - size, datagram_bytes));
    payload_prefix::write(m, whole.template first<payload_prefix::bytes>());
    std::array<std::span<const std::byte>, 16> pieces;
    for (std::size_t at = payload_prefix::bytes; at < size;) {
      const gathered some = gather_payload<Limits::slices>(image, m, at - payload_prefix::bytes, size - at, pieces,
                                                           slice);
      if (some.bytes == 0) return false;
      for (std::size_t i = 0; i < some.pieces; ++i) {
        std::memcpy(whole.data() + at, pieces[i].data(), pieces[i].size());
        at += pieces[i].size();
      }
    }
    out.add(out.take(size));
    out.pad(m.length);
    return true;
  }

  replies_of<Owner> queue_{};
  std::size_t planned_ = 0;  // the first `planned_` are in plans that were not sent yet
  digest_state digesting_ = digest_state::ready;
};

}  // namespace tensorpull::detail
