// Datagrams over a NATS server: each is one message, and its address is a subject.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/links/datagram_link.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/pull/detail/take_datagram.hpp>
#include <tensorpull/satellites/nats/detail/nats_door.hpp>
#include <tensorpull/satellites/nats/detail/nats_handles.hpp>
#include <tensorpull/satellites/nats/detail/nats_socket.hpp>
#include <tensorpull/satellites/nats/nats_server.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/stop_token.hpp>
#include <tensorpull/system/entropy.hpp>
#include <tensorpull/system/link_url.hpp>

#include <poll.h>

#include <array>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

namespace tensorpull {

/// A datagram link over a NATS server. It sends to any subject, from an inbox of its own whose name has 128 random
/// bits. It receives at its inbox and at the subjects that it serves. `MostBytes`: the longest datagram; a server
/// usually allows 1 MiB.
///
/// libnats reads and writes on the caller's thread, within receive(), send() and wait(). It has three threads in a
/// process (`library_threads`), however many links there are, and makes the process ignore SIGPIPE. While a link has no
/// server, wait() looks for one, datagrams are dropped, and subjects are served again later.
///
/// Bytes go through the server in the clear unless its url is `tls://`. Then the server is told nothing before TLS has
/// begun, with a certificate for the url's host. The server's operator can read everything; so can users of the same
/// account that may subscribe to the subjects, but not users of other accounts.
/// A subject names a reference, so whoever can list subscriptions (the operator, any program that reaches the
/// monitoring port) or subscribe to `tensorpull.>` has the reference. The server's permissions decide that.
template <std::size_t MostBytes>
class basic_nats_link {
 public:
  using address = nats_subject;  ///< where a datagram goes, and the inbox that one came from
  static constexpr std::size_t max_datagram_bytes = MostBytes;  ///< no datagram is longer
  /// TCP carries each message to and from the server.
  static constexpr bool checked = true;
  /// A message names its own inbox, which the server does not check. But its sender was let in, answers go to inboxes
  /// alone, and no answer is longer than the request except to a peer that knows a reference.
  static constexpr bool addresses_are_proved = true;
  /// Threads of libnats in a process with links: for timers, callbacks and freeing.
  static constexpr unsigned library_threads = 3;
  /// The most allocations of libnats for a datagram that is received: the message, and if it arrives in pieces a buffer
  /// for its head and one for its bytes, of two allocations each. For a datagram that is sent, none once its buffer is
  /// long enough.
  static constexpr unsigned allocations_per_datagram = 5;

  /// Connects, and waits until the server delivers to our inbox. `subjects`: how many it can serve at a time. libnats
  /// takes over once a server has answered; it does not hear `stop`, and takes at most the server's `timeout`. Errors:
  /// bad_address; connection_failed; not_permitted: the server does not let this user in, or not subscribe to an inbox;
  /// timed_out; cancelled; does_not_fit: the server does not allow messages of 128 bytes (`at`: its limit);
  /// out_of_memory.
  static result<basic_nats_link> connect(const nats_server& where, const stop_token& stop = {},
                                         std::size_t subjects = 0) noexcept {
    const system_entropy random;
    const auto inbox = nats_subject::inbox(where.inbox, {random(), random()});
    if (!inbox) return failure(inbox.error());
    basic_nats_link link(std::unique_ptr<state>(new (std::nothrow) state(where, subjects)));
    if (!link.s_ || !link.s_->gather || !link.s_->aligned || !link.s_->served) return failure(errc::out_of_memory);
    if (!link.s_->door || !link.s_->credentials)
      return failure(errc::bad_address, where.url.size(), without_secrets(where.url));
    link.s_->served[0].subject = *inbox;
    while (link.away()) {
      if (stop.stop_requested()) return failure(errc::cancelled);
      if (link.s_->door.rounds() > 0) return failure(link.s_->door.why());
      if (const char* const url = link.s_->door.look(detail::wait_step))
        if (const auto ok = link.open(url); !ok) return failure(ok.error());
    }
    if (const auto ok = link.settle(*inbox, where.timeout, stop); !ok) return failure(ok.error());
    if (link.datagram_bytes() < 128) return failure(errc::does_not_fit, link.datagram_bytes());
    return link;
  }

  /// The subject of our inbox: the address that others answer to.
  const nats_subject& inbox() const noexcept { return s_->served[0].subject; }
  /// An inbox beside our own, with the same prefix. `token` has to be random.
  nats_subject another_inbox(const ref_id& token) const noexcept {
    const std::string_view own = inbox().view();
    return *nats_subject::inbox(own.substr(0, own.size() - 33), token);
  }
  /// The server's longest datagram. A restarted server may have another limit.
  std::size_t datagram_bytes() const noexcept { return s_->most_now; }
  /// Whether there is no server now.
  bool away() const noexcept { return !s_->connection; }

