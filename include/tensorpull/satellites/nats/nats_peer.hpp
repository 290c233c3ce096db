// A link to one peer over NATS, for sessions: one end opens a door under a name, and the other calls it.
#pragma once

#include <tensorpull/satellites/nats/nats_link.hpp>

#include <algorithm>
#include <string_view>
#include <utility>

namespace tensorpull {

/// A link with one peer: the first inbox that something has arrived from that counts at the endpoint. Before that, the
/// first that has called or answered is sent to, and then the last that has sent a valid datagram. Until then a caller
/// sends to the door, and the end that is called drops what it sends. Datagrams from inboxes but the peer's are
/// dropped. None is longer than 64 KiB and a prefix, so a session has 200 KiB of buffers.
template <class Link>
class nats_peer {
 public:
  using address = only_peer;  ///< the first that called, or answered
  static constexpr std::size_t max_datagram_bytes = std::min<std::size_t>(Link::max_datagram_bytes, 64 * 1024 + 128);
  static constexpr bool checked = Link::checked;  ///< as the link
  static constexpr bool addresses_are_proved = true;  ///< as the link's: nobody can guess an inbox

  static constexpr unsigned allocations_per_datagram = Link::allocations_per_datagram;  ///< as the link

  /// Takes over a link. `door`: where the peer receives; empty: this end serves a door, and is called.
  nats_peer(Link link, const nats_subject& door) noexcept
      : link_(std::move(link)), to_(door), bytes_(std::min(link_.datagram_bytes(), max_datagram_bytes)) {}

  /// The longest datagram, by the server's limit when the link was made. If the server allows less later, the link
  /// closes.
  std::size_t datagram_bytes() const noexcept { return bytes_; }
  /// As in datagram_link.
  io_result receive(std::span<std::byte> memory, address& from) noexcept {
    return detail::receive_copy(*this, memory, from);
  }
  /// The same without a copy.
  io_result receive_in_place(std::span<const std::byte>& datagram, address&) noexcept {
    for (int tries = 0; tries < most_dropped; ++tries) {  // others must not keep the caller here by sending without end
      const io_result io = link_.receive_in_place(datagram, last_);
      if (io.status == io_status::would_block && link_.datagram_bytes() < bytes_) return {io_status::closed, 0, 0};
      // an inbox that a stranger has named ends nothing
      if (io.status == io_status::would_block && !heard_ && to_ && link_.may_not_publish(to_)) {
        why_ = {errc::not_permitted, 0, 0, std::string_view("this user may not publish to the other end's name")};
        return {io_status::closed, 0, 0};
      }
      if (io.status != io_status::ok) return io;
      if (!std::exchange(heard_, true)) to_ = last_;
      if (!met_ || last_ == to_) return io;
    }
    return {io_status::would_block, 0, 0};
  }
  /// Why it is closed. not_permitted: the server does not let this user call; connection_lost: as datagram_bytes().
  const error& why() const noexcept { return why_; }
  /// As called_link::answer_last.
  void answer_last(bool for_good) noexcept {
    to_ = last_;
    met_ = met_ || for_good;
  }
  /// As in datagram_link.
  io_result send(gather_list spans, const address&) noexcept { return to_ ? link_.send(spans, to_) : io_result{}; }
  /// As in datagram_link.
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    return link_.wait(read, write, timeout);
  }

 private:
  static constexpr int most_dropped = 64;

  Link link_;
  nats_subject to_, last_{};
  std::size_t bytes_;
  error why_{errc::connection_lost};
  bool heard_ = false, met_ = false;  // `to_` is an inbox, and the peer's
};

static_assert(datagram_link<nats_peer<nats_link>>);

/// The meeting point of a session: `net::session::open(door)` at one end, `net::session::connect(door)` at the other.
/// `Link`: a basic_nats_link. The texts are borrowed.
template <class Link>
struct basic_nats_meeting {
  nats_server server{};  ///< where, and as whom
  /// its name at both ends: tokens of a subject, at most 76 bytes. Any peer that knows it, and that the server lets in,
  /// may call first
  std::string_view name{};

  /// Reads `nats://server:4222#name`, with options in front of `#` as nats_server::of reads them. bad_address: the name
  /// is missing.
  static result<basic_nats_meeting> of(std::string_view url) noexcept {
    const auto at = url.rfind('#');
    if (at == url.npos) return failure(errc::bad_address, url.size(), without_secrets(url));
    const auto server = nats_server::of(url.substr(0, at));
    if (!server) return failure(server.error());
    return basic_nats_meeting{*server, url.substr(at + 1)};
  }
  /// Connects to the server, without waiting for the other end. Errors: those of basic_nats_link::connect; bad_address:
  /// the name is not a subject.
  result<nats_peer<Link>> connect(std::chrono::milliseconds timeout, const stop_token& stop = {}) const noexcept {
    const auto door = nats_subject::meeting(name);
    if (!door) return failure(door.error());
    nats_server within = server;
    within.timeout = std::min(server.timeout, timeout);
    auto link = Link::connect(within, stop);
    if (!link) return failure(link.error());
    return nats_peer<Link>(std::move(*link), *door);
  }
  /// Connects to the server, and returns when the peer may call. Errors: as connect(), and those of
  /// basic_nats_link::settle.
  result<nats_peer<Link>> open(const stop_token& stop = {}) const noexcept {
    const auto door = nats_subject::meeting(name);
    if (!door) return failure(door.error());
    auto link = Link::connect(server, stop, 1);
    if (!link) return failure(link.error());
    auto ok = link->serve(*door);
    if (ok) ok = link->settle(*door, server.timeout, stop);
    if (!ok) return failure(ok.error());
    return nats_peer<Link>(std::move(*link), {});
  }
};

/// Over a server that allows 1 MiB for a message.
using nats_meeting = basic_nats_meeting<nats_link>;

}  // namespace tensorpull
