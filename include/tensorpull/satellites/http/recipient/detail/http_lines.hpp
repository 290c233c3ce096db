// The requests of a pull or an upload that are on their way, on the caller's thread, and the connections below them.
#pragma once

#include <tensorpull/links/posix/detail/tcp_line.hpp>
#include <tensorpull/satellites/http/recipient/detail/http_line.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace tensorpull::detail {

/// A few lines, each with at most one connection, which it keeps from one request to the next.
class http_lines {
 public:
  static constexpr std::uint32_t most = 8;
  /// Bytes that libcurl reads at a time. Each request that is on its way has a buffer of them.
  static constexpr long buffer_bytes = 512 * 1024;

  /// Throws std::bad_alloc.
  explicit http_lines(std::uint32_t count)
      : count_(std::clamp<std::uint32_t>(count, 1, most)), allowed_(count_), lines_(new http_line[count_]) {}
  http_lines(const http_lines&) = delete;
  http_lines& operator=(const http_lines&) = delete;
  ~http_lines() { drop_all(); }

  std::span<http_line> lines() const noexcept { return {lines_.get(), count_}; }
  http_line& first() noexcept { return lines_[0]; }
  std::uint32_t size() const noexcept { return count_; }
  /// How many of them have a request, and how many a connection.
  std::uint32_t busy() const noexcept {
    return count([](const http_line& l) { return l.now() != http_line::phase::idle; });
  }
  std::uint32_t connected() const noexcept {
    return count([](const http_line& l) { return l.connected(); });
  }
  /// One without a request, and with a connection if there is one that `may` be taken; null: there is none.
  http_line* idle(bool may) const noexcept {
    http_line* found = nullptr;
    for (http_line& l : lines())
      if (l.now() == http_line::phase::idle && (l.connected() ? may : found == nullptr)) found = &l;
    return found;
  }
  /// How many requests may be on their way, as far as the server has shown.
  std::uint32_t allowed() const noexcept { return allowed_; }
  void allow(std::uint32_t at_a_time) noexcept { allowed_ = std::clamp<std::uint32_t>(at_a_time, 1, count_); }

  /// Begins a request in place of the line's last one; start() says it. `server`: what errors name, borrowed. Error:
  /// out_of_memory.
  result<void> begin(http_line& l, http_taker& taker, std::string_view server, const http_proxy& proxy) {
    drop(l);
    if (multi_ == nullptr && curl_is_ready()) {
      multi_.reset(curl_multi_init());
      // each request has a connection: those that wait for their turn would hold the others up
      (void)curl_multi_setopt(multi_.get(), CURLMOPT_PIPELINING, static_cast<long>(CURLPIPE_NOTHING));
    }
    if (multi_ == nullptr || !l.begin(taker, server, proxy)) return failure(errc::out_of_memory);
    l.set_ = set_proxy(l.easy_.get(), proxy);
    l.set(CURLOPT_NOSIGNAL, 1L);
    l.set(CURLOPT_QUICK_EXIT, 1L);  // who stops does not wait for the resolver
    l.set(CURLOPT_CONNECTTIMEOUT_MS, no_timeout_ms);
    // refused where the last request has found no host: libcurl then has its buffer still
    (void)curl_easy_setopt(l.easy_.get(), CURLOPT_BUFFERSIZE, buffer_bytes);
    l.set(CURLOPT_FRESH_CONNECT, l.connected() ? 0L : 1L);  // those that are kept are other lines'
    l.set(CURLOPT_OPENSOCKETFUNCTION, &on_open);
    l.set(CURLOPT_OPENSOCKETDATA, this);
    l.set(CURLOPT_CLOSESOCKETFUNCTION, &on_close);
    l.set(CURLOPT_CLOSESOCKETDATA, this);
    return {};
  }
  /// Error: out_of_memory.
  result<void> start(http_line& l) noexcept {
    if (busy() == 0) forget_unasked();
    if (l.start() && curl_multi_add_handle(multi_.get(), l.easy_.get()) == CURLM_OK) return {};
    l.forget();
    return failure(errc::out_of_memory);
  }
  /// Ends a line's request. Its connection goes if the answer has not ended.
  void drop(http_line& l) noexcept {
    if (l.now() != http_line::phase::idle) (void)curl_multi_remove_handle(multi_.get(), l.easy_.get());
    l.forget();
  }
  /// The same, and its connection goes.
  void close(http_line& l) noexcept {
    if (l.kept_ >= 0) (void)::shutdown(l.kept_, SHUT_RDWR);
    drop(l);
    l.connected_ = false;
  }
  /// The connections lead to another place than the requests to come.
  void leave() noexcept {
    for (http_line& l : lines())
      if (l.now() == http_line::phase::idle) l.connected_ = false;
  }
  /// Ends all requests and all connections.
  void drop_all() noexcept {
    for (http_line& l : lines()) drop(l);
    leave();
    multi_.reset();
  }

