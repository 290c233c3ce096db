// The frames that one end of a datagram connection sends besides short requests and chunks: one message, one long
// request or one long answer at a time, in pieces if it does not fit a datagram.
#pragma once

#include <tensorpull/core/buffer_pool.hpp>
#include <tensorpull/framing/concept.hpp>
#include <tensorpull/framing/detail/control_words.hpp>
#include <tensorpull/protocol/datagrams/detail/datagram_line.hpp>
#include <tensorpull/protocol/datagrams/detail/datagram_writer.hpp>
#include <tensorpull/protocol/datagrams/detail/frame_pieces.hpp>

#include <array>

namespace tensorpull::detail {

/// `Owner`: if it owns something, a description has memory of its own here, since others may have all buffers of the
/// pool.
template <framing Framing, class Owner>
class long_output {
 public:
  using pool_type = buffer_pool<typename Owner::lock_type>;
  using line_type = datagram_line<pool_type>;
  using time = typename line_type::time;

  /// `number`: random.
  explicit long_output(std::uint64_t number) noexcept : pieces_(number | 1) {}

  bool busy() const noexcept { return pieces_.busy(); }
  /// When a piece should leave although nothing arrives.
  time wakes(const line_type& line) const noexcept { return pieces_.wakes(line.piece_bytes()); }

  /// Whether a frame has to wait for the one before it. An answer waits for no other answer: the peer waits for one at
  /// a time, so the one that asked for the other has it, or is gone.
  bool has_to_wait(const frame& m) const noexcept {
    return busy() && (m.kind == frame_kind::application || !is_answer_ || id_ == m.id || planned_ > 0);
  }
  /// Begins a message or an answer. busy: it has to wait, or no buffer is free. does_not_fit: it is longer than a
  /// buffer.
  result<void> push(const frame& m, line_type& line) noexcept {
    if (has_to_wait(m)) return failure(errc::busy);
    end(line.pool);
    const bool is_message = m.kind == frame_kind::application;
    std::byte* memory = short_answer_.data();
    result<std::size_t> n = failure(errc::does_not_fit);
    if (Owner::owns && m.kind == frame_kind::description) n = Framing::encode(m, short_answer_);
    borrowed_ = n.has_value();
    if (!n) {
      memory = is_message || line.now >= line.no_buffer_until ? line.pool.acquire() : nullptr;
      if (memory == nullptr) return failure(errc::busy);
      n = Framing::encode(m, {memory, line.pool.buffer_bytes()});
      if (!n) {
        line.pool.release(memory);
        return failure(n.error());
      }
    }
    pieces_.begin(memory, *n);
    once_ = !is_message && *n <= line.datagram_bytes ? once::waits : once::no;
    bytes_ = static_cast<std::uint32_t>(*n);
    id_ = m.id;
    is_answer_ = !is_message;
    began_ = moved_ = line.now;
    return {};
  }
  /// Begins a request, which stays where it is until end_request().
  void begin_request(std::byte* request, std::size_t size) noexcept {
    pieces_.begin(request, size);
    once_ = once::no;
    borrowed_ = true;
    is_answer_ = false;
  }
  /// That request is not needed any more.
  void end_request(const std::byte* request) noexcept {
    if (busy() && pieces_.bytes() == request) (void)pieces_.end();
  }
  /// The frame has arrived, or is given up.
  void end(pool_type& pool) noexcept {
    std::byte* const memory = busy() ? pieces_.end() : nullptr;
    if (memory != nullptr && !borrowed_) pool.release(memory);
    once_ = once::no;
  }
  /// Frees the buffer of an answer of which nothing has moved since `idle`, or that began before `begun`.
  bool give_up(time idle, time begun, pool_type& pool) noexcept {
    if (!busy() || !is_answer_ || borrowed_ || planned_ > 0 || (moved_ >= idle && began_ >= begun)) return false;
    end(pool);
    return true;
  }

  /// Adds a piece, or all of an answer that fits a datagram, if one should leave now.
  void plan(datagram_writer& out, line_type& line) noexcept {
    if (once_ != once::no) {  // the one that asked asks again if it is lost
      if (once_ == once::planned || bytes_ > out.room || !out.has_spans()) return;
      out.add({pieces_.bytes(), bytes_});
      once_ = once::planned;
    } else {
      constexpr std::size_t head_bytes = piece_prefix::bytes;
      if (!pieces_.ready(line.now, line.piece_bytes()) || out.room <= head_bytes || !out.has_spans()) return;
      if (out.room < line.datagram_bytes && out.room < head_bytes + 64) return;
      piece head;
      const auto payload = pieces_.next(head, (out.room - head_bytes) / 8 * 8, line.trip, line.now);
      out.add(head, payload);
    }
    out.plan.piece = true;
    ++planned_;
  }
  /// The link took a plan in which something of this is, or did not.
  void sent(bool taken, pool_type& pool) noexcept {
    --planned_;
    if (once_ != once::planned) {
      if (!taken) pieces_.not_sent();
    } else if (taken) {
      end(pool);
    } else {
      once_ = once::waits;
    }
  }
  /// The peer has acknowledged so much.
  void taken(const piece& p, line_type& line) noexcept {
    const std::uint32_t before = pieces_.arrived();
    const bool all = pieces_.taken(p, line.trip, line.now);
    if (all && once_ == once::no) end(line.pool);
    else if (pieces_.arrived() > before) moved_ = line.now;
  }

 private:
  enum class once : std::uint8_t {
    no,
    waits,
    planned,
  };

  alignas(8) std::array<std::byte, Owner::owns ? short_frame_bytes : 0> short_answer_;
  outgoing_frame pieces_;
  time began_{}, moved_{};
  std::uint32_t bytes_ = 0, id_ = 0;  // of a message or an answer; the id is that of its request
  std::uint32_t planned_ = 0;  // its pieces that are in plans that were not sent yet
  once once_ = once::no;  // it fits a datagram, and is sent once
  bool is_answer_ = false;  // of the owner
  bool borrowed_ = false;  // its memory is not the pool's
};

}  // namespace tensorpull::detail
