// The address of a Unix socket as users write it: a path, or "@name" for a name that is no file.
#pragma once

#include <tensorpull/core/result.hpp>

#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <string_view>

namespace tensorpull {

/// A path of at most 107 bytes, or a name behind an at sign: an abstract name (Linux, unix(7)), which is in no folder,
/// has no permissions, and is gone with its listener. A file whose name begins with '@' is written as "./@name".
class unix_address {
 public:
  /// bytes of a path, or of a name with its '@'
  static constexpr std::size_t longest = sizeof(sockaddr_un::sun_path) - 1;

  /// Error: bad_address with the text: it is empty, too long (`at`: its length), has a zero byte, or is '@' alone.
  static result<unix_address> of(std::string_view text) noexcept {
    if (text.size() > longest) return failure(errc::bad_address, text.size(), text);
    if (text.empty() || text == "@" || text.find('\0') != std::string_view::npos)
      return failure(errc::bad_address, 0, text);
    unix_address out;
    std::memcpy(out.to_.sun_path, text.data(), text.size());
    out.text_bytes_ = static_cast<unsigned char>(text.size());
    if (text.front() == '@') out.to_.sun_path[0] = '\0';
    return out;
  }

  /// Whether it is a name and no file.
  bool is_abstract() const noexcept { return to_.sun_path[0] == '\0'; }
  /// The path with a terminating zero; empty for an abstract name. Valid as long as this object is.
  const char* path() const noexcept { return to_.sun_path; }
  /// For bind() and connect().
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&to_); }
  /// Its length: an abstract name has no zero at its end.
  socklen_t size() const noexcept {
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text_bytes_ + (is_abstract() ? 0u : 1u));
  }

 private:
  unix_address() noexcept = default;
  sockaddr_un to_{AF_UNIX, {}};
  unsigned char text_bytes_ = 0;
};

}  // namespace tensorpull
