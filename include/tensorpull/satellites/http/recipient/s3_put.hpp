// Sends an image to a store that speaks S3, in parts: what a process that was killed has sent stays there. It needs
// libcurl 7.87.
#pragma once

#include <tensorpull/core/digits.hpp>
#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/satellites/http/detail/base64.hpp>
#include <tensorpull/satellites/http/detail/md5.hpp>
#include <tensorpull/satellites/http/recipient/detail/s3_answers.hpp>
#include <tensorpull/satellites/http/recipient/detail/s3_requests.hpp>
#include <tensorpull/satellites/http/recipient/http_put.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorpull {

/// How an image is sent in parts.
struct s3_put_options {
  http_put_options put{};  ///< `digest` and tries are those of the image, and tries those of each request
  std::string_view region = "us-east-1";  ///< which the signature names
  std::string_view session_token{};  ///< of keys that a service has lent
  /// Bytes of each part but the last: 5 MiB to 5 GiB. 0: 16 MiB, or more if there would be over 10,000. An upload that
  /// was interrupted goes on only with parts of the same length.
  std::uint64_t part_bytes = 0;
};
/// How it went.
struct s3_put_receipt {
  std::uint64_t bytes = 0;  ///< of the image
  std::uint64_t sent = 0;  ///< those of parts that the store did not have
  std::uint64_t digest = 0;  ///< XXH3-64 of the image
  std::uint32_t parts = 0;  ///< how many there were
};

namespace detail {

inline constexpr std::uint64_t s3_most_parts = 10'000;
inline constexpr std::uint64_t s3_least_part_bytes = std::uint64_t{5} << 20;
inline constexpr std::uint64_t s3_most_part_bytes = std::uint64_t{5} << 30;

/// The length of all parts but the last. Errors: invalid_argument (no store takes such parts, or so many); too_large.
constexpr result<std::uint64_t> s3_part_bytes(std::uint64_t image_bytes, std::uint64_t wanted) noexcept {
  constexpr std::uint64_t usual = std::uint64_t{16} << 20, step = std::uint64_t{1} << 20;
  if (image_bytes > s3_most_parts * s3_most_part_bytes) return failure(errc::too_large, image_bytes);
  const std::uint64_t least = (image_bytes + s3_most_parts - 1) / s3_most_parts;
  if (wanted == 0) return std::max(usual, (least + step - 1) / step * step);
  if (wanted < std::max(least, s3_least_part_bytes) || wanted > s3_most_part_bytes)
    return failure(errc::invalid_argument, wanted, std::string_view("part_bytes"));
  return wanted;
}

/// The hashes of a part, and that of the whole, in one pass.
struct s3_part_hash {
  static constexpr digest_kind kind = digest_kind::none;
  md5_hash md5{};
  xxhash_digest part{}, whole{};

  void update(std::span<const std::byte> bytes) noexcept {
    md5.update(bytes);
    part.update(bytes);
    whole.update(bytes);
  }
  std::uint64_t digest() const noexcept { return whole.digest(); }
};

class s3_upload {
 public:
  /// Borrows all of them.
  s3_upload(http_requests& requests, const source_view& image, const s3_put_options& options)
      : image_(image), options_(options), store_(requests, options.put, options.region, options.session_token) {}

  result<s3_put_receipt> put() {
    if (const auto ok = prepare(); !ok) return failure(ok.error());
    if (const auto ok = find_upload(); !ok) return failure(ok.error());
    const bool begun = id_.empty();
    if (begun)
      if (const auto ok = create(); !ok) return failure(ok.error());
    auto done = send_parts();
    if (done) {
      if (const auto ok = complete(); ok) return done;
      else done = failure(ok.error());
    }
    const errc why = done.error().code;
    // nobody goes on with what holds other bytes, or nothing
    const bool empty = begun && etags_.empty() && !is_passing(why) && why != errc::cancelled;
    if (why == errc::digest_mismatch || empty) abort();
    return done;
  }

