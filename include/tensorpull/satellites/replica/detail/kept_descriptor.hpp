// Keeps a place in the process's table of descriptors for one that will be opened later.
#pragma once

#include <tensorpull/system/detail/file_descriptor.hpp>

#include <sys/eventfd.h>

namespace tensorpull::detail {

/// A descriptor of nothing, which keeps a place until it is let go of. Movable.
class kept_descriptor {
 public:
  /// Keeps a place, unless it does so already. False: none is left; errno says why.
  bool keep() noexcept {
    if (!fd_) fd_ = file_descriptor(::eventfd(0, EFD_CLOEXEC));
    return static_cast<bool>(fd_);
  }
  /// The next descriptor that is opened takes the place. False: none was kept.
  bool let_go() noexcept {
    const bool kept = static_cast<bool>(fd_);
    (void)fd_.close();
    return kept;
  }

 private:
  file_descriptor fd_;
};

}  // namespace tensorpull::detail
