// What ends a call that has let go of the interpreter's lock: Ctrl-C, the caller's abort signal, an exception in a callback.
#pragma once

#include "errors.hpp"

#include <chrono>
#include <optional>

namespace tensorpull::python {

/// One call's. The lock is taken for a look 50 times a second at most, whatever the transfer does.
class interruption {
 public:
  /// `abort`: None, or a callable; true: stop.
  explicit interruption(py::object abort) : abort_(std::move(abort)) {}
  interruption(const interruption&) = delete;
  interruption& operator=(const interruption&) = delete;

  bool look() noexcept {
    if (stopped_) return true;
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return false;
    next_ = now + std::chrono::milliseconds(20);
    const py::gil_scoped_acquire lock;
    guard([&] {
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (!abort_.is_none() && abort_().cast<bool>()) stopped_ = true;
    });
    return stopped_;
  }

  /// Calls f with the lock held by the caller; what it throws ends the transfer and is thrown again by rethrow().
  template <class F>
  bool guard(F f) noexcept {
    try {
      f();
      return true;
    } catch (py::error_already_set& e) {
      keep(std::move(e));
    } catch (const std::exception& e) {
      PyErr_SetString(PyExc_RuntimeError, e.what());
      keep(py::error_already_set());
    }
    return false;
  }
  /// With the lock held.
  void rethrow() {
    if (thrown_) throw std::move(*thrown_);
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

}  // namespace tensorpull::python