  /// Goes on with what can go on, and does not wait. Whether anything has.
  bool perform() noexcept {
    int left = 0;
    if (multi_ == nullptr || curl_multi_perform(multi_.get(), &left) != CURLM_OK) return false;
    while (const CURLMsg* const m = curl_multi_info_read(multi_.get(), &left)) {
      void* line = nullptr;
      (void)curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &line);
      static_cast<http_line*>(line)->end(m->data.result, std::exchange(no_socket_, 0));
    }
    bool moved = false;
    for (http_line& l : lines()) moved = std::exchange(l.moved_, false) || moved;
    if (moved) expect_much_from_afar();
    return moved;
  }
  /// Waits until something can go on, at most so long.
  void wait(std::chrono::milliseconds time) noexcept {
    int ready = 0;
    const auto ms = static_cast<int>(std::clamp<std::int64_t>(time.count(), 0, 1000));
    if (curl_multi_poll(multi_.get(), nullptr, 0, ms, &ready) != CURLM_OK || ready > 0) return;
    for (const socket& s : sockets_)  // libcurl hears of it, and says that the connection is lost
      if (s.fd >= 0 && line_is_gone(s.fd)) (void)::shutdown(s.fd, SHUT_RDWR);
  }

 private:
  struct socket {
    int fd = -1;
    bool seen = false;  // whether it was looked at when it was connected
  };
  template <class Which>
  std::uint32_t count(Which which) const noexcept {
    return static_cast<std::uint32_t>(std::count_if(lines_.get(), lines_.get() + count_, which));
  }
  /// libcurl would not keep the reason why there is no socket.
  static curl_socket_t on_open(void* self, curlsocktype, curl_sockaddr* to) noexcept {
    http_lines& me = *static_cast<http_lines*>(self);
    const auto unused = std::find_if(me.sockets_.begin(), me.sockets_.end(), [](const socket& s) { return s.fd < 0; });
    if (unused == me.sockets_.end()) return CURL_SOCKET_BAD;
    unused->fd = ::socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
    unused->seen = false;
    if (unused->fd < 0) me.no_socket_ = errno;
    else ask_silent_end(unused->fd, due_signs);
    return unused->fd;
  }
  static int on_close(void* self, curl_socket_t fd) noexcept {
    for (socket& s : static_cast<http_lines*>(self)->sockets_)
      if (s.fd == fd) s.fd = -1;
    return ::close(fd);
  }
  void expect_much_from_afar() noexcept {
    for (socket& s : sockets_) {
      if (s.fd < 0 || s.seen) continue;
      sockaddr_storage there{};
      socklen_t size = sizeof there;
      s.seen = ::getpeername(s.fd, reinterpret_cast<sockaddr*>(&there), &size) == 0;
      if (s.seen && !is_near(s.fd)) expect_much(s.fd);
    }
  }
  /// Bytes that came behind an answer are nobody's: not those of the next one. No request is on its way now.
  void forget_unasked() noexcept {
    char one = 0;
    for (const socket& s : sockets_)
      if (s.fd >= 0 && ::recv(s.fd, &one, 1, MSG_PEEK | MSG_DONTWAIT) > 0) (void)::shutdown(s.fd, SHUT_RDWR);
  }

  std::uint32_t count_, allowed_;
  std::unique_ptr<http_line[]> lines_;
  std::array<socket, 8 * most> sockets_{};
  int no_socket_ = 0;  // errno
  curl_multi_ptr multi_;
};

}  // namespace tensorpull::detail
