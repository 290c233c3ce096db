// Keeps an entry of the process's table of descriptors for one that will be opened later.
#pragma once

#include <tensorpull/system/detail/file_descriptor.hpp>

#include <sys/eventfd.h>

namespace tensorpull::detail {

/// A descriptor of nothing, which keeps an entry until it is let go of. Movable.
class kept_descriptor {
 public:
  /// Keeps an entry, unless it does so already. False: none is left, with errno.
  bool keep() noexcept {
    if (!fd_) fd_ = file_descriptor(::eventfd(0, EFD_CLOEXEC));
    return static_cast<bool>(fd_);
  }
  /// The next descriptor that is opened takes the entry. False: none was kept.
  bool let_go() noexcept {
    const bool kept = static_cast<bool>(fd_);
    (void)fd_.close();
    return kept;
  }

 private:
  file_descriptor fd_;
};

}  // namespace tensorpull::detail
