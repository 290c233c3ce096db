// A directory that appears under its name complete, or not at all: until then its files are in `.NAME.part/files`
// beside it, with how far the transfer is in `.NAME.part/cursor`.
#pragma once

#include <tensorpull/consumers/resume_cursor.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/image/schema.hpp>
#include <tensorpull/satellites/directories/detail/file_names.hpp>
#include <tensorpull/satellites/directories/detail/open_files.hpp>
#include <tensorpull/system/atomic_file.hpp>

#include <sys/file.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorpull::detail {

/// One directory from one transfer. It is one process's at a time, where the file system has locks. Errors carry errno,
/// and the path of the file below the directory, or the directory's name.
class directory_part {
 public:
  directory_part(const directory_part&) = delete;
  directory_part& operator=(const directory_part&) = delete;
  ~directory_part() { leave(); }

  /// Opens what an earlier one has left, or begins anew. `schema`: the files, whose names are checked; borrowed. Makes
  /// each of them, empty if it is not there, and removes all others. Errors: those of check_file_names; io (EEXIST,
  /// ENOTDIR, ELOOP: what has the name is not replaced; EAGAIN: another process has the part; EACCES: the part is
  /// another user's), disk_full, duplicate_name (the file system takes two names for one). Throws std::bad_alloc.
  static result<std::unique_ptr<directory_part>> open(std::string_view path, const image_schema& schema, bool overwrite,
                                                      bool anew) {
    while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
    const std::size_t slash = path.rfind('/');
    const std::string_view name = slash == path.npos ? path : path.substr(slash + 1);
    if (name.empty() || name == "." || name == ".." || path.find('\0') != path.npos)
      return failure(errc::invalid_argument, 0, path);
    if (const auto good = check_file_names(schema); !good) return failure(good.error());
    std::unique_ptr<directory_part> made(new directory_part(name, schema, overwrite));
    const std::string parent(slash == path.npos ? "." : path.substr(0, slash + 1));
    made->parent_ = file_descriptor(
        uninterrupted([&] { return ::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
    int system = made->parent_ ? made->refusal() : errno;
    if (system == 0) system = made->open_part();
    if (system != 0) return file_failure(system, name);
    if (const auto ready = made->make_files(anew); !ready) return failure(ready.error());
    const std::uint64_t all = schema.data_bytes(), lacks = all - std::min(all, made->taken_);
    if (room_for(made->files_.get(), lacks) != 0) return file_failure(ENOSPC, name, all);
    return made;
  }

  /// How far an earlier transfer was, by its own word; empty: not known.
  const resume_cursor& cursor() const noexcept { return found_; }
  /// Whether an earlier transfer has left files here.
  bool was_there() const noexcept { return was_there_; }
  bool exclusive() const noexcept { return locked_; }
  /// Keeps how far the transfer is. Nothing depends on it: a cursor is proved by the bytes.
  void save(const resume_cursor& where) noexcept {
    std::array<std::byte, cursor_bytes> text{};
    const auto encoded = encode(where);
    std::copy(encoded.begin(), encoded.end(), text.begin());
    store_le64(&text[encoded.size()], digest_of(encoded));
    (void)write_all(state_.get(), 0, text);
    worth_keeping_ = true;
  }

  result<void> write(std::size_t i, std::uint64_t at, std::span<const std::byte> bytes) noexcept {
    const int fd = open_file(i), system = fd < 0 ? errno : write_all(fd, at, bytes);
    worth_keeping_ = worth_keeping_ || system == 0;
    return system == 0 ? result<void>{} : file_failure(system, schema_.tensors[i].name, at);
  }
  result<void> read(std::size_t i, std::uint64_t at, std::span<std::byte> out) noexcept {
    const int fd = open_file(i), system = fd < 0 ? errno : read_all(fd, at, out);
    if (system == 0) return {};
    return system == file_ends ? failure(errc::io, at, schema_.tensors[i].name)
                               : file_failure(system, schema_.tensors[i].name, at);
  }
  /// Of file i, for reading at positions until another file is used; -1, and errno, if it cannot be opened.
  int descriptor(std::size_t i) noexcept { return open_file(i); }
  /// Bytes that file i has now.
  std::uint64_t size(std::size_t i) noexcept {
    struct stat about{};
    const int fd = open_file(i);
    return fd >= 0 && ::fstat(fd, &about) == 0 ? static_cast<std::uint64_t>(about.st_size) : 0;
  }
  /// Takes the bytes of file i away.
  result<void> empty(std::size_t i) noexcept {
    const int fd = open_file(i), system = fd < 0 ? errno : resize(fd, 0);
    return system == 0 ? result<void>{} : file_failure(system, schema_.tensors[i].name);
  }
  /// Makes file i a copy of another, which has `bytes` bytes. Where the file system can, the two share their blocks.
  result<void> copy(std::size_t i, int from, std::uint64_t bytes) noexcept {
    const int fd = open_file(i);
    int system = fd < 0 ? errno : resize(fd, 0);
    std::uint64_t at = 0;
    while (system == 0 && at < bytes) {
      loff_t in = static_cast<loff_t>(at), out = in;
      const ssize_t n = uninterrupted([&] {
        return ::copy_file_range(from, &in, fd, &out,
                                 static_cast<std::size_t>(std::min<std::uint64_t>(bytes - at, 1u << 30)), 0);
      });
      if (n <= 0) break;  // a file system, or a pair of them, without that
      at += static_cast<std::uint64_t>(n);
    }
    std::array<std::byte, 64 * 1024> some;
    while (system == 0 && at < bytes) {
      const std::span piece = std::span(some).first(smaller(bytes - at, some.size()));
      std::uint64_t reached = at;
      system = read_all(from, reached, piece);
      if (system == file_ends) system = EIO;
      if (system == 0) system = write_all(fd, at, piece);
      at += piece.size();
    }
    worth_keeping_ = true;
    return system == 0 ? result<void>{} : file_failure(system, schema_.tensors[i].name, at);
  }

  /// Gives the directory its name. `executables`: names, each with a line feed behind it. After an error the name is
  /// what it was, and the files stay in the part.
  result<void> publish(std::string_view executables, bool synchronise) {
    const std::vector<std::string_view> run = listed(executables);
    // of many, all that its file system has takes less time than one after the other (errors are known since Linux 5.8)
    const bool each_alone = synchronise && schema_.tensor_count <= 64;
    for (std::size_t i = 0; i < schema_.tensor_count; ++i) {
      const std::string_view name = schema_.tensors[i].name;
      const int fd = open_file(i);
      struct stat about{};
      int system = fd >= 0 && ::fstat(fd, &about) == 0 ? 0 : errno;
      if (system == 0 && static_cast<std::uint64_t>(about.st_size) != schema_.tensors[i].size_bytes()) system = ESTALE;
      const mode_t mode = std::binary_search(run.begin(), run.end(), name)
                              ? (about.st_mode & 0777) | ((about.st_mode & 0444) >> 2)
                              : about.st_mode & 0666;
      if (system == 0 && (about.st_mode & 0777) != mode && ::fchmod(fd, mode) != 0) system = errno;
      if (system == 0 && each_alone && uninterrupted([&] { return ::fsync(fd); }) != 0) system = errno;
      if (system != 0) return file_failure(system, name);
    }
    open_.close();
    int system = each_alone ? synchronise_below(files_.get()) : 0;
    if (synchronise && !each_alone && ::syncfs(files_.get()) != 0) system = errno;
    if (system == 0) system = refusal();
    if (system == 0) system = rename();
    if (system != 0) return about(system);
    published_ = true;
    // some file systems cannot synchronise a directory: EINVAL
    if (synchronise && uninterrupted([&] { return ::fsync(parent_.get()); }) != 0 && errno != EINVAL) system = errno;
    if (system != 0) return about(system);
    return {};
  }
  /// Leaves nothing behind but what was published.
  void discard() noexcept { worth_keeping_ = was_there_ = false; }

 private:
  static constexpr std::size_t cursor_bytes = resume_cursor::encoded_bytes + sizeof(std::uint64_t);

  directory_part(std::string_view name, const image_schema& schema, bool overwrite)
      : schema_(schema), name_(name), part_('.' + std::string(end_of_name(name, part_stem_bytes)) + ".part"),
        overwrite_(overwrite) {}

  unexpected about(int system) const noexcept { return file_failure(system, std::string_view(name_)); }
  static std::uint64_t digest_of(std::span<const std::byte> bytes) noexcept {
    xxh3_64 h;
    h.update(bytes);
    return h.digest();
  }
  /// The names in a list that has a line feed behind each, in order.
  static std::vector<std::string_view> listed(std::string_view list) {
    std::vector<std::string_view> names;
    for (std::size_t at = 0; at < list.size();) {
      const std::size_t end = std::min(list.find('\n', at), list.size());
      names.push_back(list.substr(at, end - at));
      at = end + 1;
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  /// Why the name cannot be given to the directory now: errno, or 0. Only a directory is ever replaced.
  int refusal() const noexcept {
    struct stat there{};
    if (::fstatat(parent_.get(), name_.c_str(), &there, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? 0 : errno;
    if (S_ISLNK(there.st_mode)) return ELOOP;
    if (!S_ISDIR(there.st_mode)) return ENOTDIR;
    return overwrite_ ? 0 : EEXIST;
  }
  bool leads_to(int at, const char* name, const file_descriptor& fd) const noexcept {
    struct stat held{}, named{};
    return ::fstat(fd.get(), &held) == 0 && ::fstatat(at, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           held.st_dev == named.st_dev && held.st_ino == named.st_ino;
  }
  /// Only a directory of our own, which nobody else may write to, and which no other process has.
  int open_part() noexcept {
    for (int attempt = 0; attempt < 16; ++attempt) {
      if (::mkdirat(parent_.get(), part_.c_str(), 0700) != 0 && errno != EEXIST) return errno;
      folder_ = open_directory(parent_.get(), part_.c_str());
      if (!folder_ && errno == ENOENT) continue;
      struct stat about{};
      if (!folder_ || ::fstat(folder_.get(), &about) != 0) return errno == ENOTDIR || errno == ELOOP ? EACCES : errno;
      if (about.st_uid != ::geteuid() || (about.st_mode & 0022) != 0) return EACCES;
      state_ = file_descriptor(uninterrupted([&] {
        return ::openat(folder_.get(), "cursor", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                        0600);
      }));
      if (!state_ && errno == ENOENT) continue;
      if (!state_) {
        const int system = errno;
        ::unlinkat(parent_.get(), part_.c_str(), AT_REMOVEDIR);  // only if it is empty
        return system;
      }
      if (::fstat(state_.get(), &about) != 0) return errno;
      if (!S_ISREG(about.st_mode) || about.st_nlink > 1) return EACCES;
      locked_ = uninterrupted([&] { return ::flock(state_.get(), LOCK_EX | LOCK_NB); }) == 0;
      if (!locked_ && errno == EWOULDBLOCK) return EAGAIN;
      // the process that had it may have removed it since it was opened
      if (!leads_to(parent_.get(), part_.c_str(), folder_) || !leads_to(folder_.get(), "cursor", state_)) continue;
      ours_ = true;
      if (::mkdirat(folder_.get(), "files", 0777) != 0 && errno != EEXIST) return errno;
      files_ = open_directory(folder_.get(), "files");
      return files_ ? 0 : errno;
    }
    return EAGAIN;
  }
  /// Makes the files, and removes others. The file system has the last word on whether two names are one.
  result<void> make_files(bool anew) {
    std::array<std::byte, cursor_bytes> text{};
    std::uint64_t at = 0;
    if (!anew && read_all(state_.get(), at, text) == 0) {
      const auto encoded = std::span(text).first(resume_cursor::encoded_bytes);
      if (const auto read = decode_cursor(encoded); read && load_le64(&text[encoded.size()]) == digest_of(encoded))
        found_ = *read;
    }
    const auto keeps = [&](const std::string& path) {
      const std::size_t i = anew ? schema_.tensor_count : find_tensor(schema_, path);
      was_there_ = was_there_ || i < schema_.tensor_count;
      return i < schema_.tensor_count;
    };
    if (const int system = remove_entries(files_.get(), {}, keeps); system != 0) return about(system);
    std::vector<std::pair<ino_t, std::size_t>> all;
    all.reserve(schema_.tensor_count);
    for (std::size_t i = 0; i < schema_.tensor_count; ++i) {
      const tensor_entry& file = schema_.tensors[i];
      const auto made = make_file(std::string(file.name), file.size_bytes());
      if (!made) return failure(made.error());
      all.emplace_back(*made, i);
    }
    std::sort(all.begin(), all.end());
    for (std::size_t i = 1; i < all.size(); ++i)
      if (all[i].first == all[i - 1].first)
        return failure(errc::duplicate_name, 0, schema_.tensors[all[i].second].name);
    return {};
  }
  /// Gives its number in the file system.
  result<ino_t> make_file(const std::string& path, std::uint64_t bytes) {
    const auto refuse = [&](int system) { return file_failure(system, std::string_view(path)); };
    file_descriptor below;
    int in = files_.get();
    std::size_t at = 0;
    for (std::size_t slash = path.find('/'); slash != path.npos; slash = path.find('/', at)) {
      const std::string part = path.substr(at, slash - at);
      if (::mkdirat(in, part.c_str(), 0777) != 0 && errno != EEXIST) return refuse(errno);
      file_descriptor next = open_directory(in, part.c_str());
      if (!next) return refuse(errno);
      below = std::move(next);
      in = below.get();
      at = slash + 1;
    }
    const char* const name = path.c_str() + at;
    const auto open = [&] {
      return file_descriptor(uninterrupted(
          [&] { return ::openat(in, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666); }));
    };
    file_descriptor fd = open();
    struct stat about{};
    // a file of a directory that was replaced by a process that died then: it may be read-only, or have other names
    if (fd ? ::fstat(fd.get(), &about) == 0 && about.st_nlink > 1 : errno == EACCES) {
      if (::unlinkat(in, name, 0) != 0) return refuse(errno);
      fd = open();
    }
    if (!fd || ::fstat(fd.get(), &about) != 0) return refuse(errno);
    if (!S_ISREG(about.st_mode) || about.st_nlink > 1) return refuse(EACCES);
    const bool longer = static_cast<std::uint64_t>(about.st_size) > bytes;
    if (const int system = longer ? resize(fd.get(), bytes) : 0; system != 0) return refuse(system);
    taken_ += std::min<std::uint64_t>(static_cast<std::uint64_t>(about.st_blocks) * 512, bytes);
    return about.st_ino;
  }
  int open_file(std::size_t i) noexcept {
    return open_.get(i, [&] {
      // checked to have at most 1024 bytes
      std::array<char, 1025> path{};
      const std::string_view name = schema_.tensors[i].name;
      std::copy(name.begin(), name.end(), path.begin());
      return uninterrupted([&] { return ::openat(files_.get(), path.data(), O_RDWR | O_NOFOLLOW | O_CLOEXEC); });
    });
  }
  /// Writes the names below a directory to the disk. 0, or errno.
  static int synchronise_below(int directory) {
    const int system = each_entry(directory, {},
                                  [](int at, const std::string& name, const std::string&, const struct stat& about) {
                                    if (!S_ISDIR(about.st_mode)) return 0;
                                    const file_descriptor below = open_directory(at, name.c_str());
                                    return below ? synchronise_below(below.get()) : errno;
                                  });
    if (system != 0) return system;
    return uninterrupted([&] { return ::fsync(directory); }) == 0 || errno == EINVAL ? 0 : errno;
  }
  /// 0, or errno. A directory that is replaced is where the part was then, and is removed with that.
  int rename() const noexcept {
    const int to = parent_.get(), from = folder_.get();
    const auto moves = [&](unsigned how) {
      return ::renameat2(from, "files", to, name_.c_str(), how) == 0 ? 0 : errno;
    };
    struct stat there{};
    if (overwrite_ && ::fstatat(to, name_.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0) {
      // whoever may not look into the one may not look into the other; the part itself is private
      if (::fchmod(files_.get(), (there.st_mode & 07777) | S_IRWXU) != 0) return errno;
      return moves(RENAME_EXCHANGE);
    }
    const int system = moves(RENAME_NOREPLACE);
    if (system != EINVAL && system != ENOSYS) return system;
    // a file system without that; a directory that has just appeared is replaced only if it is empty
    return ::renameat(from, "files", to, name_.c_str()) == 0 ? 0 : errno;
  }
  /// Keeps what another transfer can go on with.
  void leave() noexcept {
    open_.close();
    if (!ours_ || (!published_ && (worth_keeping_ || was_there_))) return;
    try {
      (void)remove_entries(folder_.get(), {}, [](const std::string& path) { return path == "cursor"; });
    } catch (const std::bad_alloc&) {
      return;
    }
    ::unlinkat(folder_.get(), "cursor", 0);
    ::unlinkat(parent_.get(), part_.c_str(), AT_REMOVEDIR);
  }

  const image_schema& schema_;
  std::string name_, part_;
  file_descriptor parent_, folder_, files_, state_;
  open_files open_;
  resume_cursor found_{};
  std::uint64_t taken_ = 0;  // of the disk, by files that were there
  bool overwrite_, ours_ = false, locked_ = false, was_there_ = false, worth_keeping_ = false, published_ = false;
};

}  // namespace tensorpull::detail
