// Keeps everything that kj throws inside this library: its exceptions become one boolean.
#pragma once

#include <kj/exception.h>

namespace tensorpull::detail {

/// While it lives, recoverable kj errors on this thread are noted instead of thrown; readers then go on with default values.
class quiet_kj final : public kj::ExceptionCallback {
 public:
  bool failed() const noexcept { return failed_; }

  void onRecoverableException(kj::Exception&&) override { failed_ = true; }
  void logMessage(kj::LogSeverity, const char*, int, int, kj::String&&) override {}

 private:
  bool failed_ = false;
};

/// Calls f(); false if kj found anything wrong on the way.
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
