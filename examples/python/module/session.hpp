// One connection in both roles for Python: it publishes, pulls, and exchanges messages, on the thread that calls. And
// what accepts such connections.
#pragma once

#include "difference.hpp"
#include "download.hpp"
#include "links.hpp"
#include "listing.hpp"
#include "other_links.hpp"
#include "owner.hpp"

#include <tensorpull/system/pages.hpp>

#include <atomic>
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
  auto done = [&] {
    const interpreter_unlock unlocked;
    return f(interruption_token{&stop});
  }();
  stop.rethrow();
  return done;
}

/// The place, if two ends can meet there: over NATS they need a name.
inline place named(const place& at, std::string_view address) {
  if (at.url.scheme == link_scheme::nats_url && address.find('#') == address.npos)
    raise(errc::bad_address, without_secrets(address).view(),
          "two ends of a session over NATS meet under a name, which has to be there: nats://server:4222#name");
  return at;
}
inline made_session connect_to(const place& at, const connect_options& options) noexcept {
  switch (at.url.scheme) {
    case link_scheme::shm_url: return connect_shared_memory(at.url.address, options);
    case link_scheme::pipe_url: return connect_pipe(at.url.address, options);
    case link_scheme::udp_url: return connect_udp(at.url.address, options);
    case link_scheme::serial_url: return connect_serial(at.url.address, options);
#if TENSORPULL_PYTHON_NATS
    case link_scheme::nats_url: return connect_nats(at.url.address, options);
#endif
    default: break;
  }
  return over(at, [&]<class Transport>(std::type_identity<Transport>, const auto& where) {
    return connect_over<Transport>(where, options);
  });
}
/// Starts to listen there.
inline std::shared_ptr<any_listener> listen_at(const place& at) {
  switch (at.url.scheme) {
    case link_scheme::shm_url: return listen_shared_memory(at.url.address);
    case link_scheme::udp_url: return listen_udp(at.url.address);
    case link_scheme::serial_url: return listen_serial(at.url.address);
#if TENSORPULL_PYTHON_NATS
    case link_scheme::nats_url: return listen_nats(at.url.address);
#endif
    default: break;
  }
  return over(at, [&]<class Transport>(std::type_identity<Transport>, const auto& where) {
    return listener_at<Transport>(where);
  });
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
class session {
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
    any_session* operator->() const noexcept { return session_.get(); }

   private:
    session& of_;
    std::shared_ptr<any_session> session_;
    bool first_ = false;
  };
  /// What download_new and the others call.
  static auto puller(const use& mine) noexcept {
    return [&mine](const reference& from, auto& to, const pull_options& o, chunks c) {
      consumer_for<std::remove_reference_t<decltype(to)>> as(to);
      return mine->pull(from, static_cast<any_consumer&>(as), o, c);
    };
  }

 public:
  explicit session(std::shared_ptr<any_session> s) noexcept : session_(std::move(s)) {}
  ~session() { let_go_of_objects(); }

  static std::unique_ptr<session> connect(std::string_view address, std::int64_t timeout_ms, std::uint32_t retries,
                                          const py::object& abort, const tls_settings* tls) {
    const place at = named(place_of(address, tls), address);
    connect_options options;
    options.timeout = waiting(timeout_ms);
    options.retry.retries = retries;
    auto made = interruptible(abort, [&](const stop_token& stop) {
      options.stop = stop;
      return connect_to(at, options);
    });
    return std::make_unique<session>(value_or_raise(std::move(made)));
  }

  py::tuple download_into(std::string_view ref, const py::sequence& described, bool subset, name_ties ties,
                          std::uint64_t max_header_bytes, const pull_settings& s) {
    const use mine(*this, true);
    return python::download_into(
        [&](const reference& from, landing& to, const pull_options& o, chunks c) { return mine->pull(from, to, o, c); },
        ref, described, subset, std::move(ties), max_header_bytes, s);
  }
  py::tuple download_new(std::string_view ref, const py::object& make, const py::object& clear, std::uint64_t max_bytes,
                         std::uint64_t max_header_bytes, std::uint64_t max_tensors, const pull_settings& s) {
    const use mine(*this, true);
    return python::download_new(puller(mine), ref, make, clear, {max_bytes, max_header_bytes, max_tensors}, s);
  }
  py::tuple download_difference(std::string_view ref, const py::sequence& described, const pull_settings& s) {
    const use mine(*this, true);
    return python::download_difference(puller(mine), ref, described, s);
  }
  py::tuple download_narrowed(std::string_view ref, const py::sequence& described, const pull_settings& s, int bits) {
    const use mine(*this, true);
    return python::download_narrowed(puller(mine), ref, described, s, bits);
  }
  /// Pulls into a consumer that can undo what it has taken.
  template <consumer Consumer>
  py::tuple download_to(Consumer& to, std::string_view ref, const pull_settings& s) {
    const use mine(*this, true);
    interruption stop(s.abort);
    const auto run = puller(mine);
    return to_python(python::pull(
        [&](const reference& from, const pull_options& o, chunks c) { return run(from, to, o, c); }, ref, s, stop));
  }
  py::tuple look(std::string_view ref, std::uint64_t max_header_bytes, std::uint64_t max_tensors,
                 const pull_settings& s) {
    const use mine(*this, true);
    return python::look(puller(mine), ref, {~std::uint64_t{0}, max_header_bytes, max_tensors}, s);
  }
  py::tuple add(const py::sequence& described, const std::vector<std::pair<std::string, std::string>>& metadata,
                py::object keep, const publish_settings& s) {
    const use mine(*this, false);
    return publish(described, metadata, std::move(keep), s, published_,
                   [&](const source_view& image, const publish_options& o, unique_any k) {
                     return mine->add_image(image, o, std::move(k));
                   });
  }
  void withdraw(std::string_view ref) {
    const use mine(*this, false);
    const reference r{id_or_raise(ref), 0, 0};
    const auto done = [&] {
      const interpreter_unlock unlocked;  // what was published is released, which takes the interpreter's lock
      return mine->withdraw(r);
    }();
    if (!done) raise(done.error());
  }
  py::tuple status(std::string_view ref) {
    const use mine(*this, false);
    return to_python(value_or_raise(mine->status_of({id_or_raise(ref), 0, 0})));
  }
  bool settled(std::string_view ref) {
    const use mine(*this, false);
    return mine->settled({id_or_raise(ref), 0, 0});
  }

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
    for (const reference& r : got->references) {
      const auto digits = to_digits(r.id);
      references.append(py::make_tuple(std::string(digits.data(), digits.size()), r.version, r.fingerprint));
    }
    return py::make_tuple(got->kind, py::bytes(reinterpret_cast<const char*>(got->body.data()), got->body.size()),
                          references);
  }
  /// Serves the other end until all of `refs` have settled (if there are any), or `until()` is true; false if the time
  /// is over first.
  bool serve(const std::vector<std::string>& refs, const py::object& until, std::int64_t timeout_ms) {
    const use mine(*this, true);
    std::vector<reference> all;
    for (const std::string& ref : refs) all.push_back({id_or_raise(ref), 0, 0});
    interruption stop(until);  // which ends the wait, and is no error here
    const auto done = [&] {
      const interpreter_unlock unlocked;
      return mine->serve(
          [&] {
            return (!all.empty() &&
                    std::all_of(all.begin(), all.end(), [&](const reference& r) { return mine->settled(r); })) ||
                   stop.look();
          },
          waiting(timeout_ms), {});
    }();
    stop.rethrow();
    if (!done && done.error() == errc::timed_out) return false;
    if (!done) raise(done.error());
    return true;
  }

  /// Passes `ref` of this session's peer on to the peer of `to`, which pulls it: (bytes, chunks, confirmations with a
  /// digest, those without one). `to` is closed afterwards, unless it is refused.
  py::tuple relay_to(session& to, std::string_view ref, std::uint64_t chunk_bytes, std::int64_t timeout_ms,
                     std::uint64_t bytes_per_second, const py::object& abort) {
    if (&to == this) throw py::value_error("a session relays to another one, and not to itself");
    const reference r{id_or_raise(ref), 0, 0};
    interruption stop(abort);
    result<relayed> passed{relayed{}};
    std::shared_ptr<any_session> taken;
    {
      const use mine(*this, true), others(to, true);
      auto recipient = others->stream();
      if (!recipient || !mine->stream())
        raise(errc::unsupported_request, {}, "a relay needs streams on both sides: tcp://, tls://, unix: or shm:");
      if (!others->between_frames())
        raise(errc::unread_messages, {},
              "the session that is relayed to has bytes in it already: its peer has to wait until it is told to pull");
      const pages chunk(static_cast<std::size_t>(std::min<std::uint64_t>(chunk_bytes, max_payload_bytes)));
      taken = std::exchange(to.session_, nullptr);  // nobody else speaks on it from now on
      const interpreter_unlock unlocked;
      passed = mine->relay_to(*recipient, r, chunk.bytes(),
                              {waiting(timeout_ms), interruption_token{&stop}, bytes_per_second});
    }
    let_go(std::move(taken), to.made_by_);
    stop.rethrow();
    if (!passed) raise(passed.error(), true);
    return py::make_tuple(passed->bytes, passed->chunks, passed->completed, passed->completed_unverified);
  }
  /// The common name in the certificate of the other end; empty if it has shown none.
  py::str peer_name() {
    const use mine(*this, false);
    return to_text(mine->peer_name());
  }

  /// What it has published is released, and the connection is closed.
  void close() {
    if (!session_) return;
    {
      const use nobody_else(*this, true);
    }
    let_go(std::exchange(session_, nullptr), made_by_);
  }
  bool closed() const noexcept { return !session_; }

  void each_object(const auto& f) const noexcept {
    for (const published* const one : *published_) one->each_object(f);
  }
  void let_go_of_objects() { let_go(std::exchange(session_, nullptr), made_by_); }

 private:
  pid_t made_by_ = ::getpid();
  publications published_ = std::make_shared<publications::element_type>();
  std::shared_ptr<any_session> session_;
  std::atomic<std::thread::id> user_{};
};

/// What accepts connections that become sessions.
class listener {
 public:
  listener(std::string_view listen, const tls_settings* tls) {
    listener_ = listen_at(named(listening_place_of(listen, tls), listen));
    port_ = listener_->port();
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
      auto made = [&] {
        const interpreter_unlock unlocked;
        return l->accept(std::min(left, std::chrono::milliseconds(50)), interruption_token{&stop});
      }();
      stop.rethrow();
      if (made) return std::make_unique<session>(std::move(*made));
      if (made.error() != errc::timed_out) raise(made.error());
      if (!listener_ || left.count() == 0) return nullptr;
    }
  }
  void close() { let_go(std::exchange(listener_, nullptr), made_by_); }
  bool closed() const noexcept { return !listener_; }

 private:
  pid_t made_by_ = ::getpid();
  std::shared_ptr<any_listener> listener_;
  std::uint16_t port_ = 0;
};

}  // namespace tensorpull::python
