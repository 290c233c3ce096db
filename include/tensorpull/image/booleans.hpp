// BOOL elements are 0 or 1. A struct's members hold them as C++ `bool`, which has no other values: to read another byte
// as one is undefined.
#pragma once

#include <tensorpull/image/view.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

namespace detail {
/// The position of the first byte that is no BOOL element; the length if all are.
inline std::size_t first_no_boolean(std::span<const std::byte> bytes) noexcept {
  auto all = std::byte{};
  for (std::size_t i = 0; i < bytes.size(); ++i)
    all |= bytes[i];  // a loop without a branch, which compilers make into vector code
  if (all <= std::byte{1}) return bytes.size();
  std::size_t at = 0;
  while (bytes[at] <= std::byte{1}) ++at;
  return at;
}
/// Calls `f(entry, bytes)` with each BOOL member's bytes among the first `data_bytes` of the data section. Tensors that
/// are no members have none.
template <class F>
void for_booleans(const destination_view& in, std::uint64_t data_bytes, F f) noexcept {
  static_assert(dtype::boolean == dtype{}, "they are the last tensors of an image");
  const image_schema& schema = *in.schema;
  if (!schema.of_members) return;
  for (std::size_t i = schema.tensor_count; i-- > 0 && schema.tensors[i].type == dtype::boolean;)
    if (const tensor_entry& t = schema.tensors[i]; !t.indirect && t.begin < data_bytes)
      f(t, std::span(in.address(i), smaller(data_bytes - t.begin, t.size_bytes())));
}
}  // namespace detail

/// Whether each element of a destination that is a `bool` in memory is 0 or 1. value_out_of_range: the tensor `name`
/// has another byte; `at` is its position in the tensor. Costs a pass over the BOOL members of a struct, and nothing
/// for other destinations: their memory holds bytes.
[[nodiscard]] inline result<void> check_booleans(const destination_view& in) noexcept {
  result<void> good{};
  detail::for_booleans(in, in.schema->data_bytes(),
                       [&good](const tensor_entry& t, std::span<const std::byte> bytes) noexcept {
                         if (const std::size_t at = detail::first_no_boolean(bytes); at < bytes.size())
                           good = failure(errc::value_out_of_range, at, t.name);
                       });
  return good;
}
/// Makes 1 of each such element that is neither 0 nor 1 among the first `data_bytes` of the data section, so that
/// memory of `bool` holds values of its type.
inline void mend_booleans(const destination_view& in, std::uint64_t data_bytes) noexcept {
  detail::for_booleans(in, data_bytes, [](const tensor_entry&, std::span<std::byte> bytes) noexcept {
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (bytes[i] > std::byte{1}) bytes[i] = std::byte{1};
  });
}

}  // namespace tensorpull
