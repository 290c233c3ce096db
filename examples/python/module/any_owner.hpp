// An owner over any transport, and what Python publishes through it.
#pragma once

#include "cycles.hpp"
#include "network.hpp"
#include "slices.hpp"
#include "tensor_table.hpp"

#include <tensorpull/transports/host/owner.hpp>

#include <functional>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

namespace tensorpull::python {

inline py::tuple to_python(const publication_status& s) {
  return py::make_tuple(s.acquired, s.completed, s.completed_unverified, s.failed, s.cancelled, s.vanished, s.absent,
                        s.unfinished, s.unlisted, s.lost, s.bytes_sent);
}
inline py::tuple to_python(const settlement& s) {
  return py::make_tuple(std::string(to_string(s.verdict)), s.references, s.expected, to_python(s.counts),
                        s.lasted.count());
}

/// How something is published; Python sets the attributes.
struct publish_settings {
  std::string id;  ///< digits, or empty
  std::uint32_t recipients = 0, least = 0;
  std::uint64_t version = 0;  ///< 0: computed
  std::vector<std::uint64_t> named;
  std::uint64_t acquire_ms = 0, recipient_idle_ms = 600'000, transaction_idle_ms = 600'000,
                progress_interval_ms = 30'000;
  py::object settled = py::none(), progress = py::none();

  void each_object(const auto& f) const noexcept { f(settled), f(progress); }
  void let_go_of_objects() { settled = progress = py::none(); }
};

struct published;
/// What an owner or a session has published and not let go of. Used with the interpreter's lock.
using publications = std::shared_ptr<std::unordered_set<const published*>>;

/// What a publication keeps until it has settled: its table, the Python objects of its tensors, its callbacks.
/// Destroyed on the thread that delivers the settlement, which need not hold the interpreter's lock.
struct published {
  published(const tensor_table& table, const std::vector<std::pair<std::string, std::string>>& metadata,
            py::object tensors, const publish_settings& s, publications among)
      : image(devices.image_of(table, metadata)), keep(std::move(tensors)), settled(s.settled), progress(s.progress),
        all(std::move(among)) {
    all->insert(this);
  }
  published(const published&) = delete;
  published& operator=(const published&) = delete;
  ~published() {
    const interpreter_lock lock;
    all->erase(this);
    or_rest([this] { keep = settled = progress = py::object(); });
  }
  void each_object(const auto& f) const noexcept { f(keep), f(settled), f(progress); }

  /// Called by the library, which drops exceptions, so they are printed as Python prints exceptions that no code can
  /// catch.
  struct teller {
    const py::object& to;
    template <class Event>
    void operator()(const Event& e) const {
      const interpreter_lock lock;
      const py::tuple event = to_python(e);
      PyObject* const returned = or_rest([&] { return PyObject_CallFunctionObjArgs(to.ptr(), event.ptr(), nullptr); });
      if (returned != nullptr) return Py_DECREF(returned);
      py::error_already_set thrown;
      if (thrown.matches(PyExc_KeyboardInterrupt)) interrupt_main_thread();  // so that serve() raises it
      else thrown.discard_as_unraisable("a callback of tensorpull");
    }
  };

