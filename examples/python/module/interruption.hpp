// Ends a call that has released the interpreter's lock: on Ctrl-C, on the caller's abort signal, or on an exception in
// a callback.
#pragma once

#include "errors.hpp"
#include "interpreter.hpp"

#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>

#include <chrono>
#include <optional>
#include <utility>

namespace tensorpull::python {

/// The interruption of one call. It takes the lock at most 50 times a second, whatever the transfer does.
class interruption {
 public:
  /// `abort`: None, or a callable that returns true to stop.
  explicit interruption(py::object abort) : abort_(std::move(abort)) {}
  interruption(const interruption&) = delete;
  interruption& operator=(const interruption&) = delete;

  bool look() noexcept {
    if (stopped_) return true;
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return false;
    next_ = now + std::chrono::milliseconds(20);
    const interpreter_lock lock;
    guard([&] {
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (!abort_.is_none() && abort_().cast<bool>()) stopped_ = true;
    });
    return stopped_;
  }

  /// Whether look() has said that the call ends.
  bool stopped() const noexcept { return stopped_; }

  /// Calls f; the caller holds the lock. An exception ends the transfer, and rethrow() throws it again.
  template <class F>
  bool guard(F f) noexcept {
    try {
      or_rest(f);
      return true;
    } catch (py::error_already_set& e) {
      keep(std::move(e));
    } catch (const std::exception& e) {
      PyErr_SetString(PyExc_RuntimeError, e.what());
      keep(py::error_already_set());
    }
    return false;
  }
  /// Calls f without the lock, which the caller holds, and throws what was kept meanwhile.
  template <class F>
  auto run(F f) {
    auto done = without_lock(f);
    rethrow();
    return done;
  }
  /// Once: afterwards nothing is kept. The caller holds the lock.
  void rethrow() {
    if (auto thrown = std::exchange(thrown_, std::nullopt)) throw std::move(*thrown);
  }

 private:
  void keep(py::error_already_set&& e) noexcept {
    stopped_ = true;
    if (!thrown_) thrown_.emplace(std::move(e));
  }

  py::object abort_;
  std::optional<py::error_already_set> thrown_;
  std::chrono::steady_clock::time_point next_{};
  bool stopped_ = false;
};

/// The library's stop token.
struct interruption_token {
  interruption* of;
  bool stop_requested() const noexcept { return of->look(); }
};

/// The digest that an image is published as, computed with the lock released: Ctrl-C is heard meanwhile, and raised,
/// and `abort`, which is None or a callable. `copies`: those of tensors on devices. Raises.
template <class Copies>
std::uint64_t version_of(const source_view& image, Copies& copies, py::object abort = py::none()) {
  interruption stop{std::move(abort)};
  return value_or_raise(stop.run([&] {
    return copies.within(stop,
                         [&] { return image_version<xxhash_digest, 16 * 1024>(image, interruption_token{&stop}); });
  }));
}

}  // namespace tensorpull::python
