// What the tests of TCP share besides the models: a plain socket that says anything.
#pragma once

#include "sample_models.hpp"

#include <tensorpull/transports/host/owner.hpp>

#include <netinet/in.h>
#include <sys/socket.h>

namespace test {

/// A TCP peer that keeps to no protocol.
class raw_peer {
 public:
  explicit raw_peer(std::uint16_t port) {
    auto s = tp::tcp_connect(local(port), std::chrono::steady_clock::now() + 10s);
    EXPECT_TRUE(s) << to_string(s.error().code);
    if (s) stream_ = std::move(*s);
  }
  explicit raw_peer(tp::posix_stream s) : stream_(std::move(s)) {}

  bool say(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const std::array<std::span<const std::byte>, 1> out{bytes};
      const auto io = stream_.write_some(out);
      if (io.status == tp::io_status::closed || io.status == tp::io_status::failed) return false;
      bytes = bytes.subspan(io.bytes);
      if (io.bytes == 0) stream_.wait(false, true, 100ms);
    }
    return true;
  }
  bool say(std::string_view text) { return say(std::as_bytes(std::span(text.data(), text.size()))); }

  /// Reads until `most` bytes came, or the other side closed.
  std::vector<std::byte> hear(std::size_t most, std::chrono::seconds patience = 20s) {
    std::vector<std::byte> got;
    std::vector<std::byte> piece(4096);
    const auto end = std::chrono::steady_clock::now() + patience;
    while (got.size() < most && !closed_ && std::chrono::steady_clock::now() < end) {
      const std::array<std::span<std::byte>, 1> in{std::span(piece).first(std::min(piece.size(), most - got.size()))};
      const auto io = stream_.read_some(in);
      got.insert(got.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(io.bytes));
      if (io.status == tp::io_status::closed || io.status == tp::io_status::failed) closed_ = true;
      else if (io.bytes == 0) stream_.wait(true, false, 20ms);
    }
    return got;
  }
  /// Whether the other side closed, within the test's patience.
  bool hear_end() {
    hear(~std::size_t{0});
    return closed_;
  }
  /// Whether the other side has closed, as far as it is known now; what it says is thrown away.
  bool ended() {
    std::array<std::byte, 4096> piece;
    const std::array<std::span<std::byte>, 1> in{piece};
    while (!closed_) {
      const auto io = stream_.read_some(in);
      closed_ = tp::is_end(io.status);
      if (io.bytes == 0) break;
    }
    return closed_;
  }
  void half_close() { ::shutdown(stream_.native_handle(), SHUT_WR); }
  /// Closes with a reset instead of an end.
  void reset() {
    const linger now{1, 0};
    ::setsockopt(stream_.native_handle(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    stream_ = tp::posix_stream();
  }
  tp::posix_stream& stream() { return stream_; }

 private:
  tp::posix_stream stream_;
  bool closed_ = false;
};

/// A listening socket that is not the library's.
class raw_listener {
 public:
  explicit raw_listener(int backlog = 64) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_.native_handle(), reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
    EXPECT_EQ(::listen(fd_.native_handle(), backlog), 0);
    socklen_t n = sizeof a;
    EXPECT_EQ(::getsockname(fd_.native_handle(), reinterpret_cast<sockaddr*>(&a), &n), 0);
    port_ = ntohs(a.sin_port);
  }
  std::uint16_t port() const { return port_; }
  int native_handle() const { return fd_.native_handle(); }
  raw_peer accept() {
    return raw_peer(tp::posix_stream(::accept4(fd_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
  }

 private:
  tp::posix_stream fd_;
  std::uint16_t port_ = 0;
};

}  // namespace test
