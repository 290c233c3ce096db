// Federated averaging for Python: each pull adds to the sums as its chunks arrive; no whole update is ever in memory.
#include "parts.hpp"
#include "pulling.hpp"
#include "tensor_table.hpp"

#include <tensorpull/consumers/average/weighted_average.hpp>

#include <memory>
#include <optional>
#include <string_view>

namespace tensorpull::python {
namespace {

/// What Python calls. One thread at a time: the Python half of the package has a lock.
class any_average {
 public:
  virtual ~any_average() = default;
  /// Of what the other end of a session has published only `staged` takes any: a session has a digest of the whole
  /// alone, so the update has to land before it is added.
  virtual py::tuple pull(source& from, std::string_view ref, double weight, std::string_view peer, std::uint64_t round,
                         const py::object& how) = 0;
  virtual void finish() = 0;
  virtual void reset() = 0;
  virtual std::uint64_t round() const = 0;
  virtual py::list updates() const = 0;
  virtual std::size_t whole_updates() const = 0;
  virtual std::size_t partial_updates() const = 0;
  virtual double whole_weight() const = 0;
};

/// `base`: the old model's tensors, or None. `keep` holds the result's tensors and the base's.
template <partial_updates Partial>
class average final : public any_average {
  using average_type = weighted_average<Partial>;

 public:
  average(const py::sequence& described, const py::object& base, py::object keep, std::uint64_t chunk_bytes,
          std::size_t max_peers)
      : keep_(std::move(keep)), image_(tensor_table(described).to_write()), base_(image_of(base)),
        buffers_(value_or_raise(chunk_buffers::make(chunk_bytes, 1))), average_(made(max_peers)) {}

  py::tuple pull(source& from, std::string_view ref, double weight, std::string_view peer, std::uint64_t round,
                 const py::object& how) override {
    if (from.is_web())
      raise(errc::bad_address, {}, "an average adds no update from a web server, which sends no digest of each chunk");
    const auto s = settings_of<pull_settings>(how);
    typename average_type::update to(average_, weight, update_key{peer, round});
    facade::consumer_for as(to);
    interruption stop(s.abort);
    return to_python(python::pull(from, as, ref, s, stop));
  }
  void finish() override {
    value_or_raise(without_lock([&] { return average_.finish(); }));
  }
  void reset() override {
    without_lock([&] { average_.reset(); });
  }
  std::uint64_t round() const override { return average_.round(); }
  py::list updates() const override {
    py::list all;
    for (const update_record& u : average_.updates())
      all.append(
          py::make_tuple(u.peer.id().value, std::string(to_string(u.state)), u.weight, u.added_bytes, u.version));
    return all;
  }
  std::size_t whole_updates() const override { return average_.whole_updates(); }
  std::size_t partial_updates() const override { return average_.partial_update_count(); }
  double whole_weight() const override { return average_.whole_weight(); }

 private:
  static std::optional<dynamic_image> image_of(const py::object& base) {
    if (base.is_none()) return std::nullopt;
    return tensor_table(py::reinterpret_borrow<py::sequence>(base)).to_write();
  }
  average_type made(std::size_t max_peers) {
    const source_view base = base_ ? base_->source() : source_view{};
    // it clears the sums: gigabytes for a large model
    auto one = without_lock(
        [&] { return average_type::make(image_.destination(), buffers_, {.base = base, .max_peers = max_peers}); });
    if (!one && one.error().code == errc::schema_mismatch)
      raise(
          one.error().code, one.error().name.view(),
          "the base and the result are other models: only one of them has this tensor, or with other dtypes or shapes");
    if (!one && one.error().code == errc::invalid_argument && !one.error().name.view().empty())
      raise(one.error().code, one.error().name.view(), "this tensor of the base lies across the result's");
    return value_or_raise(std::move(one));
  }

  py::object keep_;
  dynamic_image image_;
  std::optional<dynamic_image> base_;
  chunk_buffers buffers_;
  average_type average_;
};

/// `partial`: what becomes of updates that are not whole.
std::unique_ptr<any_average> average_of(std::string_view partial, const py::sequence& described, const py::object& base,
                                        py::object keep, std::uint64_t chunk_bytes, std::size_t max_peers) {
  const auto make = [&]<partial_updates Partial>() -> std::unique_ptr<any_average> {
    return std::make_unique<average<Partial>>(described, base, std::move(keep), chunk_bytes, max_peers);
  };
  if (partial == "staged") return make.operator()<partial_updates::staged>();
  if (partial == "error") return make.operator()<partial_updates::error_on_partial>();
  return make.operator()<partial_updates::divide_by_reached>();
}

}  // namespace

void bind_averages(py::module_& m) {
  py::class_<any_average>(m, "Average")
      .def(py::init(&average_of))
      .def("pull", &any_average::pull)
      .def("finish", &any_average::finish)
      .def("reset", &any_average::reset)
      .def_property_readonly("round", &any_average::round)
      .def_property_readonly("updates", &any_average::updates)
      .def_property_readonly("whole_updates", &any_average::whole_updates)
      .def_property_readonly("partial_updates", &any_average::partial_updates)
      .def_property_readonly("whole_weight", &any_average::whole_weight);
}

}  // namespace tensorpull::python
