// A UDP socket as a datagram link: plain system calls that move many datagrams each if the kernel can (segmentation
// offload, recvmmsg, sendmmsg).
#pragma once

#include <tensorpull/core/detail/replace.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/links/datagram_link.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/pull/detail/take_datagram.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/memory.hpp>
#include <tensorpull/system/detail/file_descriptor.hpp>
#include <tensorpull/system/resolve.hpp>
#include <tensorpull/transports/over/udp/detail/udp_buffers.hpp>
#include <tensorpull/transports/over/udp/detail/udp_turns.hpp>
#include <tensorpull/transports/over/udp/udp_address.hpp>

#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

namespace tensorpull {

/// A socket that is connected to one owner, or open to many recipients. IPv4 and IPv6. Movable; the destructor closes
/// it. One thread at a time. Its buffers are one allocation, made when it is opened (`buffer_bytes`).
///
/// `Bytes`: of the longest datagram, without the headers of UDP and IP. A network that cannot carry it loses it: no
/// packet is cut into fragments, and what routers say about their limits is not believed, since anybody can say it.
/// 1,200 is carried by almost every network (RFC 9000, 14).
///
/// collect() is a send() whose datagrams leave together, with the next receive() that finds nothing, with wait(), and
/// when the buffer is full. A datagram that the kernel will not take because of its address or length is dropped; so is
/// what an ICMP error was about. A socket for one peer that has met `most_refusals` of these in a row,
/// `refusal_interval` apart, without a datagram between them is `closed`.
template <std::size_t Bytes = 1200>
class basic_udp_link {
  static_assert(Bytes >= 128 && Bytes <= 65'507, "tensorpull: a UDP datagram carries 128 to 65,507 bytes");

 public:
  using address = udp_address;  ///< of a peer
  static constexpr std::size_t max_datagram_bytes = Bytes;  ///< no datagram is longer
  static constexpr bool checked = false;  ///< the checksum of UDP has 16 bits
  static constexpr bool addresses_are_proved = false;  ///< anybody can send with the address of another
  static constexpr unsigned most_refusals = 3;  ///< ICMP errors in a row that end a connected socket
  static constexpr std::chrono::milliseconds refusal_interval{200};  ///< those that arrive sooner are of the same try
  static constexpr std::size_t buffer_bytes = 2 * 64 * 1024;  ///< of both buffers

  /// A socket that exchanges datagrams with "host:port" only. A host with several addresses: the first that answers;
  /// one that is silent has 3 s, and longer in the next round. Nothing is sent yet. Resolving the host blocks the
  /// caller's thread. Errors: bad_address, unknown_host, connection_failed (with errno: no route, ...), out_of_memory.
  static result<basic_udp_link> connect(std::string_view text) noexcept {
    return made(text, false, [](basic_udp_link& l, const addrinfo* list) {
      for (; list != nullptr && l.turns_.has_room(); list = list->ai_next) {
        sockaddr_storage to{};
        std::memcpy(&to, list->ai_addr, list->ai_addrlen);
        l.turns_.add({detail::udp_address_of(to), list->ai_family});
      }
      return l.connect_next();
    });
  }
  /// A socket that takes datagrams from everybody at "host:port", or at ":port" of every local address of IPv4; port 0:
  /// a free one. "[::]:port" takes those of IPv6, and of IPv4 if the system allows it. On every local address each peer
  /// is answered from the one that it has sent to. Errors: bad_address, connection_failed (with errno: in use, ...),
  /// out_of_memory.
  static result<basic_udp_link> open(std::string_view text) noexcept {
    return made(text, true, [](basic_udp_link& l, const addrinfo* list) {
      if (!l.make_socket(list->ai_family) || ::bind(l.fd_.get(), list->ai_addr, list->ai_addrlen) != 0) return false;
      detail::ask_for_local_address(l.fd_.get(), list->ai_family);
      return true;
    });
  }

  /// From now on an open socket is for one peer: the kernel drops what others send, and an ICMP error that nobody
  /// listens there counts as at a connected one; a path that is broken may be mended. Does nothing if the system would
  /// answer this peer from another address than it has sent to.
  void keep_to(const address& peer) noexcept {
    kept_ = detail::is_answered_from_there(peer, family_) && detail::connect_to(fd_.get(), peer, family_);
  }

  basic_udp_link(basic_udp_link&&) noexcept = default;
  basic_udp_link& operator=(basic_udp_link&& other) noexcept { return detail::replace(*this, std::move(other)); }
  ~basic_udp_link() {
    if (fd_) (void)flush();
  }

  /// The descriptor, which stays the link's.
  int native_handle() const noexcept { return fd_.get(); }
  /// The port that it is bound to; 0: none yet.
  std::uint16_t port() const noexcept {
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    if (::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
    return static_cast<std::uint16_t>(detail::udp_address_of(bound).port);
  }
  /// The longest datagram.
  static constexpr std::size_t datagram_bytes() noexcept { return Bytes; }

  /// As datagram_link asks.
  io_result receive(std::span<std::byte> memory, address& from) noexcept {
    return detail::receive_copy(*this, memory, from);
  }
  /// The same without a copy: the datagram lies in the link's buffer, at a multiple of 8 bytes, until the next call.
  io_result receive_in_place(std::span<const std::byte>& datagram, address& from) noexcept {
    buffers& b = *buffers_;
    for (;;) {
      if (b.taken < b.come) {
        from = b.in[b.taken].from;
        datagram = b.next_datagram();
        return {io_status::ok, 0, datagram.size()};
      }
      b.taken = b.come = 0;
      const io_result io = connected_ ? fill_from_one(b) : fill_from_all(b);
      if (b.come > 0) {
        refusals_ = 0;
        heard_ = true;
        continue;
      }
      if (io.status == io_status::would_block) (void)flush();
      return error_ != 0 ? io_result{io_status::closed, error_, 0} : io;
    }
  }
  /// As datagram_link asks.
  io_result send(gather_list spans, const address& to) noexcept {
    const io_result io = collect(spans, to);
    if (io.bytes > 0) (void)flush();
    return io;
  }
  /// The same, but the datagram may leave later, with others.
  io_result collect(gather_list spans, const address& to) noexcept {
    if (error_ != 0) return {io_status::closed, error_, 0};
    buffers& b = *buffers_;
    std::size_t n = 0;
    for (const auto& s : spans) n += s.size();
    if (n > Bytes || n == 0) return {};
    if (b.staged == buffers::most_staged || b.used + n > b.send.size()) {
      if (!flush()) return {io_status::would_block, 0, 0};
      if (error_ != 0) return {io_status::closed, error_, 0};
    }
    std::byte* at = b.send.data() + b.used;
    for (const auto& s : spans) {
      if (s.empty()) continue;
      std::memcpy(at, s.data(), s.size());
      at += s.size();
    }
    b.out[b.staged++] = {to, static_cast<std::uint32_t>(b.used), static_cast<std::uint32_t>(n)};
    b.used += n;
    return {io_status::ok, 0, n};
  }
  /// As datagram_link asks.
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    const buffers& b = *buffers_;
    const bool clear = flush();
    if (read && b.taken < b.come) return {true, write && clear};
    if (write && clear) timeout = {};
    pollfd p{fd_.get(), static_cast<short>((read ? POLLIN : 0) | (clear ? 0 : POLLOUT)), 0};
    (void)detail::poll_for(&p, 1, timeout);
    const bool error = (p.revents & (POLLERR | POLLHUP)) != 0;
    return {read && ((p.revents & POLLIN) != 0 || error), write && (clear || (p.revents & POLLOUT) != 0)};
  }

 private:
  using buffers = detail::udp_buffers;
  static constexpr std::size_t datagram_slot = 2048;
  /// The kernel's limit for one call with segments is 64 of them, and what one IP packet carries.
  static constexpr std::size_t most_segments = 64, most_in_call = 65'000;
  /// How long datagrams go one by one. After that it is tried again, since routes and interfaces change.
  static constexpr std::chrono::minutes alone_time{1};

  basic_udp_link() noexcept : buffers_(new(std::nothrow) buffers) {}

  template <class Make>
  static result<basic_udp_link> made(std::string_view text, bool to_listen, Make make) noexcept {
    const auto parsed = parse_address(text);
    if (!parsed) return failure(parsed.error());
    basic_udp_link link;
    if (!link.buffers_) return failure(errc::out_of_memory);
    const auto list = detail::resolve(*parsed, text, to_listen, SOCK_DGRAM);
    if (!list) return failure(list.error());
    if (!make(link, list->get())) return failure(errc::connection_failed, 0, text, errno);
    return link;
  }
  bool make_socket(int family) noexcept {
    fd_ = detail::file_descriptor(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd_) return false;
    family_ = family;
    const int room = 4 * 1024 * 1024, off = 0, probe = family == AF_INET6 ? IPV6_PMTUDISC_PROBE : IP_PMTUDISC_PROBE;
    (void)::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &room, sizeof room);  // the kernel gives what it allows
    (void)::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    (void)::setsockopt(fd_.get(), IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof probe);
    if (family == AF_INET6) {
      (void)::setsockopt(fd_.get(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, &probe, sizeof probe);
      (void)::setsockopt(fd_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    return true;
  }
  /// Connects to the next of the host's addresses that has a route. False: there is none, errno is why, and the socket
  /// is what it was.
  bool connect_next() noexcept {
    detail::file_descriptor before = std::move(fd_);
    while (const auto* const next = turns_.next()) {
      if (!make_socket(next->family) || !detail::connect_to(fd_.get(), next->to, next->family)) continue;
      const int on = 1;
      (void)::setsockopt(fd_.get(), SOL_UDP, UDP_GRO, &on, sizeof on);
      connected_ = true;
      refusals_ = 0;
      return true;
    }
    fd_ = std::move(before);
    return false;
  }
  /// An ICMP error about the connected peer. Before it has sent anything, the host's next address may be the right one.
  void refused(int why) noexcept {
    if (kept_ ? why != ECONNREFUSED : !connected_ || (!heard_ && connect_next())) return;
    const auto now = std::chrono::steady_clock::now();
    if (refusals_ > 0 && now - refused_at_ < refusal_interval) return;  // of the same try
    refused_at_ = now;
    if (++refusals_ == most_refusals) error_ = why;
  }
  static bool is_ours(int e) noexcept { return e == EBADF || e == ENOTSOCK || e == EFAULT || e == EINVAL; }

  /// One call that takes datagrams of one peer, which the kernel may have put together.
  io_result fill_from_one(buffers& b) noexcept {
    iovec room{b.receive.data(), b.receive.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    for (int tries = 0; tries < 8; ++tries) {
      msghdr m{};
      m.msg_iov = &room;
      m.msg_iovlen = 1;
      m.msg_control = control;
      m.msg_controllen = sizeof control;
      const ssize_t n = ::recvmsg(fd_.get(), &m, MSG_DONTWAIT);
      if (n < 0) {
        const io_result io = failed_receive(errno);
        if (io.status != io_status::ok) return io;
        continue;
      }
      std::uint32_t step = static_cast<std::uint32_t>(n);
      for (const cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, const_cast<cmsghdr*>(c))) {
        if (c->cmsg_level != SOL_UDP || c->cmsg_type != UDP_GRO) continue;
        int segment = 0;
        std::memcpy(&segment, CMSG_DATA(c), sizeof segment);
        if (segment > 0) step = static_cast<std::uint32_t>(segment);
      }
      if (n == 0 || step > Bytes) continue;  // longer than this end takes: lost
      b.in[0] = {{}, 0, static_cast<std::uint32_t>(n), step};
      b.come = 1;
      return {};
    }
    return {io_status::would_block, 0, 0};
  }
  /// One call that takes datagrams of many peers.
  io_result fill_from_all(buffers& b) noexcept {
    constexpr std::size_t slot = std::max(datagram_slot, (Bytes + 7) / 8 * 8),
                          count = std::min(buffers::most_received, 64 * 1024 / slot);
    std::array<mmsghdr, count> m;
    std::array<iovec, count> room;
    std::array<sockaddr_storage, count> from;
    std::array<detail::control_bytes<detail::local_control_bytes>, count> about;
    for (std::size_t i = 0; i < count; ++i) {
      room[i] = {b.receive.data() + i * slot, slot};
      m[i] = {};
      m[i].msg_hdr.msg_iov = &room[i];
      m[i].msg_hdr.msg_iovlen = 1;
      m[i].msg_hdr.msg_name = &from[i];
    }
    for (int tries = 0; tries < 8; ++tries) {
      for (std::size_t i = 0; i < count; ++i) {  // each call changes it
        m[i].msg_hdr.msg_namelen = sizeof from[i];
        m[i].msg_hdr.msg_control = about[i].bytes;
        m[i].msg_hdr.msg_controllen = sizeof about[i].bytes;
      }
      const int n = ::recvmmsg(fd_.get(), m.data(), count, MSG_DONTWAIT, nullptr);
      if (n < 0) {
        const io_result io = failed_receive(errno);
        if (io.status != io_status::ok) return io;
        continue;
      }
      for (int i = 0; i < n; ++i) {
        auto& h = m[static_cast<std::size_t>(i)];
        udp_address sender = detail::udp_address_of(from[static_cast<std::size_t>(i)]);
        // nobody can be answered at port 0
        if (h.msg_len == 0 || h.msg_len > Bytes || (h.msg_hdr.msg_flags & MSG_TRUNC) != 0 || sender.port == 0) continue;
        for (cmsghdr* c = CMSG_FIRSTHDR(&h.msg_hdr); c != nullptr; c = CMSG_NXTHDR(&h.msg_hdr, c))
          detail::take_local_address(*c, sender);
        b.in[b.come++] = {sender, static_cast<std::uint32_t>(static_cast<std::size_t>(i) * slot), h.msg_len, h.msg_len};
      }
      if (b.come > 0) return {};
    }
    return {io_status::would_block, 0, 0};
  }
  /// `ok`: it was about something that was sent earlier; try again.
  io_result failed_receive(int e) noexcept {
    if (e == EAGAIN || e == EWOULDBLOCK) return {io_status::would_block, 0, 0};
    if (is_ours(e)) return {io_status::failed, e, 0};
    if (e != EINTR) refused(e);
    return error_ != 0 ? io_result{io_status::closed, e, 0} : io_result{};
  }

  /// Sends what has been collected. False: the kernel has no room for all of it now.
  bool flush() noexcept {
    buffers& b = *buffers_;
    if (b.sent < b.staged && connected_ && !heard_ && refusals_ == 0 && turns_.is_over()) (void)connect_next();
    while (b.sent < b.staged && error_ == 0)
      if (!send_run(b)) return false;
    b.staged = b.sent = b.used = b.doubted = b.tried = 0;
    return true;
  }
  /// One call. Datagrams to one peer with one length (the last may be shorter) go as segments of one buffer; what is
  /// left goes one datagram a message.
  ///
  /// An error of a run may be of its peer (no port, no route, a filter) or of an interface that cannot cut. The
  /// run's datagrams tell, one by one: the interface is at fault if the first of them can leave. Otherwise any peer
  /// could make the link slow for all others.
  bool send_run(buffers& b) noexcept {
    constexpr std::size_t most_messages = 64;
    std::array<mmsghdr, most_messages> m;
    std::array<iovec, most_messages> from;
    std::array<std::uint16_t, most_messages> datagrams;
    std::array<sockaddr_storage, most_messages> to;
    constexpr std::size_t segment_bytes = CMSG_SPACE(sizeof(std::uint16_t));
    std::array<detail::control_bytes<segment_bytes + detail::local_control_bytes>, most_messages> about;
    if (alone_ && std::chrono::steady_clock::now() >= alone_until_) alone_ = false;
    std::size_t count = 0;
    for (std::size_t at = b.sent; at < b.staged && count < most_messages; ++count) {
      const detail::udp_outgoing& first = b.out[at];
      std::size_t n = 1, bytes = first.bytes;
      while (!alone_ && at >= b.tried && at + n < b.staged && n < most_segments &&
             b.out[at + n - 1].bytes == first.bytes && b.out[at + n].bytes <= first.bytes &&
             bytes + b.out[at + n].bytes <= most_in_call && b.out[at + n].to == first.to)
        bytes += b.out[at + n++].bytes;
      from[count] = {b.send.data() + first.at, bytes};
      datagrams[count] = static_cast<std::uint16_t>(n);
      m[count] = {};
      msghdr& h = m[count].msg_hdr;
      h.msg_iov = &from[count];
      h.msg_iovlen = 1;
      if (!connected_) {
        h.msg_name = &to[count];
        h.msg_namelen = detail::system_address_of(first.to, family_, to[count]);
        h.msg_controllen = detail::put_local_address(first.to, family_, reinterpret_cast<cmsghdr*>(about[count].bytes));
      }
      if (n > 1) {
        auto* const c = reinterpret_cast<cmsghdr*>(about[count].bytes + h.msg_controllen);
        h.msg_controllen += segment_bytes;
        c->cmsg_level = SOL_UDP;
        c->cmsg_type = UDP_SEGMENT;
        c->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
        const auto length = static_cast<std::uint16_t>(first.bytes);
        std::memcpy(CMSG_DATA(c), &length, sizeof length);
      }
      if (h.msg_controllen > 0) h.msg_control = about[count].bytes;
      at += n;
    }
    const int done = ::sendmmsg(fd_.get(), m.data(), static_cast<unsigned>(count), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (done > 0) {
      if (b.sent == b.doubted && b.sent < b.tried) {
        alone_ = true;
        alone_until_ = std::chrono::steady_clock::now() + alone_time;
      }
      for (int i = 0; i < done; ++i) b.sent += datagrams[static_cast<std::size_t>(i)];
      return true;
    }
    const int e = errno;
    if (e == EAGAIN || e == EWOULDBLOCK || e == ENOBUFS || e == ENOMEM) return false;
    if (e == EINTR) return true;
    if (datagrams[0] > 1 && e != ECONNREFUSED) {
      b.doubted = b.sent;
      b.tried = b.sent + datagrams[0];
      return true;
    }
    b.sent += datagrams[0];
    refused(e);
    return true;
  }

  detail::unique_ptr<buffers> buffers_;
  detail::udp_turns turns_{};  // of the host's addresses
  detail::file_descriptor fd_;
  int family_ = AF_INET, error_ = 0;
  unsigned refusals_ = 0;
  std::chrono::steady_clock::time_point refused_at_{};
  // alone_: the interface cannot cut what is sent together, as far as we know
  // kept_: it is open, and keeps to one peer
  bool connected_ = false, kept_ = false, heard_ = false, alone_ = false;
  std::chrono::steady_clock::time_point alone_until_{};
};

/// With datagrams that almost every network carries.
using udp_link = basic_udp_link<>;
static_assert(datagram_link<udp_link>);

}  // namespace tensorpull
