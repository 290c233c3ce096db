// A file that appears under its name complete, or not at all: it is written next to that under another name, then
// renamed. Whether it can be is tried before anything is written.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/system/detail/file_descriptor.hpp>
#include <tensorpull/system/entropy.hpp>
#include <tensorpull/system/files.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string_view>
#include <utility>

namespace tensorpull::detail {

/// The file system's record of a file's last change. Changes within one tick of its clock (milliseconds; before Linux
/// 6.13) may have the same one.
struct file_stamp {
  /// Seconds and nanoseconds; -1: they are not known.
  std::int64_t modified = -1, modified_part = 0, changed = 0, changed_part = 0;
  std::uint64_t bytes = 0;

  friend bool operator==(const file_stamp&, const file_stamp&) noexcept = default;
};
inline file_stamp stamp_of(int fd) noexcept {
  struct stat about{};
  if (::fstat(fd, &about) != 0) return {};
  return {about.st_mtim.tv_sec, about.st_mtim.tv_nsec, about.st_ctim.tv_sec, about.st_ctim.tv_nsec,
          static_cast<std::uint64_t>(about.st_size)};
}

/// The end of a file's name, of at most `most` bytes, from the first byte of a character.
constexpr std::string_view end_of_name(std::string_view name, std::size_t most) noexcept {
  if (name.size() <= most) return name;
  name.remove_prefix(name.size() - most);
  while (!name.empty() && (static_cast<unsigned char>(name.front()) & 0xc0) == 0x80) name.remove_prefix(1);
  return name;
}
/// Of a name, what is in `.NAME.part`: some file systems have names of 143 bytes at most (eCryptfs).
inline constexpr std::size_t part_stem_bytes = 137;

/// Two descriptors and two names; no heap. The directory is opened once: what happens to the path above it later does
/// not matter. A process that is killed leaves at most `.NAME.PID.RANDOM.part` behind; or `.NAME.part`, which the next
/// process continues, if it asks to. Both are cut where NAME is long.
class atomic_file {
 public:
  atomic_file(atomic_file&&) noexcept = default;
  atomic_file& operator=(atomic_file&& other) noexcept {
    discard();
    directory_ = std::move(other.directory_);
    file_ = std::move(other.file_);
    name_ = other.name_;
    temporary_ = other.temporary_;
    left_ = other.left_;
    touched_ = other.touched_;
    overwrite_ = other.overwrite_;
    locked_ = other.locked_;
    return *this;
  }
  ~atomic_file() { discard(); }

