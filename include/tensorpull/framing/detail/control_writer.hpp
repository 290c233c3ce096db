// Writes control frames without a library: one segment, with its objects one after the other in the order of their
// pointers. Cap'n Proto's own builder writes the same bytes (a test compares them, kind by kind).
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/framing/detail/control_words.hpp>
#include <tensorpull/framing/detail/payload_prefix.hpp>

#include <cstring>

namespace tensorpull::detail {

/// Appends words and objects to a frame. Anything that does not fit is dropped; fits() then returns false.
class segment_writer {
 public:
  /// The first word is for the segment table, the second for the root pointer.
  explicit segment_writer(std::span<std::byte> out) noexcept
      : out_(out.data()), room_(out.size() / 8 < most_words ? out.size() / 8 : most_words) {
    (void)take(2);
  }

  bool fits() const noexcept { return fits_; }
  std::size_t used() const noexcept { return used_; }

  /// Appends `n` words, all zero, and returns the index of the first.
  std::size_t take(std::uint64_t n) noexcept {
    const std::size_t first = used_;
    if (n > room_ - used_) {
      fits_ = false;
      return first;
    }
    if (n > 0) std::memset(out_ + 8 * first, 0, 8 * static_cast<std::size_t>(n));
    used_ += static_cast<std::size_t>(n);
    return first;
  }
  void set(std::size_t word, std::uint64_t value) noexcept {
    if (word < used_) store_le64(out_ + 8 * word, value);
  }

  /// Appends a struct for the pointer at word `pointer` and returns the index of its first word.
  std::size_t add_struct(std::size_t pointer, struct_size size) noexcept {
    const std::size_t at = take(size.data + size.pointers);
    set(pointer, offset(pointer, at) | std::uint64_t{size.data} << 32 | std::uint64_t{size.pointers} << 48);
    return at;
  }
  /// Appends a list of structs and returns the index of its first struct's first word.
  std::size_t add_structs(std::size_t pointer, std::size_t count, struct_size size) noexcept {
    const std::uint64_t each = size.data + size.pointers;
    const std::size_t at = take(count <= room_ ? 1 + count * each : room_ + 1);
    set(pointer, offset(pointer, at) | 1 | std::uint64_t{7} << 32 | count * each << 35);
    set(at, std::uint64_t{count} << 2 | std::uint64_t{size.data} << 32 | std::uint64_t{size.pointers} << 48);
    return at + 1;
  }
  /// Appends a list of whole words, either numbers (element size 5) or pointers (6), and returns the index of the
  /// first.
  std::size_t add_words(std::size_t pointer, std::size_t count, unsigned element_size) noexcept {
    const std::size_t at = take(count);
    set(pointer, offset(pointer, at) | 1 | std::uint64_t{element_size} << 32 | std::uint64_t{count} << 35);
    return at;
  }
  /// Appends bytes. `text`: with the zero at the end that makes them a Text.
  void add_bytes(std::size_t pointer, const void* from, std::size_t count, bool text) noexcept {
    const std::uint64_t length = count + (text ? 1u : 0u);
    const std::size_t at = take(length / 8 + (length % 8 != 0 ? 1 : 0));
    set(pointer, offset(pointer, at) | 1 | std::uint64_t{2} << 32 | length << 35);
    if (fits_ && count > 0) std::memcpy(out_ + 8 * at, from, count);
  }
  void add_text(std::size_t pointer, std::string_view text) noexcept {
    add_bytes(pointer, text.data(), text.size(), true);
  }

 private:
  /// 512 MiB less a word: every length up to it fits the bits that a pointer has for it.
  static constexpr std::size_t most_words = (std::size_t{1} << 26) - 1;

  /// The distance from the end of the pointer to its object. Here no object lies before its pointer.
  static std::uint64_t offset(std::size_t pointer, std::size_t object) noexcept {
    return std::uint64_t{object - pointer - 1} << 2;
  }

  std::byte* out_;
  std::size_t room_, used_ = 0;
  bool fits_ = true;
};

/// Writes the lists of the kinds that have any. `pointers`: the index of the struct's first pointer.
inline void write_lists(const frame& m, segment_writer& out, std::size_t pointers) noexcept {
  if (m.kind == frame_kind::schema_page) {
    std::size_t row = out.add_structs(pointers, m.rows.size(), size_of_tensor);
    for (std::size_t i = 0; i < m.rows.size() && out.fits(); ++i, row += 3) {
      const schema_row r = m.rows[i];
      out.add_text(row, r.name);
      out.add_text(row + 1, r.dtype);
      const std::size_t shape = out.add_words(row + 2, r.shape.size(), 5);
      for (std::size_t k = 0; k < r.shape.size() && out.fits(); ++k) out.set(shape + k, r.shape[k]);
    }
  } else if (m.kind == frame_kind::locate) {
    const bool sliced = !m.slices.empty();  // otherwise a list of texts, which every version has sent
    const std::size_t step = sliced ? size_of_wanted.data + size_of_wanted.pointers : 1;
    std::size_t name = sliced ? out.add_structs(pointers, m.names.size(), size_of_wanted) + size_of_wanted.data
                              : out.add_words(pointers, m.names.size(), 6);
    for (std::size_t i = 0; i < m.names.size() && out.fits(); ++i, name += step) {
      if (i < m.slices.size()) {
        const index_range r = m.slices[i];
        out.set(name - 3, r.begin);
        out.set(name - 2, r.end);
        out.set(name - 1, r.dimension);
      }
      out.add_text(name, m.names[i]);
    }
  } else if (m.kind == frame_kind::located) {
    std::size_t range = out.add_structs(pointers, m.ranges.size(), size_of_range);
    for (std::size_t i = 0; i < m.ranges.size() && out.fits(); ++i, range += 2) {
      const byte_range r = m.ranges[i];
      out.set(range, r.begin);
      out.set(range + 1, r.end);
    }
  } else if (m.kind == frame_kind::application) {
    std::size_t ref = out.add_structs(pointers, m.references.size(), size_of_reference);
    for (std::size_t i = 0; i < m.references.size() && out.fits(); ++i, ref += 4) {
      const reference& r = m.references[i];
      out.set(ref, r.id.high);
      out.set(ref + 1, r.id.low);
      out.set(ref + 2, r.version);
      out.set(ref + 3, r.fingerprint);
    }
    out.add_bytes(pointers + 1, m.body.data(), m.body.size(), false);
  }
}

/// Writes one control frame and returns its length in bytes. Writes nowhere but into `out`. does_not_fit: `out` is too
/// small.
inline result<std::size_t> write_control_frame(const frame& m, std::span<std::byte> out) noexcept {
  if (out.size() < 16) return failure(errc::does_not_fit, out.size());
  segment_writer to(out);
  const std::size_t outer = to.add_struct(1, size_of_frame);
  const struct_size body = body_size(m.kind);
  std::uint64_t words[1 + most_body_words]{};
  put_words(m, words);
  to.set(outer, words[0]);
  std::size_t at = outer + 1, count = size_of_frame.data - 1u;
  if (body.data > 0) {
    at = to.add_struct(outer + size_of_frame.data, body);
    count = body.data;
  }
  for (std::size_t i = 0; i < count; ++i) to.set(at + i, words[1 + i]);
  write_lists(m, to, at + count);
  if (!to.fits()) return failure(errc::does_not_fit, out.size());
  to.set(0, std::uint64_t{to.used() - 1} << 32);
  return 8 * to.used();
}

}  // namespace tensorpull::detail
