// Publications of Python, through an owner or a session.
#pragma once

#include "callbacks.hpp"
#include "cycles.hpp"
#include "pulling.hpp"
#include "slices.hpp"
#include "tensor_table.hpp"

#include "facade/facade.hpp"

#include <tensorpull/transports/until_settled.hpp>

#include <algorithm>
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

using text_pairs = std::vector<std::pair<std::string, std::string>>;

struct published;
/// The publications that an owner or a session has not let go of. Used with the interpreter's lock.
using publications = std::shared_ptr<std::unordered_set<const published*>>;

/// A publication, as it is kept until it has settled: its table, the Python objects of its tensors, its callbacks.
/// Destroyed on the thread that delivers the settlement, which need not hold the interpreter's lock.
struct published {
  published(const tensor_table& table, const text_pairs& metadata, py::object tensors, const publish_settings& s,
            publications among)
      : image(devices.image_of(table, metadata)), keep(std::move(tensors)), settled(s.tell_settled),
        progress(s.tell_progress), all(std::move(among)) {
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

  struct teller {
    const py::object& to;
    template <class Event>
    void operator()(const Event& e) const {
      const interpreter_lock lock;
      call_back(to, to_python(e));
    }
  };

  device_reader devices;
  dynamic_image image;
  std::vector<dynamic_image> others{};  ///< of a transaction
  py::object keep, settled, progress;
  publications all;
  teller tell_settled{settled}, tell_progress{progress};
};

/// `named`: memory for the names, which the options borrow.
inline publish_options options_of(const publish_settings& s, std::vector<recipient_id>& named) {
  publish_options options = s;
  options.replaced_stays = true;
  if (!s.digits.empty()) options.id = id_or_raise(s.digits);
  if (!s.beside_digits.empty()) options.beside = id_or_raise(s.beside_digits);
  for (const py::handle who : py::reinterpret_borrow<py::sequence>(s.recipients_named))
    named.push_back({who.cast<std::uint64_t>()});
  options.named = named;
  return options;
}
inline py::tuple to_python(const reference& ref, std::uint64_t image_bytes) {
  return py::make_tuple(digits_of(ref.id), ref.version, ref.fingerprint, image_bytes);
}

/// Calls `add(keeper)` of the library, without the interpreter's lock: what is kept has the tensors of `copies`.
template <class Add>
auto add_kept(std::unique_ptr<published> kept, Add add) {
  const auto copies = kept->devices.copies();
  interruption thrown{py::none()};
  unique_any keeper;
  if (keeper.keep(std::move(kept)) == nullptr) raise(errc::out_of_memory);
  auto done = [&] {
    const interpreter_unlock unlocked;
    copies->tell(&thrown);
    auto added = add(std::move(keeper), interruption_token{&thrown});
    copies->tell(nullptr);
    keeper = {};  // what was not published is let go of here, and takes the interpreter's lock
    return added;
  }();
  if (!done) thrown.rethrow();
  return value_or_raise(std::move(done));
}

/// An image that is no dict of tensors: a Python object holds it.
class opened_image {
 public:
  virtual ~opened_image() = default;
  virtual source_view source() const noexcept = 0;
};

/// Publishes for Python: an owner or a session. `Self::publisher()` keeps the library's in use.
template <class Self>
class publishes {
 public:
  /// Publishes the tensors that are described. Returns the reference's digits, the version, the fingerprint and the
  /// image's length in bytes.
  py::tuple add(const py::sequence& described, const text_pairs& metadata, py::object keep, const py::object& how) {
    return add_one(tensor_table(described), metadata, std::move(keep), how, nullptr);
  }
  /// The same of an image that is held.
  py::tuple add_held(py::object held, const py::object& how) {
    const opened_image& image = held.cast<const opened_image&>();
    return add_one(tensor_table(py::tuple()), {}, std::move(held), how, &image);
  }
  /// Publishes several dicts, all or none. Each part is (described, metadata, digits of its ID or ""). Returns what
  /// add() returns, for each.
  py::list add_all(const py::sequence& parts, py::object keep, const py::object& how) {
    const auto s = settings_of<publish_settings>(how);
    const auto mine = self().publisher();
    std::vector<recipient_id> named;
    const publish_options options = options_of(s, named);
    std::unique_ptr<published> kept;
    std::vector<transaction_image> images;
    for (const py::handle item : parts) {
      const auto part = py::reinterpret_borrow<py::tuple>(item);
      const tensor_table table(part[0]);
      const auto metadata = part[1].cast<text_pairs>();
      const auto digits = part[2].cast<std::string>();
      if (!kept) kept = std::make_unique<published>(table, metadata, std::move(keep), s, published_);
      else kept->others.push_back(kept->devices.image_of(table, metadata));
      const dynamic_image& made = kept->others.empty() ? kept->image : kept->others.back();
      images.push_back({made.source(), {digits.empty() ? ref_id{} : id_or_raise(digits), 0, 0}});
    }
    if (!kept) raise(errc::invalid_argument, "a transaction has at least one dict of tensors");
    transaction_options all = options.alone();
    if (!s.tell_settled.is_none()) all.settled = kept->tell_settled;
    if (!s.tell_progress.is_none()) all.progress = kept->tell_progress;
    std::vector<std::uint64_t> bytes;
    for (const transaction_image& x : images) bytes.push_back(x.image.schema->image_bytes);
    add_kept(std::move(kept),
             [&](unique_any k, const stop_token& stop) { return mine->add_images(images, all, std::move(k), stop); });
    py::list out;
    for (std::size_t i = 0; i < images.size(); ++i) out.append(to_python(images[i].as, bytes[i]));
    return out;
  }
  void withdraw(std::string_view ref) {
    value_or_raise(asked(ref, [](auto& p, const reference& r) { return p.withdraw(r); }));
  }
  py::tuple status(std::string_view ref) {
    return to_python(value_or_raise(asked(ref, [](auto& p, const reference& r) { return p.status_of(r); })));
  }
  bool settled(std::string_view ref) {
    return asked(ref, [](auto& p, const reference& r) { return p.settled(r); });
  }
  py::tuple outcome(std::string_view ref) {
    return to_python(value_or_raise(asked(ref, [](auto& p, const reference& r) { return p.settlement_of(r); })));
  }
  std::string recipient_state(std::string_view ref, std::uint64_t who) {
    const auto record = value_or_raise(
        asked(ref, [who](auto& p, const reference& r) { return p.recipient_of(r, {who}); }));
    return std::string(to_string(record.state));
  }