 private:
  /// How many uploads of the same key are looked at, the newest first, and how many pages of parts of each.
  static constexpr std::size_t most_uploads = 64, most_pages = 100;

  std::uint64_t total() const noexcept { return image_.schema->image_bytes; }
  std::uint64_t parts() const noexcept { return (total() + part_bytes_ - 1) / part_bytes_; }
  std::uint64_t begin_of(std::uint64_t number) const noexcept { return (number - 1) * part_bytes_; }
  std::uint64_t bytes_of(std::uint64_t number) const noexcept {
    return std::min(part_bytes_, total() - begin_of(number));
  }

  /// Reads the URL: its path is "/BUCKET/KEY".
  result<void> prepare() {
    if (const auto ok = store_.prepare(); !ok) return ok;
    const std::string_view path = store_.origin().target();
    std::string decoded;
    for (std::size_t at = 0; at < path.size(); ++at) {
      const auto octet = path[at] == '%' ? percent_octet(path, at) : optional<char>();
      if (path[at] == '?' || (path[at] == '%' && !octet)) return failure(errc::bad_address, 0, std::string_view("URL"));
      decoded += octet ? *octet : path[at];
      if (octet) at += 2;
    }
    const std::size_t slash = decoded.find('/', 1);
    if (slash == decoded.npos || slash == 1 || slash + 1 == decoded.size())
      return failure(errc::bad_address, 0, std::string_view("no /BUCKET/KEY"));
    key_ = decoded.substr(slash + 1);
    bucket_url_ = object_url_ = store_.origin();
    bucket_url_.text.resize(bucket_url_.origin_bytes);
    object_url_.text = bucket_url_.text + s3_encoded(decoded, false);
    bucket_url_.text += s3_encoded(std::string_view(decoded).substr(0, slash), false);
    const auto bytes = s3_part_bytes(total(), options_.part_bytes);
    if (!bytes) return failure(bytes.error());
    part_bytes_ = *bytes;
    return {};
  }

  // ---- what the store has ----
  std::string of_upload() const { return "uploadId=" + s3_encoded(id_, true); }
  /// Looks for an upload of this key that was interrupted, and whose first part is this image's. A key that may not
  /// list them begins anew.
  result<void> find_upload() {
    const auto listed = store_.get(bucket_url_, "prefix=" + s3_encoded(key_, true) + "&uploads=");
    if (!listed) {
      const errc why = listed.error().code;
      return why == errc::not_permitted || why == errc::unsupported_request ? result<void>{} : listed;
    }
    const auto ids = s3_uploads(store_.answer(), key_);
    if (!ids) return unreadable();
    for (std::size_t i = ids->size(), looks = 0; i-- > 0 && looks < most_uploads; ++looks) {
      id_ = (*ids)[i];
      if (!is_id()) return unreadable();
      const auto has = list_parts();
      if (has && !stored_.empty()) {
        const auto same = is_stored(stored_.front().number);
        if (!same) return failure(same.error());
        if (*same) return {};
      }
      stored_.clear();
      // one that has ended meanwhile
      if (!has && has.error() != errc::unknown_reference && has.error() != errc::not_permitted) return has;
    }
    id_.clear();
    return {};
  }
  bool is_id() const noexcept { return !id_.empty() && id_.size() <= 1024 && is_printable(id_); }
  result<void> unreadable() const noexcept {
    return failure(errc::bad_frame, 0, std::string_view("the store's answer"));
  }
  /// The parts of the upload, in the order of their numbers.
  result<void> list_parts() {
    stored_.clear();
    std::uint64_t behind = 0;
    for (std::size_t pages = 0; pages < most_pages; ++pages) {
      const std::string marker = behind == 0 ? "" : "part-number-marker=" + std::to_string(behind) + "&";
      if (const auto ok = store_.get(object_url_, marker + of_upload()); !ok) return ok;
      s3_parts_page page;
      if (!page.read(store_.answer())) return unreadable();
      for (s3_part& p : page.parts) {
        if (p.number <= behind || p.number > s3_most_parts) return unreadable();
        behind = p.number;
        if (p.number <= parts()) stored_.push_back(std::move(p));
      }
      if (!page.truncated) return {};
      if (page.parts.empty() || page.next != behind) return unreadable();
    }
    return unreadable();
  }
  /// Whether the store has the bytes of this part, by its word: their length and their MD5. Of a bucket that encrypts
  /// with keys of its own the entity tag is no MD5, and the part is sent again.
  result<bool> is_stored(std::uint64_t number) {
    const auto there = std::ranges::lower_bound(stored_, number, {}, &s3_part::number);
    if (there == stored_.end() || there->number != number || there->bytes != bytes_of(number)) return false;
    if (std::exchange(looked_at_, number) != number) {
      md5_hash h;
      if (const auto ok = read_part(h, number); !ok) return failure(ok.error());
      md5_ = h.value();
    }
    return is_md5(there->etag, md5_);
  }
  static bool is_md5(std::string_view etag, const md5_value& md5) {
    if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') etag = etag.substr(1, etag.size() - 2);
    return same_but_for_case(etag, hex_digits(md5).view());
  }
  template <class Hash>
  result<void> read_part(Hash& h, std::uint64_t number) const noexcept {
    const auto ok = hash_range<Hash, 16 * 1024>(h, image_, begin_of(number), bytes_of(number), options_.put.stop);
    if (!ok && ok.error() == errc::io) return failure(errc::unreadable, ok.error().at);
    return ok;
  }

