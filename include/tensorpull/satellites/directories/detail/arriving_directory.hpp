// A directory on its way: which of its files are there already, and which are still to be fetched.
#pragma once

#include <tensorpull/consumers/any_schema/published_schema.hpp>
#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/protocol/recipient/pull_request.hpp>
#include <tensorpull/protocol/retry.hpp>
#include <tensorpull/satellites/directories/detail/directory_part.hpp>
#include <tensorpull/satellites/directories/directory_options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorpull::detail {

/// Opens directory_options::base: nothing, if there is none.
inline result<file_descriptor> open_base(std::string_view base) {
  if (base.empty()) return file_descriptor();
  const std::string path(base);
  file_descriptor fd(uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!fd) return file_failure(errno, base);
  return fd;
}

/// Feeds the first bytes of an open file to a digest.
template <class Digest>
result<void> feed_file(Digest& digest, int fd, std::uint64_t bytes, std::string_view name, const stop_token& stop) {
  std::vector<std::byte> some(static_cast<std::size_t>(std::min<std::uint64_t>(bytes, 256 * 1024)));
  for (std::uint64_t at = 0; at < bytes;) {
    if (stop.stop_requested()) return failure(errc::cancelled);
    const std::span piece = std::span(some).first(smaller(bytes - at, some.size()));
    if (const int system = read_all(fd, at, piece); system != 0)
      return system == file_ends ? failure(errc::io, at, name) : file_failure(system, name, at);
    digest.update(piece);
  }
  return {};
}

/// Some files of a destination as a model of their own.
struct some_files {
  std::vector<tensor_entry> entries;
  std::vector<std::uintptr_t> where;
  image_schema schema{};

  void take(const destination_view& all, std::size_t i) {
    entries.push_back(all.schema->tensors[i]);
    where.push_back(all.where[i]);
  }
  result<destination_view> of(const destination_view& all) {
    const auto placed = place_entries(entries, {});
    if (!placed) return failure(placed.error());
    schema = *placed;
    return destination_view{&schema, all.base, where.data(), all.writer, nullptr};
  }
};

/// A directory that is received: what is published, and the part that it becomes.
class arriving_directory {
 public:
  arriving_directory(const published_schema& seen, const directory_options& options) noexcept
      : seen_(seen), options_(options) {}

  result<void> begin(std::string_view path) {
    const image_schema& all = seen_.schema_of_image();
    for (const metadata_entry& pair : all.pairs()) {
      if (pair.key == directory_key && pair.value == "1") is_directory_ = true;
      if (pair.key == executables_key) executables_ = pair.value;
    }
    digests_ = tensor_digests_of(all);
    if (!is_directory_ || digests_.empty()) return failure(errc::schema_mismatch, 0, directory_key);
    std::vector<mutable_tensor_view> views;
    for (std::size_t i = 0; i < all.tensor_count; ++i) {
      const tensor_entry& t = all.tensors[i];
      if (t.type != dtype::u8 || t.rank != 1) return failure(errc::schema_mismatch, i, t.name);
      if (!options_.files(t.name)) continue;
      views.push_back({.name = t.name,
                       .type = t.type,
                       .shape = t.extents(),
                       .data = reinterpret_cast<std::byte*>(chosen_.size()),
                       .indirect = true});
      chosen_.push_back(i);
    }
    if (chosen_.empty()) return failure(errc::invalid_argument, 0, path);
    staging_.resize(256 * 1024);
    reader_ = {&read, this};
    auto made = dynamic_image::make(std::span<const mutable_tensor_view>(views),
                                    is_whole() ? all.pairs() : std::span<const metadata_entry>(),
                                    destination_writer{&write, this, staging_, &reader_});
    if (!made) return failure(made.error());
    image_.emplace(std::move(*made));
    if (bytes() > options_.max_bytes) return failure(errc::too_large, bytes(), path);
    // an owner that writes headers in another way, or one that lies
    if (is_whole() && image_->schema().image_bytes != all.image_bytes) return failure(errc::schema_mismatch, 0, path);
    auto part = directory_part::open(path, image_->schema(), options_.overwrite, options_.anew);
    if (!part) return failure(part.error());
    part_ = std::move(*part);
    return {};
  }

  bool is_whole() const noexcept { return chosen_.size() == seen_.schema_of_image().tensor_count; }
  std::uint64_t files() const noexcept { return chosen_.size(); }
  std::uint64_t bytes() const noexcept { return image_->schema().data_bytes(); }
  destination_view destination() noexcept { return image_->destination(); }
  directory_part& part() noexcept { return *part_; }
  result<void> publish() noexcept {
    try {
      return part_->publish(executables_, options_.fsync);
    } catch (const std::bad_alloc&) {
      return failure(errc::out_of_memory);
    }
  }

