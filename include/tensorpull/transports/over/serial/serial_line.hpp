// A tty as a datagram link, as the transport's policy makes it.
#pragma once

#include <tensorpull/links/serial/serial_link.hpp>
#include <tensorpull/transports/over/serial/serial_port.hpp>

#include <optional>

namespace tensorpull {

/// A serial_link over a tty. If the tty vanishes, the end that has connected is `closed`: a recipient connects again,
/// with the retries of its options. The end that listens has nobody to tell, so it loses datagrams until the tty is
/// there again, and opens it then.
template <std::size_t MaxDatagramBytes>
class serial_line {
 public:
  using address = only_peer;  ///< the other end of the line
  static constexpr std::size_t max_datagram_bytes = MaxDatagramBytes;  ///< of the longest datagram
  static constexpr bool checked = true;  ///< by the CRC32C of each frame
  static constexpr bool addresses_are_proved = true;  ///< any program that can write on the line is its other end
  /// A listening end looks so often whether its tty is there again.
  static constexpr std::chrono::milliseconds look_again{200};

  /// Opens the tty: as parse_serial_address() and serial_port::open(). Sends nothing.
  static result<serial_line> connect(std::string_view text) noexcept { return make(text, false); }
  /// The same for an owner, whose tty may appear and disappear from then on.
  static result<serial_line> open(std::string_view text) noexcept { return make(text, true); }

  /// The longest datagram.
  std::size_t datagram_bytes() const noexcept { return MaxDatagramBytes; }
  /// As datagram_link asks.
  io_result receive(std::span<std::byte> memory, address& from) noexcept {
    return there() ? kept(link_->receive(memory, from)) : io_result{io_status::would_block, 0, 0};
  }
  /// As datagram_link asks.
  io_result send(gather_list datagram, const address& to) noexcept {
    const io_result io = there() ? kept(link_->send(datagram, to)) : io_result{};
    return link_ ? io : io_result{};  // dropped
  }
  /// As datagram_link asks.
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    if (there()) return link_->wait(read, write, timeout);
    detail::pause(std::min(timeout, look_again));
    return {};
  }

 private:
  using clock = std::chrono::steady_clock;

  serial_line(serial_port port, const serial_address& where, bool listens) noexcept : where_(where), listens_(listens) {
    link_.emplace(std::move(port));
  }
  static result<serial_line> make(std::string_view text, bool listens) noexcept {
    const auto where = parse_serial_address(text);
    if (!where) return failure(where.error());
    auto port = serial_port::open(*where);
    if (!port) return failure(port.error());
    return serial_line(std::move(*port), *where, listens);
  }
  bool there() noexcept {
    if (link_) return true;
    const auto now = clock::now();
    if (now - tried_ < look_again) return false;
    tried_ = now;
    if (auto port = serial_port::open(where_)) link_.emplace(std::move(*port));
    return link_.has_value();
  }
  /// A listening end outlives its tty.
  io_result kept(const io_result& io) noexcept {
    if (!listens_ || (io.status != io_status::closed && io.status != io_status::failed)) return io;
    link_.reset();
    tried_ = clock::now();
    return {io_status::would_block, 0, 0};
  }

  serial_address where_;
  bool listens_;
  clock::time_point tried_{};
  std::optional<serial_link<serial_port, MaxDatagramBytes>> link_;  // none: the tty is gone
};

}  // namespace tensorpull
