// An image that lands in flash, and a transfer that goes on after a power cut: it fetches at most one chunk again, and
// believes nothing in flash without its hash.
#pragma once

#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/embedded/cursor_slots.hpp>
#include <tensorpull/integrity/concept.hpp>
#include <tensorpull/std/algorithm.hpp>

namespace tensorpull {

/// The data section of an image in pages of flash, behind the two pages of its cursor. A model of embedded_landing.
/// `Image`: an embedded_image, of which it uses header, header_bytes, image_bytes and fingerprint. The header is a
/// constant of the program, so it is not stored.
///
/// A page is erased when its first byte is written. Bytes that are too few to be programmed wait in a buffer and are
/// kept with the cursor, so a chunk may end anywhere. The cursor is stored behind the bytes that it counts, by save(),
/// which the recipient calls once for each chunk. Wear of a transfer of N chunks without a power cut: each page of data
/// is erased once, and the cursor's pages N / cursor_slots::records_per_page times in all (rounded up).
///
/// A power cut, in any state, leaves one of two things: a cursor whose hash proves the bytes before it, and the
/// transfer goes on there; or no such cursor, and it begins at byte 0. Bytes that were written behind the cursor are
/// written again, the same, and read back. An owner that sends other bytes under the same version can make it differ.
/// Then the cursor is thrown away, and the next transfer begins at byte 0; also when the flash refuses a unit.
///
/// In flash that `programs_once` cursors count whole pages only (`cursor_step`), and a transfer goes on with a page
/// that is erased again: a power cut costs a page at most, or a chunk if that is longer, and no unit is programmed
/// twice.
///
/// A new version is written over the old one. A program that needs the old one until the new one is valid has two
/// landings in two regions. Borrows the flash. Size on a machine of 32 bits: 28 bytes and the buffer of program_bytes.
/// Only one object writes to the same pages at a time.
template <class Image, class Flash>
class flash_landing {
  static_assert(Image::image_bytes >= Image::header_bytes && Image::image_bytes < 0x80000000u,
                "tensorpull: an image of 2 GiB or more");
  using slots = cursor_slots<Flash>;

 public:
  /// The image that lands.
  using image = Image;
  /// Bytes that lie in flash.
  static constexpr std::uint32_t data_bytes = static_cast<std::uint32_t>(Image::image_bytes - Image::header_bytes);
  /// Cursors are kept at multiples of so many bytes of data, and at the end.
  static constexpr std::uint32_t cursor_step = detail::embedded::programs_once<Flash> ? Flash::page_bytes : 1;
  /// Pages that it needs, one behind the other: the cursor's first.
  static constexpr std::uint32_t pages = slots::pages + (data_bytes + Flash::page_bytes - 1) / Flash::page_bytes;

  /// `first_page`: where its pages begin. Cost: it reads the cursor's pages.
  explicit flash_landing(Flash& flash, std::uint32_t first_page = 0) noexcept
      : flash_(flash), slots_(flash, first_page), data_at_((first_page + slots::pages) * Flash::page_bytes) {
    (void)cursor();
  }

  /// Where the data section begins in flash, for a program that uses the tensors there.
  std::uint32_t data_at() const noexcept { return data_at_; }

  /// The newest cursor in flash, of whatever reference and version; empty: there is none that fits this image. The
  /// landing then stands at it: read() gives the bytes before it, and write() goes on there or begins at 0.
  resume_cursor cursor() noexcept {
    resume_cursor c = slots_.load(unit_);
    if (!fits(c)) c.offset = 0;
    landed_ = data_before(c);
    return c;
  }

  /// Stores a cursor at the byte up to which all has been written; between two steps of cursors it stores nothing. An
  /// empty one: nothing has landed. Errors: invalid_argument (it counts other bytes than those that are there), io.
  result<void> save(const resume_cursor& c) noexcept {
    const std::uint32_t data = data_before(c);
    if (data == 0) landed_ = 0;  // whatever is there is not of this image
    if (data != landed_) return said(errc::invalid_argument, landed_);
    if constexpr (cursor_step > 1)
      if (data % cursor_step != 0 && data != data_bytes) return {};
    return said(slots_.store(c, unit_) ? errc{} : errc::io, landed_);
  }

  /// Writes bytes of the data section: where the bytes before end, or at 0, with which a new image begins. Programmed
  /// bytes are read back; bytes that wait for the rest of their unit are read back with it, and the call that brings
  /// the rest may fail because of them. Errors: invalid_argument (another position, or more than there is room for);
  /// io: a page could not be erased (the cursor stays), or a unit could not be programmed or holds other bytes than it
  /// was given (the cursor is thrown away).
  result<void> write(std::uint32_t at, std::span<const std::byte> bytes) noexcept {
    if (at == 0) landed_ = 0;
    if (at != landed_ || bytes.size() > data_bytes - at) return said(errc::invalid_argument, at);
    const auto n = static_cast<std::uint32_t>(bytes.size());
    return said(put(bytes.data(), n) ? errc{} : errc::io, at);
  }

  /// Reads what has landed. Errors: out_of_range, io.
  result<void> read(std::uint32_t at, std::span<std::byte> out) const noexcept {
    if (at > landed_ || out.size() > landed_ - at) return said(errc::out_of_range, at);
    return said(get(at, out.data(), static_cast<std::uint32_t>(out.size())) ? errc{} : errc::io, at);
  }