  // ---- the upload ----
  result<void> create() {
    const auto ok = store_.tried([&] { return store_.post(object_url_, "uploads=", {}); });
    if (!ok) return ok;
    id_ = s3_answer(store_.answer(), "InitiateMultipartUpload", "UploadId").value_or("");
    return is_id() ? result<void>{} : unreadable();
  }
  result<s3_put_receipt> send_parts() {
    s3_put_receipt done{.bytes = total(), .parts = static_cast<std::uint32_t>(parts())};
    xxhash_digest whole;
    for (std::uint64_t number = 1; number <= parts(); ++number) {
      s3_part_hash h{.whole = whole};
      if (const auto ok = read_part(h, number); !ok) return failure(ok.error());
      whole = h.whole;
      const auto there = std::ranges::lower_bound(stored_, number, {}, &s3_part::number);
      const bool has = there != stored_.end() && there->number == number && there->bytes == bytes_of(number) &&
                       is_md5(there->etag, h.md5.value());
      if (!has) {
        if (const auto ok = send_part(number, h); !ok) return failure(ok.error());
        done.sent += bytes_of(number);
      }
      etags_.push_back(has ? there->etag : std::string(store_.head().etag.view()));
    }
    done.digest = std::max<std::uint64_t>(whole.digest(), 1);
    if (options_.put.digest != 0 && done.digest != options_.put.digest) return failure(errc::digest_mismatch);
    return done;
  }
  result<void> send_part(std::uint64_t number, const s3_part_hash& h) {
    const md5_value md5 = h.md5.value();
    const std::string hash = "Content-MD5: " + to_base64({reinterpret_cast<const char*>(md5.data()), md5.size()});
    const std::uint64_t from = begin_of(number);
    http_body body(image_, from, from + bytes_of(number), std::max<std::uint64_t>(h.part.digest(), 1));
    const auto ok = store_.tried([&] {
      const std::string query = "partNumber=" + std::to_string(number) + "&" + of_upload();
      const auto sent = store_.exchange(
          object_url_, query,
          [&](http_line& l) {
            body.attach(l, options_.put.consent);
            l.add(hash.c_str());
            l.add("X-Amz-Content-Sha256: UNSIGNED-PAYLOAD");  // the MD5 is signed
          },
          &body);
      if (sent && !body.whole())
        return result<void>(failure(errc::unexpected_frame, body.sent(), std::string_view("an answer before the end")));
      return sent;
    });
    if (!ok) return ok;
    return store_.head().etag.empty() ? result<void>(failure(errc::bad_frame, number, std::string_view("no ETag")))
                                      : ok;
  }
  /// Makes one object of the parts. An answer that was lost may have been a good one, and libcurl asks again by itself
  /// over a connection that was kept: then the upload is gone, and the object is asked for.
  result<void> complete() {
    std::string text = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
    for (std::size_t i = 0; i < etags_.size(); ++i)
      text += "<Part><PartNumber>" + std::to_string(i + 1) + "</PartNumber><ETag>" + xml_escaped(etags_[i]) +
              "</ETag></Part>";
    text += "</CompleteMultipartUpload>";
    return store_.tried([&]() -> result<void> {
      const auto ok = store_.post(object_url_, of_upload(), text);
      if (!ok) return ok.error() == errc::unknown_reference && is_there() ? result<void>{} : ok;
      // the status comes before the work: only the body shows how that ended
      if (s3_answer(store_.answer(), "CompleteMultipartUpload", "ETag")) return {};
      if (s3_answer(store_.answer(), "Error", "Code")) return store_.refusal(object_url_);
      return unreadable();
    });
  }
  /// Whether the key has an object of exactly these parts: its length, and an entity tag that is the MD5 of theirs.
  bool is_there() {
    md5_hash h;
    for (std::string_view etag : etags_) {
      if (etag.size() != 34) return false;
      for (std::size_t i = 1; i < 33; i += 2) {
        const auto byte = hex_number(etag.substr(i, 2));
        if (!byte) return false;
        const std::byte one{static_cast<unsigned char>(*byte)};
        h.update(std::span(&one, 1));
      }
    }
    const auto ok = store_.exchange(object_url_, {}, [&](http_line& l) {
      l.set(CURLOPT_NOBODY, 1L);
      s3_requests::say_hash(l, {});
    });
    const std::string etag = "\"" + std::string(hex_digits(h.value()).view()) + "-" + std::to_string(etags_.size()) +
                             "\"";
    return ok && store_.head().length && *store_.head().length == total() && store_.head().etag.view() == etag;
  }
  /// Frees what the store holds: as far as it can be reached, and once.
  void abort() {
    (void)store_.exchange(object_url_, of_upload(), [&](http_line& l) {
      l.set(CURLOPT_CUSTOMREQUEST, "DELETE");
      s3_requests::say_hash(l, {});
    });
  }