  /// Also receives what is sent to a subject; with a `group` (text that lives as long as the link), this link's share
  /// among those that serve it in that group. table_full: more than connect() was told. settle() tells whether the
  /// server allows it.
  result<void> serve(const nats_subject& subject, const char* group = nullptr) noexcept {
    for (std::size_t i = 1; i < s_->subjects; ++i)
      if (!s_->served[i].subject) {
        s_->served[i].subject = subject;
        s_->served[i].group = group;
        if (!away()) subscribe(s_->served[i]);
        return {};
      }
    return failure(errc::table_full, s_->subjects - 1);
  }
  /// Stops serving a subject, if it is served.
  void stop_serving(const nats_subject& subject) noexcept {
    for (std::size_t i = 1; i < s_->subjects; ++i)
      if (s_->served[i].subject == subject) s_->served[i] = {};
  }
  /// Waits until the server has acknowledged `subject`. Errors: not_permitted, timed_out, cancelled.
  result<void> settle(const nats_subject& subject, std::chrono::milliseconds timeout, const stop_token& stop) noexcept {
    // A message to ourselves returns after all earlier messages of the server. A user need not be allowed to publish to
    // inboxes: then the refusal of the message follows them. libnats tells only the last refusal that it has read, so
    // one of a subscription follows that of the message, and hides it unless the read ended between the two. Another
    // round then hears it, alone or after its own message; three reads in a row do not end there.
    struct round {
      subscription echo, last;
    };
    std::array<round, 3> rounds;
    std::size_t asked = 0;
    const system_entropy random;
    for (round& r : rounds) {
      r.echo.subject = another_inbox({random(), random()});
      r.last.subject = another_inbox({random(), random()});
    }
    const auto start = std::chrono::steady_clock::now();
    for (;;) {
      if (away()) {
        for (round& r : rounds) r.echo.handle.reset(), r.last.handle.reset();
        asked = 0;
      } else if (asked == 0 || (asked < rounds.size() && may_not_publish(rounds[asked - 1].echo.subject))) {
        round& r = rounds[asked++];
        subscribe(r.echo);
        (void)natsConnection_Publish(s_->connection.get(), r.echo.subject.c_str(), nullptr, 0);
        subscribe(r.last);
      }
      if (refuses(subject) || std::any_of(rounds.begin(), rounds.end(), [&](const round& r) noexcept {
            return refuses(r.echo.subject) || refuses(r.last.subject);
          }))
        return failure(errc::not_permitted, 0, subject.view());
      if (detail::has_mail(rounds[0].echo.handle.get()) || may_not_publish(rounds.back().echo.subject)) return {};
      if (stop.stop_requested()) return failure(errc::cancelled);
      const auto left = left_of(timeout, start);
      if (left.count() <= 0) return failure(errc::timed_out);
      turn(true, std::min(left, detail::wait_step));
    }
  }

  /// Whether the server's last complaint is that we may not publish to this.
  bool may_not_publish(const nats_subject& subject) const noexcept { return refuses(subject, "Publish"); }

  /// Asks whether anybody serves a subject. Answers are counted at `here`, an inbox that this link serves.
  void ask(const nats_subject& whom, const nats_subject& here) noexcept {
    if (!away() && writable()) {
      (void)natsConnection_PublishRequest(s_->connection.get(), whom.c_str(), here.c_str(), nullptr, 0);
      flush();
    }
  }
  /// The answers at an inbox that this link serves.
  nats_presence answers_at(const nats_subject& here) const noexcept {
    for (std::size_t i = 1; i < s_->subjects; ++i)
      if (s_->served[i].subject == here) return s_->served[i].presence;
    return {};
  }

  /// Takes one datagram into `memory`, with its sender's inbox; never waits. One without an inbox, or longer than the
  /// memory, is lost.
  io_result receive(std::span<std::byte> memory, address& from) noexcept {
    return detail::receive_copy(*this, memory, from);
  }
  /// The same without a copy: the bytes begin at a multiple of 8 and are valid until the next call.
  io_result receive_in_place(std::span<const std::byte>& datagram, address& from) noexcept {
    for (bool read = false;; read = true) {
      while (take(from)) {
        if (natsMsg_GetDataLength(s_->current.get()) > 0) {
          datagram = aligned_bytes();
          return io_result{io_status::ok, 0, datagram.size()};
        }
        // somebody asks whether we are here; the answer names no inbox, so that nobody answers it
        if (writable()) {
          (void)natsConnection_Publish(s_->connection.get(), from.c_str(), nullptr, 0);
          flush();
        }
      }
      if (read || away()) return {io_status::would_block, 0, 0};
      read_some();
    }
  }

