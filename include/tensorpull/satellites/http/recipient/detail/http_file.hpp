// What the answers of a server say of the file that is pulled: what its bytes are known by, how they come, and what its
// header says.
#pragma once

#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/image/arrange.hpp>
#include <tensorpull/image/header_reader.hpp>
#include <tensorpull/satellites/http/recipient/http_response.hpp>
#include <tensorpull/system/entropy.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

namespace tensorpull::detail {

/// How the bytes of a file come.
enum class http_delivery : std::uint8_t {
  unknown,  ///< the file has not been described
  ranges,  ///< those that are asked for
  whole,  ///< all of them in one answer, which can be had again
  once,  ///< all of them in one answer; nothing shows whether another would be of the same file
};

/// One file at a server.
struct http_file {
  /// A length that the server does not say.
  static constexpr std::uint64_t no_length = ~std::uint64_t{0};

  http_delivery comes = http_delivery::unknown;
  std::uint64_t total = 0, data_start = 0, fingerprint = 0, tensors = 0, version = 0;
  optional<sha256_value> sha256{};  ///< that the bytes have to have
  bool verifiable = false;  ///< `version` is the digest that they have to have
  std::uint64_t stated_xxh3 = 0;  ///< what it says that it has, if it is `ours`
  bool ours = false;  ///< an owner of this library has it, which wants to hear of the end
  bounded_text<256> if_range{};  ///< what makes sure that ranges are of one file; empty: nothing does

  bool known() const noexcept { return comes != http_delivery::unknown; }
  /// Whether its bytes come in one answer.
  bool in_one_answer() const noexcept { return comes == http_delivery::whole || comes == http_delivery::once; }
  /// Whether two answers are known to be of the same file.
  bool can_go_on() const noexcept { return verifiable || sha256 || !if_range.empty(); }

  /// What answers with a body have to be.
  static result<void> check_body(const http_head& h) noexcept {
    if (h.encoded) return failure(errc::unsupported_layout, 0, std::string_view("Content-Encoding"));
    if (h.multipart) return failure(errc::wrong_payload, 0, std::string_view("multipart/byteranges"));
    return {};
  }
  /// What the bytes are known by. What the caller has stated counts more than what the server says.
  result<void> identify(const http_head& h, const stated_digest& stated) noexcept {
    if (h.digest.doubtful) return failure(errc::bad_frame, 0, std::string_view("Repr-Digest"));
    (void)if_range.assign(!h.etag.empty() ? h.etag.view() : h.modified.view());
    sha256 = stated.sha256;
    if (!stated.any() && h.digest.known) sha256 = h.digest.sha256;
    ours = h.digest.ours;
    stated_xxh3 = std::max<std::uint64_t>(h.digest.xxh3, 1);
    verifiable = stated.xxh3 != 0 || (!stated.any() && ours);
    if (stated.any()) version = version_of(stated);
    else if (verifiable) version = stated_xxh3;
    else if (sha256) version = number_of(*sha256);
    else if (!if_range.empty()) version = number_of(std::as_bytes(std::span(if_range.view())));
    else version = system_entropy{}() | 1;
    return {};
  }
  /// The version of a file whose digest the caller has stated, wherever it is; 0: none is stated.
  static std::uint64_t version_of(const stated_digest& stated) noexcept {
    return stated.xxh3 != 0 || !stated.sha256 ? stated.xxh3 : number_of(*stated.sha256);
  }
  /// What the first answer's range has to be, if it has one: the first bytes, `least` of them if the file has so many,
  /// and no more than `most`.
  static result<void> check_first(const http_head& h, std::uint64_t least, std::uint64_t most) noexcept {
    if (!h.has_range || h.range.from != 0 || h.range.unsatisfied)
      return failure(errc::wrong_payload, 0, std::string_view("Content-Range"));
    if (h.range.total == no_length)
      return failure(errc::unsupported_request, 0, std::string_view("Content-Range without a length"));
    if (h.range.to < std::min(least, h.range.total) || h.range.to > std::min(most, h.range.total) ||
        (h.has_length && h.length != h.range.to))
      return failure(errc::wrong_payload, h.range.to, std::string_view("Content-Range"));
    return {};
  }
  /// Whether an answer is the bytes [from, to) of this file. A server may send fewer than it was asked for (RFC 9110,
  /// 15.3.7), but not fewer than those before `least`.
  result<void> check_range(const http_head& h, std::uint64_t from, std::uint64_t to,
                           std::uint64_t least) const noexcept {
    if (const auto ok = check_body(h); !ok) return ok;
    if (h.status == 200)
      return failure(is_same(h) ? errc::unsupported_request : errc::stale_version, from,
                     std::string_view("200 instead of a range"));
    if (!h.has_range || h.range.unsatisfied || h.range.from != from || h.range.to > to || h.range.to < least)
      return failure(errc::wrong_payload, from, std::string_view("Content-Range"));
    if (h.range.total != total || !is_same(h))
      return failure(errc::stale_version, from, std::string_view("another file"));
    if (h.has_length && h.length != h.range.to - from)
      return failure(errc::wrong_payload, from, std::string_view("Content-Length"));
    return {};
  }
  /// Whether an answer is the whole of this file.
  result<void> check_whole(const http_head& h) const noexcept {
    if (const auto ok = check_body(h); !ok) return ok;
    if (!is_same(h) || (h.has_length && h.length != total))
      return failure(errc::stale_version, 0, std::string_view("another file"));
    return {};
  }

  /// Reads the header, which is whole. One that this library would not have written is not looked into: such a file has
  /// no fingerprint, and lands in a file alone. Throws std::bad_alloc.
  result<void> read_header(std::span<const std::byte> text, std::uint64_t most_tensors) {
    fingerprint = tensors = 0;
    header_reader reader(most_tensors);
    std::vector<tensor_entry> entries;
    std::vector<std::uint64_t> extents;
    std::vector<metadata_entry> metadata;
    if (!reader.take(text) || !reader.complete()) return unknown_header();
    reader.entries(entries, extents, metadata);
    const auto schema = arrange(entries, {}, metadata);
    if (!schema || schema->header_bytes != data_start || !is_ours(*schema, text)) return unknown_header();
    if (total != no_length && total != schema->image_bytes)
      return failure(errc::bad_file, total, std::string_view("its length is not what its header says"));
    total = schema->image_bytes;
    fingerprint = schema->fingerprint;
    tensors = schema->tensor_count;
    return {};
  }

 private:
  /// Servers may ignore If-Range, so what the answer says of itself is compared, too. A weak tag in place of a strong
  /// one is another tag.
  bool is_same(const http_head& h) const noexcept {
    if (if_range.empty()) return true;
    if (if_range.view().starts_with('"')) return !h.tagged || h.etag.view() == if_range.view();
    return h.dated.empty() || h.dated.view() == if_range.view();
  }
  result<void> unknown_header() const noexcept {
    if (total == no_length) return failure(errc::unsupported_request, 0, std::string_view("Content-Length"));
    return {};
  }
  template <class Schema>
  static bool is_ours(const Schema& schema, std::span<const std::byte> text) noexcept {
    std::array<std::byte, 4096> ours;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = write_header(schema, at, std::span(ours).first(std::min(ours.size(), text.size() - at)));
      if (n == 0 || std::memcmp(ours.data(), text.data() + at, n) != 0) return false;
      at += n;
    }
    return true;
  }
  static std::uint64_t number_of(std::span<const std::byte> bytes) noexcept {
    xxh3_64 h;
    h.update(bytes);
    return std::max<std::uint64_t>(h.digest(), 1);
  }
};

}  // namespace tensorpull::detail
