#include "errors.hpp"
#include "interpreter.hpp"
#include "parts.hpp"
#include "tensor_table.hpp"

#include <tensorpull/consumers/average/weighing.hpp>
#include <tensorpull/image/dynamic.hpp>

#include <pybind11/stl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorpull::python {
namespace {

py::bytes as_bytes(std::span<const double> numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()};
}

/// One thread at a time: the Python half has a lock. `base`: the old model's tensors, or None. Holds all tensors: those
/// of an update until reset().
class whole_updates {
 public:
  whole_updates(const py::sequence& described, const py::object& base, py::object keep, std::size_t max_updates,
                const std::vector<std::string>& names)
      : keep_(std::move(keep)), image_(tensor_table(described).to_write()), base_(tensor_table::to_write(base)),
        weighing_(
            value_or_raise(weighing::make(image_.destination(), base_ ? base_->source() : source_view{}, max_updates,
                                          std::vector<std::string_view>(names.begin(), names.end())))) {}

  /// Whatever is raised: the update is not taken.
  void add(const py::sequence& described, py::object keep, double weight, std::string_view peer) {
    update u{peer, std::move(keep), tensor_table(described).to_write()};
    held_.reserve(held_.size() + 1);
    if (const auto ok = weighing_.add({u.peer, weight, u.image.source()}); !ok) raise(ok.error());
    held_.push_back(std::move(u));
  }
  /// Lets go of the tensors of one update.
  void remove(std::string_view peer) {
    const update_peer gone(peer);
    if (const auto ok = weighing_.remove(gone); !ok) raise(ok.error());
    std::erase_if(held_, [&](const update& u) { return u.peer == gone; });
  }
  /// (number of the peer, own weight) of each update, in the order of all that follows.
  py::list updates() const {
    py::list all;
    for (const whole_update& u : weighing_.updates()) all.append(py::make_tuple(u.peer.id().value, u.weight));
    return all;
  }
  /// The norms and the products, as bytes of doubles.
  py::tuple look() {
    const auto seen = without_lock([&] { return weighing_.look(); });
    if (!seen) raise(seen.error());
    return py::make_tuple(as_bytes(seen->norms), as_bytes(seen->products));
  }
  /// `weigh(norms, products)`, bytes of doubles, gives (weights, scales), lists of floats of the right length.
  void finish(const py::function& weigh, bool refuse_no_numbers) {
    std::optional<py::error_already_set> thrown;
    const auto asked = [&](const update_differences& of, const update_weights& to) noexcept {
      const interpreter_lock lock;
      try {
        const auto [weights, scales] = weigh(as_bytes(of.norms), as_bytes(of.products))
                                           .cast<std::pair<std::vector<double>, std::vector<double>>>();
        if (weights.size() != to.weights.size() || scales.size() != to.scales.size()) return;  // no weight is set
        std::ranges::copy(weights, to.weights.begin());
        std::ranges::copy(scales, to.scales.begin());
      } catch (py::error_already_set& e) {
        thrown.emplace(std::move(e));
      } catch (const std::exception& e) {
        PyErr_SetString(PyExc_TypeError, e.what());
        thrown.emplace();
      }
    };
    end([&] { return weighing_.finish(asked, refuse_no_numbers); }, thrown);
  }
  void trimmed_mean(std::size_t cut) {
    end([&] { return weighing_.trimmed_mean(cut); });
  }
  void wrapping_sum() {
    end([&] { return weighing_.wrapping_sum(); });
  }
  void reset() {
    weighing_.reset();
    held_.clear();
  }

 private:
  struct update {
    update_peer peer;
    py::object keep;
    dynamic_image image;
  };

  template <class F>
  void end(F f, const std::optional<py::error_already_set>& thrown = {}) {
    const auto done = without_lock(f);
    if (thrown) throw *thrown;
    if (done) return;
    const error& e = done.error();
    if (e.code != errc::value_out_of_range || e.at >= image_.schema().tensor_count) raise(e);
    const std::string tensor(image_.schema().tensors[e.at].name);
    raise(e, false,
          "the update has infinities or NaNs, or a difference that is too large, in the tensor '" + tensor + "'");
  }

  py::object keep_;
  dynamic_image image_;
  std::optional<dynamic_image> base_;
  weighing weighing_;
  std::vector<update> held_;
};

}  // namespace

void bind_weighing(py::module_& m) {
  m.attr("max_trimmed") = weighing::max_trimmed;
  py::class_<whole_updates>(m, "WholeUpdates")
      .def(py::init<const py::sequence&, const py::object&, py::object, std::size_t, const std::vector<std::string>&>())
      .def("add", &whole_updates::add)
      .def("remove", &whole_updates::remove)
      .def_property_readonly("updates", &whole_updates::updates)
      .def("look", &whole_updates::look)
      .def("finish", &whole_updates::finish)
      .def("trimmed_mean", &whole_updates::trimmed_mean)
      .def("wrapping_sum", &whole_updates::wrapping_sum)
      .def("reset", &whole_updates::reset);
}

}  // namespace tensorpull::python