  /// Sends one datagram, whole or not at all; never waits. It is dropped without a server, or if it is longer than
  /// datagram_bytes().
  io_result send(gather_list spans, const address& to) noexcept {
    std::size_t bytes = 0;
    for (const auto& s : spans) bytes += s.size();
    if (away() || bytes > datagram_bytes() || bytes == 0) return {};
    if (!writable()) return {io_status::would_block, 0, 0};
    const std::byte* data = spans.front().data();
    if (spans.front().size() != bytes) {  // libnats takes a message in one piece
      std::byte* at = s_->gather.get();
      for (const auto& s : spans) {
        if (!s.empty()) std::memcpy(at, s.data(), s.size());
        at += s.size();
      }
      data = s_->gather.get();
    }
    const natsStatus how = natsConnection_PublishRequest(s_->connection.get(), to.c_str(), inbox().c_str(), data,
                                                         static_cast<int>(bytes));
    if (how != NATS_OK) return {};  // there is no memory for it
    flush();
    return {io_status::ok, 0, bytes};
  }

  /// Waits until a datagram is there, one can be sent, or the time is over.
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    const auto start = std::chrono::steady_clock::now();
    for (;;) {
      const io_ready ready{read && has_mail(), write && writable()};
      const auto left = left_of(timeout, start);
      if (ready.read || ready.write || left.count() <= 0 || !turn(read, left)) return ready;
    }
  }

 private:
  struct subscription {
    nats_subject subject{};
    const char* group = nullptr;
    detail::nats_subscription handle{};
    nats_presence presence{};
  };
  struct state {
    state(const nats_server& where, std::size_t more) noexcept
        : door(where), credentials(where.credentials), timeout(where.timeout), configure(where.configure),
          subjects(more + 1), gather(new(std::nothrow) std::byte[MostBytes]),
          aligned(new(std::nothrow) std::byte[MostBytes]), served(new(std::nothrow) subscription[subjects]) {}
    ~state() { lose(); }
    /// Drops the connection. Pending bytes are written first, since libnats would wait half a second for the server to
    /// take them.
    void lose() noexcept {
      current.reset();
      for (std::size_t i = 0; served && i < subjects; ++i) served[i].handle.reset();
      if (connection && socket.writes) natsConnection_ProcessWriteEvent(connection.get());
      connection.reset();
      socket = {};
    }

    detail::nats_door door;
    detail::nats_text credentials;
    std::chrono::milliseconds timeout;
    natsStatus (*configure)(natsOptions*);
    std::size_t subjects;
    // a datagram that is sent in pieces; one that arrived at an odd address
    std::unique_ptr<std::byte[]> gather, aligned;
    std::unique_ptr<subscription[]> served;  // the first is the inbox
    std::size_t next = 0;  // where to look first: each subject has its turn
    std::size_t most_now = 0;
    std::chrono::steady_clock::time_point heard{};  // when the server last sent something, or was asked to
    bool asked = false;
    detail::nats_socket socket;
    detail::nats_connection connection;
    detail::nats_message current;
  };

  explicit basic_nats_link(std::unique_ptr<state> s) noexcept : s_(std::move(s)) {}

  /// Connects to a server that has answered, and serves its subjects there.
  result<void> open(const char* url) noexcept {
    const natsStatus how = detail::connect_nats(url, s_->credentials.c_str(), s_->timeout, s_->configure, s_->socket,
                                                s_->connection);
    if (how != NATS_OK) {
      s_->lose();
      return failure(detail::nats_error(how));
    }
    s_->most_now = static_cast<std::size_t>(std::min<std::int64_t>(
        std::max<std::int64_t>(natsConnection_GetMaxPayload(s_->connection.get()), 0), MostBytes));
    heard();
    for (std::size_t i = 0; i < s_->subjects; ++i)
      if (s_->served[i].subject) subscribe(s_->served[i]);
    return {};
  }
  /// If libnats has no memory for it, nothing arrives, and settle() notices.
  void subscribe(subscription& s) noexcept {
    s.handle = detail::subscribe_nats(s_->connection.get(), s.subject.c_str(), s.group);
  }
  /// Whether the server's last complaint is that we may not subscribe to this, or not do `what` there.
  bool refuses(const nats_subject& subject, std::string_view what = "Subscription") const noexcept {
    return !away() && detail::nats_refuses(s_->connection.get(), subject.view(), what);
  }

