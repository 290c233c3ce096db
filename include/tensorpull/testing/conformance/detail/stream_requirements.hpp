// The numbered requirements of a byte stream (links/byte_stream.hpp), one check for each part of each.
#pragma once

#include <tensorpull/testing/conformance/detail/link_requirements.hpp>
#include <tensorpull/testing/conformance/detail/stream_probe.hpp>

namespace tensorpull::testing::detail {

template <stream_factory Connect>
class stream_requirements : public link_requirements<stream_probe<Connect>> {
  using self = stream_requirements;
  using probe = stream_probe<Connect>;
  using stream = typename probe::stream;
  using base = link_requirements<probe>;
  using base::check, base::promptly, base::about_as_long, base::becomes, base::destroy, base::ull, base::probe_,
      base::report_, base::untouched, base::some_time;
  using typename base::pair;

 public:
  explicit stream_requirements(probe& p) noexcept : base(p) {}

  void run() {
    check("1.4", "0 bytes are read only with would_block or closed", {}, &self::idle_status);
    check("1.2", "a read stays within its spans and returns how much it read", {}, &self::read_bounds);
    check("2.2", "the bytes that a write reports as taken are those that arrive", {"1.2"}, &self::written_count);
    check("1.1", "a read fills its spans in order", {"1.2", "2.2"}, &self::read_order);
    check("2.1", "a write takes its spans in order", {"1.2", "2.2"}, &self::write_order);
    check("1.3", "a read never waits", {}, &self::takes_promptly);
    check("2.3", "a write never waits, also when the peer does not read", {}, &self::write_promptly);
    check("3.1", "wait() ends when bytes can be read", {}, &self::wait_for_arrival);
    check("3.2", "wait() ends when bytes can be written", {}, &self::wait_for_room);
    check("3.3", "wait() reports nothing if nothing can be read", {}, &self::wait_idle);
    check("3.4", "wait() lasts about as long as it may", {"3.3"}, &self::wait_lasts);
    check("3.5", "wait() answers only what it was asked", {"3.1"}, &self::wait_as_asked);
    check("4.1", "read_or_wait() reads what is there", {"1.2"}, &self::patient_read);
    check("4.2", "read_or_wait() waits about as long as it may", {"1.4"}, &self::patient_wait);
    check("5.1", "a moved stream goes on where it was", {"1.2", "2.2"}, &self::move);
    check("5.2", "the destructor closes, and the peer reads that", {"1.4"}, &self::closes);
    check("1.5", "what was written before the end is read before `closed`", {"1.2", "5.2"}, &self::drains);
    check("3.6", "wait() ends when the peer has closed", {"3.1", "5.2"}, &self::wait_for_end);
    check("3.7", "wait() knows of bytes that the stream holds already", {"1.2", "3.1"}, &self::wait_for_the_rest);
    check("2.4", "writing to a peer that is gone ends with closed or failed", {"5.2"}, &self::peer_gone);
    check("6.1", "no call raises a signal", {"5.2"}, &self::signals);
    check("6.2", "no call allocates", {"1.2"}, &self::allocates);
  }