  device_reader devices;
  dynamic_image image;
  py::object keep, settled, progress;
  publications all;
  teller tell_settled{settled}, tell_progress{progress};
};

/// `named`: memory for the names, which the options borrow.
inline publish_options options_of(const publish_settings& s, std::vector<recipient_id>& named) {
  publish_options options;
  if (!s.id.empty()) options.id = id_or_raise(s.id);
  for (const std::uint64_t who : s.named) named.push_back({who});
  using std::chrono::milliseconds;
  options.recipients = s.recipients;
  options.named = named;
  options.least = s.least;
  options.version = s.version;
  options.budgets = {.acquire = milliseconds(s.acquire_ms),
                     .recipient_idle = milliseconds(s.recipient_idle_ms),
                     .transaction_idle = milliseconds(s.transaction_idle_ms)};
  options.progress_interval = milliseconds(s.progress_interval_ms);
  return options;
}
inline py::tuple to_python(const reference& ref, std::uint64_t image_bytes) {
  const auto digits = to_digits(ref.id);
  return py::make_tuple(std::string(digits.data(), digits.size()), ref.version, ref.fingerprint, image_bytes);
}

/// Publishes the tensors that are described through `add(image, options, keeper)`, as one of `all`. Returns the
/// reference's digits, the version, the fingerprint and the image's length in bytes.
template <class Add>
py::tuple publish(const py::sequence& described, const std::vector<std::pair<std::string, std::string>>& metadata,
                  py::object keep, const publish_settings& s, const publications& all, Add add) {
  std::vector<recipient_id> named;
  publish_options options = options_of(s, named);
  auto kept = std::make_unique<published>(tensor_table(described), metadata, std::move(keep), s, all);
  const auto copies = kept->devices.copies();
  interruption thrown{py::none()};
  if (options.version == 0) options.version = version_of(kept->image.source(), *copies);
  if (!s.settled.is_none()) options.settled = kept->tell_settled;
  if (!s.progress.is_none()) options.progress = kept->tell_progress;
  const source_view image = kept->image.source();
  const std::uint64_t bytes = image.schema->image_bytes;
  unique_any keeper;
  if (keeper.keep(std::move(kept)) == nullptr) raise(errc::out_of_memory);
  const auto ref = [&] {
    const interpreter_unlock unlocked;
    copies->tell(&thrown);
    result<reference> added = add(image, options, std::move(keeper));
    copies->tell(nullptr);
    return added;
  }();
  if (!ref) thrown.rethrow();
  if (!ref) raise(ref.error());
  return to_python(*ref, bytes);
}

/// What a transaction keeps: the images behind the first, too.
struct published_together : published {
  using published::published;
  std::vector<dynamic_image> others;
};

/// Publishes several dicts through `add(images, options, keeper, stop)`, all or none. Each part is (described,
/// metadata, digits of its ID or ""). Returns what publish() returns, for each.
template <class Add>
py::list publish_all(const py::sequence& parts, py::object keep, const publish_settings& s, const publications& among,
                     Add add) {
  using pairs = std::vector<std::pair<std::string, std::string>>;
  std::vector<recipient_id> named;
  const publish_options options = options_of(s, named);
  std::unique_ptr<published_together> kept;
  std::vector<transaction_image> images;
  for (const py::handle item : parts) {
    const auto part = py::reinterpret_borrow<py::tuple>(item);
    const tensor_table table(part[0]);
    const auto metadata = part[1].cast<pairs>();
    const auto digits = part[2].cast<std::string>();
    if (!kept) kept = std::make_unique<published_together>(table, metadata, std::move(keep), s, among);
    else kept->others.push_back(kept->devices.image_of(table, metadata));
    const dynamic_image& made = kept->others.empty() ? kept->image : kept->others.back();
    images.push_back({made.source(), {digits.empty() ? ref_id{} : id_or_raise(digits), 0, 0}});
  }
  if (!kept) raise(errc::invalid_argument, "a transaction has at least one dict of tensors");
  const auto copies = kept->devices.copies();
  interruption thrown{py::none()};
  transaction_options all = options.alone();
  if (!s.settled.is_none()) all.settled = kept->tell_settled;
  if (!s.progress.is_none()) all.progress = kept->tell_progress;
  std::vector<std::uint64_t> bytes;  // what is published may have ended when add() returns
  for (const transaction_image& x : images) bytes.push_back(x.image.schema->image_bytes);
  unique_any keeper;
  if (keeper.keep(std::move(kept)) == nullptr) raise(errc::out_of_memory);
  const auto done = [&] {
    const interpreter_unlock unlocked;
    copies->tell(&thrown);
    const auto published = result<transaction_id>(add(images, all, std::move(keeper), interruption_token{&thrown}));
    copies->tell(nullptr);
    keeper = {};  // what was not published is let go of here, and takes the interpreter's lock
    return published;
  }();
  if (!done) thrown.rethrow();
  if (!done) raise(done.error());
  py::list out;
  for (std::size_t i = 0; i < images.size(); ++i) out.append(to_python(images[i].as, bytes[i]));
  return out;
}

/// A port that answers HTTP over an owner's references. Ends before the owner.
struct any_door {
  virtual ~any_door() = default;
  virtual std::uint16_t port() const noexcept = 0;
  virtual std::size_t connections() const noexcept = 0;
};

/// An owner of many connections, over any transport.
struct any_owner {
  virtual ~any_owner() = default;
  virtual std::uint16_t port() const noexcept = 0;
  /// Those of its door, too.
  virtual std::size_t connections() const noexcept = 0;
  virtual result<reference> add_image(const source_view& image, const publish_options& options,
                                      unique_any keep) noexcept = 0;
  virtual result<transaction_id> add_images(std::vector<transaction_image>& images, const transaction_options& options,
                                            unique_any keep, const stop_token& stop) noexcept = 0;
  virtual result<void> withdraw(const reference& ref) noexcept = 0;
  virtual result<publication_status> status_of(const reference& ref) const noexcept = 0;
  virtual result<settlement> settlement_of(const reference& ref) noexcept = 0;
  virtual result<recipient_record> recipient_of(const reference& ref, recipient_id who) noexcept = 0;
  virtual bool settled(const reference& ref) const noexcept = 0;
  virtual void run(const std::function<bool()>& until) = 0;
  /// Keeps a door until it ends, if it can have one. Nobody else has the door, so that it cannot outlive the owner.
  /// Returns its port. No other call is under way.
  virtual std::uint16_t keep(std::unique_ptr<any_door>) noexcept { return 0; }
};
template <class Transport>
struct owner_over final : any_owner {
  using downloader = typename net<Transport>::downloader;
  explicit owner_over(downloader d) noexcept : of(std::move(d)) {}
  std::uint16_t port() const noexcept override { return of.port(); }
  std::size_t connections() const noexcept override { return of.connections() + (door ? door->connections() : 0); }
  result<reference> add_image(const source_view& image, const publish_options& options,
                              unique_any keep) noexcept override {
    return of.add_image(image, options, std::move(keep));
  }
  result<transaction_id> add_images(std::vector<transaction_image>& images, const transaction_options& options,
                                    unique_any keep, const stop_token& stop) noexcept override {
    return of.add_images(images, options, std::move(keep), stop);
  }
  result<void> withdraw(const reference& ref) noexcept override { return of.withdraw(ref); }
  result<publication_status> status_of(const reference& ref) const noexcept override { return of.status_of(ref); }
  result<settlement> settlement_of(const reference& ref) noexcept override { return of.settlement_of(ref); }
  result<recipient_record> recipient_of(const reference& ref, recipient_id who) noexcept override {
    return of.recipient_of(ref, who);
  }
  bool settled(const reference& ref) const noexcept override { return of.settled(ref); }
  void run(const std::function<bool()>& until) override {
    of.run([&](const downloader&) { return until(); });
  }
  std::uint16_t keep(std::unique_ptr<any_door> d) noexcept override {
    door = std::move(d);
    return door->port();
  }
  downloader of;
  std::unique_ptr<any_door> door;  ///< if it has one; it ends before the downloader
};

}  // namespace tensorpull::python
