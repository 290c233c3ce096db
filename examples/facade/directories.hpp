// The choice of a directory's files, from patterns that a program has as strings.
#pragma once

#include <tensorpull/satellites/directories/directory_image.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace tensorpull::facade {

/// Borrows the strings.
class chosen_files {
 public:
  chosen_files(const std::vector<std::string>& include, const std::vector<std::string>& exclude)
      : include_(include.begin(), include.end()), exclude_(exclude.begin(), exclude.end()) {}
  file_choice choice() const noexcept { return {include_, exclude_}; }

 private:
  std::vector<std::string_view> include_, exclude_;
};

}  // namespace tensorpull::facade