  /// `resumable`: the other name is `.NAME.part`, and what is there is opened as it is. It is one process's at a time
  /// (EAGAIN), where the file system has locks. Errors: invalid_argument (no file name); io, or disk_full, with errno
  /// and the name, also if an empty file shows that names cannot be given in this directory. Its permissions are those
  /// of the file that it is to replace, from the start; if there is none, 0644 less the umask.
  static result<atomic_file> create(std::string_view path, bool overwrite, bool resumable = false) noexcept {
    const std::size_t slash = path.rfind('/');
    const std::string_view name = slash == path.npos ? path : path.substr(slash + 1);
    const std::string_view parent = slash == path.npos ? "." : path.substr(0, slash + 1);
    if (name.empty() || name == "." || name == ".." || path.find('\0') != path.npos)
      return failure(errc::invalid_argument, 0, path);
    if (name.size() > NAME_MAX || parent.size() >= PATH_MAX) return file_failure(ENAMETOOLONG, name);
    atomic_file made(name, overwrite);
    std::array<char, PATH_MAX> directory{};
    std::copy(parent.begin(), parent.end(), directory.begin());
    made.directory_ = file_descriptor(
        uninterrupted([&] { return ::open(directory.data(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
    if (!made.directory_) return file_failure(errno, name);
    if (const int system = made.refusal(); system != 0) return file_failure(system, name);
    if (const int system = resumable ? made.open_partial() : made.open_temporary(); system != 0)
      return file_failure(system, name);
    made.left_ = stamp_of(made.file_.get());
    return made;
  }

  bool open() const noexcept { return static_cast<bool>(file_); }
  error_name name() const noexcept { return std::string_view(name_.data()); }
  /// Whether no other process that locks the file can have it meanwhile.
  bool locked() const noexcept { return locked_; }

  /// Bytes that are there.
  std::uint64_t size() const noexcept {
    struct stat about{};
    return ::fstat(file_.get(), &about) == 0 ? static_cast<std::uint64_t>(about.st_size) : 0;
  }
  /// Makes it `bytes` long if there is room for that now. Takes none: the blocks come with the bytes.
  result<void> extend(std::uint64_t bytes) noexcept {
    if (const int system = room_for(file_.get(), bytes); system != 0) return done(system, bytes);
    return change(bytes, [&] { return resize(file_.get(), bytes); });
  }
  result<void> read(std::uint64_t at, std::span<std::byte> out) const noexcept {
    std::uint64_t reached = at;
    const int system = read_all(file_.get(), reached, out);
    return done(system == file_ends ? EIO : system, at);
  }
  result<void> write(std::uint64_t at, std::span<const std::byte> bytes) noexcept {
    return change(at, [&] { return write_all(file_.get(), at, bytes); });
  }
  /// Whether the file was changed by anybody else since create(), as far as its times say; also by a change of its
  /// permissions. A change in the very moment of one of our own is not seen. Once true, it stays so.
  bool touched() noexcept {
    touched_ = touched_ || left_.modified == -1 || stamp_of(file_.get()) != left_;
    return touched_;
  }

  /// Cuts the file, which has to be `length` bytes long, to `bytes`, and writes it to the disk if `synchronise`.
  /// ESTALE: another process has removed, replaced or cut the file.
  result<void> complete(std::uint64_t length, std::uint64_t bytes, bool synchronise) noexcept {
    if (!has_name(length)) return done(ESTALE, bytes);
    if (const auto ok = change(bytes, [&] { return resize(file_.get(), bytes); }); !ok) return ok;
    // some file systems say only at a close what they could not write; without a descriptor for one it is synchronised
    file_descriptor second(synchronise ? -1 : ::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
    if (second) return done(second.close(), bytes);
    return done(uninterrupted([&] { return ::fsync(file_.get()); }) == 0 ? 0 : errno, bytes);
  }
  /// Gives the file, which has to be `bytes` long, its name, and closes it. After an error the name is what it was
  /// before, and the file stays open under its other one; or, if only the directory's own synchronisation failed, the
  /// complete file has its name. ESTALE as complete().
  result<void> publish(std::uint64_t bytes, bool synchronise) noexcept {
    int system = has_name(bytes) ? refusal() : ESTALE;
    if (system == 0) system = rename(temporary_, name_, overwrite_);
    if (system != 0) return done(system, bytes);
    temporary_[0] = '\0';
    file_.close();
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
  /// Leaves nothing behind, unless it was published. A file that another process has put there is that one's.
  void discard() noexcept {
    if (temporary_[0] != '\0' && has_name()) ::unlinkat(directory_.get(), temporary_.data(), 0);
    temporary_[0] = '\0';
    file_.close();
    directory_.close();
  }

 private:
  using name_text = std::array<char, NAME_MAX + 1>;

  atomic_file(std::string_view name, bool overwrite) noexcept : overwrite_(overwrite) {
    std::copy(name.begin(), name.end(), name_.begin());
  }

  /// Makes a change of ours, and keeps what the file's times say after it.
  template <class Change>
  result<void> change(std::uint64_t at, Change make) noexcept {
    (void)touched();
    const int system = make();
    left_ = stamp_of(file_.get());
    return done(system, at);
  }
  result<void> done(int system, std::uint64_t at) const noexcept {
    return system == 0 ? result<void>{} : file_failure(system, name(), at);
  }

  /// Whether its other name leads to it, and it is `bytes` long if that is stated.
  bool has_name(std::uint64_t bytes = ~std::uint64_t{0}) const noexcept { return leads_to(temporary_, file_, bytes); }
  bool leads_to(const name_text& name, const file_descriptor& file,
                std::uint64_t bytes = ~std::uint64_t{0}) const noexcept {
    struct stat held{}, named{};
    if (::fstat(file.get(), &held) != 0 || ::fstatat(directory_.get(), name.data(), &named, AT_SYMLINK_NOFOLLOW) != 0)
      return false;
    return held.st_dev == named.st_dev && held.st_ino == named.st_ino &&
           (bytes == ~std::uint64_t{0} || static_cast<std::uint64_t>(held.st_size) == bytes);
  }

  /// Why the name cannot be given to a file now: errno, or 0. Only a regular file that may be written is ever replaced:
  /// not a symbolic link (neither followed nor destroyed), a directory, a device, one that the system would not let go.
  int refusal() const noexcept {
    struct stat there{}, folder{};
    if (::fstatat(directory_.get(), name_.data(), &there, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? 0 : errno;
    if (S_ISLNK(there.st_mode)) return ELOOP;
    if (S_ISDIR(there.st_mode)) return EISDIR;
    if (!S_ISREG(there.st_mode)) return EINVAL;
    if (!overwrite_) return EEXIST;
    if ((there.st_mode & 0222) == 0) return EACCES;
#ifdef STATX_ATTR_MOUNT_ROOT
    struct statx more{};
    if (::statx(directory_.get(), name_.data(), AT_SYMLINK_NOFOLLOW, 0, &more) == 0) {
      if ((more.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0) return EBUSY;
      if ((more.stx_attributes & (STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND)) != 0) return EPERM;
    }
#endif
    const uid_t us = ::geteuid();
    const bool sticky = ::fstat(directory_.get(), &folder) == 0 && (folder.st_mode & S_ISVTX) != 0;
    return sticky && us != 0 && us != there.st_uid && us != folder.st_uid ? EPERM : 0;
  }

  /// The permissions that it is to have.
  mode_t mode() const noexcept {
    struct stat there{};
    const bool replaces = ::fstatat(directory_.get(), name_.data(), &there, AT_SYMLINK_NOFOLLOW) == 0;
    return replaces ? there.st_mode & 0777 : mode_t{0644};
  }
  /// Gives it those of the file that it is to replace, which the umask, or an earlier program that began it, has not
  /// given it. 0, or errno.
  int copy_mode() const noexcept {
    struct stat there{}, held{};
    if (::fstatat(directory_.get(), name_.data(), &there, AT_SYMLINK_NOFOLLOW) != 0) return 0;
    if (::fstat(file_.get(), &held) != 0) return errno;
    const bool same = ((there.st_mode ^ held.st_mode) & 0777) == 0;
    return same || ::fchmod(file_.get(), there.st_mode & 0777) == 0 ? 0 : errno;
  }

  /// It is created under a name that it does not keep: where it cannot have another one, it cannot have its final one.
  /// 0, or errno; EEXIST, ENOENT: another process has done the same.
  int begin(bool replaces) noexcept {
    name_text first = temporary_;
    first[std::string_view(first.data()).size() - 1] = '~';
    file_ = file_descriptor(uninterrupted([&] {
      return ::openat(directory_.get(), first.data(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode());
    }));
    const int system = file_ ? rename(first, temporary_, replaces) : errno;
    if (system != 0) ::unlinkat(directory_.get(), first.data(), 0);  // or one of a process that was killed here
    return system;
  }
  int open_temporary() noexcept {
    const std::string_view stem = end_of_name(name_.data(), 100);
    int system = EEXIST;
    for (int attempt = 0; attempt < 16 && system == EEXIST; ++attempt) {
      std::snprintf(temporary_.data(), temporary_.size(), ".%.*s.%ld.%016llx.part", static_cast<int>(stem.size()),
                    stem.data(), static_cast<long>(::getpid()), static_cast<unsigned long long>(system_entropy{}()));
      system = begin(overwrite_);
    }
    if (system == 0) return copy_mode();
    temporary_[0] = '\0';
    return system;
  }

  /// Whether files of this process have that owner here. It need not be the process's user: NFS has another one for
  /// root's files, and exFAT one for everybody's.
  bool is_ours(uid_t owner) const noexcept {
    if (owner == ::geteuid()) return true;
    std::array<char, 32> name;
    std::snprintf(name.data(), name.size(), ".%016llx.part~", static_cast<unsigned long long>(system_entropy{}()));
    const file_descriptor one(::openat(directory_.get(), name.data(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    struct stat made{};
    const bool same = one && ::fstat(one.get(), &made) == 0 && made.st_uid == owner;
    if (one) ::unlinkat(directory_.get(), name.data(), 0);
    return same;
  }
  /// Only a file of our own: the owner of another file could change what we take for received.
  int open_partial() noexcept {
    int system = EAGAIN;
    const std::string_view stem = end_of_name(name_.data(), part_stem_bytes);
    std::snprintf(temporary_.data(), temporary_.size(), ".%.*s.part", static_cast<int>(stem.size()), stem.data());
    for (int attempt = 0; attempt < 16; ++attempt) {
      file_ = file_descriptor(uninterrupted([&] {
        return ::openat(directory_.get(), temporary_.data(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
      }));
      if (!file_ && errno == ENOENT) {
        system = begin(false);
        if (system == EEXIST || system == ENOENT) continue;
        if (system != 0) break;
      }
      struct stat opened{};
      if (!file_ || ::fstat(file_.get(), &opened) != 0) system = errno;
      else if (!S_ISREG(opened.st_mode) || opened.st_nlink > 1 || !is_ours(opened.st_uid)) system = EACCES;
      else if (locked_ = uninterrupted([&] { return ::flock(file_.get(), LOCK_EX | LOCK_NB); }) == 0;
               !locked_ && errno == EWOULDBLOCK)
        system = EAGAIN;
      // the program that had it may have given it its final name, or removed it, since it was opened
      else if (!has_name()) continue;
      else if (system = copy_mode(); system == 0) return 0;
      break;
    }
    temporary_[0] = '\0';
    file_.close();
    return system;
  }

  /// 0, or errno. If it replaces nothing, the file system has the last word on whether the name is free.
  int rename(const name_text& from, const name_text& to, bool replaces) const noexcept {
    const int d = directory_.get();
    const auto moves = [&] { return ::renameat(d, from.data(), d, to.data()) == 0; };
    if (replaces) return moves() ? 0 : errno;
    if (const int why = rename_unless_taken(d, from.data(), to.data()); why == 0 || why == EEXIST) return why;
    // It has neither (exFAT, many of FUSE). An empty file of ours takes the name for the moment, so nobody else's does.
    file_descriptor empty(::openat(d, to.data(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode()));
    if (!empty) return errno;
    if (!leads_to(to, empty, 0)) return EEXIST;
    if (moves()) return 0;
    const int system = errno;
    if (leads_to(to, empty, 0)) ::unlinkat(d, to.data(), 0);
    return system;
  }

  file_descriptor directory_, file_;
  name_text name_{}, temporary_{};
  file_stamp left_{};  // after the last change of ours
  bool overwrite_, touched_ = false, locked_ = false;
};

}  // namespace tensorpull::detail
