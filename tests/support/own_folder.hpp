// Names that no other test has: a folder, which goes with its object, and sockets.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <system_error>

namespace test {

class own_folder {
 public:
  own_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tensorpull.XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  own_folder(const own_folder&) = delete;
  ~own_folder() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }
  const std::filesystem::path& path() const { return path_; }
  std::string operator/(const char* name) const { return (path_ / name).string(); }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::filesystem::path path_;
};

/// The name of a Unix socket that is no file.
inline std::string abstract_name() {
  std::random_device random;
  return "@tensorpull-" + std::to_string(std::uint64_t{random()} << 32 | random());
}

}  // namespace test