  /// Finds files that are there with the published digest, and copies those of the base. Gives the others. `kept`:
  /// bytes that need not be fetched.
  result<some_files> find_missing(const stop_token& stop, std::uint64_t& kept) {
    const auto base = open_base(options_.base);
    if (!base) return failure(base.error());
    some_files missing;
    for (std::size_t i = 0; i < chosen_.size(); ++i) {
      const std::uint64_t size = image_->schema().tensors[i].size_bytes();
      auto there = has_digest(i, stop);
      if (there && !*there && *base && size != 0) there = copy_from(base->get(), i, stop);
      if (!there) return failure(there.error());
      if (*there) kept += size;
      else missing.take(destination(), i);
    }
    return missing;
  }
  /// Empties files that are fetched whole, so that the length of one is how far it is.
  result<void> empty(const some_files& missing) noexcept {
    for (const std::uintptr_t i : missing.where)
      if (const auto ok = part_->empty(i); !ok) return ok;
    return {};
  }
  /// Goes on with the file of `missing` of which a beginning is there: `pull(destination, slice)` pulls its rest. If
  /// the file has the published digest then, it is not missing any more, and `kept` counts its beginning. Otherwise all
  /// of it is fetched, as from an owner that knows no slices. Errors: those after which nothing can be fetched.
  template <class Pull>
  result<void> finish_begun(some_files& missing, const stop_token& stop, std::uint64_t& kept, Pull pull) {
    const auto is_begun = [&](std::size_t at) {
      const std::uint64_t there = part_->size(missing.where[at]);
      return there != 0 && there < missing.entries[at].size_bytes();
    };
    std::size_t at = 0;
    while (at < missing.entries.size() && !is_begun(at)) ++at;
    if (at == missing.entries.size()) return {};
    const std::size_t file = missing.where[at];
    const std::uint64_t there = part_->size(file);
    some_files rest;
    rest.take(destination(), file);
    tensor_entry& t = rest.entries[0];
    const tensor_slice slice{t.name, there, t.size_bytes()};
    const std::uint64_t bytes = slice.end - there;
    t.shape = &bytes;
    t.end = t.begin + bytes;
    const auto to = rest.of(destination());
    if (!to) return failure(to.error());
    begun_ = {file, there};
    const result<void> came = pull(*to, slice);
    begun_ = {};
    const errc why = came ? errc{} : came.error().code;
    if (stop.stop_requested() || is_passing(why) || why == errc::io || why == errc::disk_full) return came;
    const auto good = has_digest(file, stop);
    if (!good) return failure(good.error());
    if (!*good) return {};
    kept += there;
    missing.entries.erase(missing.entries.begin() + static_cast<std::ptrdiff_t>(at));
    missing.where.erase(missing.where.begin() + static_cast<std::ptrdiff_t>(at));
    return {};
  }
  /// digest_mismatch, with a name: a file has other bytes than the owner has stated.
  result<void> check_digests(const stop_token& stop) noexcept {
    for (std::size_t i = 0; i < chosen_.size(); ++i) {
      const auto good = has_digest(i, stop);
      if (!good) return failure(good.error());
      if (!*good) return failure(errc::digest_mismatch, 0, image_->schema().tensors[i].name);
    }
    return {};
  }

 private:
  result<bool> has_digest(std::size_t i, const stop_token& stop) noexcept {
    if (part_->size(i) != image_->schema().tensors[i].size_bytes()) return false;
    const auto is = tensor_digest_of<xxhash_digest, 64 * 1024>(image_->source(), i, stop);
    if (!is && is.error().code == errc::cancelled) return failure(is.error());
    return is && says_digest(digests_, chosen_[i], *is);
  }
  /// Copies a file of the base, if it has the published digest: not an error if it cannot be read.
  result<bool> copy_from(int base, std::size_t i, const stop_token& stop) {
    const tensor_entry& t = image_->schema().tensors[i];
    const std::string name(t.name);
    const file_descriptor from = open_regular(base, name.c_str(), t.size_bytes());
    if (!from) return false;
    xxhash_digest h;
    if (const auto fed = feed_file(h, from.get(), t.size_bytes(), t.name, stop); !fed)
      return fed.error() == errc::cancelled ? result<bool>(failure(fed.error())) : false;
    if (!says_digest(digests_, chosen_[i], h.digest())) return false;
    if (const auto copied = part_->copy(i, from.get(), t.size_bytes()); !copied) return failure(copied.error());
    return true;
  }
  static result<void> write(void* self, std::uintptr_t file, std::uint64_t offset,
                            std::span<const std::byte> bytes) noexcept {
    const auto& to = *static_cast<arriving_directory*>(self);
    return to.part_->write(file, offset + to.begun_.before(file), bytes);
  }
  static result<void> read(const void* self, std::uintptr_t file, std::uint64_t offset,
                           std::span<std::byte> out) noexcept {
    const auto& from = *static_cast<const arriving_directory*>(self);
    return from.part_->read(file, offset + from.begun_.before(file), out);
  }
  /// The file whose rest is pulled now, by itself.
  struct begun_file {
    std::size_t file = 0;
    std::uint64_t bytes = 0;  ///< that are there
    std::uint64_t before(std::size_t i) const noexcept { return i == file ? bytes : 0; }
  };

  const published_schema& seen_;
  const directory_options& options_;
  bool is_directory_ = false;
  std::string_view executables_, digests_;
  std::vector<std::size_t> chosen_;  // in image order, which is that of the names
  std::vector<std::byte> staging_;
  begun_file begun_{};
  source_reader reader_{};
  std::optional<dynamic_image> image_;
  std::unique_ptr<directory_part> part_;  // borrows the image's schema
};

}  // namespace tensorpull::detail
