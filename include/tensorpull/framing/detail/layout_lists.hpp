// Reads the lists of a control frame in the one layout in which our encoders write them: each object right behind the
// one before it, in the order of the pointers. Since each place is known before it is read, no limit of traversal or of
// depth is needed.
#pragma once

#include <tensorpull/core/limits.hpp>
#include <tensorpull/framing/detail/layouts.hpp>

#include <new>
#include <string_view>

namespace tensorpull::detail {

/// Memory for the names and the references of one decoded frame. Rows and ranges are read from the frame when they are
/// used.
template <frame_set Kinds, class Limits>
struct layout_storage {
  static constexpr bool has_names = Kinds.has(frame_kind::locate), has_references = Kinds.has(frame_kind::application);
  union {
    char none = 0;
    std::array<std::string_view, has_names ? Limits::control_frame_bytes / 16 : 0> names;
    std::array<reference, has_references ? Limits::application_references : 0> references;
  };
  layout_storage() noexcept {}
};
/// For a set without names and references, and for a frame whose names and references are not wanted.
struct no_layout_storage {};

template <class Limits>
class layout_list_reader {
 public:
  /// `next`: the first word behind the fixed part.
  layout_list_reader(std::span<const std::byte> frame, std::size_t next) noexcept
      : frame_(frame.data()), words_(frame.size() / 8), next_(next) {}

  /// Reads the tensors of a page.
  errc rows(std::size_t pointer, frame& m) noexcept {
    std::size_t count = 0, extents = 0;
    if (const errc e = structs(pointer, size_of_tensor, count); e != errc{}) return e;
    if (count > Limits::control_frame_bytes / 32) return too_large(count);
    const std::byte* const first = frame_ + 8 * (next_ - 3 * count);
    const std::size_t from = next_ - 3 * count;
    for (std::size_t i = 0; i < count; ++i) {
      std::string_view text;
      std::size_t shape = 0;
      if (const errc e = bytes(from + 3 * i, true, text); e != errc{}) return e;
      if (const errc e = bytes(from + 3 * i + 1, true, text); e != errc{}) return e;
      if (const errc e = whole_words(from + 3 * i + 2, 5, shape); e != errc{}) return e;
      if (shape > Limits::control_frame_bytes / 8 - extents) return too_large(shape);
      extents += shape;
    }
    m.rows = {first, 24, count, &row_at};
    return end();
  }
  /// Reads the names that are wanted.
  template <class Storage>
  errc names(std::size_t pointer, frame& m, Storage& to) noexcept {
    std::size_t count = 0;
    if (const errc e = whole_words(pointer, 6, count); e != errc{}) return e;
    if (count > Limits::control_frame_bytes / 16) return too_large(count);
    const std::size_t from = next_ - count;
    for (std::size_t i = 0; i < count; ++i) {
      std::string_view name;
      if (const errc e = bytes(from + i, true, name); e != errc{}) return e;
      if constexpr (requires { to.names; }) ::new (static_cast<void*>(&to.names[i])) std::string_view(name);
    }
    if constexpr (requires { to.names; }) {
      const std::string_view* const first = to.names.data();
      m.names = {first, count};
    }
    return end();
  }
  /// Reads the ranges of named tensors.
  errc ranges(std::size_t pointer, frame& m) noexcept {
    std::size_t count = 0;
    if (const errc e = structs(pointer, size_of_range, count); e != errc{}) return e;
    if (count > Limits::control_frame_bytes / 16) return too_large(count);
    m.ranges = {frame_ + 8 * (next_ - 2 * count), 16, count, &range_at};
    return end();
  }
  /// Reads the references and the body of a message.
  template <class Storage>
  errc message(std::size_t pointer, frame& m, Storage& to) noexcept {
    std::size_t count = 0;
    if (const errc e = structs(pointer, size_of_reference, count); e != errc{}) return e;
    if (count > Limits::application_references) return too_large(count);
    if constexpr (requires { to.references; }) {
      const std::byte* from = frame_ + 8 * (next_ - 4 * count);
      for (std::size_t i = 0; i < count; ++i, from += 32)
        ::new (static_cast<void*>(&to.references[i]))
            reference{{load_le64(from), load_le64(from + 8)}, load_le64(from + 16), load_le64(from + 24)};
      m.references = {to.references.data(), count};
    }
    std::string_view body;
    if (const errc e = bytes(pointer + 1, false, body); e != errc{}) return e;
    if (body.size() > Limits::application_body_bytes) return too_large(body.size());
    m.body = {reinterpret_cast<const std::byte*>(body.data()), body.size()};
    return end();
  }
  /// What was too large.
  std::size_t refused() const noexcept { return refused_; }

