// The owner's side for Python: publishes dicts of tensors, and serves them on the threads that call serve().
#pragma once

#include "http.hpp"
#include "links.hpp"
#include "other_links.hpp"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace tensorpull::python {

/// Raises an error if another process has made the object.
inline void only_of(pid_t process, const char* what) {
  if (::getpid() != process)
    throw py::value_error(std::string("the ") + what +
                          " belongs to the process that made it; this one is a child of fork()");
}
/// Lets go of an object without the interpreter's lock, but not in a child of fork(): what it shares with its parent
/// must not be closed for both, and its copy of a lock may be held by a thread that it has not.
template <class T>
void let_go(std::shared_ptr<T> last, pid_t made_by) {
  if (last && ::getpid() != made_by) return static_cast<void>(new std::shared_ptr<T>(std::move(last)));
  const interpreter_unlock unlocked;
  last = nullptr;
}

/// Starts to listen there.
inline std::shared_ptr<any_owner> open_at(const place& at, const host_options& host) {
  if (at.url.scheme == link_scheme::shm_url) return open_shared_memory(at.url.address, host);
  if (at.url.scheme == link_scheme::udp_url) return open_udp(at.url.address, host);
  if (at.url.scheme == link_scheme::serial_url) return open_serial(at.url.address, host);
#if TENSORPULL_PYTHON_NATS
  if (at.url.scheme == link_scheme::nats_url) return open_nats(at.url.address, host);
#endif
  return over(at, [&]<class Transport>(std::type_identity<Transport>, const auto& where) -> std::shared_ptr<any_owner> {
    using downloader = typename net<Transport>::downloader;
    const auto open = [&] {
      if constexpr (std::is_same_v<decltype(where), const std::string_view&>)
        return downloader::open({.listen = where, .host = host});
      else return downloader::open(where, host);
    };
    return std::make_shared<owner_over<Transport>>(value_or_raise(open()));
  });
}

class owner {
  std::shared_ptr<any_owner> open() const {
    if (!owner_) throw py::value_error("the downloader is closed");
    only_of(made_by_, "downloader");
    return owner_;
  }
  template <class F>
  auto unlocked(std::string_view ref, F f) {
    const auto d = open();
    const reference r{id_or_raise(ref), 0, 0};
    const interpreter_unlock unlock;
    return f(*d, r);
  }

 public:
  owner(std::string_view listen, std::size_t max_connections, std::int64_t accept_ms, std::int64_t stall_ms,
        std::int64_t idle_ms, std::uint64_t bytes_per_second, std::uint64_t recipient_bytes_per_second,
        const tls_settings* tls, std::size_t references, std::size_t recipients) {
    host_options host;
    host.room = {references, recipients};
    host.max_connections = max_connections;
    host.budgets.accept = std::chrono::milliseconds(accept_ms);
    host.budgets.stall = std::chrono::milliseconds(stall_ms);
    host.budgets.idle = std::chrono::milliseconds(idle_ms);
    host.limits = {bytes_per_second, recipient_bytes_per_second};
    const place at = listening_place_of(listen, tls);
    owner_ = open_at(at, host);
    port_ = owner_->port();
    kind_ = at.url.scheme;
    host_ = host;
  }
  ~owner() { close(); }

  std::uint16_t port() const noexcept { return port_; }
  std::size_t connections() const {
    const auto d = open();
    const interpreter_unlock unlocked;
    return d->connections();
  }
  /// Answers HTTP on a port of its own, from now on. Nobody serves yet, and it has none.
  std::uint16_t open_door(std::string_view listen, bool metrics, std::string_view origin, const tls_settings* tls) {
    const auto d = open();
    if (kind_ != link_scheme::tcp_url && kind_ != link_scheme::tls_url && kind_ != link_scheme::unix_url)
      throw py::value_error("http is beside TCP, tls:// or unix:, and this link has no such port");
    if (!parse_address(listen)) raise(errc::bad_address, listen);
    return d->keep(open_door_beside(*d, kind_, listen, metrics, origin, host_, tls));
  }

  py::tuple add(const py::sequence& described, const std::vector<std::pair<std::string, std::string>>& metadata,
                py::object keep, const publish_settings& s) {
    const auto d = open();
    return publish(described, metadata, std::move(keep), s, published_,
                   [&](const source_view& image, const publish_options& o, unique_any k) {
                     return d->add_image(image, o, std::move(k));
                   });
  }
  py::list add_all(const py::sequence& parts, py::object keep, const publish_settings& s) {
    const auto d = open();
    return publish_all(parts, std::move(keep), s, published_,
                       [&](std::vector<transaction_image>& images, const transaction_options& o, unique_any k,
                           const stop_token& stop) { return d->add_images(images, o, std::move(k), stop); });
  }
  void withdraw(std::string_view ref) {
    const auto done = unlocked(ref, [](any_owner& d, const reference& r) { return d.withdraw(r); });
    if (!done) raise(done.error());
  }
  py::tuple status(std::string_view ref) {
    return to_python(value_or_raise(unlocked(ref, [](any_owner& d, const reference& r) { return d.status_of(r); })));
  }
  bool settled(std::string_view ref) {
    return unlocked(ref, [](any_owner& d, const reference& r) { return d.settled(r); });
  }
  py::tuple outcome(std::string_view ref) {
    return to_python(
        value_or_raise(unlocked(ref, [](any_owner& d, const reference& r) { return d.settlement_of(r); })));
  }
  std::string recipient_state(std::string_view ref, std::uint64_t who) {
    const auto record = value_or_raise(
        unlocked(ref, [who](any_owner& d, const reference& r) { return d.recipient_of(r, {who}); }));
    return std::string(to_string(record.state));
  }

  /// Serves until all of `refs` have settled (if there are any), or `until()` is true; false if the time is over first.
  /// Checks `until` and Ctrl-C every 0.05 s. `milliseconds` < 0: no time limit.
  bool serve(const std::vector<std::string>& refs, const py::object& until, std::int64_t milliseconds) {
    const auto d = open();
    std::vector<reference> all;
    for (const std::string& ref : refs) all.push_back({id_or_raise(ref), 0, 0});
    const auto start = std::chrono::steady_clock::now();
    for (;;) {
      const auto slice = std::chrono::steady_clock::now();
      bool met = false;
      {
        const interpreter_unlock unlocked;
        d->run([&] {
          met = !all.empty() && std::all_of(all.begin(), all.end(), [&](const reference& r) { return d->settled(r); });
          return met || std::chrono::steady_clock::now() - slice >= std::chrono::milliseconds(50);
        });
      }
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (met || (!until.is_none() && or_rest([&] { return until().cast<bool>(); }))) return true;
      if (!owner_) return false;  // closed by another thread
      const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start)
                             .count();
      if (milliseconds >= 0 && spent >= milliseconds) return false;
    }
  }

  /// Closes all connections and releases what was published, as soon as no call of another thread uses them.
  void close() { let_go(std::exchange(owner_, nullptr), made_by_); }
  bool closed() const noexcept { return !owner_; }

  void each_object(const auto& f) const noexcept {
    for (const published* const one : *published_) one->each_object(f);
  }
  void let_go_of_objects() { close(); }

 private:
  pid_t made_by_ = ::getpid();
  publications published_ = std::make_shared<publications::element_type>();
  std::shared_ptr<any_owner> owner_;
  std::uint16_t port_ = 0;
  link_scheme kind_ = link_scheme::tcp_url;
  host_options host_{};
};

}  // namespace tensorpull::python
