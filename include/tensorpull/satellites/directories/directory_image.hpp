// The files below a directory as an image: each is a tensor of bytes whose name is its path. They are read at their
// positions when they are sent.
#pragma once

#include <tensorpull/image/choice.hpp>
#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/integrity/tensor_digests.hpp>
#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>
#include <tensorpull/satellites/directories/detail/file_names.hpp>
#include <tensorpull/satellites/directories/detail/open_files.hpp>

#include <algorithm>
#include <climits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensorpull {

/// The metadata's key by which an image of files is known; its value is the form, "1".
inline constexpr std::string_view directory_key = "tensorpull.files";
/// The metadata's key whose value has the names of the files that can be executed, each with a line feed behind it.
inline constexpr std::string_view executables_key = "tensorpull.executables";

/// Which files, by their paths below the directory; patterns as in fits_pattern(), where `*` stands for slashes, too.
struct file_choice {
  std::span<const std::string_view> include{};  ///< those whose paths fit one; empty: all
  std::span<const std::string_view> exclude{};  ///< and fit none of these

  constexpr bool operator()(std::string_view path) const noexcept {
    return (include.empty() || chooses({.patterns = include}, path)) && !chooses({.patterns = exclude}, path);
  }
};

/// Which files of a directory are published.
struct directory_image_options {
  file_choice files{};  ///< by their paths below it
  /// Reads the files to which symbolic links lead, as caches of models have them. Otherwise a link is an error. Links
  /// to directories are one in any case.
  bool follow_links = false;
};

