// Requirements 3 and 4 of a byte stream: waiting.
#pragma once

#include <tensorpull/testing/conformance/stream_probe.hpp>

namespace tensorpull::testing {

/// `Probe` is a stream_probe. Each member is one check on a fresh connection.
template <class Probe>
struct stream_wait_checks {
  using stream = typename Probe::stream;
  static constexpr bool has_read_or_wait = requires(stream& s, std::span<const std::span<std::byte>> spans, std::chrono::milliseconds t) {
    { s.read_or_wait(spans, t) } noexcept -> std::same_as<io_result>;
  };
  static constexpr std::chrono::milliseconds some_time{60};

  Probe& p;
  conformance_report& report;

  void wait_for_bytes(typename Probe::pair& c) {
    p.send(c.left, p.some_bytes(3));
    if (!becomes([&] { return c.right.wait(true, false, some_time).read; })) report.fail("3 bytes are there, and it does not say that reading can go on");
  }
  void wait_for_room(stream& s) {
    if (!becomes([&] { return s.wait(false, true, some_time).write; })) report.fail("nothing was written yet, and it does not say that writing can go on");
  }
  void wait_idle(stream& s) {
    int times = 0;
    for (int i = 0; i < 3; ++i) times += s.wait(true, false, std::chrono::milliseconds(1)).read ? 1 : 0;
    if (times == 3) report.fail("on an idle stream it says that reading can go on: whoever waits would spin");
  }
  void wait_long(stream& s) {
    std::uint64_t longest = 0, shortest = ~std::uint64_t{0};
    for (int i = 0; i < 3; ++i) {
      const std::uint64_t begin = p.now_us();
      (void)s.wait(true, false, some_time);
      longest = std::max(longest, p.now_us() - begin);
      shortest = std::min(shortest, p.now_us() - begin);
    }
    // a signal may end one wait early, and a busy machine one late
    if (longest < some_us() / 2) report.fail("asked to wait %d ms, it came back after %llu us", static_cast<int>(some_time.count()), ull(longest));
    else if (shortest > some_us() + 1'000'000) report.fail("asked to wait %d ms, it came back after %llu ms", static_cast<int>(some_time.count()), ull(shortest / 1000));
  }
  void wait_as_asked(typename Probe::pair& c) {
    p.send(c.left, p.some_bytes(3));
    p.settle(c.right);
    if (c.right.wait(true, false, some_time).write) report.fail("asked about reading, it answers about writing");
    else if (c.right.wait(false, true, some_time).read) report.fail("asked about writing, it answers about reading");
  }
  void wait_for_end(typename Probe::pair& c) {
    { const stream gone = std::move(c.left); }
    if (!becomes([&] { return c.right.wait(true, false, some_time).read; })) report.fail("the peer has closed, and it does not say that reading can go on");
  }

  void patient_read(typename Probe::pair& c) {
    if constexpr (!has_read_or_wait) {
      report.skip("there is none; it is optional");
    } else {
      const auto sent = p.some_bytes(9);
      p.send(c.left, sent);
      p.settle(c.right);
      std::array<std::byte, 9> memory{};
      const std::array<std::span<std::byte>, 2> spans{std::span(memory).first(2), std::span(memory).subspan(2)};
      const io_result io = c.right.read_or_wait(spans, std::chrono::milliseconds(1000));
      if (io.bytes == 0 || io.bytes > 9) report.fail("9 bytes are there, and it read %zu", io.bytes);
      else if (!std::equal(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(io.bytes), sent.begin())) report.fail("it read other bytes than were sent");
    }
  }
  void patient_wait(stream& s) {
    if constexpr (!has_read_or_wait) {
      report.skip("there is none; it is optional");
    } else {
      std::array<std::byte, 8> memory;
      const std::span<std::byte> into(memory);
      std::uint64_t longest = 0, shortest = ~std::uint64_t{0};  // a busy machine makes some longer, and a signal some shorter
      for (int i = 0; i < 3; ++i) {
        const std::uint64_t begin = p.now_us();
        const io_result io = s.read_or_wait({&into, 1}, some_time);
        const std::uint64_t took = p.now_us() - begin;
        longest = std::max(longest, took), shortest = std::min(shortest, took);
        if (io.status != io_status::would_block || io.bytes != 0) return report.fail("an idle stream answered status %d with %zu bytes", static_cast<int>(io.status), io.bytes);
      }
      if (longest < some_us() / 2 || shortest > some_us() + 1'000'000)
        report.fail("asked to wait %d ms, it came back after %llu to %llu us", static_cast<int>(some_time.count()), ull(shortest), ull(longest));
    }
  }

 private:
  static constexpr std::uint64_t some_us() noexcept { return static_cast<std::uint64_t>(some_time.count()) * 1000; }
  static constexpr unsigned long long ull(std::uint64_t v) noexcept { return v; }
  template <class F>
  bool becomes(F f) {
    for (int i = 0; i < 5; ++i)  // a signal may end a wait
      if (f()) return true;
    return false;
  }
};

}  // namespace tensorpull::testing
