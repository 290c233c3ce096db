// Federated averaging for Python: each pull adds to the sums as its chunks arrive; no whole update is ever in memory.
#include "parts.hpp"
#include "pulling.hpp"
#include "slices.hpp"
#include "tensor_table.hpp"

#include <tensorpull/consumers/average/weighted_average.hpp>
#include <tensorpull/image/read_range.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>

namespace tensorpull::python {
namespace {

/// `base`: the old model's tensors, or None. `keep` holds the result's tensors and the base's. One thread at a time:
/// the Python half of the package has a lock.
template <partial_updates Partial>
class average {
  using average_type = weighted_average<Partial>;

 public:
  average(const py::sequence& described, const py::object& base, py::object keep, std::uint64_t chunk_bytes,
          std::size_t max_peers, bool refuse_no_numbers, double longest, double heaviest)
      : keep_(std::move(keep)), image_(tensor_table(described).to_write()), base_(tensor_table::to_write(base)),
        buffers_(value_or_raise(chunk_buffers::make(chunk_bytes, 1))),
        average_(made({.base = base_ ? base_->source() : source_view{},
                       .max_peers = max_peers,
                       .refuse_no_numbers = refuse_no_numbers,
                       .longest = longest,
                       .heaviest = heaviest})) {}

  /// Of what the other end of a session has published only `staged` takes any: a session has a digest of the whole
  /// alone, so the update has to land before it is added.
  py::tuple pull(source& from, std::string_view ref, double weight, std::string_view peer, std::uint64_t round,
                 const py::object& how) {
    if (from.is_web())
      raise(errc::bad_address, {}, "an average adds no update from a web server, which sends no digest of each chunk");
    const auto s = settings_of<pull_settings>(how);
    typename average_type::update to(average_, weight, update_key{peer, round});
    facade::consumer_for as(to);
    interruption stop(s.abort);
    const receipt got = python::pull(from, as, ref, s, stop);
    return to_python(got, as);
  }
  /// Adds tensors that are here, as an update whose owner has published them under `version`.
  void add(const py::sequence& described, std::uint64_t version, double weight, std::string_view peer,
           std::uint64_t round) {
    const device_reader devices;
    const dynamic_image image = devices.image_of(tensor_table(described), {});
    typename average_type::update to(average_, weight, update_key{peer, round});
    interruption stop{py::none()};
    const auto done = stop.run(
        [&] { return devices.copies()->within(stop, [&] { return feed(image, version, to); }); });
    if (!done) raise(done.error());
  }
  void finish() {
    value_or_raise(without_lock([&] { return average_.finish(); }));
  }
  void reset() {
    without_lock([&] { average_.reset(); });
  }
  std::uint64_t round() const { return average_.round(); }
  py::list updates() const {
    py::list all;
    for (const update_record& u : average_.updates()) {
      const bool refused = u.refused_tensor < average_.schema().tensor_count;
      all.append(py::make_tuple(u.peer.id().value, std::string(to_string(u.state)), u.weight, u.added_bytes, u.version,
                                u.norm, to_text(refused ? average_.schema().tensors[u.refused_tensor].name : "")));
    }
    return all;
  }
  void clip(double longest) {
    if constexpr (Partial == partial_updates::staged) value_or_raise(average_.clip(longest));
  }
  std::size_t whole_updates() const { return average_.whole_updates(); }
  std::size_t partial_updates() const { return average_.partial_update_count(); }
  double whole_weight() const { return average_.whole_weight(); }

 private:
  /// As the owner of the image would have sent it.
  result<void> feed(const dynamic_image& image, std::uint64_t version, typename average_type::update& to) const {
    const image_schema& schema = image.schema();
    const description d{
        {0, 1}, version, schema.fingerprint, schema.image_bytes, schema.header_bytes, schema.tensor_count, true};
    if (const auto ok = to.begin(d); !ok) return ok;
    std::span<std::byte> spans[8];
    for (std::uint64_t at = 0, end = 0; at < d.image_bytes; at = end) {
      end = std::min<std::uint64_t>(at < d.data_start ? d.data_start : d.image_bytes, at + buffers_.chunk_bytes());
      for (std::uint64_t from = at; from < end;) {
        const prepared p = to.prepare(from, end - from, spans);
        if (p.bytes == 0) return failure(errc::update_under_way);
        for (std::size_t i = 0; i < p.pieces; from += spans[i++].size()) {
          if (const auto ok = detail::read_range(image.source(), from, spans[i]); !ok) return ok;
          if (const auto ok = to.commit(from, spans[i]); !ok) return ok;
        }
      }
      if (const auto ok = to.chunk(at, end - at); !ok) return ok;
    }
    receipt r;
    r.outcome = outcome::completed;
    r.version = version;
    return to.finish(r);
  }
  average_type made(const average_options& options) {
    // it clears the sums: gigabytes for a large model
    auto one = without_lock([&] { return average_type::make(image_.destination(), buffers_, options); });
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

/// `Partial`: what becomes of updates that are not whole.
template <partial_updates Partial>
void bind(py::module_& m, const char* name) {
  using type = average<Partial>;
  py::class_<type>(m, name)
      .def(py::init<const py::sequence&, const py::object&, py::object, std::uint64_t, std::size_t, bool, double,
                    double>())
      .def("pull", &type::pull)
      .def("add", &type::add)
      .def("clip", &type::clip)
      .def("finish", &type::finish)
      .def("reset", &type::reset)
      .def_property_readonly("round", &type::round)
      .def_property_readonly("updates", &type::updates)
      .def_property_readonly("whole_updates", &type::whole_updates)
      .def_property_readonly("partial_updates", &type::partial_updates)
      .def_property_readonly("whole_weight", &type::whole_weight);
}

}  // namespace

void bind_averages(py::module_& m) {
  bind<partial_updates::staged>(m, "AverageStaged");
  bind<partial_updates::error_on_partial>(m, "AverageError");
  bind<partial_updates::divide_by_reached>(m, "AverageDivide");
}

}  // namespace tensorpull::python
