// The interpreter's lock, taken and released by threads that may outlive the interpreter: daemons of the caller's own,
// and threads of other libraries. Up to Python 3.13 the interpreter, while it ends, ends a thread that takes its lock,
// by unwinding: in the middle of code that throws nothing this would abort the process. So such a thread waits for the
// process's end instead, as Python 3.14 has it, and touches nothing that the interpreter is about to free.
#pragma once

#include <pybind11/pybind11.h>

#include <cxxabi.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <optional>
#include <thread>

namespace tensorpull::python {

namespace py = pybind11;

/// Waits until the process has ended.
[[noreturn]] inline void rest() noexcept {
  for (;;) ::pause();
}

/// Calls f, in which Python's code may run; rests if the interpreter ends this thread in it. The caller holds the lock,
/// or f takes it.
template <class F>
decltype(auto) or_rest(F&& f) {
  try {
    return f();
  } catch (abi::__forced_unwind&) {
    rest();
  }
}

/// The interpreter's end, by which thread it comes, and whether it has.
class interpreters_end {
 public:
  /// To be called once, when the module is made.
  static void watch() {
    py::module_::import("atexit").attr("register")(py::cpp_function([] { come(); }));
  }
  /// What other threads than the one that ends the interpreter begin no more once it ends, and what the end waits for,
  /// up to a second: calls of code that would abort the process if it were ended in them, as torch's are.
  class not_within {
   public:
    not_within() noexcept {
      ++under_way();
      const std::thread::id who = by();
      if (who == std::thread::id() || who == std::this_thread::get_id()) return;
      --under_way();
      rest();
    }
    not_within(const not_within&) = delete;
    not_within& operator=(const not_within&) = delete;
    ~not_within() { --under_way(); }
  };
  /// Whether another thread is ending the interpreter, or has.
  static bool has_come() noexcept {
    const std::thread::id who = by();
    return who != std::thread::id() && who != std::this_thread::get_id() && is_ending();
  }

 private:
  static void come() {
    by() = std::this_thread::get_id();
    const py::gil_scoped_release unlocked;
    for (int i = 0; i < 1000 && under_way() != 0; ++i) ::usleep(1000);
  }
  static std::atomic<int>& under_way() noexcept {
    static std::atomic<int> calls{0};
    return calls;
  }
  static std::atomic<std::thread::id>& by() noexcept {
    static std::atomic<std::thread::id> thread{};
    return thread;
  }
  static bool is_ending() noexcept {
#if PY_VERSION_HEX >= 0x030d0000
    return Py_IsFinalizing() != 0 || Py_IsInitialized() == 0;
#else
    return _Py_IsFinalizing() != 0 || Py_IsInitialized() == 0;
#endif
  }
};

/// Holds the interpreter's lock while it lives.
class interpreter_lock {
 public:
  interpreter_lock() {
    if (interpreters_end::has_come()) rest();
    or_rest([this] { lock_.emplace(); });
  }
  interpreter_lock(const interpreter_lock&) = delete;
  interpreter_lock& operator=(const interpreter_lock&) = delete;

 private:
  std::optional<py::gil_scoped_acquire> lock_;
};

/// Leaves the interpreter's lock to others while it lives. The caller holds it.
class interpreter_unlock {
 public:
  interpreter_unlock() noexcept : thread_(PyEval_SaveThread()) {}
  interpreter_unlock(const interpreter_unlock&) = delete;
  interpreter_unlock& operator=(const interpreter_unlock&) = delete;
  ~interpreter_unlock() {
    if (interpreters_end::has_come()) rest();
    or_rest([this] { PyEval_RestoreThread(thread_); });
  }

 private:
  PyThreadState* thread_;
};
/// Calls f without the interpreter's lock, which the caller holds.
template <class F>
auto without_lock(F f) {
  const interpreter_unlock others;
  return f();
}

/// What Ctrl-C does, for a KeyboardInterrupt that code of another place has raised: the main thread raises it. By a
/// signal to that thread, so that it is heard in a call of the system that waits, such as time.sleep(), which
/// PyErr_SetInterrupt() leaves waiting. A process that does not listen to SIGINT in Python hears nothing. The caller
/// holds the lock.
inline void interrupt_main_thread() noexcept {
  try {
    or_rest([] {
      const auto signal = py::module_::import("signal");
      const int number = signal.attr("SIGINT").cast<int>();
      if (PyCallable_Check(signal.attr("getsignal")(number).ptr()) == 0) return;
      signal.attr("pthread_kill")(py::module_::import("threading").attr("main_thread")().attr("ident"), number);
    });
  } catch (const py::error_already_set&) {
    // Of the thread that calls this, if it is the main one: its own KeyboardInterrupt.
    PyErr_SetInterrupt();
  } catch (const std::exception&) {
    PyErr_SetInterrupt();
  }
}

}  // namespace tensorpull::python
