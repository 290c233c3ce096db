// Pulls a directory that an owner has published as an image (directory_image.hpp): one version, which has its name
// complete or not at all.
#pragma once

#include <tensorpull/consumers/any_schema/published_schema.hpp>
#include <tensorpull/consumers/land.hpp>
#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/protocol/retry.hpp>
#include <tensorpull/satellites/directories/detail/directory_part.hpp>
#include <tensorpull/satellites/directories/directory_image.hpp>
#include <tensorpull/std/functional.hpp>
#include <tensorpull/transports/pull_options.hpp>

#include <array>
#include <concepts>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorpull {

/// Bytes that have just arrived, of a pull of `total`: those before its first are there already.
struct landed_range {
  std::uint64_t offset = 0;  ///< of the first of them
  std::uint64_t bytes = 0;   ///< how many
  std::uint64_t total = 0;   ///< of the pull
};

/// How a directory is received.
struct directory_options {
  /// Only these. Their digests are compared with those that the owner states, since the version is that of all files.
  file_choice files{};
  /// A directory that has some of the files already, perhaps the one that is replaced; empty: none. A
  /// file that has the published digest is copied from there, and not fetched.
  std::string_view base{};
  /// Replace a directory of that name, in one step; otherwise that is an error (EEXIST).
  bool overwrite = false;
  /// Fetch everything, in place of what an earlier transfer has left.
  bool anew = false;
  /// Wait until files and names are on the disk.
  bool fsync = true;
  /// Of all files together; more is refused (too_large).
  std::uint64_t max_bytes = ~std::uint64_t{0};
  /// More files are refused (too_large).
  std::uint64_t max_files = 100'000;
  /// Called on the pulling thread for all that arrives but the names. It must not throw.
  callback<const landed_range&> landed{};
};

/// Which part of it a pull is.
enum class directory_phase : std::uint8_t {
  look,  ///< for the names; ask for short chunks, of 64 KiB
  some,  ///< of some files, by name: from one owner
  whole
};

/// How it went.
struct directory_receipt {
  receipt last{};  ///< of the last pull
  std::uint64_t files = 0;  ///< that the directory has
  std::uint64_t bytes = 0;  ///< of all of them
  std::uint64_t kept = 0;  ///< of these bytes, those that were there already, in the part or in the base
};

