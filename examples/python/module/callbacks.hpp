// Python's callables, which the library calls from whichever thread serves.
#pragma once

#include "interpreter.hpp"
#include "places.hpp"

#include <tensorpull/core/ids.hpp>
#include <tensorpull/protocol/owner/access.hpp>

#include <optional>
#include <string>
#include <utility>

namespace tensorpull::python {

/// Calls `to(event)`; whether that returned True. The library drops exceptions, so they are printed as Python prints
/// exceptions that no code can catch. The caller holds the lock.
inline bool call_back(const py::object& to, const py::tuple& event) {
  PyObject* const returned = or_rest([&] { return PyObject_CallFunctionObjArgs(to.ptr(), event.ptr(), nullptr); });
  if (returned != nullptr) {
    const bool is_true = returned == Py_True;
    Py_DECREF(returned);
    return is_true;
  }
  py::error_already_set thrown;
  if (thrown.matches(PyExc_KeyboardInterrupt)) interrupt_main_thread();  // so that serve() raises it
  else thrown.discard_as_unraisable("a callback of tensorpull");
  return false;
}

/// Decides what each peer may have: where clients have to show certificates, as expected_ones_are_certified, and then
/// as Python says. Borrowed by the owner or the session that asks it.
class authoriser {
 public:
  /// `may`: None, or a callable that takes (common name or account, alternative names, user or None, the ID's digits,
  /// recipient) and returns True for what may be.
  authoriser(py::object may, const tls_settings& tls)
      : may_(std::move(may)), certified_(tls && tls->given.require_client_certificates) {}

  bool operator()(const access_request& r) const {
    if (over_ || (certified_ && !expected_ones_are_certified(r))) return false;
    if (!asks()) return true;
    const interpreter_lock lock;
    py::tuple alternatives(r.peer.alternatives.size());
    for (std::size_t i = 0; i < r.peer.alternatives.size(); ++i) alternatives[i] = to_text(r.peer.alternatives[i]);
    std::optional<std::uint32_t> user;
    if (r.peer.kind == identity_kind::user) user = r.peer.user;
    return call_back(may_,
                     py::make_tuple(to_text(r.peer.name), alternatives, user, digits_of(r.ref), r.recipient.value));
  }
  /// Whether it asks Python. Otherwise the owner decides as well by itself.
  bool asks() const noexcept { return !may_.is_none(); }
  void each_object(const auto& f) const noexcept { f(may_); }
  /// Everything is refused afterwards. The caller holds the lock.
  void let_go_of_objects() {
    over_ = true;
    may_ = py::none();
  }

 private:
  py::object may_;
  bool certified_, over_ = false;
};

}  // namespace tensorpull::python
