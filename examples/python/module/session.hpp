// One connection in both roles for Python: it publishes, pulls, and exchanges messages, on the thread that calls. And
// what accepts such connections.
#pragma once

#include "owner.hpp"
#include "places.hpp"
#include "publications.hpp"

#include "facade/facade.hpp"

#include <tensorpull/system/pages.hpp>

#include <atomic>
#include <optional>
#include <stdexcept>
#include <thread>
#include <tuple>

namespace tensorpull::python {

/// The longest wait that does not overflow when it is added to a time.
inline std::chrono::milliseconds waiting(std::int64_t milliseconds) noexcept {
  constexpr std::int64_t longest = std::int64_t{1} << 40;
  return std::chrono::milliseconds(milliseconds < 0 || milliseconds > longest ? longest : milliseconds);
}

/// Calls `f(stop)` without the interpreter's lock.
template <class F>
auto interruptible(const py::object& abort, F f) {
  interruption stop(abort);
  return stop.run([&] { return f(interruption_token{&stop}); });
}

/// A place where two ends can meet: over NATS they need a name.
inline facade::place meeting_place(std::string_view address, const tls_settings& tls, bool to_listen = false) {
  facade::place at = place_of(address, tls, to_listen);
  if (at.scheme == "nats" && address.find('#') == address.npos)
    raise(errc::bad_address, without_secrets(address).view(),
          "two ends of a session over NATS meet under a name, which has to be there: nats://server:4222#name");
  return at;
}

/// Memory from the system, which has it back afterwards whatever the allocator would keep.
class pages {
 public:
  /// Raises out_of_memory.
  explicit pages(std::size_t bytes) : bytes_(static_cast<std::byte*>(detail::take_pages(bytes)), bytes) {
    if (bytes_.data() == nullptr) raise(errc::out_of_memory);
  }
  pages(const pages&) = delete;
  pages& operator=(const pages&) = delete;
  ~pages() { detail::give_pages(bytes_.data(), bytes_.size()); }
  std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

/// One thread at a time moves its bytes; another one that calls meanwhile gets an error. Within a callback the same
/// thread may publish and ask.
class session final : public source, public publishes<session> {
  /// The session while a call uses it. `moves`: the call moves bytes.
  class use {
   public:
    use(session& s, bool moves) : of_(s), session_(s.session_) {
      if (!session_) throw py::value_error("the session is closed");
      only_of(s.made_by_, "session");
      auto nobody = std::thread::id();
      first_ = s.user_.compare_exchange_strong(nobody, std::this_thread::get_id());
      if (!first_ && (moves || nobody != std::this_thread::get_id()))
        throw std::runtime_error(
            "the session is in use: one thread at a time, and in its callbacks it only publishes, withdraws and says what it knows");
    }
    use(const use&) = delete;
    use& operator=(const use&) = delete;
    ~use() {
      if (first_) of_.user_ = std::thread::id();
    }
    facade::any_session& operator*() const noexcept { return *session_; }
    facade::any_session* operator->() const noexcept { return session_.get(); }

   private:
    session& of_;
    std::shared_ptr<facade::any_session> session_;
    bool first_ = false;
  };

 public:
  explicit session(std::shared_ptr<facade::any_session> s) noexcept : session_(std::move(s)) {}
  /// `may`: asked from now on, if that is Python's.
  session(std::shared_ptr<facade::any_session> s, const authoriser& may) : session_(std::move(s)) {
    if (may.asks()) session_->authorise(may_.emplace(may));
  }
  ~session() { let_go_of_objects(); }

  static std::unique_ptr<session> connect(std::string_view address, std::int64_t timeout_ms, std::uint32_t retries,
                                          const py::object& abort, const tls_settings& tls) {
    const facade::place at = meeting_place(address, tls);
    auto made = interruptible(abort, [&](const stop_token& stop) {
      return at.kind->connect(at, {waiting(timeout_ms), {.retries = retries}, stop});
    });
    return std::make_unique<session>(value_or_raise(std::move(made)));
  }
  pull_function begin() override {
    return [mine = std::make_shared<use>(*this, true)](const reference& from, facade::any_consumer& to,
                                                       const pull_options& options, std::uint64_t chunk) {
      return (*mine)->pull(from, to, options, chunk);
    };
  }

  /// In use by the caller, who moves no bytes.
  use publisher() { return {*this, false}; }