  /// The version of the image that has landed whole, by its cursor alone: nothing is hashed, so a program that does not
  /// pull this version again checks valid() before it uses the bytes. 0: none. Pulling it again fetches its last byte
  /// only, and tells the owner that all is here.
  std::uint64_t finished() noexcept {
    std::byte unused[Flash::program_bytes];
    const resume_cursor c = slots_.load(unused);
    return fits(c) && c.offset == Image::image_bytes ? c.version : 0;
  }

  /// Whether a whole image lies in flash, and each of its bytes is the published one: its hash is its version. A
  /// bootloader asks this before it uses the data. An image that was pulled from an owner without a digest is never
  /// valid. Cost: one pass over the data.
  template <hash Hash = std::conditional_t<(Image::image_bytes >= lean_xxh3_64::least_bytes), lean_xxh3_64, xxh3_64>>
  bool valid() noexcept {
    const std::uint64_t version = finished();
    if (version == 0) return false;
    Hash hash;
    hash.update(Image::header);
    std::byte piece[64];
    for (std::uint32_t at = 0; at < data_bytes; at += sizeof piece) {
      const std::span<std::byte> some(piece, std::min<std::size_t>(sizeof piece, data_bytes - at));
      if (!flash_.read(data_at_ + at, some)) return false;
      hash.update(some);
    }
    return hash.digest() == version;
  }

 private:
  static constexpr std::uint32_t unit_bytes_ = Flash::program_bytes;

  static bool fits(const resume_cursor& c) noexcept {
    return c.fingerprint == Image::fingerprint && c.offset <= Image::image_bytes;
  }

  /// Of an offset above 4 GiB something else, which fits() finds when it is read.
  static std::uint32_t data_before(const resume_cursor& c) noexcept {
    const auto offset = static_cast<std::uint32_t>(c.offset), header = static_cast<std::uint32_t>(Image::header_bytes);
    return offset > header ? offset - header : 0;
  }

  /// Once, since a result is long.
  [[gnu::noinline]] static result<void> said(errc code, std::uint32_t at) noexcept {
    if (code != errc{}) return failure(code, at);
    return {};
  }

  /// Bytes before landed_: in flash, and behind its last whole unit in the buffer. The image's last unit is programmed
  /// even if it is not whole.
  bool get(std::uint32_t at, std::byte* out, std::uint32_t n) const noexcept {
    std::uint32_t in_flash = landed_ - landed_ % unit_bytes_;
    if (data_bytes % unit_bytes_ != 0 && landed_ == data_bytes) in_flash = data_bytes;
    for (; n > 0 && at + n > in_flash; --n) out[n - 1] = unit_[(at + n - 1) % unit_bytes_];
    return flash_.read(data_at_ + at, {out, n});
  }
  /// Writes at landed_.
  bool put(const std::byte* from, std::uint32_t n) noexcept {
    for (std::uint32_t at = (landed_ + Flash::page_bytes - 1) / Flash::page_bytes * Flash::page_bytes; at < landed_ + n;
         at += Flash::page_bytes)
      if (!flash_.erase((data_at_ + at) / Flash::page_bytes)) return false;
    while (n > 0) {
      // whole units from where they are, others through the buffer
      const std::uint32_t held = landed_ % unit_bytes_, at = data_at_ + landed_ - held;
      std::uint32_t some = n - n % unit_bytes_, length = some;
      const std::byte* units = from;
      if (held != 0 || some == 0) {
        some = std::min(n, unit_bytes_ - held);
        std::memcpy(unit_ + held, from, some);
        units = unit_;
        length = held + some < unit_bytes_ ? 0 : unit_bytes_;
        if (data_bytes % unit_bytes_ != 0 && landed_ + some == data_bytes) {
          std::memset(unit_ + data_bytes % unit_bytes_, 0xff, unit_bytes_ - data_bytes % unit_bytes_);
          length = unit_bytes_;
        }
      }
      if (length != 0 && !program(at, units, length)) return false;
      landed_ += some;
      from += some;
      n -= some;
    }
    return true;
  }
  /// Programs whole units, and reads them back: bytes that waited for the rest of their unit are compared here, too. If
  /// other bytes are there, or a unit that was torn refuses them, no cursor counts them any more.
  bool program(std::uint32_t at, const std::byte* units, std::uint32_t n) noexcept {
    bool right = flash_.program(at, {units, n});
    if constexpr (data_bytes % unit_bytes_ != 0)  // what fills the last unit is not of the image
      n = std::min(n, data_at_ + data_bytes - at);
    std::byte there[32];
    while (right && n > 0) {
      const std::uint32_t some = std::min<std::uint32_t>(sizeof there, n);
      right = flash_.read(at, {there, some}) && std::memcmp(there, units, some) == 0;
      at += some;
      units += some;
      n -= some;
    }
    if (!right) {
      landed_ = 0;
      (void)slots_.store({}, unit_);
    }
    return right;
  }

  Flash& flash_;
  slots slots_;
  std::uint32_t data_at_, landed_ = 0;
  std::byte unit_[unit_bytes_]{};
};

}  // namespace tensorpull
