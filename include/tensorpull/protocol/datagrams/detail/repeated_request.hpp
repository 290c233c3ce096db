// The request of one end of a datagram connection that is repeated until it is answered. There is one at a time;
// requests for chunks are the transfer's, which finds its own losses.
#pragma once

#include <tensorpull/framing/concept.hpp>
#include <tensorpull/protocol/datagrams/detail/datagram_line.hpp>
#include <tensorpull/protocol/datagrams/detail/datagram_writer.hpp>
#include <tensorpull/protocol/datagrams/detail/long_output.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <utility>

namespace tensorpull::detail {

template <framing Framing, class Limits, class Owner>
class repeated_request {
 public:
  using pool_type = buffer_pool<typename Owner::lock_type>;
  using line_type = datagram_line<pool_type>;
  using long_type = long_output<Framing, Owner>;
  using time = typename line_type::time;

  /// Whether there is one.
  bool waits() const noexcept { return left_ > 0; }
  /// Whether it is repeated until it is answered, and has this id.
  bool awaits(std::uint32_t id) const noexcept { return left_ == until_answered && id_ == id; }
  /// When it should leave.
  time wakes() const noexcept { return waits() ? due_ : time::max(); }

  /// Keeps a request until it was sent three times: nobody answers it. False: there is no memory for it.
  bool say(const frame& m, line_type& line, long_type& out) noexcept { return set(m, 3, line, out); }
  /// Takes the transfer's next request, if there is room for one.
  template <class Transfer>
  void next(Transfer& t, line_type& line, long_type& out) noexcept {
    if (left_ == until_answered && !t.expects(id_)) end(line, out);
    // a farewell that was sent once waits for nobody
    if (left_ == until_answered || (left_ > 0 && times_ == 0)) return;
    if (t.next_is_long() && (out.busy() || line.pool.available() == 0)) return;
    frame m;
    if (t.next(m) && !set(m, until_answered, line, out))
      t.fail({errc::does_not_fit, 0, 0, m.names.size() == 1 ? error_name(m.names[0]) : error_name()});
  }
  /// It was answered.
  void answered(line_type& line, long_type& out) noexcept {
    if (times_ == 1) line.trip.took(line.now - asked_at_);
    end(line, out);
  }
  void end(line_type& line, long_type& out) noexcept {
    out.end_request(bytes_);
    if (bytes_ != short_) line.pool.release(std::exchange(bytes_, short_));
    left_ = 0;
  }

  /// Adds it, or begins its pieces, if it should leave now.
  void plan(datagram_writer& out, line_type& line, long_type& pieces) noexcept {
    if (left_ == 0 || line.now < due_) return;
    if (size_ > line.datagram_bytes) {  // out of the buffer in which it is kept
      if (pieces.busy()) {
        due_ = line.now + line.trip.timeout();
        return;
      }
      pieces.begin_request(bytes_, size_);
    } else {
      if (size_ > out.room || !out.has_spans()) return;
      out.copy({bytes_, size_});
      out.plan.request = true;
    }
    if (times_++ == 0) asked_at_ = line.now;
    else line.trip.back_off();
    due_ = line.now + line.trip.timeout();
    if (left_ != until_answered) --left_;
  }
  /// The link did not take a plan in which it is.
  void not_sent() noexcept {
    if (left_ != until_answered) ++left_;
    due_ = {};
  }

 private:
  static constexpr std::uint8_t until_answered = 255;
  /// Bytes of a request that is no locate.
  static constexpr std::size_t short_bytes = payload_prefix::bytes;

  bool set(const frame& m, std::uint8_t times, line_type& line, long_type& out) noexcept {
    bytes_ = short_;
    std::size_t room = sizeof short_;
    if (m.kind == frame_kind::locate) {
      std::byte* const buffer = line.pool.acquire();
      if (buffer == nullptr) return false;
      bytes_ = buffer;
      room = std::min(line.pool.buffer_bytes(), Limits::control_frame_bytes);
    }
    const auto n = Framing::encode(m, {bytes_, room});
    if (!n) {
      end(line, out);
      return false;
    }
    left_ = times;
    size_ = static_cast<std::uint32_t>(*n);
    id_ = m.id;
    due_ = {};
    times_ = 0;
    return true;
  }

  alignas(8) std::byte short_[short_bytes];
  std::byte* bytes_ = short_;
  time due_{}, asked_at_{};
  std::uint32_t size_ = 0, id_ = 0, times_ = 0;  // how often it was sent
  std::uint8_t left_ = 0;                        // how often it will be; until_answered
};

}  // namespace tensorpull::detail
