// Pulls a directory that an owner has published as an image (directory_image.hpp): one version, which has its name
// complete or not at all.
#pragma once

#include <tensorpull/consumers/land.hpp>
#include <tensorpull/satellites/directories/detail/arriving_directory.hpp>
#include <tensorpull/transports/pull_options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string_view>
#include <utility>

namespace tensorpull {

namespace detail {

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
