// The frame that arrives in pieces at one end of a datagram connection.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/protocol/datagrams/detail/datagram_line.hpp>
#include <tensorpull/protocol/datagrams/detail/datagram_writer.hpp>
#include <tensorpull/protocol/datagrams/detail/frame_pieces.hpp>

namespace tensorpull::detail {

template <class Pool>
class long_input {
 public:
  using line_type = datagram_line<Pool>;
  using time = typename line_type::time;

  /// The number of the frame that is arriving in a buffer; 0: none.
  std::uint32_t number() const noexcept { return pieces_.begun() ? frames_ : 0; }
  /// Whether the peer has to hear how much has arrived.
  bool answer_due() const noexcept { return answer_due_; }

  /// A piece of a frame. Gives the frame if it is whole now: call end() or take_back() then. Otherwise nothing. A piece
  /// that is doubled or too early changes nothing, and neither does one for which no buffer is free: it will be sent
  /// again.
  std::span<const std::byte> take(const piece& p, std::span<const std::byte> payload, line_type& line) noexcept {
    const auto what = pieces_.judge(p, line.pool);
    if (what == incoming_frame::standing::forgotten) return {};
    answer_due_ = true;
    if (what == incoming_frame::standing::old) return {};
    if (p.length == p.total) return payload;
    const bool begins = !pieces_.begun();
    if (begins && line.now < line.no_buffer_until) return {};
    if (!pieces_.add(p, payload, line.pool)) return {};
    moved_ = line.now;
    if (begins) {
      began_ = line.now;
      if (++frames_ == 0) frames_ = 1;
    }
    return pieces_.whole() ? pieces_.bytes() : std::span<const std::byte>{};
  }
  /// The frame was taken.
  void end(Pool& pool) noexcept { pieces_.end(pool); }
  /// It cannot be taken now: its last `n` bytes have to be sent again.
  void take_back(std::uint32_t n) noexcept {
    if (pieces_.begun()) pieces_.take_back(n);
  }
  void drop(Pool& pool) noexcept { pieces_.drop(pool); }
  /// Frees the buffer of a frame of which nothing has arrived since `idle`, or that began before `begun`.
  bool give_up(time idle, time begun, Pool& pool) noexcept {
    if (!pieces_.begun() || pieces_.whole() || (moved_ >= idle && began_ >= begun)) return false;
    pieces_.drop(pool);
    return true;
  }

  /// Adds how much has arrived, if the peer has to hear it.
  void plan(datagram_writer& out) noexcept {
    if (!answer_due_ || out.room < piece_prefix::bytes) return;
    out.add(pieces_.answer(), {});
    out.plan.taken = true;
    answer_due_ = false;
  }
  /// The link did not take a plan in which that is.
  void not_sent() noexcept { answer_due_ = true; }

 private:
  incoming_frame pieces_{};
  time began_{}, moved_{};
  std::uint32_t frames_ = 0;
  bool answer_due_ = false;
};

}  // namespace tensorpull::detail
