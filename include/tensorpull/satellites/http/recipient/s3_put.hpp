// Sends an image to a store that speaks S3, in parts: what a process that was killed has sent stays there. It needs
// libcurl 7.87.
#pragma once

#include <tensorpull/core/digits.hpp>
#include <tensorpull/core/sha256.hpp>
#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/satellites/http/detail/base64.hpp>
#include <tensorpull/satellites/http/detail/md5.hpp>
#include <tensorpull/satellites/http/recipient/detail/s3_answers.hpp>
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

/// Text as a signature has it: each byte that is not unreserved (RFC 3986) as a percent sign and two capital digits.
inline std::string s3_encoded(std::string_view text, bool slashes) {
  std::string out;
  for (const char c : text) {
    if (is_alphanumeric(c) || std::string_view("-._~").find(c) != std::string_view::npos || (c == '/' && !slashes)) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    for (const char digit : {hex_digit(byte >> 4), hex_digit(byte)})
      out += digit >= 'a' ? static_cast<char>(digit - 'a' + 'A') : digit;
    out.insert(out.size() - 2, 1, '%');
  }
  return out;
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

class s3_upload final : http_taker {
 public:
  /// Borrows all of them.
  s3_upload(http_requests& requests, const source_view& image, const s3_put_options& options)
      : requests_(requests), image_(image), options_(options), over_(1),
        signature_("aws:amz:" + std::string(options.region) + ":s3"),
        token_("X-Amz-Security-Token: " + std::string(options.session_token)) {}

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
  static constexpr std::size_t most_answer_bytes = std::size_t{1} << 20;
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
    if (const auto ok = requests_.prepare(); !ok) return ok;
    const bool region = !options_.region.empty() && options_.region.size() <= 64 &&
                        std::ranges::all_of(options_.region, [](char c) { return is_alphanumeric(c) || c == '-'; });
    if (!region) return failure(errc::invalid_argument, 0, std::string_view("region"));
    if (options_.session_token.size() > 16384 || !is_printable(options_.session_token))
      return failure(errc::invalid_argument, 0, std::string_view("session_token"));
    if (const auto* const curl = curl_version_info(CURLVERSION_NOW); curl->version_num < 0x075700)
      return failure(errc::unsupported_request, 0, std::string_view("libcurl before 7.87"));
    const std::string_view path = requests_.origin().target();
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
    bucket_url_ = object_url_ = requests_.origin();
    bucket_url_.text.resize(bucket_url_.origin_bytes);
    object_url_.text = bucket_url_.text + s3_encoded(decoded, false);
    bucket_url_.text += s3_encoded(std::string_view(decoded).substr(0, slash), false);
    const auto bytes = s3_part_bytes(total(), options_.part_bytes);
    if (!bytes) return failure(bytes.error());
    part_bytes_ = *bytes;
    return {};
  }

  // ---- requests ----
  /// One request: `set(line)` makes it, and `body` is what it sends, if it sends a part of the image. Its answer is
  /// answer_ and head_. Errors: those of the connection, and that of the answer.
  template <class Set>
  result<void> exchange(http_url url, std::string_view query, Set set, http_body* body = nullptr) {
    if (!query.empty()) (url.text += '?') += query;
    answer_.clear();
    rest_ = {};
    http_line& l = over_.first();
    if (const auto ok = requests_.begin(over_, l, *this, url); !ok) return ok;
    l.set(CURLOPT_AWS_SIGV4, signature_);
    if (!options_.session_token.empty()) l.add(token_.c_str());
    set(l);
    if (const auto ok = over_.start(l); !ok) return ok;
    auto asked = std::chrono::steady_clock::now();
    const auto ended = [&]() -> result<bool> {
      // a store may send spaces while it makes an object of parts, and not for ever
      const auto now = std::chrono::steady_clock::now();
      if (body != nullptr && !body->whole()) asked = now;
      if ((now - asked) / 10 > options_.put.timeout) return failure(errc::timed_out);
      if (l.now() != http_line::phase::ended) return false;
      if (const auto how = l.outcome(); !how) return failure(how.error());
      return true;
    };
    const auto moved = [&] { return std::pair(body != nullptr ? body->progress() : 0, answer_.size()); };
    const auto ok = await_line(over_, ended, moved, options_.put.timeout, options_.put.stop);
    const auto answered = l.answered();
    if (answered && *answered) head_ = l.head();
    over_.drop(l);
    if (body != nullptr && !body->outcome()) return body->outcome();
    // a refusal counts, even if the connection was lost behind it
    const bool refused = answered && *answered && head_.status >= 300 && is_passing(ok ? errc{} : ok.error().code);
    if (!ok && !refused) return ok;
    rest_ = head_.is_busy() ? back_off(options_.put.retry, busy_++, head_.wait) : head_.wait;
    return head_.status == 200 || head_.status == 204 ? result<void>{} : refusal(url);
  }
  std::size_t take(http_line& l, std::span<const std::byte> bytes) noexcept override {
    if (answer_.size() + bytes.size() > most_answer_bytes) {
      l.refuse({errc::too_large, 0, answer_.size() + bytes.size(), std::string_view("answer")});
      return 0;
    }
    try {
      answer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    } catch (const std::bad_alloc&) {
      l.refuse({errc::out_of_memory, 0, 0, {}});
      return 0;
    }
    return bytes.size();
  }
  /// The error of an answer, whose name begins with its status and the store's own word for it.
  result<void> refusal(const http_url& url) const {
    error e = error_of_status(head_.status, url);
    const auto code = s3_answer(answer_, "Error", "Code").value_or("");
    if (code.empty() || code.size() > 40 || !std::ranges::all_of(code, is_alphanumeric)) return failure(e);
    e.name = std::string_view(std::to_string(head_.status) + " " + code + " from " + std::string(url.address()));
    if (head_.status == 200)
      e.code = code == "InternalError" || code == "ServiceUnavailable" ? errc::connection_failed : errc::bad_request;
    if (code == "RequestTimeout") e.code = errc::timed_out;
    if (code == "BadDigest" || code == "IncompleteBody") e.code = errc::connection_lost;  // damaged on its way
    if (code == "SlowDown") e.code = errc::busy;
    return failure(e);
  }
  /// Tries it as often as the policy has it.
  template <class Once>
  result<void> tried(Once once) {
    const retry_state tries(options_.put.retry, options_.put.timeout);
    return keep_trying(once, tries, options_.put.stop, [&] { return rest_; });
  }
  result<void> get(const http_url& url, const std::string& query) {
    return tried([&] { return exchange(url, query, [&](http_line& l) { say_hash(l, {}); }); });
  }
  result<void> post(const std::string& query, const std::string& text) {
    return exchange(object_url_, query, [&](http_line& l) {
      l.set(CURLOPT_POST, 1L);
      l.set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(text.size()));
      l.set(CURLOPT_POSTFIELDS, text.c_str());
      l.add(text.empty() ? "Content-Type: application/octet-stream" : "Content-Type: application/xml");
      say_hash(l, text);
    });
  }
  static void say_hash(http_line& l, std::string_view text) {
    sha256_hash h;
    h.update(std::as_bytes(std::span(text)));
    l.add(("X-Amz-Content-Sha256: " + std::string(hex_digits(h.value()).view())).c_str());
  }
  std::string of_upload() const { return "uploadId=" + s3_encoded(id_, true); }

  // ---- what the store has ----
  /// Looks for an upload of this key that was interrupted, and whose first part is this image's. A key that may not
  /// list them begins anew.
  result<void> find_upload() {
    const auto listed = get(bucket_url_, "prefix=" + s3_encoded(key_, true) + "&uploads=");
    if (!listed) {
      const errc why = listed.error().code;
      return why == errc::not_permitted || why == errc::unsupported_request ? result<void>{} : listed;
    }
    const auto ids = s3_uploads(answer_, key_);
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
      if (const auto ok = get(object_url_, marker + of_upload()); !ok) return ok;
      s3_parts_page page;
      if (!page.read(answer_)) return unreadable();
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
    const auto ok = tried([&] { return post("uploads=", {}); });
    if (!ok) return ok;
    id_ = s3_answer(answer_, "InitiateMultipartUpload", "UploadId").value_or("");
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
      etags_.push_back(has ? there->etag : std::string(head_.etag.view()));
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
    const auto ok = tried([&] {
      const std::string query = "partNumber=" + std::to_string(number) + "&" + of_upload();
      const auto sent = exchange(
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
    return head_.etag.empty() ? result<void>(failure(errc::bad_frame, number, std::string_view("no ETag"))) : ok;
  }
  /// Makes one object of the parts. An answer that was lost may have been a good one, and libcurl asks again by itself
  /// over a connection that was kept: then the upload is gone, and the object is asked for.
  result<void> complete() {
    std::string text = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
    for (std::size_t i = 0; i < etags_.size(); ++i)
      text += "<Part><PartNumber>" + std::to_string(i + 1) + "</PartNumber><ETag>" + xml_escaped(etags_[i]) +
              "</ETag></Part>";
    text += "</CompleteMultipartUpload>";
    return tried([&]() -> result<void> {
      const auto ok = post(of_upload(), text);
      if (!ok) return ok.error() == errc::unknown_reference && is_there() ? result<void>{} : ok;
      // the status comes before the work: only the body shows how that ended
      if (s3_answer(answer_, "CompleteMultipartUpload", "ETag")) return {};
      if (s3_answer(answer_, "Error", "Code")) return refusal(object_url_);
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
    const auto ok = exchange(object_url_, {}, [&](http_line& l) {
      l.set(CURLOPT_NOBODY, 1L);
      say_hash(l, {});
    });
    const std::string etag = "\"" + std::string(hex_digits(h.value()).view()) + "-" + std::to_string(etags_.size()) +
                             "\"";
    return ok && head_.length && *head_.length == total() && head_.etag.view() == etag;
  }
  /// Frees what the store holds: as far as it can be reached, and once.
  void abort() {
    (void)exchange(object_url_, of_upload(), [&](http_line& l) {
      l.set(CURLOPT_CUSTOMREQUEST, "DELETE");
      say_hash(l, {});
    });
  }

  http_requests& requests_;
  const source_view& image_;
  const s3_put_options& options_;
  http_lines over_;
  std::string signature_, token_, key_{}, id_{}, answer_{};
  http_url bucket_url_{}, object_url_{};
  http_head head_{};
  std::uint64_t part_bytes_ = 0, looked_at_ = 0;
  md5_value md5_{};  // of the part that was looked at
  std::vector<s3_part> stored_{};
  std::vector<std::string> etags_{};
  std::chrono::milliseconds rest_{0};
  unsigned busy_ = 0;
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
