// Finds a NATS server that answers, without waiting in libnats, which does not hear a stop request while it connects.
#pragma once

#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/satellites/nats/detail/nats_handles.hpp>
#include <tensorpull/satellites/nats/nats_server.hpp>
#include <tensorpull/std/optional.hpp>
#include <tensorpull/transports/over/tcp/tcp_connect.hpp>

#include <sys/socket.h>

#include <array>
#include <optional>
#include <span>
#include <string_view>

namespace tensorpull::detail {

/// "host:port" of a server's URL, whose scheme, user and port may be missing. Empty: it is too long.
class nats_host {
 public:
  explicit nats_host(std::string_view url) noexcept {
    if (const auto scheme = url.find("://"); scheme != url.npos) url.remove_prefix(scheme + 3);
    if (const auto user = url.rfind('@'); user != url.npos) url.remove_prefix(user + 1);
    url = url.substr(0, url.find('/'));
    const auto colon = url.rfind(':'), bracket = url.rfind(']');
    const bool has_port = colon != url.npos && (bracket == url.npos || colon > bracket);
    constexpr std::string_view port = ":4222";
    if (url.empty() || url.size() + port.size() > sizeof text_) return;
    for (const char c : url) text_[size_++] = c;
    if (!has_port)
      for (const char c : port) text_[size_++] = c;
  }
  std::string_view view() const noexcept { return {text_, size_}; }

 private:
  char text_[280]{};
  std::size_t size_ = 0;
};

/// Whether a server's URL asks for TLS, in either case.
inline bool asks_for_tls(const char* url) noexcept {
  while (*url == ' ') ++url;
  for (const char c : std::string_view("tls://")) {
    const char u = *url++;
    if ((u >= 'A' && u <= 'Z' ? u - 'A' + 'a' : u) != c) return false;  // the zero at its end is none of them
  }
  return true;
}

/// Tries the servers of a URL in turn, repeatedly. A server greets each client, so one that has sent something is
/// there.
class nats_door {
 public:
  /// The most servers that one URL may name.
  static constexpr std::size_t most_servers = 16;

  explicit nats_door(const nats_server& where) noexcept
      : url_(where.url), timeout_(where.timeout), count_(url_ ? url_.split(servers_) : 0) {
    // one server without TLS would hear the user and the model of all
    int with_tls = 0;
    for (int i = 0; i < count_; ++i) with_tls += asks_for_tls(servers_[static_cast<std::size_t>(i)]);
    if (with_tls != 0 && with_tls != count_) count_ = 0;
  }
  nats_door(const nats_door&) = delete;
  nats_door& operator=(const nats_door&) = delete;

  /// Whether the URL is valid.
  explicit operator bool() const noexcept { return count_ > 0; }
  /// Searches for at most `most`. The URL of a server that has answered; nullptr: none yet.
  const char* look(std::chrono::milliseconds most) noexcept {
    const auto now = std::chrono::steady_clock::now();
    if (probe_.native_handle() < 0) {
      if (now < pause_until_) {
        pause(std::min(most, std::chrono::ceil<std::chrono::milliseconds>(pause_until_ - now)));
        return nullptr;
      }
      begin(now);
      return nullptr;
    }
    if (!probe_.wait(true, false, std::min(most, wait_step)).read) {
      if (has_passed(now - began_, timeout_)) give_up(errc::timed_out, 0);
      return nullptr;
    }
    std::byte greeting[1];
    const std::span<std::byte> one[] = {greeting};
    const int failed = connect_outcome(probe_.native_handle());
    const io_result io = failed == 0 ? probe_.read_some(one) : io_result{io_status::closed, failed, 0};
    if (io.bytes == 0) {
      give_up(errc::connection_failed, io.system);
      return nullptr;
    }
    probe_ = {};
    addresses_.reset();
    return servers_[at_];
  }
  /// Moves to the next server, after a pause if it is the first.
  void next() noexcept {
    probe_ = {};
    addresses_.reset();
    at_ = (at_ + 1) % static_cast<std::size_t>(count_);
    if (at_ != 0) return;
    ++rounds_;
    pause_until_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  }
  /// How often all have been tried.
  std::uint32_t rounds() const noexcept { return rounds_; }
  /// Why the last server did not answer.
  const error& why() const noexcept { return why_; }

 private:
  void begin(std::chrono::steady_clock::time_point now) noexcept {
    if (!addresses_) {
      auto found = tcp_addresses::of(nats_host(servers_[at_]).view());
      if (!found) {
        why_ = found.error();
        return next();
      }
      addresses_.emplace(std::move(*found));
    }
    auto stream = addresses_->start_connect();
    if (!stream) return give_up(stream.error().code, stream.error().system);
    probe_ = std::move(*stream);
    began_ = now;
  }
  /// Moves to the server's next address, or to the next server.
  void give_up(errc code, std::int32_t system) noexcept {
    why_ = {code, system};
    probe_ = {};
    if (!addresses_->more()) next();
  }

  nats_text url_;
  std::chrono::milliseconds timeout_;
  std::array<const char*, most_servers> servers_{};
  int count_;
  std::size_t at_ = 0;
  std::optional<tcp_addresses> addresses_;  // of that server, from the next on
  posix_stream probe_;
  std::chrono::steady_clock::time_point began_{}, pause_until_{};
  std::uint32_t rounds_ = 0;
  error why_{};
};

}  // namespace tensorpull::detail
