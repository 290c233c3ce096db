// The owner's side for Python: publishes dicts of tensors, and serves them on the threads that call serve().
#pragma once

#include "places.hpp"
#include "publications.hpp"

#include <unistd.h>

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

class owner : public publishes<owner> {
 public:
  owner(std::string_view listen, std::size_t max_connections, std::int64_t accept_ms, std::int64_t stall_ms,
        std::int64_t idle_ms, std::uint64_t bytes_per_second, std::uint64_t recipient_bytes_per_second,
        const tls_settings& tls, std::size_t references, std::size_t recipients, py::object authorise)
      : at_(place_of(listen, tls, true)), may_(std::move(authorise), tls) {
    host_options& settings = settings_;
    settings.room = {references, recipients};
    settings.max_connections = max_connections;
    settings.budgets.accept = std::chrono::milliseconds(accept_ms);
    settings.budgets.stall = std::chrono::milliseconds(stall_ms);
    settings.budgets.idle = std::chrono::milliseconds(idle_ms);
    settings.limits = {bytes_per_second, recipient_bytes_per_second};
    if (may_.asks()) settings.authorise = may_;
    owner_ = value_or_raise(without_lock([&] { return at_.kind->own(at_, settings); }));
    port_ = owner_->port();
  }
  ~owner() { close(); }

  std::uint16_t port() const noexcept { return port_; }
  std::size_t connections() const {
    const auto d = publisher();
    return without_lock([&] { return d->connections(); });
  }
  /// Answers HTTP on a port of its own, from now on. Nobody serves yet, and it has none.
  std::uint16_t open_door(const std::string& listen, bool metrics, const std::string& origin,
                          const std::string& status_password) {
    const auto d = publisher();
    if (const auto why = facade::missing("http"); !why.empty()) raise(errc::unsupported_request, {}, why);
    if (!at_.is.several) throw py::value_error("http is beside TCP, tls:// or unix:, and this link has no such port");
    if (!origin.empty() && !facade::features.is_origin(origin))
      throw py::value_error("allow_origin is \"*\", or \"https://host[:port]\" in lower case and without a path");
    return value_or_raise(without_lock(
        [&] { return facade::features.door(*d, at_, {listen, metrics, origin, status_password}, settings_); }));
  }
  /// Tells the status page, if there is one, what a recipient is called, or what is published under these digits.
  void name_recipient(std::uint64_t who, const std::string& name) { name_on_page({who}, {}, name); }
  void name_publication(std::string_view digits, const std::string& name) {
    name_on_page({}, id_or_raise(digits), name);
  }

  /// In use by the caller.
  std::shared_ptr<facade::any_owner> publisher() const {
    if (!owner_) throw py::value_error("the downloader is closed");
    only_of(made_by_, "downloader");
    return owner_;
  }

  /// Serves until all of `refs` have settled (if there are any), or `until()` is true; false if the time is over first.
  /// Checks `until` and Ctrl-C every 0.05 s. `milliseconds` < 0: no time limit.
  bool serve(const std::vector<std::string>& refs, const py::object& until, std::int64_t milliseconds) {
    const auto d = publisher();
    const all_settled all(refs);
    const auto start = std::chrono::steady_clock::now();
    for (;;) {
      const auto slice = std::chrono::steady_clock::now();
      bool met = false;
      {
        const interpreter_unlock unlocked;
        d->run([&] {
          met = all(*d);
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
    publishes::each_object(f);
    may_.each_object(f);
  }
  void let_go_of_objects() {
    close();
    may_.let_go_of_objects();
  }

 private:
  void name_on_page(recipient_id who, const ref_id& id, const std::string& name) const {
    const auto d = publisher();
    if (d->name) d->name(who, id, name);
  }

  pid_t made_by_ = ::getpid();
  std::shared_ptr<facade::any_owner> owner_;
  std::uint16_t port_ = 0;
  const facade::place at_;
  authoriser may_;  // the owner borrows it
  host_options settings_;
};

}  // namespace tensorpull::python
