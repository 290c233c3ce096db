// Keeps the exceptions of kj inside this library: a call either succeeded, or it did not.
#pragma once

#include <kj/exception.h>

namespace tensorpull::detail {

/// While it lives, recoverable kj errors on this thread are noted and not thrown. Readers then continue with default
/// values.
class quiet_kj final : public kj::ExceptionCallback {
 public:
  bool failed() const noexcept { return failed_; }

  void onRecoverableException(kj::Exception&&) override { failed_ = true; }
  void logMessage(kj::LogSeverity, const char*, int, int, kj::String&&) override {}

 private:
  bool failed_ = false;
};

/// Calls f(). False: kj reported an error meanwhile, or f threw.
template <class F>
bool quietly(F&& f) noexcept {
  quiet_kj guard;
#if defined(__cpp_exceptions)
  try {
    f();
  } catch (...) {
    return false;
  }
#else
  f();
#endif
  return !guard.failed();
}

}  // namespace tensorpull::detail