 private:
  // Requirements 1 and 2: reading and writing.
  void read_bounds(pair& c) {
    const auto sent = probe_.some_bytes(100);
    probe_.send(c.left, sent);
    probe_.let_arrive(c.right);
    std::vector<std::byte> got;
    for (auto lasts = probe_.patience(); got.size() < 100 && lasts();) {
      std::array<std::byte, 32> memory;
      memory.fill(untouched);
      const io_result io = probe::read(c.right, std::span(memory).subspan(8, 16));
      if (io.bytes > 16) return report_.fail("it was asked for 16 bytes and reports %zu", io.bytes);
      for (std::size_t i = 0; i < memory.size(); ++i)
        if ((i < 8 || i >= 8 + 16) && memory[i] != untouched)
          return report_.fail("it wrote %s the span", i < 8 ? "before" : "behind");
      got.insert(got.end(), memory.begin() + 8, memory.begin() + 8 + static_cast<std::ptrdiff_t>(io.bytes));
      if (io.bytes == 0) c.right.wait(true, false, 1ms);
    }
    if (got != sent) report_.fail("100 bytes were sent, and the %zu that were read are not those", got.size());
  }
  void written_count(pair& c) {
    std::vector<std::byte> sent, rest;
    for (int i = 0; i < 1000; ++i) {  // more than most systems take, so that some writes are partial
      const auto piece = probe_.some_bytes(4096);
      const io_result io = probe::write(c.left, piece);
      if (io.bytes > piece.size())
        return report_.fail("it was given %zu bytes and reports that it took %zu", piece.size(), io.bytes);
      sent.insert(sent.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(io.bytes));
      if (io.bytes < piece.size()) {
        rest = std::vector<std::byte>(piece.begin() + static_cast<std::ptrdiff_t>(io.bytes), piece.end());
        break;
      }
    }
    // the end of what was taken may leave with the rest of that write, if there is one
    std::vector<std::byte> got;
    std::array<std::byte, 4096> memory;
    std::span<const std::byte> left(rest);
    for (std::uint64_t begin = probe_.now_us();
         got.size() < sent.size() && probe_.now_us() - begin < probe_.patience_us();) {
      const std::size_t n =
          probe::read(c.right, std::span(memory).first(std::min(memory.size(), sent.size() - got.size()))).bytes;
      got.insert(got.end(), memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(std::min(n, memory.size())));
      if (n > 0) {
        begin = probe_.now_us();
        continue;
      }
      if (!left.empty()) {
        const std::size_t taken = std::min(probe::write(c.left, left).bytes, left.size());
        sent.insert(sent.end(), left.begin(), left.begin() + static_cast<std::ptrdiff_t>(taken));
        left = left.subspan(taken);
      }
      c.right.wait(true, false, 1ms);
    }
    if (got.size() != sent.size()) return report_.fail("it took %zu bytes, and %zu arrived", sent.size(), got.size());
    if (got != sent) return report_.fail("other bytes arrived than were taken");
    std::byte more;
    if (probe::read(c.right, {&more, 1}).bytes > 0) report_.fail("more bytes arrived than it said it took");
  }
  void read_order(pair& c) {
    const auto sent = probe_.some_bytes(61);
    probe_.send(c.left, sent);
    std::vector<std::byte> got;
    for (auto lasts = probe_.patience(); got.size() < sent.size() && lasts();) {
      probe_.let_arrive(c.right);
      std::array<std::byte, 61> memory;
      const std::array<std::span<std::byte>, 5> spans{std::span(memory).first(1), std::span(memory).subspan(1, 0),
                                                      std::span(memory).subspan(1, 7), std::span(memory).subspan(8, 3),
                                                      std::span(memory).subspan(11)};
      const io_result io = c.right.read_some(spans);
      got.insert(got.end(), memory.begin(),
                 memory.begin() + static_cast<std::ptrdiff_t>(std::min(io.bytes, memory.size())));
    }
    if (got != sent) report_.fail("read into 5 spans (1, 0, 7, 3 and 50 bytes), the bytes are not in their order");
  }
  void write_order(pair& c) {
    const auto sent = probe_.some_bytes(61);
    const std::span<const std::byte> all(sent);
    std::size_t done = 0;
    for (auto lasts = probe_.patience(); done < sent.size() && lasts();) {
      const std::span<const std::byte> rest = all.subspan(done);
      const std::size_t a = std::min<std::size_t>(rest.size(), 1), b = std::min<std::size_t>(rest.size() - a, 7);
      const std::array<std::span<const std::byte>, 4> spans{rest.first(a), rest.subspan(a, 0), rest.subspan(a, b),
                                                            rest.subspan(a + b)};
      done += c.left.write_some(spans).bytes;
    }
    if (probe_.receive(c.right, sent.size()) != sent)
      report_.fail("written from 4 spans (1, 0, 7 and 53 bytes), the bytes are not in their order");
  }
  void write_promptly(pair& c) {
    const auto piece = probe_.some_bytes(16 * 1024);
    for (int i = 0; i < 4096 && probe::write(c.left, piece).bytes > 0; ++i) {
    }
    promptly("a write to a full stream", [&] { (void)probe::write(c.left, piece); });
  }

  // Requirements 3 and 4: waiting.
  void wait_for_end(pair& c) {
    destroy(c.left);
    if (!becomes([&] { return c.right.wait(true, false, some_time).read; }))
      report_.fail("the peer has closed, and it does not say that reading can go on");
  }

