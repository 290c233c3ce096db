// Requirement 5 of a byte stream, and what holds for every call: moving, closing, a peer that is gone, no signal, no allocation.
#pragma once

#include <tensorpull/testing/conformance/stream_probe.hpp>

#include <utility>

namespace tensorpull::testing {

/// `Probe` is a stream_probe. Each member is one check on a fresh connection.
template <class Probe>
struct stream_end_checks {
  using stream = typename Probe::stream;

  Probe& p;
  conformance_report& report;

  void move(typename Probe::pair& c) {
    const auto sent = p.some_bytes(400);
    const std::span<const std::byte> all(sent);
    std::vector<std::byte> got;
    const auto read = [&](stream& s, std::size_t n) {
      const auto part = p.receive(s, n);
      got.insert(got.end(), part.begin(), part.end());
    };
    p.send(c.left, all.first(150));
    read(c.right, 50);
    stream left = std::move(c.left), right = std::move(c.right);
    p.send(left, all.subspan(150, 100));
    read(right, 120);
    auto other = p.connect();
    if (!other) return;
    other->left = std::move(left);
    other->right = std::move(right);
    p.send(other->left, all.subspan(250));
    read(other->right, 230);
    if (got != sent) report.fail("of 400 bytes sent while both ends were moved, the %zu that were read are not those", got.size());
  }
  void closes(typename Probe::pair& c) {
    { const stream gone = std::move(c.left); }
    io_status end{};
    (void)p.receive(c.right, 1, &end);
    if (end != io_status::closed) report.fail("the peer was destroyed, and reading answers status %d, and not closed", static_cast<int>(end));
  }
  void drains(typename Probe::pair& c) {
    auto sent = p.some_bytes(777);
    const std::span<const std::byte> all(sent);
    sent.resize(std::min(sent.size(), c.left.write_some({&all, 1}).bytes));
    { const stream gone = std::move(c.left); }
    const auto got = p.receive(c.right, 1000);
    if (got != sent) report.fail("%zu bytes were sent before the peer closed, and %zu of them were read", sent.size(), got.size());
  }
  void peer_gone(typename Probe::pair& c) {
    { const stream gone = std::move(c.right); }
    const auto piece = p.some_bytes(4096);
    const std::span<const std::byte> all(piece);
    const std::uint64_t patience = std::min<std::uint64_t>(p.patience_us(), 2'000'000);
    for (const std::uint64_t begin = p.now_us(); p.now_us() - begin < patience;) {
      const io_status s = c.left.write_some({&all, 1}).status;
      if (s == io_status::closed || s == io_status::failed) return;
      c.left.wait(false, true, std::chrono::milliseconds(1));
    }
    report.fail("for %llu ms writing went on, or would have to wait", static_cast<unsigned long long>(patience / 1000));
  }
  void allocates(typename Probe::pair& c) {
    if (p.options.allocations == nullptr) return report.skip("the program does not count allocations (conformance_options::allocations)");
    const auto sent = p.some_bytes(2000);
    std::vector<std::byte> into(sent.size());
    const std::uint64_t before = p.options.allocations();
    const std::span<const std::byte> out(sent);
    const std::span<std::byte> in(into);
    for (int i = 0; i < 20; ++i) {
      (void)c.left.wait(true, true, std::chrono::milliseconds(0));
      (void)c.left.write_some({&out, 1});
      (void)c.right.wait(true, false, std::chrono::milliseconds(5));
      (void)c.right.read_some({&in, 1});
    }
    const std::uint64_t made = p.options.allocations() - before;
    if (made > 0) report.fail("80 calls made %llu heap allocations", static_cast<unsigned long long>(made));
  }
};

}  // namespace tensorpull::testing