/// Movable; schema and views stay valid when it is moved. Memory: about 250 bytes a file and twice its path; 17
/// descriptors. The files must not change while they are published: one that does cannot be read any more (io), and
/// changed() has its path.
class directory_image {
 public:
  /// Reads each file once for its digest. Directories that have no file are not published. Errors, with the path of
  /// the file below the directory: io with errno (ELOOP: a link; EINVAL: a pipe, a socket, a device), also if a file
  /// changes meanwhile (no errno); invalid_argument: a name that could not be a file's everywhere, or, with
  /// the directory's path, no file at all; duplicate_name: two names that differ in case alone; those of
  /// dynamic_image::make.
  [[nodiscard]] static result<directory_image> open(std::string_view path,
                                                    const directory_image_options& options = {}) noexcept {
    try {
      if (path.empty() || path.find('\0') != path.npos) return failure(errc::invalid_argument, 0, path);
      auto made = std::make_unique<state>();
      const std::string text(path);
      made->root = detail::file_descriptor(
          detail::uninterrupted([&] { return ::open(text.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
      if (!made->root) return detail::file_failure(errno, path);
      if (const auto done = made->load(options); !done) return failure(done.error());
      if (made->files.empty()) return failure(errc::invalid_argument, 0, path);
      return directory_image(std::move(made));
    } catch (const std::bad_alloc&) {
      return failure(errc::out_of_memory);
    }
  }

  const image_schema& schema() const noexcept { return *source().schema; }
  const source_view& source() const noexcept { return state_->with_digests->source(); }
  /// How many there are.
  std::size_t files() const noexcept { return state_->files.size(); }
  /// The path of the first file that was found changed; empty: none so far.
  std::string_view changed() const noexcept {
    const std::scoped_lock lock(state_->mutex);
    return state_->changed == nullptr ? std::string_view() : std::string_view(state_->changed->path);
  }

 private:
  /// A file as it was found. One that replaces it, or has changed, differs.
  struct file {
    std::string path;
    std::uint64_t bytes = 0;
    dev_t device{};
    ino_t inode{};
    timespec modified{}, changed{};

    bool is(const struct stat& now) const noexcept {
      const auto same = [](const timespec& a, const timespec& b) {
        return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
      };
      return S_ISREG(now.st_mode) && static_cast<std::uint64_t>(now.st_size) == bytes && now.st_dev == device &&
             now.st_ino == inode && same(now.st_mtim, modified) && same(now.st_ctim, changed);
    }
  };
  struct state {
    detail::file_descriptor root;
    std::vector<file> files;
    std::string executables;
    bool follow_links = false;
    std::optional<dynamic_image> image;
    std::optional<image_with_tensor_digests> with_digests;
    mutable std::mutex mutex;  // of what follows
    mutable detail::open_files open;
    mutable const file* changed = nullptr;

    result<void> load(const directory_image_options& options) {
      follow_links = options.follow_links;
      if (const auto walked = walk(root.get(), {}, options, 0); !walked) return walked;
      std::vector<tensor_view> views;
      std::vector<std::uint64_t> sizes;
      sizes.reserve(files.size());
      for (std::size_t i = 0; i < files.size(); ++i) {
        sizes.push_back(files[i].bytes);
        views.push_back({.name = files[i].path,
                         .type = dtype::u8,
                         .shape = {&sizes[i], 1},
                         .data = reinterpret_cast<const std::byte*>(i),
                         .indirect = true});
      }
      std::vector<metadata_entry> pairs{{directory_key, "1"}};
      if (!executables.empty()) pairs.push_back({executables_key, executables});
      auto made = dynamic_image::make(views, pairs, source_reader{&read, this});
      if (!made) return failure(made.error());
      image.emplace(std::move(*made));
      if (const auto good = detail::check_file_names(image->schema()); !good) return good;
      auto with = image_with_tensor_digests::make<xxhash_digest, 64 * 1024>(image->source());
      if (!with && changed != nullptr) return failure(errc::io, 0, std::string_view(changed->path));
      if (!with) return failure(with.error());
      with_digests.emplace(std::move(*with));
      return {};
    }
    result<void> walk(int at, const std::string& above, const directory_image_options& options, std::size_t depth) {
      result<void> how;
      const auto refuse = [&](error why) {
        how = failure(why);
        return EINVAL;
      };
      const int system = detail::each_entry(
          at, above, [&](int in, const std::string& name, const std::string& path, struct stat about) {
            if (S_ISDIR(about.st_mode)) {
              if (depth + 1 == detail::deepest_file)
                return refuse({errc::invalid_argument, 0, 0, std::string_view(path)});
              const detail::file_descriptor below = detail::open_directory(in, name.c_str());
              if (!below) return refuse({errc::io, errno, 0, std::string_view(path)});
              how = walk(below.get(), path, options, depth + 1);
              return how ? 0 : EINVAL;
            }
            if (!options.files(path)) return 0;
            if (!detail::is_file_name(path)) return refuse({errc::invalid_argument, 0, 0, std::string_view(path)});
            const bool link = S_ISLNK(about.st_mode);
            if (link && !options.follow_links) return refuse({errc::io, ELOOP, 0, std::string_view(path)});
            if (link && ::fstatat(in, name.c_str(), &about, 0) != 0)
              return refuse({errc::io, errno, 0, std::string_view(path)});
            if (!S_ISREG(about.st_mode))
              return refuse({errc::io, S_ISDIR(about.st_mode) ? ELOOP : EINVAL, 0, std::string_view(path)});
            files.push_back({path, static_cast<std::uint64_t>(about.st_size), about.st_dev, about.st_ino, about.st_mtim,
                             about.st_ctim});
            if ((about.st_mode & S_IXUSR) != 0) executables += path + '\n';
            return 0;
          });
      return system == 0 || !how ? how : detail::file_failure(system, std::string_view(above));
    }
    static result<void> read(const void* self, std::uintptr_t token, std::uint64_t offset,
                             std::span<std::byte> out) noexcept {
      const state& s = *static_cast<const state*>(self);
      const file& from = s.files[token];
      const std::scoped_lock lock(s.mutex);
      const int links = s.follow_links ? 0 : O_NOFOLLOW;
      const int fd = s.open.get(token, [&] {
        return detail::uninterrupted([&] {
          return ::openat(s.root.get(), from.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | links);
        });
      });
      struct stat now{};
      std::uint64_t reached = offset;
      const int system = fd < 0 ? errno : detail::read_all(fd, reached, out);
      if (system == 0 && ::fstat(fd, &now) == 0 && from.is(now)) return {};
      if (s.changed == nullptr) s.changed = &from;
      return failure(errc::io, reached, std::string_view(from.path), system > 0 ? system : 0);
    }
  };

  explicit directory_image(std::unique_ptr<state> s) noexcept : state_(std::move(s)) {}

  std::unique_ptr<state> state_;
};

}  // namespace tensorpull