  void wait_for_the_rest(pair& c) {
    const auto sent = probe_.some_bytes(100);
    probe_.send(c.left, sent);
    for (std::size_t read = 0; read < sent.size(); ++read) {
      // a stream that reads ahead, or decrypts a record at a time, has the rest in its own memory, and the descriptor
      // cannot tell of it
      if (!becomes([&] { return c.right.wait(true, false, some_time).read; }))
        return report_.fail(
            "100 bytes were sent and %zu were read, one at a time, and it does not say that reading can go on", read);
      std::byte one;
      for (auto lasts = probe_.patience(); probe::read(c.right, {&one, 1}).bytes == 0;)
        if (!lasts()) return report_.fail("100 bytes were sent, and %zu could be read", read);
    }
  }

  void patient_read(pair& c) {
    if constexpr (!has_read_or_wait) {
      report_.skip("there is none; it is optional");
    } else {
      const auto sent = probe_.some_bytes(9);
      probe_.send(c.left, sent);
      probe_.let_arrive(c.right);
      std::array<std::byte, 9> memory{};
      const std::array<std::span<std::byte>, 2> spans{std::span(memory).first(2), std::span(memory).subspan(2)};
      const io_result io = c.right.read_or_wait(spans, 1000ms);
      if (io.bytes == 0 || io.bytes > 9) report_.fail("9 bytes are there, and it read %zu", io.bytes);
      else if (!std::equal(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(io.bytes), sent.begin()))
        report_.fail("it read other bytes than were sent");
    }
  }
  void patient_wait(pair& c) {
    if constexpr (!has_read_or_wait) {
      report_.skip("there is none; it is optional");
    } else {
      std::array<std::byte, 8> memory;
      const std::span<std::byte> into(memory);
      about_as_long([&] {
        const io_result io = c.left.read_or_wait({&into, 1}, some_time);
        if (io.status != io_status::would_block || io.bytes != 0)
          report_.fail("an idle stream answered status %d with %zu bytes", static_cast<int>(io.status), io.bytes);
      });
    }
  }

  // Requirements 5 and 6: moving, closing, a peer that is gone, no allocation.
  void move(pair& c) {
    const auto sent = probe_.some_bytes(400);
    const std::span<const std::byte> all(sent);
    std::vector<std::byte> got;
    const auto read = [&](stream& s, std::size_t n) {
      const auto part = probe_.receive(s, n);
      got.insert(got.end(), part.begin(), part.end());
    };
    probe_.send(c.left, all.first(150));
    read(c.right, 50);
    stream left = std::move(c.left), right = std::move(c.right);
    probe_.send(left, all.subspan(150, 100));
    read(right, 120);
    auto other = probe_.connect();
    if (!other) return;
    other->left = std::move(left);
    other->right = std::move(right);
    probe_.send(other->left, all.subspan(250));
    read(other->right, 230);
    if (got != sent)
      report_.fail("of 400 bytes sent while both ends were moved, the %zu that were read are not those", got.size());
  }
  void closes(pair& c) {
    destroy(c.left);
    io_status last{};
    (void)probe_.receive(c.right, 1, &last);
    if (last != io_status::closed)
      report_.fail("the peer was destroyed, and reading answers status %d, and not closed", static_cast<int>(last));
  }
  void drains(pair& c) {
    auto sent = probe_.some_bytes(777);
    sent.resize(std::min(sent.size(), probe::write(c.left, sent).bytes));
    destroy(c.left);
    const auto got = probe_.receive(c.right, 1000);
    if (got != sent)
      report_.fail("%zu bytes were sent before the peer closed, and %zu of them were read", sent.size(), got.size());
  }
  void peer_gone(pair& c) {
    destroy(c.right);
    const auto piece = probe_.some_bytes(4096);
    const std::uint64_t patience = std::min<std::uint64_t>(probe_.patience_us(), 2'000'000);
    for (const std::uint64_t begin = probe_.now_us(); probe_.now_us() - begin < patience;) {
      if (is_end(probe::write(c.left, piece).status)) return;
      c.left.wait(false, true, 1ms);
    }
    report_.fail("for %llu ms writing went on, or would have to wait", ull(patience / 1000));
  }
  void allocates(pair& c) {
    const auto sent = probe_.some_bytes(2000);
    std::vector<std::byte> into(sent.size());
    base::allocates(0, [&] {
      (void)c.left.wait(true, true, 0ms);
      (void)probe::write(c.left, sent);
      (void)c.right.wait(true, false, 5ms);
      (void)probe::read(c.right, into);
    });
  }

  static constexpr bool has_read_or_wait = requires(stream& s, scatter_list spans, std::chrono::milliseconds t) {
    { s.read_or_wait(spans, t) } noexcept -> std::same_as<io_result>;
  };
};

}  // namespace tensorpull::testing::detail
