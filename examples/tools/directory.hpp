// Directories: send publishes all files below one under one reference, and recv makes it again. It is compiled where
// the component is there (TENSORPULL_TOOLS_DIRECTORIES).
#pragma once

#include "error_text.hpp"
#include "link_choice.hpp"
#include "tensor_file.hpp"

#include <tensorpull/consumers/receipt.hpp>

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tools {

/// Refuses a directory in a build without them.
inline void need_directories() {
  if (!TENSORPULL_TOOLS_DIRECTORIES) throw option_error("a directory: this program was built without them");
}
inline bool is_directory(const std::string& path) {
  struct stat about{};
  return ::stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode);
}

/// Which files, by patterns of their paths below the directory.
struct path_patterns {
  std::vector<std::string> include, exclude;
  bool any() const { return !include.empty() || !exclude.empty(); }
};

/// Opens a directory whose files are to be published.
tp::result<tensor_file> open_directory(const std::string& path, const path_patterns& files, bool follow_links);

/// Why a directory cannot be published.
inline std::string directory_error_text(const std::string& path, const error& e) {
  const std::string name = printable(e.name.view()), below = printable(path) + "/" + name;
  switch (e.code) {
    case errc::invalid_argument:
      return e.name.view() == tensorpull::error_name(std::string_view(path)).view()
                 ? printable(path) + " has no file that is chosen"
                 : below + " has a name that could not be a file's everywhere: leave it out with --exclude";
    case errc::duplicate_name:
      return below + " has a name that another one has, too, where capital letters are like small ones";
    case errc::does_not_fit: return printable(path) + " has more files than a header has room for";
    case errc::io:
      if (e.system == ELOOP) return below + " is a symbolic link: --follow-links sends the file that it leads to";
      if (e.system == EINVAL) return below + " is no regular file: leave it out with --exclude";
      if (e.system == 0) return below + " changed while it was read";
      return (e.name.empty() || name == printable(path) ? printable(path) : below) +
             " cannot be read: " + reason_text(e);
    default: return file_error_text(path, e);
  }
}

struct wanted_directory {
  const link_choice& link;
  tp::reference ref;
  const tp::pull_options& options;
  std::uint64_t chunk, most_bytes;
  const std::string &path, &base;
  const path_patterns& files;
  bool overwrite, anew;
  /// of what has arrived: where, how many bytes, of how many
  const std::function<void(std::uint64_t, std::uint64_t, std::uint64_t)>& landed;
};
struct brought_directory {
  tp::receipt last;
  std::uint64_t files, bytes, kept;
  std::string commit{};  ///< of a hub's model
};
/// Errors: those of receive_directory.
tp::result<brought_directory> bring_directory(const wanted_directory& wanted);

}  // namespace tools
