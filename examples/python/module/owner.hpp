// The owner's side for Python: publishes dicts of tensors, and serves them on the threads that call serve().
#pragma once

#include "network.hpp"
#include "tensor_table.hpp"

#include <unistd.h>

#include <memory>
#include <vector>

namespace tensorpull::python {

inline py::tuple to_python(const publication_status& s) {
  return py::make_tuple(s.acquired, s.completed, s.completed_unverified, s.failed, s.cancelled, s.vanished, s.absent, s.unfinished, s.unlisted, s.lost, s.bytes_sent);
}
inline py::tuple to_python(const settlement& s) {
  return py::make_tuple(std::string(to_string(s.verdict)), s.references, s.expected, to_python(s.counts), s.lasted.count());
}

/// How something is published; Python sets the attributes.
struct publish_settings {
  std::string id;                           ///< 32 digits, or empty
  std::uint32_t recipients = 0, least = 0;
  std::vector<std::uint64_t> named;
  std::uint64_t acquire_ms = 0, recipient_idle_ms = 600'000, transaction_idle_ms = 600'000, progress_interval_ms = 30'000;
  py::object settled = py::none(), progress = py::none();
};

/// What a publication keeps until it has settled: its table, the Python objects of its tensors, its callbacks. Destroyed on the thread that delivers the
/// settlement, which need not hold the interpreter's lock.
struct published {
  published(dynamic_image made, py::object tensors, const publish_settings& s)
      : image(std::move(made)), keep(std::move(tensors)), settled(s.settled), progress(s.progress) {}
  published(const published&) = delete;
  published& operator=(const published&) = delete;
  ~published() {
    const py::gil_scoped_acquire lock;
    keep = settled = progress = py::object();
  }

  /// Called by the library, which drops exceptions, so they are printed as Python prints exceptions that no code can catch.
  struct teller {
    const py::object& to;
    template <class Event>
    void operator()(const Event& e) const {
      const py::gil_scoped_acquire lock;
      try {
        to(to_python(e));
      } catch (py::error_already_set& thrown) {
        if (thrown.matches(PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();  // so that serve() raises it
        else thrown.discard_as_unraisable("a callback of tensorpull.Downloader");
      }
    }
  };

  dynamic_image image;
  py::object keep, settled, progress;
  teller tell_settled{settled}, tell_progress{progress};
};

class owner {
  using downloader = net::downloader;

  std::shared_ptr<downloader> open() const {
    if (!downloader_) throw py::value_error("the downloader is closed");
    if (is_inherited()) throw py::value_error("the downloader belongs to the process that made it; this one is a child of fork()");
    return downloader_;
  }
  template <class F>
  auto unlocked(std::string_view ref, F f) {
    const auto d = open();
    const reference r{id_or_raise(ref), 0, 0};
    const py::gil_scoped_release unlock;
    return f(*d, r);
  }

 public:
  owner(std::string_view listen, std::size_t max_connections, std::int64_t accept_ms, std::int64_t stall_ms, std::int64_t idle_ms) {
    host_options host;
    host.max_connections = max_connections;
    host.budgets.accept = std::chrono::milliseconds(accept_ms);
    host.budgets.stall = std::chrono::milliseconds(stall_ms);
    host.budgets.idle = std::chrono::milliseconds(idle_ms);
    auto made = downloader::open({.listen = listen, .host = host});
    if (!made) raise(made.error());
    downloader_ = std::make_shared<downloader>(std::move(*made));
    port_ = downloader_->port();
  }
  ~owner() { close(); }

  std::uint16_t port() const noexcept { return port_; }
  std::size_t connections() const { return open()->connections(); }

