// Federated averaging for Python: each pull adds to the sums as its chunks arrive; no whole update is ever in memory.
#pragma once

#include "network.hpp"
#include "route.hpp"
#include "session.hpp"
#include "tensor_table.hpp"

#include <tensorpull/consumers/average/weighted_average.hpp>

#include <optional>

namespace tensorpull::python {

/// One thread at a time: the Python half of the package has a lock. `base`: the old model's tensors, or None. `keep`
/// holds the result's tensors and the base's.
template <partial_updates Partial>
class average {
  using average_type = weighted_average<Partial>;

 public:
  average(const py::sequence& described, const py::object& base, py::object keep, std::uint64_t chunk_bytes,
          std::size_t max_peers)
      : keep_(std::move(keep)), image_(tensor_table(described).to_write()), base_(image_of(base)),
        buffers_(value_or_raise(chunk_buffers::make(chunk_bytes, 1))), average_(made(max_peers)) {}

  py::tuple pull(const route& from, std::string_view ref, double weight, std::string_view peer, std::uint64_t round,
                 const pull_settings& s) {
    if (from.is_web())
      raise(errc::bad_address, {}, "an average adds no update from a web server, which sends no digest of each chunk");
    in_one_chunk<typename average_type::update> to(s.native, average_, weight, update_key{peer, round});
    interruption stop(s.abort);
    const auto add = from.puller<any_update>();
    return to_python(python::pull([&](const reference& r, const pull_options& o, chunks c) { return add(r, to, o, c); },
                                  ref, s, stop));
  }
  /// The same of what the other end of a session has published. A session has a digest of the whole alone, so the
  /// update has to land before it is added.
  py::tuple pull_over(session& from, std::string_view ref, double weight, std::string_view peer, std::uint64_t round,
                      const pull_settings& s)
    requires(Partial == partial_updates::staged)
  {
    in_one_chunk<typename average_type::update> to(s.native, average_, weight, update_key{peer, round});
    return from.download_to(to, ref, s);
  }
  void finish() {
    const auto done = without_lock([&] { return average_.finish(); });
    if (!done) raise(done.error());
  }
  void reset() {
    without_lock([&] { average_.reset(); });
  }
  std::uint64_t round() const noexcept { return average_.round(); }
  py::list updates() const {
    py::list all;
    for (const update_record& u : average_.updates())
      all.append(
          py::make_tuple(u.peer.id().value, std::string(to_string(u.state)), u.weight, u.added_bytes, u.version));
    return all;
  }
  std::size_t whole_updates() const noexcept { return average_.whole_updates(); }
  std::size_t partial_updates() const noexcept { return average_.partial_update_count(); }
  double whole_weight() const noexcept { return average_.whole_weight(); }

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

template <partial_updates Partial>
void bind_average(py::module_& m, const char* name) {
  using type = average<Partial>;
  py::class_<type> bound(m, name);
  if constexpr (Partial == partial_updates::staged) bound.def("pull_over", &type::pull_over);
  bound.def(py::init<const py::sequence&, const py::object&, py::object, std::uint64_t, std::size_t>())
      .def("pull", &type::pull)
      .def("finish", &type::finish)
      .def("reset", &type::reset)
      .def_property_readonly("round", &type::round)
      .def_property_readonly("updates", &type::updates)
      .def_property_readonly("whole_updates", &type::whole_updates)
      .def_property_readonly("partial_updates", &type::partial_updates)
      .def_property_readonly("whole_weight", &type::whole_weight);
}

}  // namespace tensorpull::python
