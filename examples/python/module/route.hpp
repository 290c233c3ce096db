// Pulls over connections of their own, whatever link the address names; over streams, from several addresses in turn,
// or from all of them at once.
#pragma once

#include "interpreter.hpp"
#include "places.hpp"
#include "pulling.hpp"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

namespace tensorpull::python {

/// One address; or several of one stream transport, between which a pull may change when it needs another connection.
class route final : public source {
 public:
  /// `tell(index, connections before, code or "", errno)`: called with each attempt to connect; None: nobody wants to
  /// know. `web`: of a URL.
  route(const std::vector<std::string>& addresses, const tls_settings& tls, py::object tell, const py::object& web)
      : tell_(std::move(tell)) {
    for (const std::string& text : addresses) pull_.from.push_back(place_or_url(text, tls));
    if (pull_.from.empty() || !is_one(addresses)) raise(errc::bad_address);
    if (is_web()) pull_.from.front().http = settings_of<http_settings>(web);
  }
  route(const route&) = delete;
  route& operator=(const route&) = delete;

  /// Whether they make one route.
  static bool is_one(const std::vector<std::string>& addresses) {
    const auto scheme = [](const std::string& text) { return as_address(facade::scheme_of(text)); };
    return std::ranges::all_of(addresses,
                               [&](const std::string& text) { return scheme(text) == scheme(addresses.front()); }) &&
           (addresses.size() == 1 || several(addresses.front()));
  }
  bool is_web() const noexcept override { return pull_.from.front().is.web; }
  std::string reference_of(std::string_view given, std::uint64_t version) const override {
    if (!is_web()) return std::string(given);
    if (!given.empty() && (id_or_raise(given), version != 0)) return std::string(given);
    return digits_of(pull_.from.front().id);  // two URLs may name two files
  }
  /// Which address was tried last.
  std::size_t current() const noexcept { return current_; }

  /// Connections at a time, if what they land in takes bytes in any order; 0: one to each address. Raises
  /// invalid_argument for others than one over links that have but one.
  void use_connections(std::size_t most) {
    if (most != 1 && !pull_.from.front().is.several) raise(errc::invalid_argument);
    if (most != 1) pull_.connections = most;
  }
  std::size_t connections() const noexcept { return pull_.connections.value_or(1); }
  /// Those whose bytes were not those of the root in the last pull, one bit each.
  const std::uint8_t& wrong_bits() const noexcept { return pull_.wrong; }

  pull_function begin() override {
    return [this](const reference& from, facade::any_consumer& to, const pull_options& options, std::uint64_t chunk) {
      const auto told = [this](const facade::attempt& a) { tell(a); };
      pull_.tell = told;
      pull_.chunk_bytes = chunk;
      return pull_(from, to, options);
    };
  }

 private:
  static bool several(const std::string& text) {
    const auto at = facade::place::read(text);
    return at && at->is.several;
  }
  void tell(const facade::attempt& a) {
    current_ = a.index;
    if (tell_.is_none()) return;
    const interpreter_lock lock;
    try {
      or_rest([&] {
        tell_(a.index, a.before, to_text(a.failed == errc{} ? std::string_view() : code_name(a.failed)), a.system);
      });
    } catch (py::error_already_set& thrown) {
      if (thrown.matches(PyExc_KeyboardInterrupt)) interrupt_main_thread();
      else thrown.discard_as_unraisable("a log handler of tensorpull");
    }
  }

  facade::any_pull pull_{};
  py::object tell_;
  std::atomic<std::size_t> current_{0};
};

}  // namespace tensorpull::python
