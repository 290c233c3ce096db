// Requirements 1 and 2 of a byte stream: reading and writing.
#pragma once

#include <tensorpull/testing/conformance/stream_probe.hpp>

namespace tensorpull::testing {

/// `Probe` is a stream_probe. Each member is one check on a fresh connection.
template <class Probe>
struct stream_io_checks {
  static constexpr std::byte untouched{0x5a};

  Probe& p;
  conformance_report& report;

  static io_result read_one(typename Probe::stream& s, std::span<std::byte> into) noexcept { return s.read_some({&into, 1}); }

  void idle_status(typename Probe::stream& s) {
    std::array<std::byte, 8> memory;
    const io_result io = read_one(s, memory);
    if (io.status != io_status::would_block || io.bytes != 0)
      report.fail("an idle stream answered status %d with %zu bytes, and not would_block", static_cast<int>(io.status), io.bytes);
  }
  void read_bounds(typename Probe::pair& c) {
    const auto sent = p.some_bytes(100);
    p.send(c.left, sent);
    p.settle(c.right);
    std::vector<std::byte> got;
    for (const std::uint64_t begin = p.now_us(); got.size() < 100 && p.now_us() - begin < p.patience_us();) {
      std::array<std::byte, 32> memory;
      memory.fill(untouched);
      const io_result io = read_one(c.right, std::span(memory).subspan(8, 16));
      if (io.bytes > 16) return report.fail("it was asked for 16 bytes and says %zu", io.bytes);
      for (std::size_t i = 0; i < memory.size(); ++i)
        if ((i < 8 || i >= 8 + 16) && memory[i] != untouched) return report.fail("it wrote %s the span", i < 8 ? "before" : "behind");
      got.insert(got.end(), memory.begin() + 8, memory.begin() + 8 + static_cast<std::ptrdiff_t>(io.bytes));
      if (io.bytes == 0) c.right.wait(true, false, std::chrono::milliseconds(1));
    }
    if (got != sent) report.fail("100 bytes were sent, and the %zu that were read are not those", got.size());
  }
  void written_count(typename Probe::pair& c) {
    std::vector<std::byte> sent;
    for (int i = 0; i < 1000; ++i) {  // more than most systems take, so that some writes are partial
      const auto piece = p.some_bytes(4096);
      const std::span<const std::byte> all(piece);
      const io_result io = c.left.write_some({&all, 1});
      if (io.bytes > piece.size()) return report.fail("it was given %zu bytes and says that it took %zu", piece.size(), io.bytes);
      sent.insert(sent.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(io.bytes));
      if (io.bytes < piece.size()) break;
    }
    const auto got = p.receive(c.right, sent.size());
    if (got.size() != sent.size()) return report.fail("it took %zu bytes, and %zu arrived", sent.size(), got.size());
    if (got != sent) return report.fail("other bytes arrived than were taken");
    std::byte more;
    if (read_one(c.right, {&more, 1}).bytes > 0) report.fail("more bytes arrived than it said it took");
  }
  void read_order(typename Probe::pair& c) {
    const auto sent = p.some_bytes(61);
    p.send(c.left, sent);
    std::vector<std::byte> got;
    for (const std::uint64_t begin = p.now_us(); got.size() < sent.size() && p.now_us() - begin < p.patience_us();) {
      p.settle(c.right);
      std::array<std::byte, 61> memory;
      const std::array<std::span<std::byte>, 5> spans{std::span(memory).first(1), std::span(memory).subspan(1, 0), std::span(memory).subspan(1, 7), std::span(memory).subspan(8, 3),
                                                      std::span(memory).subspan(11)};
      const io_result io = c.right.read_some(spans);
      got.insert(got.end(), memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(std::min(io.bytes, memory.size())));
    }
    if (got != sent) report.fail("read into 5 spans (1, 0, 7, 3 and 50 bytes), the bytes are not in their order");
  }
  void write_order(typename Probe::pair& c) {
    const auto sent = p.some_bytes(61);
    const std::span<const std::byte> all(sent);
    std::size_t done = 0;
    for (const std::uint64_t begin = p.now_us(); done < sent.size() && p.now_us() - begin < p.patience_us();) {
      const std::span<const std::byte> rest = all.subspan(done);
      const std::size_t a = std::min<std::size_t>(rest.size(), 1), b = std::min<std::size_t>(rest.size() - a, 7);
      const std::array<std::span<const std::byte>, 4> spans{rest.first(a), rest.subspan(a, 0), rest.subspan(a, b), rest.subspan(a + b)};
      done += c.left.write_some(spans).bytes;
    }
    if (p.receive(c.right, sent.size()) != sent) report.fail("written from 4 spans (1, 0, 7 and 53 bytes), the bytes are not in their order");
  }
  void read_promptly(typename Probe::stream& s) {
    std::array<std::byte, 8> memory;
    const auto us = p.shortest([&] { (void)read_one(s, memory); });
    if (us > p.prompt_us()) report.fail("a read of an idle stream took %llu ms", static_cast<unsigned long long>(us / 1000));
  }
  void write_promptly(typename Probe::stream& s) {
    const auto piece = p.some_bytes(16 * 1024);
    const std::span<const std::byte> all(piece);
    for (int i = 0; i < 4096 && s.write_some({&all, 1}).bytes > 0; ++i) {
    }
    const auto us = p.shortest([&] { (void)s.write_some({&all, 1}); });
    if (us > p.prompt_us()) report.fail("a write to a full stream took %llu ms", static_cast<unsigned long long>(us / 1000));
  }
};

}  // namespace tensorpull::testing
