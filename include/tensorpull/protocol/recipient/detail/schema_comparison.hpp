// Walks the other side's schema, page by page, alongside our own, to name the first tensor that differs. It holds a
// counter and no table.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/image/schema.hpp>
#include <tensorpull/protocol/recipient/pull_request.hpp>

namespace tensorpull::detail {

class schema_comparison {
 public:
  /// Index of the next row to ask for.
  std::uint64_t position() const noexcept { return position_; }

  /// Takes a page of the other schema, which has `total` tensors. True: ask for the next page. Otherwise the error is
  /// the result: schema_mismatch with the first differing tensor's name, or bad_frame for a page that was not asked
  /// for. If tensors are asked for by name, our schema is a part of theirs, so only tensors of the same name are
  /// compared, and of slices all but the extent in their dimension. An empty page stands for a tensor whose row is
  /// longer than a page: it is passed over, and the rows behind it are compared by name. If nothing else differs, the
  /// error has no name; it is unsupported_request if slices were asked for: the owner does not know them. `Slices`:
  /// limits::slices.
  template <bool Slices>
  result<bool> take(const frame& page, const pull_request& asked, std::uint64_t total) noexcept {
    const image_schema& own = *asked.schema;
    const bool subset = asked.by_name();
    if (page.offset != position_ || page.tensors != total || page.rows.size() > total - position_)
      return failure(errc::bad_frame);
    for (std::size_t r = 0; r < page.rows.size(); ++r) {
      const schema_row row = page.rows[r];
      const std::uint64_t i = position_++;
      if (subset || passed_over_) {
        const std::size_t k = find_tensor(own, row.name);
        const index_range slice = Slices ? asked.slice_of(row.name) : index_range{};
        if (k == own.tensor_count ? !subset : !same(own.tensors[k], row, slice.all() ? none : slice.dimension))
          return failure(errc::schema_mismatch, 0, row.name);
      } else if (i >= own.tensor_count) {
        return failure(errc::schema_mismatch, 0, row.name);
      } else if (const tensor_entry& t = own.tensors[i]; !same(t, row)) {
        return failure(errc::schema_mismatch, 0, comes_first(t, row) ? t.name : row.name);
      }
    }
    if (page.rows.empty() && position_ < total) ++position_, passed_over_ = true;
    if (position_ < total) return true;
    if (!subset && !passed_over_ && position_ < own.tensor_count)
      return failure(errc::schema_mismatch, 0, own.tensors[position_].name);
    return failure(!Slices || passed_over_ || asked.slices.empty() ? errc::schema_mismatch : errc::unsupported_request);
  }

 private:
  static constexpr std::size_t none = ~std::size_t{0};

  /// `besides`: a dimension whose extents may differ.
  static bool same(const tensor_entry& t, const schema_row& row, std::size_t besides = none) noexcept {
    if (t.name != row.name || to_string(t.type) != row.dtype || t.rank != row.shape.size()) return false;
    for (std::size_t i = 0; i < t.rank; ++i)
      if (i != besides && t.shape[i] != row.shape[i]) return false;
    return true;
  }
  /// Of two tensors at one position of the order (dtype descending, then name), the first one is missing at the other
  /// side.
  static bool comes_first(const tensor_entry& t, const schema_row& row) noexcept {
    const auto theirs = dtype_from_string(row.dtype);
    return !theirs || (t.name == row.name) || image_order(t.type, t.name, *theirs, row.name);
  }

  std::uint64_t position_ = 0;
  bool passed_over_ = false;
};

}  // namespace tensorpull::detail