  /// `references`: (digits, version, fingerprint) each.
  void send(std::uint32_t kind, const py::bytes& body,
            const std::vector<std::tuple<std::string, std::uint64_t, std::uint64_t>>& references,
            std::int64_t timeout_ms, const py::object& abort) {
    const use mine(*this, true);
    std::vector<reference> all;
    for (const auto& [digits, version, fingerprint] : references)
      all.push_back({id_or_raise(digits), version, fingerprint});
    const auto text = static_cast<std::string_view>(body);
    const auto done = interruptible(abort, [&](const stop_token& stop) {
      return mine->send(kind, all, std::as_bytes(std::span(text)), waiting(timeout_ms), stop);
    });
    if (!done) raise(done.error());
  }
  /// (kind, body, references), or None if none has come within the time.
  py::object receive(std::int64_t timeout_ms, const py::object& abort) {
    const use mine(*this, true);
    const auto got = interruptible(abort,
                                   [&](const stop_token& stop) { return mine->receive(waiting(timeout_ms), stop); });
    if (!got && got.error() == errc::timed_out) return py::none();
    if (!got) raise(got.error());
    py::list references;
    for (const reference& r : got->references)
      references.append(py::make_tuple(digits_of(r.id), r.version, r.fingerprint));
    return py::make_tuple(got->kind, py::bytes(reinterpret_cast<const char*>(got->body.data()), got->body.size()),
                          references);
  }
  /// Serves the other end until all of `refs` have settled (if there are any), or `until()` is true; false if the time
  /// is over first.
  bool serve(const std::vector<std::string>& refs, const py::object& until, std::int64_t timeout_ms) {
    const use mine(*this, true);
    const all_settled all(refs);
    interruption stop(until);  // which ends the wait, and is no error here
    const auto done = stop.run(
        [&] { return mine->serve([&] { return all(*mine) || stop.look(); }, waiting(timeout_ms)); });
    if (!done && done.error() == errc::timed_out) return false;
    if (!done) raise(done.error());
    if (all(*mine))
      if (const auto ok = all.outcome(*mine); !ok) raise(ok.error());
    return true;
  }

  /// Passes `ref` of this session's peer on to the peer of `to`, which pulls it: (bytes, chunks, confirmations with a
  /// digest, those without one). `to` is closed afterwards, unless it is refused.
  py::tuple relay_to(session& to, std::string_view ref, std::uint64_t chunk_bytes, std::int64_t timeout_ms,
                     std::uint64_t bytes_per_second, const py::object& abort) {
    const reference r{id_or_raise(ref), 0, 0};
    const auto passed = pass_on_to<facade::relay_counts>(
        to, chunk_bytes, timeout_ms, bytes_per_second, abort, false,
        [&](facade::any_stream& recipient, const facade::relay_settings& how) {
          return session_->relay_to(recipient, r, how);
        });
    return py::make_tuple(passed.bytes, passed.chunks, passed.completed, passed.completed_unverified);
  }
  /// Passes all bytes of this session's peer and of the peer of `to` on to each other: (bytes to that one, bytes from
  /// there). Both are closed afterwards, unless it is refused.
  py::tuple tunnel_to(session& to, std::uint64_t bytes, std::int64_t timeout_ms, std::uint64_t bytes_per_second,
                      const py::object& abort) {
    const auto passed = pass_on_to<facade::tunnel_counts>(
        to, bytes, timeout_ms, bytes_per_second, abort, true,
        [&](facade::any_stream& other, const facade::relay_settings& how) { return session_->tunnel_to(other, how); });
    return py::make_tuple(passed.forth, passed.back);
  }
  /// A session over the stream of this one, which is closed (facade::session_through).
  std::unique_ptr<session> through_tunnel(const tls_settings& tls, std::string peer, bool accepts,
                                          std::int64_t timeout_ms, const py::object& abort) {
    result<std::unique_ptr<facade::any_session>> made = failure(errc::out_of_memory);
    std::shared_ptr<facade::any_session> taken;
    {
      const use mine(*this, true);
      made = interruptible(abort, [&](const stop_token& stop) {
        return facade::session_through(*mine, {tls, std::move(peer), accepts, waiting(timeout_ms), stop});
      });
      if (made || made.error() != errc::unsupported_request) taken = std::exchange(session_, nullptr);
    }
    let_go(std::move(taken), made_by_);
    if (!made && made.error() == errc::unsupported_request)
      raise(errc::unsupported_request, {}, "a tunnel ends in a session over tcp:// or tls://");
    return std::make_unique<session>(value_or_raise(std::move(made)));
  }
  /// The common name in the certificate of the other end; empty if it has shown none.
  py::str peer_name() {
    const use mine(*this, false);
    return to_text(mine->peer_name());
  }