  bool has_mail() const noexcept {
    for (std::size_t i = 0; i < s_->subjects; ++i)
      if (detail::has_mail(s_->served[i].handle.get())) return true;
    return false;
  }
  /// Takes the next message that names an inbox. False: none has arrived.
  bool take(address& from) noexcept {
    s_->current.reset();
    for (std::size_t i = 0; i < s_->subjects; ++i) {
      const std::size_t at = (s_->next + i) % s_->subjects;
      subscription& s = s_->served[at];
      while (detail::has_mail(s.handle.get())) {
        natsMsg* m = nullptr;
        const natsStatus how = natsSubscription_NextMsg(&m, s.handle.get(), 0);
        detail::nats_message message(m);
        s.presence.nobody += how == NATS_NO_RESPONDERS;
        if (how != NATS_OK) continue;
        const char* const reply = natsMsg_GetReply(m);
        s.presence.here += reply == nullptr && natsMsg_GetDataLength(m) == 0;
        const auto sender = nats_subject::inbox_named(reply != nullptr ? reply : "");
        if (!sender) continue;
        from = *sender;
        s_->current = std::move(message);
        s_->next = (at + 1) % s_->subjects;
        return true;
      }
    }
    return false;
  }
  /// The bytes of the current message. Those for an inbox `_INBOX.<32 digits>` lie at a multiple of 8 in libnats'
  /// memory.
  std::span<const std::byte> aligned_bytes() const noexcept {
    const auto* data = reinterpret_cast<const std::byte*>(natsMsg_GetData(s_->current.get()));
    const auto bytes = std::min(static_cast<std::size_t>(natsMsg_GetDataLength(s_->current.get())), MostBytes);
    if (reinterpret_cast<std::uintptr_t>(data) % 8 == 0) return {data, bytes};
    std::memcpy(s_->aligned.get(), data, bytes);
    return {s_->aligned.get(), bytes};
  }

  static std::chrono::milliseconds left_of(std::chrono::milliseconds of,
                                           std::chrono::steady_clock::time_point since) noexcept {
    return of - std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - since);
  }
  void heard() noexcept {
    s_->heard = std::chrono::steady_clock::now();
    s_->asked = false;
  }
  /// Lets libnats read once, without waiting.
  void read_some() noexcept {
    natsConnection_ProcessReadEvent(s_->connection.get());
    note_loss();
  }
  /// Writes to the socket as much as it takes.
  void flush() noexcept {
    if (!s_->socket.writes) return;
    natsConnection_ProcessWriteEvent(s_->connection.get());
    note_loss();
  }
  void note_loss() noexcept {
    if (natsConnection_IsClosed(s_->connection.get())) s_->lose();
  }
  /// Whether nothing waits for the socket, after another try.
  bool writable() noexcept {
    flush();
    return !s_->socket.writes;
  }
  /// Waits once, for at most about that long, and lets libnats read and write; or looks for a server. False: a signal
  /// arrived.
  bool turn(bool read, std::chrono::milliseconds most) noexcept {
    if (away()) {
      const char* const url = s_->door.look(most);
      if (url != nullptr && !open(url)) s_->door.next();
      return true;
    }
    most = std::min<std::chrono::milliseconds>(most, silence);
    pollfd p{s_->socket.descriptor, static_cast<short>((read ? POLLIN : 0) | (s_->socket.writes ? POLLOUT : 0)), 0};
    if (detail::poll_for(&p, 1, most) < 0) return false;
    if ((p.revents & POLLOUT) != 0) flush();
    if ((p.revents & ~POLLOUT) != 0 && !away()) {
      heard();
      read_some();
    }
    if (away() || std::chrono::steady_clock::now() - s_->heard < silence) return true;
    // A server that has vanished is noticed: what we send to ourselves has to return.
    if (s_->asked) {
      s_->lose();
      return true;
    }
    heard();
    s_->asked = true;
    (void)natsConnection_Publish(s_->connection.get(), inbox().c_str(), nullptr, 0);
    flush();
    return true;
  }

  /// After this time without a sign the server is asked for one; after as long again it is given up.
  static constexpr std::chrono::milliseconds silence{30'000};

  std::unique_ptr<state> s_;
};

/// Over a server with the usual limit of 1 MiB a message.
using nats_link = basic_nats_link<1024 * 1024>;

static_assert(datagram_link<nats_link>);

}  // namespace tensorpull
