// Files below a directory that are read and written in any order, by few descriptors.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/system/detail/file_descriptor.hpp>
#include <tensorpull/system/files.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tensorpull::detail {

/// At most 16 files that are open at a time; the one that was used longest ago is closed for another. Once one is open,
/// a process that has no descriptors left (others connect to it) can still open each.
class open_files {
 public:
  /// Descriptor of file i, if it is open; otherwise what `open()` gives is kept: -1, and errno, if there is none.
  template <class Open>
  int get(std::size_t i, Open open) noexcept {
    slot* oldest = slots_.data();
    for (slot& s : slots_) {
      if (s.fd && s.of == i) {
        s.used = ++now_;
        return s.fd.get();
      }
      if (s.used < oldest->used) oldest = &s;
    }
    file_descriptor made(open());
    while (!made && (errno == EMFILE || errno == ENFILE)) {
      slot* least = nullptr;
      for (slot& s : slots_)
        if (s.fd && (least == nullptr || s.used < least->used)) least = &s;
      if (least == nullptr) return -1;
      least->fd.close();
      made = file_descriptor(open());
    }
    if (!made) return -1;
    oldest->fd.close();
    oldest->fd = std::move(made);
    oldest->of = i;
    oldest->used = ++now_;
    return oldest->fd.get();
  }
  void close() noexcept {
    for (slot& s : slots_) s.fd.close();
  }

 private:
  struct slot {
    file_descriptor fd{};
    std::size_t of = 0;
    std::uint64_t used = 0;
  };
  std::array<slot, 16> slots_{};
  std::uint64_t now_ = 0;
};

/// Opens the directory, and no link.
inline file_descriptor open_directory(int at, const char* name) noexcept {
  return file_descriptor(
      uninterrupted([&] { return ::openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }));
}

/// Opens a file to read it, if it is a regular one of so many bytes. It may be behind a link.
inline file_descriptor open_regular(int at, const char* path, std::uint64_t bytes) noexcept {
  file_descriptor fd(uninterrupted([&] { return ::openat(at, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); }));
  struct stat about{};
  const bool is = fd && ::fstat(fd.get(), &about) == 0 && S_ISREG(about.st_mode) &&
                  static_cast<std::uint64_t>(about.st_size) == bytes;
  return is ? std::move(fd) : file_descriptor();
}

/// Calls entry(directory, name, path, about) for all that a directory has, but for `.` and `..`: 0 to go on, or errno.
/// Opens one descriptor, and closes it. Returns what a call returned, or errno. Throws std::bad_alloc.
template <class Entry>
int each_entry(int directory, const std::string& above, Entry entry) {
  file_descriptor again(uninterrupted([&] { return ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!again) return errno;
  struct closing {
    DIR* d;
    ~closing() {
      if (d != nullptr) ::closedir(d);
    }
  } list{::fdopendir(again.get())};
  if (list.d == nullptr) return errno;
  (void)again.release();
  for (;;) {
    errno = 0;
    const dirent* const found = ::readdir(list.d);
    if (found == nullptr) return errno;
    const std::string name = found->d_name;
    if (name == "." || name == "..") continue;
    struct stat about{};
    if (::fstatat(directory, name.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) continue;
      return errno;
    }
    if (const int stop = entry(directory, name, above.empty() ? name : above + '/' + name, about); stop != 0)
      return stop;
  }
}

/// Removes all that a directory of ours has, but for what `keeps(path)`; directories that are empty then, too. Links
/// are removed, and not followed. 0, or errno. Throws std::bad_alloc.
template <class Keeps>
int remove_entries(int directory, const std::string& above, Keeps keeps) {
  return each_entry(directory, above,
                    [&](int at, const std::string& name, const std::string& path, const struct stat& about) {
                      if (S_ISDIR(about.st_mode)) {
                        const file_descriptor below = open_directory(at, name.c_str());
                        if (!below) return errno;
                        // one that is read-only could not be emptied
                        if ((about.st_mode & S_IRWXU) != S_IRWXU) (void)::fchmod(below.get(), S_IRWXU);
                        if (const int system = remove_entries(below.get(), path, keeps); system != 0) return system;
                        if (::unlinkat(at, name.c_str(), AT_REMOVEDIR) == 0) return 0;
                        return errno == ENOTEMPTY || errno == EEXIST ? 0 : errno;
                      }
                      if (S_ISREG(about.st_mode) && keeps(path)) return 0;
                      return ::unlinkat(at, name.c_str(), 0) == 0 ? 0 : errno;
                    });
}

}  // namespace tensorpull::detail