  /// Releases all that it has published, and closes the connection.
  void close() {
    if (!session_) return;
    {
      const use nobody_else(*this, true);
    }
    let_go(std::exchange(session_, nullptr), made_by_);
  }
  bool closed() const noexcept { return !session_; }

  void each_object(const auto& f) const noexcept {
    publishes::each_object(f);
    if (may_) may_->each_object(f);
  }
  void let_go_of_objects() {
    let_go(std::exchange(session_, nullptr), made_by_);
    if (may_) may_->let_go_of_objects();
  }

 private:
  /// `pass(stream of to, settings)`, without the interpreter's lock. `to` is closed afterwards, and this one if `both`.
  template <class Counts, class F>
  Counts pass_on_to(session& to, std::uint64_t bytes, std::int64_t timeout_ms, std::uint64_t bytes_per_second,
                    const py::object& abort, bool both, F pass) {
    if (&to == this) throw py::value_error("a session passes its bytes on to another one, and not to itself");
    interruption stop(abort);
    result<Counts> passed = failure(errc::cancelled);
    std::shared_ptr<facade::any_session> taken, own;
    {
      const use mine(*this, true), others(to, true);
      facade::any_stream* const recipient = others->lend();
      if (recipient == nullptr || mine->lend() == nullptr)
        raise(errc::unsupported_request, {}, "a relay needs streams on both sides: tcp://, tls://, unix: or shm:");
      if (!others->between_frames() || (both && !mine->between_frames()))
        raise(
            errc::unread_messages, {},
            "a session that is to pass bytes on has bytes in it already: its peer has to wait until it is told to go");
      const pages memory(static_cast<std::size_t>(std::min<std::uint64_t>(bytes, max_payload_bytes)));
      taken = std::exchange(to.session_, nullptr);  // nobody else speaks on it from now on
      {
        const interpreter_unlock unlocked;
        passed = pass(*recipient, {memory.bytes(), waiting(timeout_ms), interruption_token{&stop}, bytes_per_second});
      }
      if (both) own = std::exchange(session_, nullptr);
    }
    let_go(std::move(taken), to.made_by_);
    let_go(std::move(own), made_by_);
    stop.rethrow();
    if (!passed) raise(passed.error(), true);
    return *passed;
  }

  pid_t made_by_ = ::getpid();
  std::shared_ptr<facade::any_session> session_;
  std::optional<authoriser> may_;  // the session borrows it
  std::atomic<std::thread::id> user_{};
};

/// Accepts connections that become sessions.
class listener {
 public:
  listener(std::string_view listen, const tls_settings& tls, py::object authorise) : may_(std::move(authorise), tls) {
    const facade::place at = meeting_place(listen, tls, true);
    listener_ = std::make_shared<facade::any_listener>(
        value_or_raise(without_lock([&] { return at.kind->listen(at); })));
    port_ = listener_->port;
  }
  ~listener() { close(); }

  std::uint16_t port() const noexcept { return port_; }
  /// None: no connection has come within the time, or it was closed meanwhile.
  std::unique_ptr<session> accept(std::int64_t timeout_ms, const py::object& abort) {
    const auto l = listener_;
    if (!l) throw py::value_error("the listener is closed");
    only_of(made_by_, "listener");
    interruption stop(abort);
    const auto end = std::chrono::steady_clock::now() + waiting(timeout_ms);
    for (;;) {
      const auto left = std::max(std::chrono::milliseconds(0),
                                 std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()));
      auto made = stop.run(
          [&] { return l->accept(std::min(left, std::chrono::milliseconds(50)), interruption_token{&stop}); });
      if (made) return std::make_unique<session>(std::move(*made), may_);
      if (made.error() != errc::timed_out) raise(made.error());
      if (!listener_ || left.count() == 0) return nullptr;
    }
  }
  void close() { let_go(std::exchange(listener_, nullptr), made_by_); }
  bool closed() const noexcept { return !listener_; }

  void each_object(const auto& f) const noexcept { may_.each_object(f); }
  void let_go_of_objects() {
    close();
    may_.let_go_of_objects();
  }

 private:
  pid_t made_by_ = ::getpid();
  std::shared_ptr<facade::any_listener> listener_;
  authoriser may_;
  std::uint16_t port_ = 0;
};

}  // namespace tensorpull::python
