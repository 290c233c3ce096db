// Reads a control frame in any valid layout without a library: segment_reader.hpp follows the pointers,
// control_words.hpp has the meaning of the words, and the storage bounds every list.
//
// Spans and views are made from pointers to const and a std::size_t, as elsewhere: for each other type of pointer or
// number the compiler would instantiate the requirements of std::span and std::string_view once more.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/framing/detail/control_words.hpp>
#include <tensorpull/framing/detail/list_storage.hpp>
#include <tensorpull/framing/detail/segment_reader.hpp>

#include <new>

namespace tensorpull::detail {

template <class Storage>
class control_reader {
 public:
  /// `lists.from` is at the frame; what `to` is given points to the frame and to `lists`.
  control_reader(frame& to, Storage& lists) noexcept : from_(lists.from), m_(to), lists_(lists) {}

  /// On an error the frame keeps what was read so far.
  result<void> read(int depth) noexcept {
    m_ = {};
    segment_reader::pointer root;
    object outer, body;
    if (!from_.root(depth, root) || !from_.follow(root, outer)) return bad();
    std::uint64_t words[1 + most_body_words]{};
    from_.copy_words(outer, words, size_of_frame.data);
    take_head(words[0], m_);
    if (m_.kind == frame_kind::chunk) return failure(errc::unsupported_layout);
    if (m_.kind > frame_kind::application) return failure(errc::unexpected_frame, static_cast<std::uint64_t>(m_.kind));
    const std::size_t body_words = body_size(m_.kind).data;
    if (body_words > 0) {
      if (!from_.follow(from_.pointer_of(outer, 0), body)) return bad();
      from_.copy_words(body, words + 1, body_words);
    }
    take_words(words, m_);
    switch (m_.kind) {
      case frame_kind::schema_page: return read_rows(body);
      case frame_kind::locate: return read_names(body);
      case frame_kind::located: return read_ranges(body);
      case frame_kind::application: return read_application(body);
      default: return {};
    }
  }

 private:
  using object = segment_reader::object;
  using list = segment_reader::list;
  using element = segment_reader::element;

  static unexpected bad() noexcept { return failure(errc::bad_frame); }

  /// One tensor of a schema page. False: not valid.
  static bool read_row(segment_reader& from, const list& tensors, std::size_t i, schema_row& out) noexcept {
    object tensor;
    list shape;
    if (!from.at(tensors, i, tensor) || !from.follow(from.pointer_of(tensor, 2), element::words, shape)) return false;
    out.shape = {from.data_of(shape.first), shape.step, shape.count, &word_at};
    return from.follow(from.pointer_of(tensor, 0), true, out.name) &&
           from.follow(from.pointer_of(tensor, 1), true, out.dtype);
  }
  static std::uint64_t word_at(const void* first, std::size_t step, std::size_t i) noexcept {
    return load_le64(static_cast<const std::byte*>(first) + i * step);
  }
  static schema_row row_at(const void* lists, std::size_t, std::size_t i) noexcept {
    const Storage& from = *static_cast<const Storage*>(lists);
    segment_reader again = from.from.again();
    schema_row row;
    (void)read_row(again, from.elements, i, row);  // it was read before
    return row;
  }
  static byte_range range_at(const void* lists, std::size_t, std::size_t i) noexcept {
    const Storage& from = *static_cast<const Storage*>(lists);
    std::uint64_t w[2];
    from.from.copy_words(element_at(from, i), w, 2);
    return {w[0], w[1]};
  }
  static index_range slice_at(const void* lists, std::size_t, std::size_t i) noexcept {
    const Storage& from = *static_cast<const Storage*>(lists);
    return slice_of(from.from, element_at(from, i));
  }
  static index_range slice_of(const segment_reader& from, const object& wanted) noexcept {
    std::uint64_t w[3];
    from.copy_words(wanted, w, 3);
    return {w[0], w[1], static_cast<std::uint16_t>(w[2])};
  }
  static object element_at(const Storage& from, std::size_t i) noexcept {
    object element;
    (void)from.from.at(from.elements, i, element);  // it was read before
    return element;
  }

  result<void> read_rows(const object& page) noexcept {
    list& tensors = lists_.elements;
    if (!from_.follow(from_.pointer_of(page, 0), element::structs, tensors)) return bad();
    if (tensors.count > Storage::most_rows) return failure(errc::too_large, tensors.count);
    std::size_t extents = 0;
    for (std::size_t i = 0; i < tensors.count; ++i) {
      schema_row row;
      if (!read_row(from_, tensors, i, row)) return bad();
      if (row.shape.size() > Storage::most_extents - extents) return failure(errc::too_large, row.shape.size());
      extents += row.shape.size();
    }
    m_.rows = {&lists_, 0, tensors.count, &row_at};
    return {};
  }

  result<void> read_names(const object& locate) noexcept {
    list& names = lists_.elements;
    if (!from_.follow(from_.pointer_of(locate, 0), element::structs, names)) return bad();
    if (names.count > Storage::most_names) return failure(errc::too_large, names.count);
    bool sliced = false;
    for (std::size_t i = 0; i < names.count; ++i) {
      object wanted;
      std::string_view name;
      if (!from_.at(names, i, wanted) || !from_.follow(from_.pointer_of(wanted, 0), true, name)) return bad();
      sliced = sliced || !slice_of(from_, wanted).all();
      if constexpr (Storage::copies) ::new (static_cast<void*>(&lists_.names[i])) std::string_view(name);
    }
    if constexpr (Storage::copies) {
      const std::string_view* const first = lists_.names.data();
      m_.names = std::span<const std::string_view>(first, names.count);
    }
    if (sliced) m_.slices = {&lists_, 0, names.count, &slice_at};
    return {};
  }

  result<void> read_ranges(const object& located) noexcept {
    list& ranges = lists_.elements;
    if (!from_.follow(from_.pointer_of(located, 0), element::structs, ranges)) return bad();
    if (ranges.count > Storage::most_ranges) return failure(errc::too_large, ranges.count);
    object range;
    if (ranges.count > 0 && !from_.at(ranges, 0, range)) return bad();  // the others are as deep
    m_.ranges = {&lists_, 0, ranges.count, &range_at};
    return {};
  }

  result<void> read_application(const object& application) noexcept {
    list references;
    std::string_view body;
    if (!from_.follow(from_.pointer_of(application, 0), element::structs, references)) return bad();
    if (references.count > Storage::most_references) return failure(errc::too_large, references.count);
    for (std::size_t i = 0; i < references.count; ++i) {
      object ref;
      std::uint64_t w[4];
      if (!from_.at(references, i, ref)) return bad();
      from_.copy_words(ref, w, 4);
      if constexpr (Storage::copies)
        ::new (static_cast<void*>(&lists_.references[i])) reference{{w[0], w[1]}, w[2], w[3]};
    }
    if constexpr (Storage::copies) m_.references = {lists_.references.data(), references.count};
    if (!from_.follow(from_.pointer_of(application, 1), false, body)) return bad();
    if (body.size() > Storage::most_body_bytes) return failure(errc::too_large, body.size());
    m_.body = {reinterpret_cast<const std::byte*>(body.data()), body.size()};
    return {};
  }

  segment_reader& from_;
  frame& m_;
  Storage& lists_;
};

}  // namespace tensorpull::detail