  const source_view& image_;
  const s3_put_options& options_;
  s3_requests store_;
  std::string key_{}, id_{};
  http_url bucket_url_{}, object_url_{};
  std::uint64_t part_bytes_ = 0, looked_at_ = 0;
  md5_value md5_{};  // of the part that was looked at
  std::vector<s3_part> stored_{};
  std::vector<std::string> etags_{};
};

}  // namespace detail

/// Sends the image as one object, by S3's multipart upload. `url` of the address is "https://HOST/BUCKET/KEY"; `user`
/// and `password` are the access key and the secret key, which sign each request and are not sent. The object appears
/// when all parts are there, or not at all. If the process is killed or the connection lost, the store keeps the parts,
/// and the next call for the same key goes on: a part that the store has by its own word, with the length and the MD5
/// of ours, is not sent again. No redirect is followed. Memory: one slice, and about 100 bytes a part. Each part is
/// read twice. Errors: as http_put; bad_frame: an answer that is none of S3's; not_permitted and others with the
/// store's word in their names. After `digest_mismatch` the store keeps nothing of it.
inline result<s3_put_receipt> s3_put(const http_address& to, const source_view& image,
                                     const s3_put_options& options) noexcept {
  try {
    if (to.user.empty() || to.password.empty() || !to.bearer.empty() || to.netrc)
      return failure(errc::invalid_argument, 0, std::string_view("authorisation"));
    detail::http_requests requests(to, {});
    return detail::s3_upload(requests, image, options).put();
  } catch (const std::bad_alloc&) {
    return failure(errc::out_of_memory);
  }
}

}  // namespace tensorpull
