// The file that is pulled, as the answers of a server describe it: the identity of its bytes, and its header.
#pragma once

#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/image/arrange.hpp>
#include <tensorpull/image/header_reader.hpp>
#include <tensorpull/satellites/http/recipient/detail/http_head.hpp>
#include <tensorpull/system/entropy.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

namespace tensorpull::detail {

/// One file at a server.
struct http_file {
  /// A length that the server does not say.
  static constexpr std::uint64_t no_length = ~std::uint64_t{0};

  bool found = false;  ///< a server has answered with bytes of it
  bool described = false;  ///< and the transfer was told what its header says
  std::uint64_t total = 0, data_start = 0, fingerprint = 0, tensors = 0, version = 0;
  stated_digest digest{};  ///< that the bytes have to have
  bool proved = false;  ///< it is compared in the end, so that a mixture of two files is found
  bool by_caller = false;  ///< and the caller has stated it, so that nothing that a server says of itself matters
  std::uint64_t stated_xxh3 = 0;  ///< what an owner of this library says that it has; 0: nothing
  bounded_text validator{};  ///< an ETag or a date that two answers of one file share; empty: nothing does

  /// Whether a mixture of two files cannot come to be, or is found. If not, all of it comes in one answer or not at
  /// all.
  bool can_go_on() const noexcept { return proved || !validator.empty(); }
  /// The condition of a request for a range, so that it gets bytes of this file alone. With the caller's digest there
  /// is none: the nodes of a network may have a tag each, and some servers forget the range.
  std::string_view if_range() const noexcept { return by_caller ? std::string_view() : validator.view(); }

  /// Takes the identity of the bytes from the first answer. The caller's statements count more than the server's.
  /// `hashes`: an XXH3 is computed.
  result<void> identify(const http_head& h, const stated_digest& stated, bool hashes) noexcept {
    if (h.digest.doubtful) return failure(errc::bad_frame, 0, std::string_view("Repr-Digest"));
    total = h.is_part() ? h.range->total : h.length.value_or(no_length);
    validator = h.etag;
    if (validator.empty() && h.dated_strongly) validator = h.dated;
    digest = stated;
    stated_xxh3 = xxh3_of(h);
    if (!stated.any()) {
      digest.xxh3 = stated_xxh3;
      if (h.digest.known) digest.sha256 = h.digest.sha256;
    }
    proved = digest.sha256 || (hashes && digest.xxh3 != 0);
    by_caller = proved && stated.any();
    version = version_of(digest);
    if (version == 0 && !validator.empty()) version = number_of(std::as_bytes(std::span(validator.view())));
    if (version == 0) version = system_entropy{}() | 1;
    found = can_go_on() || !h.is_part();
    return {};
  }
  /// The version of a file whose digest is known, wherever it is; 0: none is.
  static std::uint64_t version_of(const stated_digest& stated) noexcept {
    return stated.xxh3 != 0 || !stated.sha256 ? stated.xxh3 : number_of(*stated.sha256);
  }
  /// Whether an answer is the whole of this file, or has bytes of it from `from` on, and none behind `to`: a server may
  /// send fewer than it was asked for (RFC 9110, 15.3.7).
  result<void> check(const http_head& h, std::uint64_t from, std::uint64_t to) const noexcept {
    const auto& r = h.range;
    if (h.encoded) return failure(errc::unsupported_layout, 0, std::string_view("Content-Encoding"));
    if (h.multipart) return failure(errc::wrong_payload, 0, std::string_view("multipart/byteranges"));
    if (r && r->total == no_length)
      return failure(errc::unsupported_request, 0, std::string_view("Content-Range without a length"));
    const bool fits = h.is_whole() || (r && r->from == from && r->to <= std::min(to, r->total) &&
                                       (!h.length || *h.length == r->to - from));
    if (!fits) return failure(errc::wrong_payload, from, std::string_view("Content-Range"));
    if (found && (!is_same(h) || (h.is_part() ? r->total : h.length.value_or(total)) != total))
      return failure(errc::stale_version, from, std::string_view("another file"));
    return {};
  }

  /// Reads the header, which is whole. One that this library would not have written is not looked into: such a file has
  /// no fingerprint, and lands in a file alone. Throws std::bad_alloc.
  result<void> read_header(std::span<const std::byte> text, std::uint64_t most_tensors) {
    header_reader reader(most_tensors);
    std::vector<tensor_entry> entries;
    std::vector<std::uint64_t> extents;
    std::vector<metadata_entry> metadata;
    const bool reads = reader.take(text) && reader.complete();
    if (reads) reader.entries(entries, extents, metadata);
    const auto schema = arrange(entries, {}, metadata);
    if (!reads || !schema || schema->header_bytes != data_start || !is_ours(*schema, text)) {
      if (total == no_length) return failure(errc::unsupported_request, 0, std::string_view("Content-Length"));
      return {};
    }
    if (total != no_length && total != schema->image_bytes)
      return failure(errc::bad_file, total, std::string_view("its length is not what its header says"));
    total = schema->image_bytes;
    fingerprint = schema->fingerprint;
    tensors = schema->tensor_count;
    return {};
  }

 private:
  /// Servers may ignore If-Range, so what the answer says of itself is compared. A weak tag in place of a strong one is
  /// another tag. An answer that says nothing of itself is taken only if a digest finds a mixture.
  bool is_same(const http_head& h) const noexcept {
    if (by_caller) return true;
    if ((stated_xxh3 != 0 && h.digest.ours && xxh3_of(h) != stated_xxh3) ||
        (digest.sha256 && h.digest.known && h.digest.sha256 != *digest.sha256))
      return false;
    const bool tag = validator.view().starts_with('"');
    if (!validator.empty() && (tag ? h.tagged : !h.dated.empty()))
      return (tag ? h.etag : h.dated).view() == validator.view();
    return proved;
  }
  static std::uint64_t xxh3_of(const http_head& h) noexcept {
    return h.digest.ours ? std::max<std::uint64_t>(h.digest.xxh3, 1) : 0;
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
