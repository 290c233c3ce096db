// Where a transfer stands, in flash: records with a number and a checksum, in two pages that take turns. A power cut at
// any moment leaves a newest whole record, which is the last one that was stored or the one before it.
#pragma once

#include <tensorpull/consumers/resume_cursor.hpp>
#include <tensorpull/core/crc32c.hpp>
#include <tensorpull/embedded/flash.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <cstring>
#include <type_traits>

namespace tensorpull {

/// Keeps the newest resume_cursor in two pages of flash. A page takes `records_per_page` records, one behind the other;
/// then the other page is erased and takes the next ones. A program that starts anew begins with the page that has not
/// the newest record, so it never writes behind one that was torn. Wear: N records cost N / records_per_page erases
/// (rounded up), and each start of a program one more at most; the two pages have equal shares. Flash that is blank,
/// half erased or full of something else holds no cursor, and a record of which a bit has changed is none. The bytes
/// lie in the machine's own order. Borrows the flash. 16 bytes on a machine of 32 bits.
template <class Flash>
class cursor_slots {
  static_assert(
      flash_memory<Flash>,
      "tensorpull: a flash memory has page_bytes and program_bytes, a power of two that divides it, and bool erase(page), bool program(at, bytes) and "
      "bool read(at, out), all noexcept (flash_memory in embedded/flash.hpp)");
  /// Of flash that is programmed once no cursor counts bytes that wait: it lies where a page begins.
  static constexpr std::uint32_t unit_bytes_ = detail::embedded::programs_once<Flash> ? 0 : Flash::program_bytes,
                                 grain_ = std::max<std::uint32_t>(Flash::program_bytes, 8);

 public:
  /// Pages that it needs, one behind the other.
  static constexpr std::uint32_t pages = 2;
  /// Bytes of a record: the cursor, bytes that were too few to be programmed (unless the flash `programs_once`), the
  /// number, a CRC32C of all of these.
  static constexpr std::uint32_t record_bytes = (sizeof(resume_cursor) + 8 + unit_bytes_ + grain_ - 1) / grain_ *
                                                grain_;
  /// Records that a page takes before the other page is erased.
  static constexpr std::uint32_t records_per_page = Flash::page_bytes / record_bytes;
  static_assert(
      records_per_page > 0,
      "tensorpull: a page of this flash is too small for a cursor and a unit: let page_bytes be several of its pages, which erase(page) erases together");

  /// `first_page`: of the two. Call load() before store().
  cursor_slots(Flash& flash, std::uint32_t first_page) noexcept
      : flash_(flash), first_(first_page * Flash::page_bytes) {}

  /// The newest cursor, and in `unit` the bytes that were stored with it. Empty: there is none, or an empty one was
  /// stored last. Cost: it reads both pages.
  resume_cursor load(std::byte* unit) noexcept {
    resume_cursor newest;
    record r;
    bool found = false;
    std::uint32_t place = end_;
    for (std::uint32_t at = 0; at < end_; at = behind(at)) {
      // the numbers wrap around, so the newer one is the one that is less than half of all numbers ahead
      if (!flash_.read(first_ + at, bytes(r)) || r.check != checksum(r) ||
          (found && static_cast<std::int32_t>(r.number - number_) < 0))
        continue;
      found = true;
      number_ = r.number;
      place = at;
      std::memcpy(&newest, r.held, sizeof newest);
      std::memcpy(unit, r.held + sizeof newest, unit_bytes_);
    }
    // behind a record of an earlier program a torn one may lie, behind our own newest one there is room
    if (behind(place) % end_ != next_) next_ = place < Flash::page_bytes ? Flash::page_bytes : 0;
    return newest;
  }

  /// Makes this cursor the newest, with the bytes of `unit` (none of a flash that `programs_once`). The empty cursor:
  /// there is none from now on. False: the flash failed; then the newest cursor is this one or the one before.
  bool store(const resume_cursor& cursor, const std::byte* unit) noexcept {
    const std::uint32_t at = next_;
    if (at % Flash::page_bytes == 0 && !flash_.erase((first_ + at) / Flash::page_bytes)) return false;
    next_ = behind(at) % end_;  // also if the flash fails now: a torn record is not written over
    record r;
    std::memcpy(r.held, &cursor, sizeof cursor);
    std::memset(r.held + sizeof cursor, 0, sizeof r.held - sizeof cursor);
    std::memcpy(r.held + sizeof cursor, unit, unit_bytes_);
    r.number = ++number_;
    r.check = checksum(r);
    return flash_.program(first_ + at, bytes(r));
  }

 private:
  struct record {
    std::byte held[record_bytes - 8];  // the cursor, the unit
    std::uint32_t number, check;
  };
  static_assert(sizeof(record) == record_bytes && std::is_trivially_copyable_v<resume_cursor>);
  static constexpr std::uint32_t end_ = pages * Flash::page_bytes;

  /// The position of the next record: in the other page if this one has no room.
  static std::uint32_t behind(std::uint32_t at) noexcept {
    at += record_bytes;
    if constexpr (Flash::page_bytes % record_bytes != 0)
      if (at % Flash::page_bytes > Flash::page_bytes - record_bytes) at += Flash::page_bytes - at % Flash::page_bytes;
    return at;
  }
  static std::span<std::byte> bytes(record& r) noexcept { return std::as_writable_bytes(std::span(&r, 1)); }
  static std::uint32_t checksum(record& r) noexcept { return crc32c_small::of(bytes(r).first(record_bytes - 4)); }

  Flash& flash_;
  std::uint32_t first_, next_ = 0, number_ = 0;
};

}  // namespace tensorpull
