// A file that appears under its name complete, or not at all: written beside it under another name, synchronised, then renamed.
#pragma once

#include <tensorpull/system/posix_file.hpp>
#include <tensorpull/system/entropy.hpp>

#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <string_view>

namespace tensorpull::detail {

/// Two descriptors and two names; no heap. The directory is opened once: what happens to the path above it later does not matter.
/// A process that is killed leaves at most `.NAME.PID.RANDOM.part` behind; or `.NAME.part`, which the next one goes on with, if it asks to.
class atomic_file {
 public:
  atomic_file(atomic_file&&) noexcept = default;
  atomic_file& operator=(atomic_file&& other) noexcept {
    discard();
    directory_ = std::move(other.directory_);
    file_ = std::move(other.file_);
    name_ = other.name_;
    temporary_ = other.temporary_;
    overwrite_ = other.overwrite_;
    return *this;
  }
  ~atomic_file() { discard(); }

  /// `resumable`: the other name is `.NAME.part`, and what is there is opened as it is. It is one process's at a time (EAGAIN).
  /// Errors: invalid_argument (no file name); io, or disk_full, with errno and the name. Mode 0644 less the umask.
  static result<atomic_file> create(std::string_view path, bool overwrite, bool resumable = false) noexcept {
    const std::size_t slash = path.rfind('/');
    const std::string_view name = slash == path.npos ? path : path.substr(slash + 1);
    const std::string_view parent = slash == path.npos ? "." : path.substr(0, slash + 1);
    if (name.empty() || name == "." || name == ".." || path.find('\0') != path.npos) return failure(errc::invalid_argument, 0, path);
    if (name.size() > NAME_MAX || parent.size() >= PATH_MAX) return file_failure(ENAMETOOLONG, name);
    atomic_file made(name, overwrite);
    std::array<char, PATH_MAX> directory{};
    std::copy(parent.begin(), parent.end(), directory.begin());
    made.directory_ = file_descriptor(uninterrupted([&] { return ::open(directory.data(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
    if (!made.directory_) return file_failure(errno, name);
    if (const int system = made.refusal(); system != 0) return file_failure(system, name);
    const int system = resumable ? made.open_partial() : made.open_temporary();
    if (system != 0) return file_failure(system, name);
    return made;
  }

  bool open() const noexcept { return static_cast<bool>(file_); }
  error_name name() const noexcept { return std::string_view(name_.data()); }

  /// Bytes that are there.
  std::uint64_t size() const noexcept {
    struct stat about {};
    return ::fstat(file_.get(), &about) == 0 ? static_cast<std::uint64_t>(about.st_size) : 0;
  }
  result<void> reserve(std::uint64_t bytes, bool keep = false) noexcept { return done(detail::reserve(file_.get(), bytes, keep), bytes); }
  result<void> truncate(std::uint64_t bytes) noexcept {
    return done(uninterrupted([&] { return ::ftruncate(file_.get(), static_cast<off_t>(bytes)); }) == 0 ? 0 : errno, bytes);
  }
  result<void> read(std::uint64_t at, std::span<std::byte> out) const noexcept { return done(read_all(file_.get(), at, out), at); }
  result<void> write(std::uint64_t at, std::span<const std::byte> bytes) noexcept { return done(write_all(file_.get(), at, bytes), at); }

  /// Closes the file and gives it its name. After an error the name is what it was before (or, where only the directory's own
  /// synchronisation failed, the complete file), and nothing else is left behind.
  result<void> publish(bool synchronise) noexcept {
    int system = 0;
    if (synchronise && uninterrupted([&] { return ::fsync(file_.get()); }) != 0) system = errno;
    if (const int closing = file_.close(); system == 0) system = closing;
    if (system == 0) system = refusal();
    if (system == 0) system = rename();
    if (system != 0) {
      discard();
      return file_failure(system, name());
    }
    temporary_[0] = '\0';
    // some file systems cannot synchronise a directory: EINVAL
    if (synchronise && uninterrupted([&] { return ::fsync(directory_.get()); }) != 0 && errno != EINVAL) system = errno;
    directory_.close();
    return done(system, 0);
  }

  /// Closes it and leaves it under its other name.
  void leave() noexcept {
    temporary_[0] = '\0';
    file_.close();
    directory_.close();
  }
  /// Leaves nothing behind, unless it was published.
  void discard() noexcept {
    if (directory_ && temporary_[0] != '\0') ::unlinkat(directory_.get(), temporary_.data(), 0);
    temporary_[0] = '\0';
    file_.close();
    directory_.close();
  }

 private:
  atomic_file(std::string_view name, bool overwrite) noexcept : overwrite_(overwrite) { std::copy(name.begin(), name.end(), name_.begin()); }

  result<void> done(int system, std::uint64_t at) const noexcept { return system == 0 ? result<void>{} : file_failure(system, name(), at); }

  /// Why the name cannot be given to a file now: errno, or 0. Only a regular file that may be written is ever replaced: not a symbolic
  /// link (neither followed nor destroyed), a directory, a device.
  int refusal() const noexcept {
    struct stat there {};
    if (::fstatat(directory_.get(), name_.data(), &there, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? 0 : errno;
    if (S_ISLNK(there.st_mode)) return ELOOP;
    if (S_ISDIR(there.st_mode)) return EISDIR;
    if (!S_ISREG(there.st_mode)) return EINVAL;
    if (!overwrite_) return EEXIST;
    return (there.st_mode & 0222) == 0 ? EACCES : 0;
  }

  int open_temporary() noexcept {
    for (int attempt = 0; attempt < 16; ++attempt) {
      std::snprintf(temporary_.data(), temporary_.size(), ".%.200s.%ld.%016llx.part", name_.data(), static_cast<long>(::getpid()),
                    static_cast<unsigned long long>(system_entropy{}()));
      file_ = file_descriptor(uninterrupted(
          [&] { return ::openat(directory_.get(), temporary_.data(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644); }));
      if (file_) return 0;
      if (errno != EEXIST) break;
    }
    temporary_[0] = '\0';
    return errno;
  }

  /// Only a file of our own: who could write to another's would write what we take for received.
  int open_partial() noexcept {
    int system = EAGAIN;
    std::snprintf(temporary_.data(), temporary_.size(), ".%.240s.part", name_.data());
    for (int attempt = 0; attempt < 16; ++attempt) {
      file_ = file_descriptor(uninterrupted(
          [&] { return ::openat(directory_.get(), temporary_.data(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0644); }));
      struct stat opened {}, named {};
      if (!file_ || ::fstat(file_.get(), &opened) != 0) { system = errno; break; }
      if (!S_ISREG(opened.st_mode) || opened.st_nlink > 1 || opened.st_uid != ::geteuid()) { system = EACCES; break; }
      if (uninterrupted([&] { return ::flock(file_.get(), LOCK_EX | LOCK_NB); }) != 0) { system = errno; break; }
      // whoever had it may have given it its final name, or removed it, since it was opened
      if (::fstatat(directory_.get(), temporary_.data(), &named, AT_SYMLINK_NOFOLLOW) == 0 && named.st_ino == opened.st_ino && named.st_dev == opened.st_dev) return 0;
    }
    temporary_[0] = '\0';
    file_.close();
    return system;
  }

  int rename() noexcept {
    const int d = directory_.get();
    if (overwrite_) return ::renameat(d, temporary_.data(), d, name_.data()) == 0 ? 0 : errno;
#ifdef RENAME_NOREPLACE
    if (::renameat2(d, temporary_.data(), d, name_.data(), RENAME_NOREPLACE) == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS) return errno;
#endif
    if (::linkat(d, temporary_.data(), d, name_.data(), 0) != 0) return errno;
    ::unlinkat(d, temporary_.data(), 0);
    return 0;
  }

  file_descriptor directory_, file_;
  std::array<char, NAME_MAX + 1> name_{}, temporary_{};
  bool overwrite_;
};

}  // namespace tensorpull::detail
