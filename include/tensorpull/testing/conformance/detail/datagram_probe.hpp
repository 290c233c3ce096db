// Helpers of the checks of a datagram link: datagrams that can be recognised, and their way over a link that loses
// some.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/testing/conformance/detail/link_probe.hpp>

#include <array>
#include <optional>
#include <vector>

namespace tensorpull::testing::detail {

/// `Connect`: a datagram_factory.
template <datagram_factory Connect>
class datagram_probe : public link_probe<Connect> {
  using base = link_probe<Connect>;

 public:
  using pair = typename base::pair;
  using link = typename pair::link;
  using link_end = link;
  using address = typename link::address;
  static constexpr bool damages = requires(Connect& c) { c.damage_next(); };
  using base::base, base::now_us, base::patience_us, base::report;

  /// Receives a short datagram, if there is one.
  static io_result take(link& l) noexcept {
    std::array<std::byte, 128> memory;
    address from{};
    return l.receive(memory, from);
  }

  void damage_next() { this->connect_.damage_next(); }

  /// A datagram that genuine() knows again. From 8 bytes on each is another one.
  std::vector<std::byte> datagram(std::size_t bytes) { return made(bytes, bytes < 8 ? 0 : ++number_); }
  /// Whether datagram() gave exactly these bytes.
  bool genuine(std::span<const std::byte> bytes) const {
    const std::uint64_t number = bytes.size() < 8 ? 0 : load_le64(bytes.data());
    return number <= number_ && std::ranges::equal(bytes, made(bytes.size(), number));
  }

  /// Sends one datagram to the right, or none.
  static io_result send_once(pair& c, std::span<const std::byte> bytes) noexcept {
    return c.left.send({&bytes, 1}, c.to_right);
  }
  /// Sends one datagram. Waits while the link would block.
  io_result send(link& from, const address& to, std::span<const std::byte> bytes) {
    io_result io;
    for (const std::uint64_t begin = now_us();;) {
      io = from.send({&bytes, 1}, to);
      if (io.status != io_status::would_block || now_us() - begin > patience_us()) return io;
      from.wait(false, true, 1ms);
    }
  }
  /// Receives one datagram within the time. Fails the check if it is none that was sent.
  std::optional<std::vector<std::byte>> receive(link& at, address& from, std::chrono::milliseconds time) {
    std::vector<std::byte> got(link::max_datagram_bytes);
    for (const std::uint64_t begin = now_us();;) {
      const io_result io = at.receive(got, from);
      if (io.status == io_status::ok) {
        got.resize(std::min(io.bytes, got.size()));
        if (!io.bytes || !genuine(got)) {
          report.fail("a datagram of %zu bytes arrived that was not sent", io.bytes);
          return std::nullopt;
        }
        return got;
      }
      if (io.status != io_status::would_block || now_us() - begin > static_cast<std::uint64_t>(time.count()) * 1000)
        return std::nullopt;
      at.wait(true, false, 1ms);  // only to let time pass; other checks look at its result
    }
  }
  /// Sends a datagram again and again until it arrives, as it may be lost. Others that arrive meanwhile were sent
  /// before. False: it did not in the time.
  bool deliver(link& from, const address& to, link& at, address& sender, std::span<const std::byte> bytes) {
    for (auto lasts = this->patience(); report.holds() && lasts();) {
      (void)send(from, to, bytes);
      // a link may have kept a part, which any of its calls sends
      from.wait(true, false, 0ms);
      while (const auto got = receive(at, sender, 20ms))
        if (std::ranges::equal(*got, bytes)) return true;
    }
    return false;
  }
  /// Sends some datagrams, more than a link is likely to lose, until one can be received at `right`, and does not
  /// receive it. False: none arrived.
  bool let_arrive(pair& c) {
    for (int i = 0; i < 8; ++i) {
      (void)send(c.left, c.to_right, datagram(40));
      c.left.wait(true, false, 0ms);
    }
    for (auto lasts = this->patience(); lasts();)
      if (c.right.wait(true, false, 20ms).read) return true;
    return false;
  }

 private:
  /// Random bytes, all zero, or all ones: links escape some values.
  static std::vector<std::byte> made(std::size_t bytes, std::uint64_t number) {
    std::vector<std::byte> d(bytes, number % 3 == 1 ? std::byte{0} : std::byte{0xff});
    if (number % 3 == 0) seeded_random(number ^ bytes).fill(d);
    if (bytes >= 8) store_le64(d.data(), number);
    return d;
  }

  std::uint64_t number_ = 0;
};

}  // namespace tensorpull::testing::detail
