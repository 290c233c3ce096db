// Reads a control frame in any valid layout without a library: segment_reader.hpp follows the pointers, control_words.hpp has the meaning of
// the words, and the storage bounds every list.
//
// Spans and views are made from pointers to const and a std::size_t, as elsewhere: for each other type of pointer or number the compiler would
// instantiate the requirements of std::span and std::string_view once more.
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
  control_reader(segment_reader& from, frame& to, Storage& lists) noexcept : from_(from), m_(to), lists_(lists) {}

  /// On an error the frame keeps what was read so far.
  result<void> read(int depth) noexcept {
    m_ = {};
    segment_reader::pointer root;
    object outer, body;
    if (!from_.root(depth, root) || !from_.follow(root, outer)) return bad();
    std::uint64_t words[1 + most_body_words]{};
    from_.copy_words(outer, words, size_of_frame.data);
    take_first_word(words[0], m_);
    if (m_.kind == frame_kind::chunk) return failure(errc::unsupported_layout);
    if (m_.kind > frame_kind::application) return failure(errc::unexpected_frame, static_cast<std::uint64_t>(m_.kind));
    const std::size_t body_words = body_size(m_.kind).data;
    if (body_words > 0) {
      if (!from_.follow(from_.pointer_of(outer, 0), body)) return bad();
      from_.copy_words(body, words + 1, body_words);
    }
    take_words(words + 1, m_);
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

  result<void> read_rows(const object& page) noexcept {
    list tensors, shape;
    if (!from_.follow(from_.pointer_of(page, 0), element::structs, tensors)) return bad();
    if (tensors.count > lists_.rows.size()) return failure(errc::too_large, tensors.count);
    std::size_t dims = 0;
    for (std::size_t i = 0; i < tensors.count; ++i) {
      object tensor, extent;
      if (!from_.at(tensors, i, tensor) || !from_.follow(from_.pointer_of(tensor, 2), element::words, shape)) return bad();
      if (shape.count > lists_.dims.size() - dims) return failure(errc::too_large, shape.count);
      for (std::size_t k = 0; k < shape.count; ++k) {
        (void)from_.at(shape, k, extent);
        from_.copy_words(extent, &lists_.dims[dims + k], 1);
      }
      std::string_view name, dtype;
      if (!from_.follow(from_.pointer_of(tensor, 0), true, name) || !from_.follow(from_.pointer_of(tensor, 1), true, dtype)) return bad();
      const std::uint64_t* const extents = lists_.dims.data() + dims;
      ::new (static_cast<void*>(&lists_.rows[i])) schema_row{name, dtype, {extents, shape.count}};
      dims += shape.count;
    }
    m_.rows = {lists_.rows.data(), tensors.count};
    return {};
  }

  result<void> read_names(const object& locate) noexcept {
    list names;
    if (!from_.follow(from_.pointer_of(locate, 0), element::pointers, names)) return bad();
    if (names.count > lists_.names.size()) return failure(errc::too_large, names.count);
    for (std::size_t i = 0; i < names.count; ++i) {
      object holder;
      std::string_view name;
      (void)from_.at(names, i, holder);  // a text costs no depth
      if (!from_.follow(from_.pointer_of(holder, 0), true, name)) return bad();
      ::new (static_cast<void*>(&lists_.names[i])) std::string_view(name);
    }
    const std::string_view* const first = lists_.names.data();
    m_.names = {first, names.count};
    return {};
  }

  result<void> read_ranges(const object& located) noexcept {
    list ranges;
    if (!from_.follow(from_.pointer_of(located, 0), element::structs, ranges)) return bad();
    if (ranges.count > lists_.ranges.size()) return failure(errc::too_large, ranges.count);
    for (std::size_t i = 0; i < ranges.count; ++i) {
      object range;
      std::uint64_t w[2];
      if (!from_.at(ranges, i, range)) return bad();
      from_.copy_words(range, w, 2);
      ::new (static_cast<void*>(&lists_.ranges[i])) byte_range{w[0], w[1]};
    }
    m_.ranges = {lists_.ranges.data(), ranges.count};
    return {};
  }

  result<void> read_application(const object& application) noexcept {
    list references;
    std::string_view body;
    if (!from_.follow(from_.pointer_of(application, 0), element::structs, references)) return bad();
    if (references.count > lists_.references.size()) return failure(errc::too_large, references.count);
    for (std::size_t i = 0; i < references.count; ++i) {
      object ref;
      std::uint64_t w[4];
      if (!from_.at(references, i, ref)) return bad();
      from_.copy_words(ref, w, 4);
      ::new (static_cast<void*>(&lists_.references[i])) reference{{w[0], w[1]}, w[2], w[3]};
    }
    m_.references = {lists_.references.data(), references.count};
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
