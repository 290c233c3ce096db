// Federated averaging for Python: each pull adds to the sums as its chunks arrive; no whole update is ever in memory.
#pragma once

#include "network.hpp"
#include "route.hpp"
#include "tensor_table.hpp"

#include <tensorpull/consumers/average/weighted_average.hpp>

namespace tensorpull::python {

/// One thread at a time: the Python half of the package has a lock. `keep` holds the result's tensors.
template <partial_updates Partial>
class average {
  using average_type = weighted_average<Partial>;

 public:
  average(const py::sequence& described, py::object keep, std::uint64_t chunk_bytes, std::size_t max_peers)
      : keep_(std::move(keep)), image_(tensor_table(described).to_write()),
        buffers_(value_or_raise(chunk_buffers::make(chunk_bytes, 1))),
        // it clears the sums: gigabytes for a large model
        average_(value_or_raise(without_lock(
            [&] { return average_type::make(image_.destination(), buffers_, {.max_peers = max_peers}); }))) {}

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
  py::object keep_;
  dynamic_image image_;
  chunk_buffers buffers_;
  average_type average_;
};

template <partial_updates Partial>
void bind_average(py::module_& m, const char* name) {
  using type = average<Partial>;
  py::class_<type>(m, name)
      .def(py::init<const py::sequence&, py::object, std::uint64_t, std::size_t>())
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
