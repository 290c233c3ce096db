// The connections of one pull over HTTP: how many there are, which of them can be asked, how further ones are made
// beside the transfer.
#pragma once

#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/satellites/http/recipient/detail/http_dial.hpp>
#include <tensorpull/satellites/http/recipient/detail/http_line.hpp>
#include <tensorpull/transports/over/tcp/detail/tcp_tuning.hpp>

#include <poll.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>

namespace tensorpull::detail {

/// All of them lead to one place, that which the first one has reached.
template <class Dial>
class http_connections {
 public:
  using line = http_line<typename Dial::stream>;
  static constexpr std::uint32_t most = 8;

  /// `count` of 0: one_range(). Borrows the proxy's texts and the token. Throws std::bad_alloc.
  http_connections(Dial dial, const http_proxy& proxy, const stop_token& stop, std::uint32_t count)
      : dial_(std::move(dial)), proxy_(proxy), stop_(stop), count_(std::clamp<std::uint32_t>(count, 1, most)),
        one_range_(count == 0), lines_(new line[count_]) {}

  /// What is left of an answer: the bytes [from, until) of the file come next over this connection. Null: nothing is.
  struct rest {
    line* over = nullptr;
    std::uint64_t from = 0, until = 0;
  };

  std::span<line> lines() noexcept { return {lines_.get(), count_}; }
  line& first() noexcept { return lines_[0]; }
  std::uint32_t size() const noexcept { return count_; }
  /// Whether one range over one connection brings all that is missing.
  bool one_range() const noexcept { return one_range_; }
  void drop_all() noexcept {
    for (line& l : lines()) l.drop();
  }
  void drop_all_but(const line& one) noexcept {
    for (line& l : lines())
      if (&l != &one) l.drop();
  }
  /// Those that are idle will have been closed, if one of them was.
  void drop_idle() noexcept {
    for (line& l : lines())
      if (l.now() == line::phase::idle) l.drop();
  }

  /// Waits until one of them can go on, at most so long. `wanted`: the one whose body is wanted now; null: none is.
  void wait(std::chrono::milliseconds time, line* wanted) noexcept {
    std::array<pollfd, most> fds{};
    for (std::uint32_t i = 0; i < count_; ++i) fds[i] = lines_[i].waits_for(&lines_[i] == wanted);
    const int moved = ::poll(fds.data(), count_, static_cast<int>(std::max<std::int64_t>(0, time.count())));
    if (moved == 0 && wanted != nullptr && wanted->connected())
      (void)wanted->stream().wait(true, false, {});  // which notices that the line is gone
  }
  /// Calls `step() -> result<bool>` about this connection until it says true, or the pull has ended.
  template <class Pull, class Step>
  result<void> until(Pull& pull, line& l, Step step) {
    while (!pull.stopped()) {
      const result<bool> did = step();
      if (!did) return failure(did.error());
      if (*did) return {};
      if (const errc why = pull.judge(); why != errc{}) return failure(why);
      (void)go_on_opening();  // one that is connected would end each wait
      wait(std::min(wait_step, pull.left()), &l);
    }
    return {};
  }
  /// A request over this connection, or over a new one, until the head of its answer is there. `ask` writes it. If the
  /// server has closed a connection that was idle, it is asked once more: hardly any such request has reached somebody,
  /// and none of ours does harm twice.
  template <class Pull, class Ask>
  result<void> exchange(Pull& pull, line& l, const http_url& url, Ask ask) {
    if (l.now() != line::phase::idle) l.drop();
    if (l.connected() && !l.still_there()) l.drop();
    for (;;) {
      if (const auto ok = connect(l, url, pull.left()); !ok) return ok;
      ask();
      bool closed = false;
      const auto ok = until(pull, l, [&] {
        auto did = l.step();
        closed = !did && closed_while_idle(l, did.error());
        return did;
      });
      if (!closed) return ok;
      l.drop();
    }
  }
  static bool closed_while_idle(const line& l, const error& why) noexcept {
    return l.used() && !l.heard() && (why.code == errc::connection_lost || why.code == errc::truncated);
  }

  /// Connects this one, unless it is. Errors: as the dial's.
  result<void> connect(line& l, const http_url& url, std::chrono::milliseconds timeout) {
    return connect(l, url, timeout, stop_);
  }
  /// The same with a stop of its own.
  result<void> connect(line& l, const http_url& url, std::chrono::milliseconds timeout, const stop_token& stop) {
    if (l.connected()) return {};
    auto s = dial_.connect(url, proxy_, timeout, stop);
    if (!s) return failure(s.error());
    const auto place = reached_place::of(s->native_handle());
    place_ = place ? optional<reached_place>(*place) : optional<reached_place>();
    l.connect(std::move(*s));
    connected(l);
    return {};
  }
  /// One that can be asked; null: there is none.
  line* idle() noexcept {
    for (line& l : lines()) {
      if (l.now() != line::phase::idle || !l.connected()) continue;
      if (l.still_there()) return &l;
      l.drop();
    }
    return nullptr;
  }
  /// How many there are, with those that are being made.
  std::uint32_t connected() const noexcept {
    return count([](const line& l) { return l.connected(); });
  }
  /// How many there are.
  std::uint32_t ready() const noexcept {
    return count([](const line& l) { return l.connected() && l.now() != line::phase::opening; });
  }
  /// Whether a further connection is being made, or can be.
  bool another_may_come() const noexcept {
    return connected() > ready() || (place_ && connected() < std::min(count_, allowed_));
  }
  /// Begins to make connections, until so many are under way.
  void open_another(std::uint32_t wanted, const http_url& url) {
    if (!place_) return;
    std::uint32_t opening = connected() - ready();
    for (line& l : lines()) {
      if (opening >= wanted || connected() >= allowed_) return;
      if (l.connected()) continue;
      auto s = dial_.start(url, proxy_, *place_);
      if (!s) return allow_no_more();
      l.open(std::move(*s));
      ++opening;
    }
  }
  /// True: a connection has been made, or cannot be.
  bool go_on_opening() noexcept {
    bool moved = false;
    for (line& l : lines()) {
      if (l.now() != line::phase::opening) continue;
      const auto there = l.establish();
      if (there && !*there) continue;
      moved = true;
      if (there) {
        tune_connected(l.stream().native_handle());
        connected(l);
        continue;
      }
      l.drop();
      allow_no_more();
    }
    return moved;
  }
  /// The server, or this process, wants no more connections than there are.
  void allow_no_more() noexcept { allow(std::max<std::uint32_t>(1, connected())); }
  void allow(std::uint32_t connections) noexcept { allowed_ = connections; }

 private:
  /// Bytes are due over it from now on, and many.
  static void connected(line& l) noexcept {
    if (const int fd = l.stream().native_handle(); !is_near(fd)) expect_much(fd);
    l.stream().expect_bytes(true);
  }
  template <class Which>
  std::uint32_t count(Which which) const noexcept {
    return static_cast<std::uint32_t>(std::count_if(lines_.get(), lines_.get() + count_, which));
  }

  Dial dial_;
  http_proxy proxy_;
  const stop_token& stop_;
  std::uint32_t count_;
  std::uint32_t allowed_ = most;  // at the same time, as far as the server has shown
  bool one_range_;
  std::unique_ptr<line[]> lines_;
  optional<reached_place> place_{};
};

}  // namespace tensorpull::detail