  void each_object(const auto& f) const noexcept {
    for (const published* const one : *published_) one->each_object(f);
  }

 private:
  Self& self() noexcept { return static_cast<Self&>(*this); }
  /// Releases without the interpreter's lock, since the end of a publication takes it.
  template <class F>
  auto asked(std::string_view ref, F f) {
    const auto mine = self().publisher();
    const reference r = reference_or_raise(ref);
    return without_lock([&] { return f(*mine, r); });
  }

  /// `held`: the image, in place of that of the table, which is empty.
  py::tuple add_one(const tensor_table& table, const text_pairs& metadata, py::object keep, const py::object& how,
                    const opened_image* held) {
    const auto s = settings_of<publish_settings>(how);
    const auto mine = self().publisher();
    std::vector<recipient_id> named;
    publish_options options = options_of(s, named);
    auto kept = std::make_unique<published>(table, metadata, std::move(keep), s, published_);
    const source_view image = held != nullptr ? held->source() : kept->image.source();
    if (options.version == 0) options.version = version_of(image, *kept->devices.copies());
    if (!s.tell_settled.is_none()) options.settled = kept->tell_settled;
    if (!s.tell_progress.is_none()) options.progress = kept->tell_progress;
    const std::uint64_t bytes = image.schema->image_bytes;  // it may have ended when add_image() returns
    return to_python(
        add_kept(std::move(kept),
                 [&](unique_any k, const stop_token&) { return mine->add_image(image, options, std::move(k)); }),
        bytes);
  }

  publications published_ = std::make_shared<publications::element_type>();
};

/// Whether all of them have settled, if there are any.
class all_settled {
 public:
  explicit all_settled(const std::vector<std::string>& refs) {
    for (const std::string& ref : refs) all_.push_back(reference_or_raise(ref));
  }
  bool operator()(const facade::any_publisher& by) const {
    return !all_.empty() && std::ranges::all_of(all_, [&](const reference& r) { return by.settled(r); });
  }
  /// After that: why one of them was not delivered.
  result<void> outcome(facade::any_publisher& by) const noexcept {
    return until_settled(std::span<const reference>(all_)).outcome(by);
  }

 private:
  std::vector<reference> all_;
};

}  // namespace tensorpull::python
