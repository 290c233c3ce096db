// Writes a small file so that a reader sees all of it or nothing: writes it under another name, then renames it.
#pragma once

#include <sys/stat.h>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace federated {

/// Throws std::runtime_error with the path and the system's reason. A path that is not a regular file is written to
/// directly.
inline void write_file(const std::string& path, std::string_view text) {
  struct stat found{};
  const bool special = ::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode);
  const std::string unfinished = special ? path : path + ".part";
  const auto fail = [&](const char* doing) {
    const std::string reason = std::strerror(errno);
    if (!special) std::remove(unfinished.c_str());
    throw std::runtime_error("cannot " + std::string(doing) + " " + path + ": " + reason);
  };
  std::ofstream file{unfinished, std::ios::binary | std::ios::trunc};
  if (!file) fail("open");
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) fail("write");
  if (!special && std::rename(unfinished.c_str(), path.c_str()) != 0) fail("write");
}

/// Tells a script which port the server listens on: writes the number and a line feed.
inline void write_port_file(const std::string& path, std::uint16_t port) {
  write_file(path, std::to_string(port) + "\n");
}

}  // namespace federated
