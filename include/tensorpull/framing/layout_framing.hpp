// A framing for small machines: control frames in the one layout in which our encoders write them, read and written in
// place by a constant table. Frames in another layout are refused by name, and kinds that a program does not have take
// no code.
#pragma once

#include <tensorpull/core/limits.hpp>
#include <tensorpull/framing/concept.hpp>
#include <tensorpull/framing/detail/control_writer.hpp>
#include <tensorpull/framing/detail/layout_lists.hpp>
#include <tensorpull/framing/detail/layouts.hpp>
#include <tensorpull/framing/frame_set.hpp>

namespace tensorpull {

/// A policy for the framing slot. `Kinds`: the kinds of frames that the program has. Allocates nothing.
template <frame_set Kinds = all_frames, class Limits = default_limits>
struct basic_layout_framing {
  using is_framing_policy = void;
  using decode_storage = std::conditional_t<Kinds.has(frame_kind::locate) || Kinds.has(frame_kind::application),
                                            detail::layout_storage<Kinds, Limits>, detail::no_layout_storage>;
  /// Memory for a frame whose names and references are not wanted: decode() checks them and leaves them out.
  using short_storage = detail::no_layout_storage;

  /// Writes the same bytes as the other framings. invalid_argument: `Kinds` lacks the frame's kind. does_not_fit: `out`
  /// is too small.
  static result<std::size_t> encode(const frame& m, std::span<std::byte> out) noexcept {
    if (!Kinds.has(m.kind)) return failure(errc::invalid_argument, static_cast<std::uint64_t>(m.kind));
    std::size_t size = table::fixed_bytes(m.kind);
    if (size > out.size()) return failure(errc::does_not_fit, out.size());
    if constexpr (has_lists) {
      detail::segment_writer lists(out);
      lists.take(size / 8 - 2);
      table::put(m, out.data());
      detail::write_lists(m, lists, size / 8 - detail::body_size(m.kind).pointers);
      if (!lists.fits()) return failure(errc::does_not_fit, out.size());
      size = 8 * lists.used();
      store_le64(out.data(), std::uint64_t{size / 8 - 1} << 32);
    } else table::put(m, out.data());
    return size;
  }

  /// Reads a frame that our encoders could have written; views in `m` point into `bytes` or `storage`. The time is that
  /// of reading its words once. bad_frame: not as long as it says, a list that leaves it, a text without its end.
  /// unsupported_layout: any other layout, whether it is a valid one or not, a bit without a meaning that is not zero,
  /// or a chunk. too_large: longer lists than the limits allow. unexpected_frame: a kind that `Kinds` lacks.
  template <class Storage>
    requires(std::same_as<Storage, decode_storage> || std::same_as<Storage, short_storage>)
  static result<void> decode(std::span<const std::byte> bytes, frame& m, Storage& storage) noexcept {
    if (const errc e = table::check(bytes); e != errc{})
      return failure(e, e == errc::unexpected_frame ? static_cast<std::uint64_t>(table::kind_of(bytes.data())) : 0);
    table::take(bytes.data(), m);
    if constexpr (has_lists) {
      const std::size_t fixed = table::fixed_bytes(m.kind) / 8;
      detail::layout_list_reader<Limits> lists(bytes, fixed);
      errc e{};
      if constexpr (Kinds.has(frame_kind::schema_page))
        if (m.kind == frame_kind::schema_page) e = lists.rows(fixed - 1, m);
      if constexpr (Kinds.has(frame_kind::locate))
        if (m.kind == frame_kind::locate) e = lists.names(fixed - 1, m, storage);
      if constexpr (Kinds.has(frame_kind::located))
        if (m.kind == frame_kind::located) e = lists.ranges(fixed - 1, m);
      if constexpr (Kinds.has(frame_kind::application))
        if (m.kind == frame_kind::application) e = lists.message(fixed - 2, m, storage);
      if (e != errc{}) return failure(e, lists.refused());
    }
    return {};
  }

 private:
  using table = detail::layouts<Kinds>;
  static constexpr bool has_lists = Kinds.has(frame_kind::schema_page) || Kinds.has(frame_kind::locate) ||
                                    Kinds.has(frame_kind::located) || Kinds.has(frame_kind::application);
};

/// With every kind and the default limits.
using layout_framing = basic_layout_framing<>;

static_assert(framing<layout_framing>);
static_assert(framing<basic_layout_framing<recipient_frames>>);

}  // namespace tensorpull
