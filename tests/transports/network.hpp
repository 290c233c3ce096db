// What the tests of TCP share besides the models: a plain socket that says anything, and a host that pulls.
#pragma once

#include "sample_models.hpp"
#include "support/own_port.hpp"

#include <tensorpull/transports/host/owner.hpp>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <deque>
#include <optional>
#include <stop_token>

namespace test {

/// A peer over a stream that keeps to no protocol.
template <class Stream>
class peer_over {
 public:
  explicit peer_over(Stream s) : stream_(std::move(s)) {}

  /// False: the other side has closed, or has read nothing for long.
  bool say(const_byte_span bytes) {
    for (auto end = within(20s); !bytes.empty() && !end.stop_requested();) {
      const auto io = write_some(stream_, bytes);
      if (tp::is_end(io.status)) return false;
      bytes = bytes.subspan(io.bytes);
      if (io.bytes > 0) end = within(20s);
      else stream_.wait(false, true, 100ms);
    }
    return bytes.empty();
  }
  bool say(std::string_view text) { return say(std::as_bytes(std::span(text.data(), text.size()))); }

  /// Reads until `most` bytes came, or the other side closed.
  byte_vector hear(std::size_t most, std::chrono::seconds time = 20s) {
    byte_vector got;
    byte_vector piece(4096);
    const auto end = within(time);
    while (got.size() < most && !closed_ && !end.stop_requested()) {
      const auto io = read_some(stream_, std::span(piece).first(std::min(piece.size(), most - got.size())));
      got.insert(got.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(io.bytes));
      if (io.status == tp::io_status::closed || io.status == tp::io_status::failed) closed_ = true;
      else if (io.bytes == 0) stream_.wait(true, false, 20ms);
    }
    return got;
  }
  /// Whether the other side closed.
  bool hear_end() {
    hear(~std::size_t{0});
    return closed_;
  }
  /// Whether the other side has closed, as far as it is known now; what it says is thrown away.
  bool ended() {
    std::array<std::byte, 4096> piece;
    while (!closed_) {
      const auto io = read_some(stream_, piece);
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
    stream_ = Stream();
  }
  Stream& stream() { return stream_; }

 private:
  Stream stream_;
  bool closed_ = false;
};
/// One over TCP.
class raw_peer : public peer_over<tp::posix_stream> {
 public:
  using peer_over::peer_over;
  explicit raw_peer(std::uint16_t port) : peer_over(connected(port)) {}

 private:
  static tp::posix_stream connected(std::uint16_t port) {
    auto s = tp::tcp_connect(local(port), steady_clock::now() + 10s);
    EXPECT_TRUE(s) << to_string(s.error().code);
    return s ? std::move(*s) : tp::posix_stream();
  }
};

/// A listening socket that is not the library's.
class raw_listener {
 public:
  /// `port`: that of an own_port; 0: a free one.
  explicit raw_listener(int backlog = 64, std::uint16_t port = 0)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    const int on = 1;
    EXPECT_EQ(::setsockopt(fd_.native_handle(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    sockaddr_in a{};
    a.sin_port = htons(port);
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
  /// A peer that has come, if one comes within the time.
  std::optional<raw_peer> next(std::chrono::milliseconds time) {
    pollfd ready{fd_.native_handle(), POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(time.count())) < 1) return std::nullopt;
    tp::posix_stream s(::accept4(fd_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (s.native_handle() < 0) return std::nullopt;
    return raw_peer(std::move(s));
  }
  raw_peer accept() {
    auto peer = next(ample_time);
    EXPECT_TRUE(peer) << "nobody has come";
    return peer ? std::move(*peer) : raw_peer(tp::posix_stream());
  }

 private:
  tp::posix_stream fd_;
  std::uint16_t port_ = 0;
};

/// Accepts connections, and does something with each on a thread of its own. Their threads end with this object.
class each_connection {
 public:
  /// `serve(peer, number, stop)`: the number is from 0. `may()`: whether further ones are accepted now.
  template <class Serve, class May>
  each_connection(Serve serve, May may, int backlog = 64)
      : listener_(backlog), accepting_([this, serve, may](const std::stop_token& stop) {
          std::deque<joined_thread> all;
          while (!stop.stop_requested()) {
            if (!may()) {
              look_again_soon();
              continue;
            }
            if (auto peer = listener_.next(20ms))
              all.emplace_back([&serve, peer = std::move(*peer), n = count_++](const std::stop_token& ends) mutable {
                serve(peer, n, ends);
              });
          }
          for (auto& t : all) t.request_stop();
        }) {}
  template <class Serve>
  explicit each_connection(Serve serve) : each_connection(std::move(serve), [] { return true; }) {}
  std::uint16_t port() const { return listener_.port(); }
  std::string address() const { return local(port()); }
  /// How many have come so far.
  std::size_t count() const { return count_; }

 private:
  raw_listener listener_;
  std::atomic<std::size_t> count_{0};
  joined_thread accepting_;
};

/// Carries what a client asks to an owner and the answers back, until one of them ends (false) or `most` bytes of
/// answers have passed.
inline bool carry_answers(raw_peer& client, raw_peer& owner, std::size_t most, const std::stop_token& stop) {
  byte_vector piece(4096);
  for (std::size_t carried = 0; !stop.stop_requested();) {
    const auto asked = read_some(client.stream(), piece);
    if (tp::is_end(asked.status)) return false;
    if (asked.bytes > 0 && !owner.say(std::span(piece).first(asked.bytes))) return false;
    const auto answered = read_some(owner.stream(), piece);
    const std::size_t n = std::min(answered.bytes, most - carried);
    if (n > 0 && !client.say(std::span(piece).first(n))) return false;
    if ((carried += n) == most) return true;
    if (answered.status == tp::io_status::closed) return false;
    if (asked.bytes + answered.bytes == 0) client.stream().wait(true, false, 1ms);
  }
  return false;
}

/// Passes on what two ends say to each other, until one of them closes.
template <class Near, class Far>
void pass_on(Near& near, Far& far, const std::stop_token& stop) {
  byte_vector room(65536);
  // false: the connection has ended
  const auto once = [&](auto& from, auto& to, bool& moved) {
    const auto io = read_some(from, room);
    for (auto rest = const_byte_span(room).first(io.bytes); !rest.empty();) {
      const auto sent = write_some(to, rest);
      if (tp::is_end(sent.status) || stop.stop_requested()) return false;
      rest = rest.subspan(sent.bytes);
      if (sent.bytes == 0) to.wait(false, true, 20ms);
    }
    moved |= io.bytes > 0;
    return !tp::is_end(io.status);
  };
  while (!stop.stop_requested()) {
    bool moved = false;
    if (!once(near, far, moved) || !once(far, near, moved)) return;
    if (!moved) near.wait(true, false, 1ms);
  }
}

/// What a host's connections do: each pulls once, and is closed.
template <class Model>
struct puller {
  tp::reference ref;
  Model* to;
  int connected_calls = 0;
  std::optional<tp::error> end{};
  std::optional<tp::result<tp::receipt>> outcome{};
  template <class C> void connected(C& c) {
    ++connected_calls;
    EXPECT_TRUE(c.pull(ref, {}, tp::raw_tensors<Model>::destination(*to)));
  }
  template <class C> void message(C&, const tp::message&) {}
  template <class C> void pulled(C& c, const tp::result<tp::receipt>& r) { outcome = r, c.close(); }
  template <class C> void closed(C&, const tp::error& e) { end = e; }
};

}  // namespace test