  /// Returns the reference's digits, the version, the fingerprint and the image's length in bytes.
  py::tuple add(const py::sequence& described, const std::vector<std::pair<std::string, std::string>>& metadata, py::object keep, const publish_settings& s) {
    const auto d = open();
    publish_options options;
    if (!s.id.empty()) options.id = id_or_raise(s.id);
    std::vector<recipient_id> named;
    for (const std::uint64_t who : s.named) named.push_back({who});
    using std::chrono::milliseconds;
    options.recipients = s.recipients;
    options.named = named;
    options.least = s.least;
    options.budgets = {.acquire = milliseconds(s.acquire_ms), .recipient_idle = milliseconds(s.recipient_idle_ms), .transaction_idle = milliseconds(s.transaction_idle_ms)};
    options.progress_interval = milliseconds(s.progress_interval_ms);
    auto kept = std::make_unique<published>(tensor_table(described).to_read(metadata), std::move(keep), s);
    if (!s.settled.is_none()) options.settled = kept->tell_settled;
    if (!s.progress.is_none()) options.progress = kept->tell_progress;
    const source_view image = kept->image.source();
    const std::uint64_t bytes = image.schema->image_bytes;
    unique_any keeper;
    if (keeper.keep(std::move(kept)) == nullptr) raise(errc::out_of_memory);
    const auto ref = [&] {
      const py::gil_scoped_release unlocked;
      return d->add_image(image, options, std::move(keeper));
    }();
    if (!ref) raise(ref.error());
    const auto digits = to_digits(ref->id);
    return py::make_tuple(std::string(digits.data(), digits.size()), ref->version, ref->fingerprint, bytes);
  }
  void withdraw(std::string_view ref) {
    const auto done = unlocked(ref, [](downloader& d, const reference& r) { return d.withdraw(r); });
    if (!done) raise(done.error());
  }
  py::tuple status(std::string_view ref) {
    return to_python(value_or_raise(unlocked(ref, [](downloader& d, const reference& r) { return d.status_of(r); })));
  }
  bool settled(std::string_view ref) {
    return unlocked(ref, [](downloader& d, const reference& r) { return d.settled(r); });
  }
  py::tuple outcome(std::string_view ref) {
    return to_python(value_or_raise(unlocked(ref, [](downloader& d, const reference& r) { return d.settlement_of(r); })));
  }
  std::string recipient_state(std::string_view ref, std::uint64_t who) {
    const auto record = value_or_raise(unlocked(ref, [who](downloader& d, const reference& r) { return d.recipient_of(r, {who}); }));
    return std::string(to_string(record.state));
  }

  /// Serves until all of `refs` have settled (if there are any), or `until()` is true; false if the time is over first. Checks `until` and Ctrl-C every
  /// 0.05 s. `milliseconds` < 0: no time limit.
  bool serve(const std::vector<std::string>& refs, const py::object& until, std::int64_t milliseconds) {
    const auto d = open();
    std::vector<reference> all;
    for (const std::string& ref : refs) all.push_back({id_or_raise(ref), 0, 0});
    const auto start = std::chrono::steady_clock::now();
    for (;;) {
      const auto slice = std::chrono::steady_clock::now();
      bool met = false;
      {
        const py::gil_scoped_release unlocked;
        d->run([&](const downloader& now) {
          met = !all.empty() && std::all_of(all.begin(), all.end(), [&](const reference& r) { return now.settled(r); });
          return met || std::chrono::steady_clock::now() - slice >= std::chrono::milliseconds(50);
        });
      }
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (met || (!until.is_none() && until().cast<bool>())) return true;
      if (!downloader_) return false;  // closed by another thread
      const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start).count();
      if (milliseconds >= 0 && spent >= milliseconds) return false;
    }
  }

  /// Closes all connections and releases what was published, as soon as no call of another thread uses them. A child of fork() shares the event loop's
  /// descriptors with its parent, whom closing would deafen, and its copy of a lock may be held by a thread that it has not: it lets go of nothing.
  void close() {
    auto last = std::move(downloader_);
    downloader_ = nullptr;
    if (last && is_inherited()) return static_cast<void>(new std::shared_ptr<downloader>(std::move(last)));
    const py::gil_scoped_release unlocked;
    last = nullptr;
  }
  bool closed() const noexcept { return !downloader_; }

 private:
  bool is_inherited() const noexcept { return ::getpid() != made_by_; }

  pid_t made_by_ = ::getpid();
  std::shared_ptr<downloader> downloader_;
  std::uint16_t port_ = 0;
};

}  // namespace tensorpull::python
