// Writes the image to disk as the safetensors file that it is. At any time its name leads to the complete file or to
// what was there before. For hosts.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/consumers/resume_cursor.hpp>
#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/image/detail/file_bytes.hpp>
#include <tensorpull/image/header.hpp>
#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/std/functional.hpp>
#include <tensorpull/system/atomic_file.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

namespace tensorpull {

/// How a safetensors_file is written.
struct safetensors_file_options {
  /// Replace a regular file of that name; otherwise create() or finish() fails with EEXIST if there is one.
  bool overwrite = true;
  /// Let finish() wait until file and name are on the disk, so that they survive a loss of power.
  bool fsync = true;
  /// Longer images are refused (too_large): the owner, not the recipient, chooses the length. The file system's free
  /// room is a limit anyway.
  std::uint64_t max_bytes = ~std::uint64_t{0};
  /// The only schema to take, borrowed. Null: any. Needed for a subset, whose header does not travel and is written
  /// from it.
  const image_schema* schema = nullptr;
  /// Keeps what has arrived in `.NAME.part` when the transfer fails or the process ends, and continues with what an
  /// earlier one has left there. Borrowed, outlives the file. create() sets it to where the earlier transfer stopped;
  /// give it to the pull as its `cursor`. It is kept in the part, behind the last byte of the image, and is believed
  /// only if the digest of the bytes before it agrees.
  resume_cursor* resume = nullptr;
  /// Bytes that are collected for one write.
  std::size_t buffer_bytes = 64 * 1024;
};

/// One file from one transfer. Holds two descriptors and a buffer, all taken by create(). Until finish() succeeds the
/// bytes lie in `.NAME.PID.RANDOM.part` alongside it, or with `resume` in `.NAME.part`. abandon() and the destructor
/// remove that; with `resume` they keep it if a later transfer can continue from it: also one that is complete and
/// could not have its name, and what had arrived when the disk got full, less at most a chunk (if chunks are below
/// 1 MiB: 1 MiB and a chunk).
/// Errors carry errno, the file's name without its directory, and how far it had got: disk_full (ENOSPC, EDQUOT), io
/// (all others; EFBIG if the process may not write files of that size; ESTALE if another process removed, replaced, cut
/// or overwrote what was written). No signal is raised.
/// The digest of a transfer is of the bytes that arrived. If the times of the file show that another process has
/// changed it, finish() reads it again, and it gets its name only if it has that digest, or is proved once more
/// (consumer, 16). Not seen are changes in the same moment as a write of our own (before Linux 6.13: within some
/// milliseconds of one), and those of an image without a digest.
class safetensors_file {
 public:
  static constexpr bool irrevocable = false;
  static constexpr bool any_order = true;

  /// Errors: io (ELOOP: the name is a symbolic link; EISDIR, EINVAL: no regular file; EACCES: it is read-only; EEXIST),
  /// disk_full, invalid_argument, out_of_memory.
  [[nodiscard]] static result<safetensors_file> create(std::string_view path,
                                                       const safetensors_file_options& options = {}) noexcept {
    if (options.buffer_bytes == 0) return failure(errc::invalid_argument);
    std::unique_ptr<std::byte[]> buffer(new (std::nothrow) std::byte[options.buffer_bytes]);
    if (!buffer) return failure(errc::out_of_memory);
    auto file = detail::atomic_file::create(path, options.overwrite, options.resume != nullptr);
    if (!file) return failure(file.error());
    safetensors_file made(std::move(*file), std::move(buffer), options);
    made.find_cursor();
    return made;
  }
  safetensors_file(safetensors_file&&) noexcept = default;
  safetensors_file& operator=(safetensors_file&& other) noexcept {
    leave();
    file_ = std::move(other.file_);
    buffer_ = std::move(other.buffer_);
    options_ = other.options_;
    own_header_ = other.own_header_;
    total_ = other.total_;
    written_ = other.written_;
    header_ = other.header_;
    complete_ = other.complete_;
    saved_ = other.saved_;
    filled_ = other.filled_;
    placed_ = other.placed_;
    return *this;
  }
  ~safetensors_file() { leave(); }

