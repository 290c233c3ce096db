// A file that is there already, compared with what is published: the pull fetches its last byte alone, and the owner is
// told that we have it all.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/consumers/resume_cursor.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/image/view.hpp>
#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/system/files.hpp>

#include <cstdint>
#include <span>
#include <utility>

namespace tensorpull {

/// A consumer of one pull with the cursor that look() gives. The pull succeeds if the file is what is published, and
/// fails with stale_version if it is not, or if it has changed since look(). Nothing is written. Owns the descriptor;
/// no heap.
class finished_file {
 public:
  static constexpr bool irrevocable = false;  ///< nothing is taken

  /// The file's own record of how far it is. Cost: a pass over its bytes. Errors: those of positioned_file, and
  /// cancelled if `stop` asks for it meanwhile.
  static result<resume_cursor> look(const finished_file& at, const ref_id& ref, const stop_token& stop = {}) {
    const auto version = image_version<xxh3_64>(at.read_back(), stop);
    if (!version) return failure(version.error());
    return resume_cursor{ref, 0, *version, at.file_.size(), *version};
  }
  /// Takes the file over, as it was opened.
  explicit finished_file(positioned_file file) noexcept : file_(std::move(file)) {
    bytes_.end = file_.size();
    bytes_.indirect = true;
    schema_.tensors = &bytes_;
    schema_.tensor_count = 1;
    schema_.image_bytes = file_.size();
  }
  finished_file(const finished_file&) = delete;
  finished_file& operator=(const finished_file&) = delete;

  static std::uint64_t fingerprint() noexcept { return 0; }
  static const image_schema* schema() noexcept { return nullptr; }
  result<void> begin(const description& d) const noexcept {
    return d.image_bytes == file_.size() ? result<void>{} : result<void>(failure(errc::stale_version));
  }
  prepared prepare(std::uint64_t, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    return detail::prepare_in({&last_, 1}, length, out);
  }
  /// Other bytes than the last one arrive only if the file has changed since its digest was computed.
  result<void> commit(std::uint64_t offset, std::span<const std::byte>) const noexcept {
    return offset + 1 == file_.size() ? result<void>{} : result<void>(failure(errc::stale_version));
  }
  static result<void> chunk(std::uint64_t, std::uint64_t) noexcept { return {}; }
  static result<void> finish(const receipt&) noexcept { return {}; }
  static void abandon(const error&) noexcept {}
  /// The file as an image of plain bytes.
  source_view read_back() const noexcept { return {&schema_, nullptr, &where_, &reader_}; }

 private:
  static result<void> read(const void* file, std::uintptr_t, std::uint64_t offset, std::span<std::byte> out) noexcept {
    return static_cast<const positioned_file*>(file)->read_at(offset, out);
  }

  positioned_file file_;
  tensor_entry bytes_{};
  image_schema schema_{};
  std::uintptr_t where_ = 0;
  source_reader reader_{&read, &file_};
  std::byte last_{};
};
static_assert(consumer<finished_file>);

}  // namespace tensorpull