namespace detail {

/// Opens directory_options::base: nothing, if there is none.
inline result<file_descriptor> open_base(std::string_view base) {
  if (base.empty()) return file_descriptor();
  const std::string path(base);
  file_descriptor fd(uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!fd) return file_failure(errno, base);
  return fd;
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

/// Lands in files. `End`: result<void> end(), when all of it has landed.
template <class End>
class files_landing : public land {
 public:
  /// `cursor` is saved when bytes land, and again with every MiB. `forgets`: the owner is told to forget that it was
  /// asked, since another pull follows.
  files_landing(const destination_view& to, directory_part& part, const directory_options& options,
                const resume_cursor& cursor, bool forgets, End end) noexcept
      : land(to), part_(part), options_(options), cursor_(cursor), forgets_(forgets), end_(std::move(end)) {}

  bool complete() const noexcept { return complete_; }
  bool looked() const noexcept { return forgets_; }
  result<void> begin(const description& d) noexcept {
    total_ = d.image_bytes;
    return land::begin(d);
  }
  result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    // the pull moves the cursor behind a chunk once that is complete
    const std::uint64_t at = cursor_.offset;
    if (at < saved_ || at - saved_ >= 1u << 20) save();
    if (options_.landed) options_.landed(landed_range{offset, bytes.size(), total_});
    return land::commit(offset, bytes);
  }
  result<void> finish(const receipt& r) noexcept {
    if (const auto good = land::finish(r); !good) return good;
    const auto ended = end_();
    complete_ = bool(ended);
    return ended && forgets_ ? failure(errc::cancelled) : ended;
  }

 private:
  void save() noexcept {
    part_.save(cursor_);
    saved_ = cursor_.offset;
  }

  directory_part& part_;
  const directory_options& options_;
  const resume_cursor& cursor_;
  bool forgets_, complete_ = false;
  std::uint64_t saved_ = ~std::uint64_t{0}, total_ = 0;
  End end_;
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
    std::vector<std::byte> some(256 * 1024);
    for (std::uint64_t at = 0; at < t.size_bytes();) {
      if (stop.stop_requested()) return failure(errc::cancelled);
      const std::span piece = std::span(some).first(smaller(t.size_bytes() - at, some.size()));
      if (read_all(from.get(), at, piece) != 0) return false;
      h.update(piece);
    }
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

template <class Pull>
result<directory_receipt> receive(Pull& pull, const reference& ref, std::string_view path, const directory_options& how,
                                  pull_options options) {
  const stop_token stop = options.stop;
  published_schema seen({.max_tensors = how.max_files});
  {
    pull_options look = options;
    look.window = 1;
    look.unverified = true;
    look.cursor = nullptr;
    look.progress = {};
    const result<receipt> looked = pull(seen, ref, look, directory_phase::look);
    if (!seen.complete()) return failure(looked ? error{errc::schema_mismatch, 0, 0, directory_key} : looked.error());
  }
  const description& d = seen.described();
  if (d.version == 0 || !d.verifiable) return failure(errc::not_verifiable);
  options.version = d.version;
  if (!options.recipient) options.recipient = recipient_id{system_entropy{}() | 1};  // one, of all pulls
  arriving_directory to(seen, how);
  if (const auto begun = to.begin(path); !begun) return failure(begun.error());
  directory_part& part = to.part();
  directory_receipt out{.files = to.files(), .bytes = to.bytes()};

  resume_cursor cursor = part.cursor();
  if (!to.is_whole() || cursor.version != d.version || cursor.fingerprint != d.fingerprint) cursor = {};
  if (!cursor && (part.was_there() || !how.base.empty() || !to.is_whole())) {
    auto missing = to.find_missing(stop, out.kept);
    if (!missing) return failure(missing.error());
    pull_options by_name = options;
    by_name.part = true;
    by_name.cursor = nullptr;
    const resume_cursor begun{ref.id, 0, d.version, 1, 0};  // whose version the beginnings of files are of
    const auto pull_rest = [&](const destination_view& rest, const tensor_slice& slice) -> result<void> {
      const auto end = [&]() noexcept { return result<void>{}; };
      files_landing landing(rest, part, how, begun, true, end);
      pull_options of_slice = by_name;
      of_slice.slices = {&slice, 1};
      const result<receipt> came = pull(landing, ref, of_slice, directory_phase::some);
      if (landing.complete()) return {};
      return failure(came ? error{errc::cancelled, 0, 0, {}} : came.error());
    };
    if (part.cursor().version == d.version)
      if (const auto ok = to.finish_begun(*missing, stop, out.kept, pull_rest); !ok) return failure(ok.error());
    if (const auto ok = to.empty(*missing); !ok) return failure(ok.error());
    if (missing->entries.empty() && !to.is_whole()) {
      missing->take(to.destination(), 0);  // so that the owner hears of the recipient
      for (std::size_t i = 1; i < to.files(); ++i) {
        const tensor_entry &least = missing->entries[0], &t = to.destination().schema->tensors[i];
        if (least.size_bytes() != 0 && (t.size_bytes() == 0 || t.size_bytes() >= least.size_bytes())) continue;
        missing->entries.clear(), missing->where.clear();
        missing->take(to.destination(), i);
      }
    }
    bool complete = missing->entries.empty();
    if (!complete && (!to.is_whole() || missing->entries.size() < to.files())) {
      const auto some = missing->of(to.destination());
      if (!some) return failure(some.error());
      const auto end = [&]() noexcept -> result<void> {
        if (to.is_whole()) return {};
        if (const auto good = to.check_digests(stop); !good) return good;
        return to.publish();
      };
      files_landing landing(*some, part, how, begun, to.is_whole(), end);
      const result<receipt> came = pull(landing, ref, by_name, directory_phase::some);
      complete = landing.complete();
      if (!to.is_whole()) {
        if (!came) return failure(came.error());
        out.last = *came;
        return out;
      }
      const errc why = came ? errc{} : came.error().code;
      // an owner that cannot give some is asked for all
      if (!complete && (stop.stop_requested() || is_passing(why) || why == errc::io || why == errc::disk_full))
        return failure(came.error());
    }
    // the whole pull compares all of it, and fetches the last byte; or everything, if it is not what was published
    if (complete) cursor = {ref.id, d.fingerprint, d.version, d.image_bytes, d.version};
  }
  if (cursor) cursor.ref = ref.id;  // an owner that was started again may have another reference
  options.cursor = &cursor;
  const auto end = [&]() noexcept { return to.publish(); };
  files_landing landing(to.destination(), part, how, cursor, false, end);
  const std::uint64_t first = cursor.offset;
  const result<receipt> came = pull(landing, ref, options, directory_phase::whole);
  if (!came) {
    if (cursor) part.save(cursor);
    if (came.error().code == errc::digest_mismatch) part.discard();
    return failure(came.error());
  }
  out.last = *came;
  if (first != 0 && out.kept == 0) out.kept = first - std::min(first, d.data_start);
  return out;
}

}  // namespace detail

/// Receives a directory. `pull(consumer, ref, options, phase)` is a pull of a pipeline that compares the digest of the
/// whole: result<receipt>. It is called once for the names, maybe for the rest of a file and for some files, and once
/// for the whole. Until it is complete, the directory is `.NAME.part` beside it. That stays if the transfer fails or
/// the process is killed, and the next call goes on with it at the byte where it was; with a choice of files or a base,
/// and an owner that knows no slices, at the first file that is not complete. Nothing is left if nothing had arrived.
/// Errors: those of the pulls; schema_mismatch (no directory is published there); invalid_argument (no file is chosen,
/// or, with a name, one that leads elsewhere); duplicate_name (two names that are one on some file system);
/// digest_mismatch with a name; too_large; io and disk_full with errno and the file's path.
template <class Pull>
[[nodiscard]] result<directory_receipt> receive_directory(Pull pull, const reference& ref, std::string_view path,
                                                          const directory_options& how = {},
                                                          const pull_options& options = {}) noexcept {
  try {
    return detail::receive(pull, ref, path, how, options);
  } catch (const std::bad_alloc&) {
    return failure(errc::out_of_memory);
  }
}

}  // namespace tensorpull