  /// With `resume`, whether another process that resumes the same file would be refused. False where the file system
  /// has no flock (Lustre without that option): then no two may do so at a time.
  bool exclusive() const noexcept { return options_.resume == nullptr || file_.locked(); }
  std::uint64_t fingerprint() const noexcept { return options_.schema != nullptr ? options_.schema->fingerprint : 0; }
  const image_schema* schema() const noexcept { return options_.schema; }

  /// Compares the length with what the file system has left, so a disk that is too small is found before data moves.
  /// Nothing is reserved: the length is only the owner's word, and the file takes room as bytes arrive.
  result<void> begin(const description& d) noexcept {
    if (!file_.open()) return failure(errc::invalid_argument, 0, file_.name());
    const bool subset = d.data_start == 0;
    if (d.data_start > d.image_bytes || (subset && options_.schema == nullptr))
      return failure(errc::schema_mismatch, 0, file_.name());
    if (options_.schema != nullptr && (d.fingerprint != options_.schema->fingerprint ||
                                       d.image_bytes - d.data_start != options_.schema->data_bytes()))
      return failure(errc::schema_mismatch, 0, file_.name());
    header_ = subset ? options_.schema->header_bytes : d.data_start;
    total_ = subset ? options_.schema->image_bytes : d.image_bytes;
    if (total_ > options_.max_bytes) return failure(errc::too_large, total_, file_.name());
    written_ = filled_ = 0;
    placed_ = false;
    if (length() < total_) return failure(errc::too_large, total_, file_.name());
    const bool has_cursor = file_.size() == length();
    saved_ = options_.resume != nullptr && has_cursor ? *options_.resume : resume_cursor{};
    if (const auto ok = file_.extend(length()); !ok) return ok;
    // it has its room before the disk gets full
    if (options_.resume != nullptr && !has_cursor)
      if (const auto ok = file_.write(total_, trailer(resume_cursor{})); !ok) return ok;
    if (subset)
      if (const auto ok = write_own_header(); !ok) return ok;
    own_header_ = complete_ = written_ + filled_;
    return {};
  }

  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    if (length == 0 || out.empty()) return {};
    // a resumed transfer begins behind what is there already; of several connections, another one than the first may
    // begin, and the buffer may have the header of a subset
    if (!std::exchange(placed_, true) && offset != 0) {
      const std::uint64_t there = options_.resume != nullptr ? options_.resume->offset : 0;
      if (offset == there || offset + 1 == there) complete_ = own_header_ + offset;  // the last byte is always fetched
    }
    return detail::prepare_in({buffer_.get() + filled_, options_.buffer_bytes - filled_}, length, out);
  }
  result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    if (const std::uint64_t at = own_header_ + offset; at == written_ + filled_) filled_ += bytes.size();
    else if (const auto ok = go_on_at(at, bytes); !ok) return ok;
    if (const std::uint64_t begin = own_header_ + offset; begin <= complete_)
      complete_ = std::max(complete_, begin + bytes.size());
    // the pull moves the cursor behind a chunk once that is complete, so the first bytes after it save the cursor,
    // after all that it counts
    const std::uint64_t at = options_.resume != nullptr ? options_.resume->offset : 0;
    const bool moved = at != 0 && (at < saved_.offset || at - saved_.offset >= save_bytes_);
    if (filled_ == options_.buffer_bytes || moved)
      if (const auto ok = flush(); !ok) return ok;
    return moved ? save_cursor() : result<void>{};
  }
  /// With `resume`, a chunk is in the file when the cursor moves behind it.
  result<void> chunk(std::uint64_t offset, std::uint64_t length) noexcept {
    if (options_.resume != nullptr)
      if (const auto ok = flush(); !ok) return ok;
    complete_ = std::max(complete_, own_header_ + offset + length);
    return {};
  }
  /// The part on the disk, without the cursor behind it, as an image of plain bytes. Without `resume`: of no bytes.
  source_view read_back() const noexcept {
    const std::uint64_t size = options_.resume != nullptr && file_.open() ? file_.size() : 0;
    return there_.view(size - std::min<std::uint64_t>(size, trailer_bytes_), {&read, &file_});
  }

  /// The bytes that have arrived behind the header, also those in the buffer.
  source_view arrived() const noexcept { return there_.view(total_, {&read_arrived, this}, header_); }

  result<void> finish(const receipt& r) noexcept { return finish(r, {}); }
  /// As requirement 16 of consumer has it.
  result<void> finish(const receipt& r, const basic_callback<bool, const source_view&>& holds) noexcept {
    if (!file_.open() || complete_ != total_) return failure(errc::invalid_argument, complete_, file_.name());
    if (const auto ok = flush(); !ok) return ok;
    auto done = file_.complete(length(), total_, options_.fsync);
    if (done && file_.touched()) done = holds ? changed_unless(holds(on_disk())) : compare(r.digest);
    if (done) done = file_.publish(total_, options_.fsync);
    if (!done && done.error().system == ESTALE) file_.discard();
    return done;
  }
  void rewind(std::uint64_t offset) noexcept {
    const std::uint64_t at = own_header_ + offset;
    filled_ = at < written_ ? 0 : std::min(filled_, static_cast<std::size_t>(at - written_));
    written_ = std::min(written_, at);
    complete_ = std::min(complete_, at);
  }
  /// With `resume`, writes what the buffer holds, so that all that the cursor counts is in the file; else, or if
  /// another process has cut the file, discards it.
  void abandon(const error&) noexcept {
    if (options_.resume == nullptr) return file_.discard();
    const auto ok = flush();
    if (!ok && ok.error().system == ESTALE) file_.discard();
    else if (!ok && options_.resume->offset <= in_file()) (void)save_cursor();  // it may count the buffer soon
  }

 private:
  safetensors_file(detail::atomic_file file, std::unique_ptr<std::byte[]> buffer,
                   const safetensors_file_options& options) noexcept
      : file_(std::move(file)), buffer_(std::move(buffer)), options_(options) {}

  static constexpr std::uint64_t save_bytes_ = 1 << 20;
  static constexpr std::size_t trailer_bytes_ = resume_cursor::encoded_bytes + sizeof(std::uint64_t);

  /// The cursor as it lies behind the image, with its own digest: other bytes are none.
  static std::array<std::byte, trailer_bytes_> trailer(const resume_cursor& where) noexcept {
    std::array<std::byte, trailer_bytes_> out;
    const auto bytes = encode(where);
    xxh3_64 h;
    h.update(bytes);
    std::copy(bytes.begin(), bytes.end(), out.begin());
    store_le64(&out[bytes.size()], h.digest());
    return out;
  }

  /// Bytes of the part: the image's, and with `resume` the cursor behind them. Less than the image's if that overflows.
  std::uint64_t length() const noexcept { return total_ + (options_.resume != nullptr ? trailer_bytes_ : 0); }

  static result<void> read(const void* file, std::uintptr_t, std::uint64_t offset, std::span<std::byte> out) noexcept {
    return static_cast<const detail::atomic_file*>(file)->read(offset, out);
  }
  static result<void> read_arrived(const void* self, std::uintptr_t header, std::uint64_t offset,
                                   std::span<std::byte> out) noexcept {
    const auto& file = *static_cast<const safetensors_file*>(self);
    const std::uint64_t at = header + offset, end = at + out.size();
    if (const auto ok = file.file_.read(at, out); !ok) return ok;
    const std::uint64_t from = std::max(at, file.written_), to = std::min(end, file.written_ + file.filled_);
    if (from < to) {
      const auto n = static_cast<std::size_t>(to - from);
      std::memcpy(out.data() + (from - at), file.buffer_.get() + (from - file.written_), n);
    }
    return {};
  }
  /// Reads what was received back, and compares it with its digest; 0: there is none to compare with.
  result<void> compare(std::uint64_t wanted) noexcept {
    if (wanted == 0) return {};
    xxh3_64 there;
    const auto all = hash_range(there, on_disk(), own_header_, total_ - own_header_,
                                {buffer_.get(), options_.buffer_bytes});
    if (!all) return failure(errc::io, total_, file_.name());
    return changed_unless(there.digest() == wanted);
  }
  source_view on_disk() noexcept { return there_.view(total_, {&read, &file_}); }
  result<void> changed_unless(bool right) const noexcept {
    if (right) return {};
    return failure(errc::io, total_, file_.name(), ESTALE);
  }
  /// Reads where an earlier transfer stopped; the cursor stays empty if there was none.
  void find_cursor() noexcept {
    if (options_.resume == nullptr) return;
    *options_.resume = {};
    std::array<std::byte, trailer_bytes_> bytes;
    if (const std::uint64_t size = file_.size(); size < bytes.size() || !file_.read(size - bytes.size(), bytes)) return;
    const auto found = decode_cursor(std::span(bytes).first(resume_cursor::encoded_bytes));
    if (found && trailer(*found) == bytes) *options_.resume = *found;
  }
  result<void> save_cursor() noexcept {
    const auto done = file_.write(total_, trailer(*options_.resume));
    if (done) saved_ = *options_.resume;
    return done;
  }
  /// Keeps the part if a later transfer can continue from it: its cursor is not empty. If it counts what could not be
  /// written, or cannot be written itself, the one before it holds, which is in the part.
  void leave() noexcept {
    if (options_.resume == nullptr || !file_.open()) return;
    resume_cursor& where = *options_.resume;
    if (where && total_ != 0 && ((placed_ && where.offset > in_file()) || !save_cursor())) where = saved_;
    if (!where) return file_.discard();
    file_.leave();
  }

  result<void> flush() noexcept {
    if (filled_ == 0) return {};
    if (const auto ok = write(written_, {buffer_.get(), filled_}); !ok) return ok;
    written_ += std::exchange(filled_, 0);
    return {};
  }
  result<void> write(std::uint64_t at, std::span<const std::byte> bytes) noexcept {
    // a file that was cut would have a hole after the next write, and its length again
    if (file_.size() != length()) return failure(errc::io, written_, file_.name(), ESTALE);
    return file_.write(at, bytes);
  }

  /// How much of the file's beginning is on the disk.
  std::uint64_t in_file() const noexcept { return filled_ == 0 ? complete_ : std::min(complete_, written_); }
  /// Bytes that do not follow those in the buffer, behind which they lie. They stay there, since they are hashed after
  /// commit(). Others may follow them.
  result<void> go_on_at(std::uint64_t at, std::span<const std::byte> bytes) noexcept {
    if (const auto ok = flush(); !ok) return ok;
    if (const auto ok = write(at, bytes); !ok) return ok;
    written_ = at + bytes.size();
    return {};
  }
  result<void> write_own_header() noexcept {
    for (std::uint64_t at = 0; at < options_.schema->header_bytes;) {
      const std::size_t n = write_header(*options_.schema, at,
                                         {buffer_.get() + filled_, options_.buffer_bytes - filled_});
      at += n;
      filled_ += n;
      if (filled_ < options_.buffer_bytes) continue;
      if (const auto ok = flush(); !ok) return ok;
    }
    return {};
  }

  detail::atomic_file file_;
  std::unique_ptr<std::byte[]> buffer_;
  safetensors_file_options options_;
  std::uint64_t own_header_ = 0;  // of a subset: in front of what is received
  std::uint64_t header_ = 0;  // of the file
  std::uint64_t total_ = 0, written_ = 0;  // written_: where the buffer's first byte belongs
  std::uint64_t complete_ = 0;  // up to here nothing is missing; more may lie behind it
  resume_cursor saved_{};  // is in the part
  std::size_t filled_ = 0;
  bool placed_ = false;
  mutable detail::file_bytes there_;
};

static_assert(consumer<safetensors_file>);

}  // namespace tensorpull