 private:
  errc too_large(std::size_t n) noexcept { return refused_ = n, errc::too_large; }
  errc end() const noexcept { return next_ == words_ ? errc{} : errc::unsupported_layout; }
  std::uint64_t word(std::size_t i) const noexcept { return load_le64(frame_ + 8 * i); }

  /// The pointer at the word `pointer` has to lead to the next word, to elements of the size `size`.
  errc follow(std::size_t pointer, unsigned size, std::size_t& count) const noexcept {
    const std::uint64_t p = word(pointer);
    if ((p & 0x7ffffffff) != ((std::uint64_t{next_ - pointer - 1} << 2 & 0xffffffff) | 1 | std::uint64_t{size} << 32))
      return errc::unsupported_layout;
    count = static_cast<std::size_t>(p >> 35);
    return {};
  }
  errc take(std::size_t words) noexcept {
    if (words > words_ - next_) return errc::bad_frame;
    next_ += words;
    return {};
  }
  errc whole_words(std::size_t pointer, unsigned size, std::size_t& count) noexcept {
    if (const errc e = follow(pointer, size, count); e != errc{}) return e;
    return take(count);
  }
  errc structs(std::size_t pointer, struct_size each, std::size_t& count) noexcept {
    std::size_t words = 0;
    if (const errc e = follow(pointer, 7, words); e != errc{}) return e;
    const std::size_t tag = next_;
    if (const errc e = take(words + 1); e != errc{}) return e;
    count = words / (each.data + each.pointers);
    const bool is = words % (each.data + each.pointers) == 0 &&
                    word(tag) == (std::uint64_t{count} << 2 | std::uint64_t{each.data} << 32 |
                                  std::uint64_t{each.pointers} << 48);
    return is ? errc{} : errc::unsupported_layout;
  }
  errc bytes(std::size_t pointer, bool text, std::string_view& out) noexcept {
    std::size_t count = 0;
    if (const errc e = follow(pointer, 2, count); e != errc{}) return e;
    const std::byte* const p = frame_ + 8 * next_;
    if (const errc e = take(count / 8 + (count % 8 != 0 ? 1 : 0)); e != errc{}) return e;
    if (text && (count == 0 || p[count - 1] != std::byte{0})) return errc::bad_frame;
    for (const std::byte* i = p + count; i < frame_ + 8 * next_; ++i)
      if (*i != std::byte{0}) return errc::unsupported_layout;
    out = {reinterpret_cast<const char*>(p), text ? count - 1 : count};
    return {};
  }

  static std::uint64_t word_at(const void* first, std::size_t step, std::size_t i) noexcept {
    return load_le64(static_cast<const std::byte*>(first) + i * step);
  }
  static byte_range range_at(const void* first, std::size_t step, std::size_t i) noexcept {
    const std::byte* const p = static_cast<const std::byte*>(first) + i * step;
    return {load_le64(p), load_le64(p + 8)};
  }
  static schema_row row_at(const void* first, std::size_t step, std::size_t i) noexcept {
    const std::byte* const p = static_cast<const std::byte*>(first) + i * step;
    schema_row row;
    row.name = text_at(p);
    row.dtype = text_at(p + 8);
    row.shape = {object_at(p + 16), 8, static_cast<std::size_t>(load_le32(p + 20) >> 3), &word_at};
    return row;
  }
  static const std::byte* object_at(const std::byte* pointer) noexcept {
    return pointer + 8 + 2 * static_cast<std::size_t>(load_le32(pointer) & ~std::uint64_t{3});
  }
  static std::string_view text_at(const std::byte* pointer) noexcept {
    return {reinterpret_cast<const char*>(object_at(pointer)),
            static_cast<std::size_t>(load_le32(pointer + 4) >> 3) - 1};
  }

  const std::byte* frame_;
  std::size_t words_, next_;
  std::size_t refused_ = 0;
};

}  // namespace tensorpull::detail
