// Reads a control frame with the Cap'n Proto library, which follows the pointers of any valid layout within its limits.
// control_words.hpp has the meaning of the words. The storage bounds every list. Only capnp_framing.hpp uses this.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/framing/capnp/detail/capnp_lists.hpp>
#include <tensorpull/framing/detail/control_words.hpp>
#include <tensorpull/framing/frame.hpp>

#include <capnp/any.h>

#include <new>

namespace tensorpull::detail {

// The typed accessors that `capnp` generates would do the same, but they give the compiler about eight functions for
// each field.

/// The first words of the data section; words that the sender's version does not have are zero.
inline void copy_words(capnp::AnyStruct::Reader from, std::uint64_t* to, std::size_t words) {
  const auto bytes = from.getDataSection();
  for (std::size_t i = 0; i < words; ++i) to[i] = i < bytes.size() / 8 ? load_le64(bytes.begin() + 8 * i) : 0;
}
/// The i-th pointer; null if the sender's version does not have it.
inline capnp::AnyPointer::Reader pointer_of(capnp::AnyStruct::Reader from, unsigned i) {
  const auto pointers = from.getPointerSection();
  return i < pointers.size() ? pointers[i] : capnp::AnyPointer::Reader();
}
inline std::string_view text_of(capnp::AnyPointer::Reader p) {
  const auto t = p.getAs<capnp::Text>();
  return {t.begin(), t.size()};
}
using struct_list = capnp::List<capnp::AnyStruct>;
/// A list of structs, or of an older version's elements. False: a list of bits, which no version can have had.
inline bool read_structs(capnp::AnyPointer::Reader p, struct_list::Reader& to) {
  const auto list = p.getAs<capnp::AnyList>();
  to = list.as<struct_list>();
  return list.getElementSize() != capnp::ElementSize::BIT;
}

template <class Storage>
result<void> read_rows(struct_list::Reader tensors, frame& m, Storage& lists) {
  if (tensors.size() > lists.rows.size()) return failure(errc::too_large, tensors.size());
  std::size_t dims = 0;
  for (unsigned i = 0; i < tensors.size(); ++i) {
    const auto shape = pointer_of(tensors[i], 2).getAs<capnp::List<std::uint64_t>>();
    if (shape.size() > lists.dims.size() - dims) return failure(errc::too_large, shape.size());
    for (unsigned k = 0; k < shape.size(); ++k) lists.dims[dims + k] = shape[k];
    ::new (static_cast<void*>(&lists.rows[i]))
        schema_row{text_of(pointer_of(tensors[i], 0)), text_of(pointer_of(tensors[i], 1)),
                   std::span<const std::uint64_t>(lists.dims).subspan(dims, shape.size())};
    dims += shape.size();
  }
  m.rows = std::span<const schema_row>(lists.rows).first(tensors.size());
  return {};
}

template <class Storage>
result<void> read_names(struct_list::Reader names, frame& m, Storage& lists) {
  if (names.size() > lists.names.size()) return failure(errc::too_large, names.size());
  bool sliced = false;
  for (unsigned i = 0; i < names.size(); ++i) {
    ::new (static_cast<void*>(&lists.names[i])) std::string_view(text_of(pointer_of(names[i], 0)));
    std::uint64_t w[3];
    copy_words(names[i], w, 3);
    const index_range slice{w[0], w[1], static_cast<std::uint16_t>(w[2])};
    sliced = sliced || !slice.all();
    if (i < lists.slices.size()) ::new (static_cast<void*>(&lists.slices[i])) index_range(slice);
    else if (sliced) return failure(errc::too_large, names.size());
  }
  m.names = std::span<const std::string_view>(lists.names).first(names.size());
  if (sliced) m.slices = std::span<const index_range>(lists.slices).first(names.size());
  return {};
}

template <class Storage>
result<void> read_ranges(struct_list::Reader ranges, frame& m, Storage& lists) {
  if (ranges.size() > lists.ranges.size()) return failure(errc::too_large, ranges.size());
  for (unsigned i = 0; i < ranges.size(); ++i) {
    std::uint64_t w[2];
    copy_words(ranges[i], w, 2);
    ::new (static_cast<void*>(&lists.ranges[i])) byte_range{w[0], w[1]};
  }
  m.ranges = std::span<const byte_range>(lists.ranges).first(ranges.size());
  return {};
}

template <class Storage>
result<void> read_application(struct_list::Reader refs, capnp::AnyPointer::Reader data, frame& m, Storage& lists) {
  if (refs.size() > lists.references.size()) return failure(errc::too_large, refs.size());
  for (unsigned i = 0; i < refs.size(); ++i) {
    std::uint64_t w[4];
    copy_words(refs[i], w, 4);
    ::new (static_cast<void*>(&lists.references[i])) reference{{w[0], w[1]}, w[2], w[3]};
  }
  m.references = {lists.references.data(), refs.size()};
  const auto body = data.getAs<capnp::Data>();
  if (body.size() > Storage::most_body_bytes) return failure(errc::too_large, body.size());
  m.body = {reinterpret_cast<const std::byte*>(body.begin()), body.size()};
  return {};
}

/// On an error `m` keeps what was read so far.
template <class Storage>
result<void> read_frame(capnp::AnyStruct::Reader root, frame& m, Storage& lists) {
  m = {};
  std::uint64_t words[1 + most_body_words]{};
  copy_words(root, words, size_of_frame.data);
  take_head(words[0], m);
  if (m.kind == frame_kind::chunk) return failure(errc::unsupported_layout);
  if (m.kind > frame_kind::application) return failure(errc::unexpected_frame, static_cast<std::uint64_t>(m.kind));
  if (body_size(m.kind).data == 0) {
    take_words(words, m);
    return {};
  }
  const auto body = pointer_of(root, 0).getAs<capnp::AnyStruct>();
  copy_words(body, words + 1, body_size(m.kind).data);
  take_words(words, m);
  if (m.kind == frame_kind::description) return {};
  const auto list = pointer_of(body, 0);
  struct_list::Reader structs;
  if (!read_structs(list, structs)) return failure(errc::bad_frame);
  if (m.kind == frame_kind::locate) return read_names(structs, m, lists);
  if (m.kind == frame_kind::schema_page) return read_rows(structs, m, lists);
  if (m.kind == frame_kind::located) return read_ranges(structs, m, lists);
  return read_application(structs, pointer_of(body, 1), m, lists);
}

}  // namespace tensorpull::detail
