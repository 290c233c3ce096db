// The bytes of an image that a request of HTTP is about: all, those of a tensor, or the text that lists its files; and
// which of them an answer has.
#pragma once

#include <tensorpull/image/schema.hpp>
#include <tensorpull/integrity/tensor_digests.hpp>
#include <tensorpull/satellites/http/owner/detail/ranges.hpp>
#include <tensorpull/satellites/http/owner/detail/text_writer.hpp>
#include <tensorpull/satellites/http/owner/http_request.hpp>
#include <tensorpull/std/optional.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tensorpull::detail {

/// Bytes of an image that a request is about.
struct served_bytes {
  bool is_there = true;
  std::uint64_t begin = 0, end = 0;
  optional<std::uint64_t> digest{};  // XXH3-64 of them, if it is known
};
inline served_bytes bytes_for(const http_request& q, const image_schema& schema) noexcept {
  if (q.route == http_route::image) return {true, 0, schema.image_bytes, {}};
  if (q.route == http_route::files) return {true, 8, schema.header_bytes, {}};  // behind the length of its text
  const std::size_t i = find_tensor(schema, q.file());
  if (i == schema.tensor_count) return {false};
  const tensor_entry& t = schema.tensors[i];
  served_bytes part{true, schema.header_bytes + t.begin, schema.header_bytes + t.end, {}};
  const std::string_view digests = tensor_digests_of(schema);
  if (!digests.empty()) part.digest = stated_tensor_digest(digests, i);
  return part;
}
/// The length of an answer, and which of `total` bytes it has.
inline void put_range(text_writer& text, const byte_choice& chosen, std::uint64_t total) noexcept {
  if (chosen.is == byte_choice::kind::none) {
    text << "Content-Range: bytes */" << total << "\r\nCache-Control: no-store\r\nContent-Length: 0\r\n";
    return;
  }
  text << "Content-Length: " << chosen.to - chosen.from << "\r\n";
  if (chosen.is == byte_choice::kind::part)
    text << "Content-Range: bytes " << chosen.from << "-" << chosen.to - 1 << "/" << total << "\r\n";
}

}  // namespace tensorpull::detail
