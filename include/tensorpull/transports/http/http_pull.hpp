// Pulls a safetensors file from any HTTP server: the policy `http`. With TLS too: transports/https.
#pragma once

#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/image/arrange.hpp>
#include <tensorpull/image/header_reader.hpp>
#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/transports/http/detail/pull_request.hpp>
#include <tensorpull/transports/http/detail/pull_sha256.hpp>
#include <tensorpull/transports/http/http_address.hpp>
#include <tensorpull/transports/http/http_url.hpp>
#include <tensorpull/transports/proxy/proxied_stream.hpp>
#include <tensorpull/transports/stream/establish.hpp>
#include <tensorpull/transports/stream/pull.hpp>
#include <tensorpull/transports/tcp/tcp_connect.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace tensorpull {

/// The ID under which cursors know what a URL names: all of it decides, scheme, host, port, path and query, and nothing
/// of it can be read there.
inline ref_id http_reference(const http_url& url) {
  const std::string text = url.text();
  xxh3_64 a, b;
  const std::string_view salt = "tensorpull.http";
  a.update(std::as_bytes(std::span(text)));
  b.update(std::as_bytes(std::span(salt)));
  b.update(std::as_bytes(std::span(text)));
  return {a.digest() | 1, b.digest()};
}
/// The same of a URL as a user writes it. Errors as parse_http_url.
inline result<ref_id> http_reference(std::string_view url) {
  const auto parsed = parse_http_url(url);
  if (!parsed) return failure(parsed.error());
  return http_reference(*parsed);
}

namespace detail {

/// A consumer behind one that computes SHA-256, if a digest of that kind is to be compared.
template <consumer Consumer>
class sha256_checked {
 public:
  static constexpr bool irrevocable = Consumer::irrevocable;

  explicit sha256_checked(Consumer& to) noexcept : to_(to) {}
  void expect(const sha256_value& digest) noexcept { expected_ = digest, checks_ = true; }
  bool verified() const noexcept { return verified_; }

  auto fingerprint() const noexcept { return to_.fingerprint(); }
  const image_schema* schema() const noexcept { return to_.schema(); }
  result<void> begin(const description& d) noexcept { return to_.begin(d); }
  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    return to_.prepare(offset, length, out);
  }
  result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    if (checks_) {
      if constexpr (reads_back)
        if (hashed_ < offset) {  // a resumed transfer begins behind what is there already
          if (const auto ok = hash_range(hash_, to_.read_back(), hashed_, offset - hashed_); !ok) return ok;
          hashed_ = offset;
        }
      if (hashed_ != offset) return failure(errc::not_verifiable);
      hash_.update(bytes);  // before the consumer has them, which may change their order in place
      hashed_ += bytes.size();
    }
    return to_.commit(offset, bytes);
  }
  result<void> chunk(std::uint64_t offset, std::uint64_t length) noexcept { return to_.chunk(offset, length); }
  result<void> finish(const receipt& r) noexcept {
    if (!checks_) return to_.finish(r);
    if (hash_.value() != expected_) return failure(errc::digest_mismatch);
    verified_ = true;
    receipt with = r;
    with.outcome = outcome::completed;
    return to_.finish(with);
  }
  void abandon(const error& e) noexcept { to_.abandon(e); }
  source_view read_back() const noexcept
    requires requires(const Consumer& c) { c.read_back(); }
  {
    return to_.read_back();
  }
  void confirmed() noexcept
    requires requires(Consumer& c) { c.confirmed(); }
  {
    to_.confirmed();
  }

 private:
  static constexpr bool reads_back = requires(const Consumer& c) { c.read_back(); };
  Consumer& to_;
  sha256_hash hash_{};
  sha256_value expected_{};
  std::uint64_t hashed_ = 0;
  bool checks_ = false, verified_ = false;
};

/// Where a connection leads: further ones are made to the same place, without asking for its address and without
/// waiting.
class reached_place {
 public:
  /// Error: connection_failed: the socket has no other end.
  static result<reached_place> of(int fd) noexcept {
    reached_place p;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&p.where_), &p.size_) != 0)
      return failure(errc::connection_failed, 0, {}, errno);
    return p;
  }
  /// Begins to connect; the stream's establish() says how it ends. Error: connection_failed (with errno).
  result<posix_stream> start_connect() const noexcept {
    posix_stream s(::socket(where_.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), true);
    if (s.native_handle() < 0) return failure(errc::connection_failed, 0, {}, errno);
    if (::connect(s.native_handle(), reinterpret_cast<const sockaddr*>(&where_), size_) != 0 && errno != EINPROGRESS)
      return failure(errc::connection_failed, 0, {}, errno);
    return s;
  }

 private:
  sockaddr_storage where_{};
  socklen_t size_ = sizeof(sockaddr_storage);
};

/// Makes connections for plain http.
struct http_dial {
  using stream = posix_stream;
  static constexpr bool encrypts = false;
  /// With a proxy, to the proxy: the request names the whole URL then. Errors: as tcp_connect; unsupported_request: the
  /// URL is https.
  result<stream> connect(const http_url& url, const http_proxy& proxy, std::chrono::milliseconds timeout,
                         const stop_token& stop) const {
    if (url.secure) return failure(errc::unsupported_request, 0, std::string_view("https, without transports/https"));
    const std::string address = url.address();
    return tcp_connect(proxy.address.empty() ? std::string_view(address) : proxy.address, deadline_after(timeout),
                       stop);
  }
  /// Begins another connection to the place where one has led, and does not wait. Errors: as
  /// reached_place::start_connect.
  result<stream> start(const http_url&, const http_proxy&, const reached_place& place) const noexcept {
    return place.start_connect();
  }
};

/// What a driver without frames is for running_pull.
struct no_http_endpoint {
  static void begin_pull() noexcept {}
  template <class Transfer>
  static void end_pull(Transfer&) noexcept {}
  static bool send_control(const frame&) noexcept { return false; }
};

/// What a caller says that the file's digest is.
struct stated_digest {
  optional<sha256_value> sha256{};
  std::uint64_t xxh3 = 0;  // 0: none
};
inline result<stated_digest> parse_stated_digest(std::string_view text) noexcept {
  stated_digest out;
  if (text.empty()) return out;
  if (text.starts_with("sha256:")) {
    out.sha256 = parse_sha256(text.substr(7));
    if (out.sha256) return out;
  } else if (text.starts_with("xxh3:") && text.size() == 21) {
    const auto [end, bad] = std::from_chars(text.data() + 5, text.data() + 21, out.xxh3, 16);
    if (bad == std::errc{} && end == text.data() + 21) {
      if (out.xxh3 == 0) out.xxh3 = 1;
      return out;
    }
  }
  return failure(errc::invalid_argument, 0, std::string_view("digest"));
}

/// The server's side of one pull, as the state machine of the recipient sees it: requests become ranges, and answers
/// become frames.
template <class Dial, class Limits>
class http_exchange {
 public:
  using line = http_line<typename Dial::stream>;
  /// Bytes that the first request asks for: the header of most files is in them.
  static constexpr std::uint64_t first_bytes = 64 * 1024;
  static constexpr std::uint32_t most_connections = 8;

  http_exchange(Dial dial, const http_address& to, const pull_options& options, const stated_digest& stated,
                bool needs_digest)
      : dial_(std::move(dial)), to_(to), options_(options), stated_(stated), needs_digest_(needs_digest),
        count_(std::clamp<std::uint32_t>(std::min(to.connections, options.window), 1, most_connections)),
        lines_(new line[count_]) {}

  /// Errors: as parse_http_url; invalid_argument: an authorisation, a name or a proxy with characters that could end a
  /// line.
  result<void> prepare() {
    auto url = checked_url(to_);
    if (!url) return failure(url.error());
    origin_ = std::move(*url);
    url_ = origin_;
    if (to_.recipient.empty()) {  // an owner of this library would take each connection for a recipient, none of which
                                  // has all bytes
      const std::uint64_t me = random_recipient().value;
      for (std::size_t i = 0; i < name_.size(); ++i) name_[i] = "0123456789abcdef"[me >> (60 - 4 * i) & 15];
      to_.recipient = {name_.data(), name_.size()};
    }
    write_common();
    return {};
  }
  const http_url& origin() const noexcept { return origin_; }

  /// Goes on until the transfer has ended (no value), or until an error after which another try may succeed.
  template <class Pull, class Checked>
  optional<error> drive(Pull& pull, Checked& checked) {
    auto& t = pull.transfer();
    no_http_endpoint end;
    pull.begin(end);
    optional<error> why;
    while (!t.ended() && !why && !pull.stopped()) {
      bool moved = false;
      frame f;
      while (queued_ < queue_.size() && t.next(f)) {
        moved = true;
        if (const auto ok = asked(f, pull, checked); !ok) why = ok.error();
        if (why || t.ended()) break;
      }
      if (!why && !t.ended()) {
        const auto did = step(pull);
        if (!did) why = did.error();
        else moved |= *did;
      }
      pull.note();
      if (why) {
        if (!is_passing(why->code)) t.fail(*why), why = {};
        break;
      }
      why = pull.judge();
      if (t.ended() || why || moved) continue;
      wait(std::min(wait_step, pull.left()));
    }
    if (t.ended()) say_goodbye(pull);
    for (std::uint32_t i = 0; i < count_; ++i) lines_[i].drop();
    first_ = queued_ = 0;
    (void)pull.finish(end);
    return why;
  }

 private:
  struct item {
    std::uint32_t id = 0;
    std::uint64_t offset = 0, length = 0, landed = 0;
    std::int32_t line = -1;  // which connection it has; -1: none
    bool delivered = false;  // the transfer has taken it
    std::chrono::steady_clock::time_point asked{};  // or when it began to wait for a connection, as the first
  };

  /// What all requests for ranges have in common.
  void write_common() {
    common_ = "GET ";
    add_target(common_, to_, url_, url_.target);
    common_ += " HTTP/1.1\r\n";
    add_fields(common_, to_, url_, origin_);
    add_field(common_, "Accept-Encoding", "identity");
  }
  // ---- what the state machine asks ----
  template <class Pull, class Checked>
  result<void> asked(const frame& f, Pull& pull, Checked& checked) {
    auto& t = pull.transfer();
    frame m;
    m.id = f.id, m.ref = f.ref, m.version = version_, m.nonce = 1;
    if (f.kind == frame_kind::describe) {
      if (!known_) {
        const auto ok = describe(pull, f);
        if (!ok || !known_) return ok;
        if (t.ended()) return {};
        if (needs_digest_ && !verifiable_ && !sha256_) return t.fail({errc::not_verifiable, 0, 0, {}}), result<void>{};
        if (sha256_) checked.expect(*sha256_);
      } else if (whole_ && !resumable_ && t.landed_bytes() > 0) {
        return t.fail({errc::connection_lost, 0, 0, std::string_view("and nothing can be gone on with")}),
               result<void>{};
      }
      m.version = version_;
      m.kind = frame_kind::description;
      m.fingerprint = fingerprint_;
      m.image_bytes = total_, m.data_start = data_start_, m.tensors = tensors_;
      m.length = static_cast<std::uint32_t>(max_payload_bytes);
      m.window = static_cast<std::uint16_t>(count_);
      m.flag = verifiable_;
      t.on(m);
      return {};
    }
    if (f.kind == frame_kind::pull) {
      item& i = queue_[(first_ + queued_++) % queue_.size()];
      i = {f.id, f.offset, known_ ? std::min<std::uint64_t>(f.length, total_ - std::min(total_, f.offset)) : f.length,
           0,    -1,       false,
           {}};
      return {};
    }
    if (f.kind == frame_kind::confirm) return confirm(pull, f);
    m.kind = frame_kind::refused;
    m.status = f.kind == frame_kind::schema ? status::schema_mismatch : status::unsupported;
    t.on(m);
    return {};
  }

  // ---- waiting for one connection ----
  template <class Pull, class Step>
  result<void> until(Pull& pull, Step step) {
    for (;;) {
      if (pull.stopped()) return {};  // the transfer has ended
      const result<bool> did = step();
      if (!did) return failure(did.error());
      if (*did) return {};
      if (const auto why = pull.judge()) return failure(*why);
      (void)go_on_opening();  // who is connected would end each wait
      wait(std::min(wait_step, pull.left()));
    }
  }
  template <class Pull>
  result<void> connect(Pull& pull, line& l) {
    if (l.connected()) return {};
    auto s = dial_.connect(url_, to_.proxy, pull.left(), options_.stop);
    if (!s) return failure(s.error());
    const auto place = reached_place::of(s->native_handle());
    place_ = place ? optional<reached_place>(*place) : optional<reached_place>();
    l.connect(std::move(*s));
    return {};
  }
  /// A request over this connection, or over a new one, until the head of its answer is there. `ask` writes it. If the
  /// server has closed a connection that was idle, it is asked once more: hardly any such request has reached somebody,
  /// and none of ours does harm twice.
  template <class Pull, class Ask>
  result<void> exchange(Pull& pull, line& l, Ask ask) {
    if (l.now() != line::phase::idle) l.drop();
    if (l.connected() && !l.still_there()) l.drop();
    for (;;) {
      if (const auto ok = connect(pull, l); !ok) return ok;
      ask();
      bool closed = false;
      const auto ok = until(pull, [&] {
        auto did = l.step();
        closed = !did && closed_while_idle(l, did.error());
        return did;
      });
      if (!closed) return ok;
      l.drop();
    }
  }
  static bool closed_while_idle(const line& l, const error& why) noexcept {
    return l.used() && !l.heard() && (why.code == errc::connection_lost || why.code == errc::truncated);
  }
  void wait(std::chrono::milliseconds time) {
    std::array<pollfd, most_connections> fds{};
    for (std::uint32_t i = 0; i < count_; ++i)
      fds[i] = lines_[i].waits_for(whole_ || !known_ ||
                                   (queued_ > 0 && queue_[first_].line == static_cast<std::int32_t>(i)));
    (void)::poll(fds.data(), count_, static_cast<int>(std::max<std::int64_t>(0, time.count())));
  }

  // ---- the first answer: what there is ----
  template <class Pull>
  result<void> describe(Pull& pull, const frame& f) {
    line& l = lines_[0];
    bool ranged = true;
    for (std::uint32_t redirects = 0;;) {
      const auto ask = [&] {
        if (ranged) l.ask(common_, 0, first_bytes, {});
        else l.ask(common_);
      };
      const auto began = std::chrono::steady_clock::now();
      if (const auto ok = exchange(pull, l, ask); !ok || pull.ended()) return ok;
      first_answer_ = std::chrono::steady_clock::now() - began;
      http_head& h = l.head();
      if (is_redirect(h.status)) {
        if (redirects++ == to_.redirects)
          return failure(errc::not_permitted, h.status, std::string_view("too many redirects"));
        auto next = resolve_location(url_, h.location);
        if (!next) return failure(next.error());
        l.drop();
        url_ = std::move(*next);
        write_common();
        continue;
      }
      if (h.status == 416 && ranged) return failure(errc::bad_file, 416, std::string_view("an empty file"));
      if (h.status != 200 && h.status != 206) return refused(pull, f, l);
      if (const auto ok = check_body(h); !ok) return ok;
      whole_ = h.status == 200;
      if (!whole_) {
        if (!h.has_range || h.range.from != 0 || h.range.unsatisfied || !ranged)
          return failure(errc::wrong_payload, 0, std::string_view("Content-Range"));
        if (h.range.total == ~std::uint64_t{0})
          return failure(errc::unsupported_request, 0, std::string_view("Content-Range without a length"));
        if (h.range.to != std::min(first_bytes, h.range.total) || (h.has_length && h.length != h.range.to))
          return failure(errc::wrong_payload, h.range.to, std::string_view("Content-Range"));
      }
      if (const auto ok = identify(h); !ok) return ok;
      if (!whole_ && !resumable_) {  // without a validator two ranges may be of two files: the whole is asked for at
                                     // once
        l.drop();
        ranged = false;
        continue;
      }
      break;
    }
    const http_head& h = l.head();
    total_ = whole_ ? (h.has_length ? h.length : ~std::uint64_t{0}) : h.range.total;
    const std::uint64_t in_answer = whole_ ? ~std::uint64_t{0} : h.range.to;
    return read_header(pull, l, in_answer);
  }
  /// What answers with a body have to be.
  static result<void> check_body(const http_head& h) noexcept {
    if (h.encoded) return failure(errc::unsupported_layout, 0, std::string_view("Content-Encoding"));
    if (h.multipart) return failure(errc::wrong_payload, 0, std::string_view("multipart/byteranges"));
    return {};
  }
  /// What the bytes are known by: digests, and what makes sure that ranges are of one file.
  result<void> identify(const http_head& h) noexcept {
    if (h.digest.doubtful) return failure(errc::bad_frame, 0, std::string_view("Repr-Digest"));
    (void)if_range_.assign(!h.etag.empty() ? h.etag.view() : h.modified.view());
    sha256_ = stated_.sha256;
    const bool stated = stated_.sha256 || stated_.xxh3 != 0;
    if (!stated && h.digest.known) sha256_ = h.digest.sha256;
    ours_ = h.digest.ours;
    const std::uint64_t told = h.digest.ours ? std::max<std::uint64_t>(h.digest.xxh3, 1) : 0;
    verifiable_ = stated_.xxh3 != 0 || (!stated && told != 0);
    resumable_ = verifiable_ || sha256_ || !if_range_.empty();
    if (verifiable_) version_ = stated_.xxh3 != 0 ? stated_.xxh3 : told;
    else if (sha256_) version_ = number_of(*sha256_);
    else version_ = if_range_.empty() ? system_entropy{}() | 1 : number_of(std::as_bytes(std::span(if_range_.view())));
    return {};
  }
  static std::uint64_t number_of(std::span<const std::byte> bytes) noexcept {
    xxh3_64 h;
    h.update(bytes);
    return std::max<std::uint64_t>(h.digest(), 1);
  }

  /// Reads up to `most` bytes of the body behind prefix_. True: they are here, or the body has ended.
  template <class Pull>
  result<bool> collect(Pull& pull, line& l, std::uint64_t most) {
    while (prefix_.size() < most && !l.body_ended()) {
      const auto room = l.available();
      if (!room) return failure(room.error());
      if (*room == 0) return l.body_ended();
      const std::size_t at = prefix_.size();
      // grows with what comes, not with what was said
      prefix_.resize(at + static_cast<std::size_t>(std::min({*room, most - at, std::uint64_t{16 * 1024}})));
      const std::array<std::span<std::byte>, 1> out{std::span(prefix_).subspan(at)};
      const io_result io = l.take(out);
      prefix_.resize(at + io.bytes);
      progress_ += io.bytes;
      if (progress_ >= 4096) progress_ = 0, pull.excuse();
      if (io.status == io_status::would_block) return false;
      if (io.status != io_status::ok && !l.body_ended()) return failure(error_of(io));
    }
    return true;
  }

  template <class Pull>
  result<void> read_header(Pull& pull, line& l, std::uint64_t in_answer) {
    const auto bad = [](std::string_view what) { return failure(errc::bad_file, 0, what); };
    prefix_.clear();
    prefix_.reserve(static_cast<std::size_t>(std::min(in_answer, first_bytes)));  // once, so that how the bytes come
                                                                                  // does not decide how much is
                                                                                  // allocated
    const auto more = [&](std::uint64_t to) { return until(pull, [&] { return collect(pull, l, to); }); };
    if (const auto ok = more(8); !ok || pull.ended()) return ok;
    if (prefix_.size() < 8 || total_ < 8) return bad("it is too short");
    const std::uint64_t text = load_le64(prefix_.data());
    if (text > to_.most_header_bytes) return failure(errc::too_large, text, std::string_view("the file's header"));
    data_start_ = 8 + text;
    if (text < 2 || data_start_ > total_) return bad("no safetensors file");
    if (!whole_) {
      if (const auto ok = more(in_answer); !ok || pull.ended()) return ok;
      if (prefix_.size() < in_answer) return failure(errc::connection_lost);
      if (const auto ok = until(pull, [&] { return l.at_end(); }); !ok || pull.ended()) return ok;
      l.done();
      if (prefix_.size() < data_start_) {
        const std::uint64_t from = prefix_.size();
        if (const auto ok = exchange(pull, l, [&] { l.ask(common_, from, data_start_, if_range_.view()); });
            !ok || pull.ended())
          return ok;
        if (const auto ok = check_range(l.head(), from, data_start_); !ok) return ok;
      }
    }
    if (prefix_.size() < data_start_)
      if (const auto ok = more(data_start_); !ok || pull.ended()) return ok;
    if (prefix_.size() < data_start_) return failure(errc::connection_lost);
    if (!whole_ && l.now() != line::phase::idle) {
      if (const auto ok = until(pull, [&] { return l.at_end(); }); !ok || pull.ended()) return ok;
      l.done();
    }
    position_ = prefix_.size();
    if (prefix_[8] != std::byte{'{'}) return bad("no safetensors file");
    if (const auto ok = read_schema(); !ok) return ok;
    if (whole_ && data_start_ == total_)  // known only now, if the answer did not say its length
      if (const auto ok = until(pull, [&] { return l.at_end(); }); !ok || pull.ended()) return ok;
    if (whole_ && total_ > to_.most_whole_bytes)
      return failure(errc::unsupported_request, total_, std::string_view("a server without ranges"));
    known_ = true;
    return {};
  }
  /// What the header says. A header that this library would not have written is not looked into: such a file has no
  /// fingerprint, and lands in a file alone.
  result<void> read_schema() {
    fingerprint_ = tensors_ = 0;
    header_reader reader(Limits::tensors);
    const auto text = std::span(prefix_).first(static_cast<std::size_t>(data_start_));
    const auto unknown = [&]() -> result<void> {
      return total_ != ~std::uint64_t{0} ? result<void>{}
                                         : failure(errc::unsupported_request, 0, std::string_view("Content-Length"));
    };
    if (!reader.take(text) || !reader.complete()) return unknown();
    std::vector<tensor_entry> entries;
    std::vector<std::uint64_t> extents;
    std::vector<metadata_entry> metadata;
    reader.entries(entries, extents, metadata);
    const auto schema = arrange(entries, {}, metadata);
    if (!schema || schema->header_bytes != data_start_) return unknown();
    std::array<std::byte, 4096> ours;
    for (std::uint64_t at = 0; at < data_start_;) {
      const std::size_t n = write_header(
          *schema, at,
          std::span(ours).first(static_cast<std::size_t>(std::min<std::uint64_t>(ours.size(), data_start_ - at))));
      if (n == 0 || std::memcmp(ours.data(), text.data() + at, n) != 0) return unknown();
      at += n;
    }
    if (total_ != ~std::uint64_t{0} && total_ != schema->image_bytes)
      return failure(errc::bad_file, total_, std::string_view("its length is not what its header says"));
    total_ = schema->image_bytes, fingerprint_ = schema->fingerprint, tensors_ = schema->tensor_count;
    return {};
  }

  // ---- answers that are none ----
  /// The error of a status that is none of those that were hoped for. The owner that is busy is told to the transfer,
  /// and is no error.
  template <class Pull>
  result<void> refused(Pull& pull, const frame& f, line& l) {
    const http_head& h = l.head();
    const unsigned s = h.status;
    if (s == 429 || s == 503) {
      frame m;
      m.kind = frame_kind::refused, m.status = status::busy;
      m.id = f.id, m.ref = f.ref;
      m.delay_ms = static_cast<std::uint32_t>(std::min<std::uint64_t>(h.retry_after_s, 1'000'000) * 1000);
      pull.transfer().on(m);
      return {};
    }
    return failure(error_of_status(s, url_));
  }
  /// Whether an answer is these bytes of the file that was described.
  result<void> check_range(const http_head& h, std::uint64_t from, std::uint64_t to) const noexcept {
    if (const auto ok = check_body(h); !ok) return ok;
    if (h.status == 200)
      return failure(same_file(h) ? errc::unsupported_request : errc::stale_version, from,
                     std::string_view("200 instead of a range"));
    if (!h.has_range || h.range.unsatisfied || h.range.from != from || h.range.to != to)
      return failure(errc::wrong_payload, from, std::string_view("Content-Range"));
    if (h.range.total != total_ || !same_file(h))
      return failure(errc::stale_version, from, std::string_view("another file"));
    if (h.has_length && h.length != to - from)
      return failure(errc::wrong_payload, from, std::string_view("Content-Length"));
    return {};
  }
  /// Servers may ignore If-Range, so what the answer says of itself is compared, too. A weak tag where there was a
  /// strong one is another.
  bool same_file(const http_head& h) const noexcept {
    if (if_range_.empty()) return true;
    if (if_range_.view().starts_with('"')) return !h.tagged || h.etag.view() == if_range_.view();
    return h.dated.empty() || h.dated.view() == if_range_.view();
  }

  // ---- chunks ----
  template <class Pull>
  result<bool> step(Pull& pull) {
    auto& t = pull.transfer();
    if (!known_ || queued_ == 0) return false;
    bool moved = false;
    if (whole_) {
      if (const auto ok = open_whole(pull); !ok) return failure(ok.error());
      if (t.ended()) return true;
    } else {
      const auto did = ask_ahead(pull);
      if (!did) return did;
      moved = *did;
      if (t.ended() || t.pause().count() > 0) return true;
    }
    item& i = queue_[first_];
    if (!whole_ && i.line < 0 && i.offset + i.length > prefix_.size()) {  // it waits for a connection
      if (i.asked == std::chrono::steady_clock::time_point{}) i.asked = std::chrono::steady_clock::now();
      if (!overdue(i)) return moved;
      over_one_connection();  // those that are being made do not come, and the others hold what comes behind it
      return true;
    }
    if (!i.delivered) {
      if (i.line >= 0 && line_of(i).now() != line::phase::body) {
        if (!neglected(i)) return moved;
        over_one_connection();
        return true;
      }
      frame m;
      m.kind = frame_kind::chunk;
      m.id = i.id, m.ref = t.request().ref, m.version = version_, m.nonce = 1;
      m.offset = i.offset, m.length = static_cast<std::uint32_t>(i.length);
      if (!t.on_chunk(m)) {
        if (t.ended()) return true;
        if (i.line >= 0) line_of(i).drop();
        first_ = (first_ + 1) % queue_.size(), --queued_;
        return true;
      }
      i.delivered = moved = true;
    }
    const auto did = land(pull, i);
    if (!did) return did;
    return moved || *did;
  }

  /// Sees to it that the requests which are queued are on their way, each on an idle connection, in their order.
  /// Further connections are made meanwhile: one that cannot be had, or whose other end is silent, holds nobody up.
  template <class Pull>
  result<bool> ask_ahead(Pull& pull) {
    bool moved = go_on_opening();
    std::uint32_t waiting = 0;  // requests that have no connection
    for (std::size_t n = 0; n < queued_; ++n) {
      item& i = queue_[(first_ + n) % queue_.size()];
      const std::uint64_t from = std::max(i.offset, position_of_network()), to = i.offset + i.length;
      if (from >= to) continue;
      if (i.line < 0) {
        std::int32_t free = idle_line();
        if (free < 0 && (ready() == 0 || (n == 0 && !another_may_come()))) {
          free = give_up_last();
          if (const auto ok = connect(pull, lines_[static_cast<std::size_t>(free)]); !ok) return failure(ok.error());
        }
        if (free < 0) {
          open_another(++waiting);
          continue;
        }
        lines_[static_cast<std::size_t>(free)].ask(common_, from, to, if_range_.view());
        i.line = free, i.asked = std::chrono::steady_clock::now();
        moved = true;
      }
      line& l = line_of(i);
      if (l.now() != line::phase::asking && l.now() != line::phase::head) continue;
      const auto there = l.step();
      if (!there) {
        if (closed_while_idle(l, there.error())) {  // it has given an answer before, so this cannot go on for ever
          for (std::uint32_t k = 0; k < count_; ++k)  // the others that are idle will be closed, too
            if (lines_[k].now() == line::phase::idle) lines_[k].drop();
          l.drop();
          take_back(i);
          moved = true;
          continue;
        }
        if (!l.used() && !l.heard() && is_passing(there.error().code) && crowded(i)) return true;
        return failure(there.error());
      }
      if (!*there) continue;
      moved = true;
      if (const unsigned s = l.head().status; s != 200 && s != 206) {
        if ((n > 0 || !l.used()) && (s == 429 || s == 503) && crowded(i)) return true;
        frame f;
        f.id = i.id, f.ref = pull.transfer().request().ref;
        if (const auto ok = refused(pull, f, l); !ok) return failure(ok.error());
        return true;  // it is busy
      }
      if (const auto ok = check_range(l.head(), from, to); !ok) return failure(ok.error());
    }
    return moved;
  }
  std::uint32_t connected() const noexcept {
    std::uint32_t n = 0;
    for (std::uint32_t i = 0; i < count_; ++i) n += lines_[i].connected() ? 1 : 0;
    return n;
  }
  /// Whether the server has taken a further connection and never says a word there: one that serves a single connection
  /// at a time does that, until the others end.
  bool neglected(const item& i) noexcept {
    const line& l = line_of(i);
    return !l.used() && !l.heard() && ready() >= 2 && overdue(i);
  }
  bool overdue(const item& i) const noexcept {
    return std::chrono::steady_clock::now() - i.asked >
           std::min<std::chrono::nanoseconds>(options_.per_request_timeout / 4,
                                              std::chrono::seconds(5) + 4 * first_answer_);
  }
  static void take_back(item& i) noexcept { i.line = -1, i.asked = {}; }
  void over_one_connection() noexcept {
    for (std::uint32_t k = 0; k < count_; ++k) lines_[k].drop();
    for (std::size_t n = 0; n < queued_; ++n) take_back(queue_[(first_ + n) % queue_.size()]);
    allowed_ = 1;
  }
  /// A server turns one connection away while others are open: it allows fewer at a time. The range waits for one of
  /// those. False: there is no other.
  bool crowded(item& i) noexcept {
    line_of(i).drop();
    const std::uint32_t others = connected();
    if (others == 0) return false;
    allowed_ = others;
    take_back(i);
    return true;
  }
  /// Bytes before it are here already.
  std::uint64_t position_of_network() const noexcept { return prefix_.size(); }
  line& line_of(const item& i) noexcept { return lines_[static_cast<std::size_t>(i.line)]; }
  /// A connection that can be asked; -1: there is none.
  std::int32_t idle_line() noexcept {
    for (std::uint32_t i = 0; i < count_; ++i) {
      line& l = lines_[i];
      if (l.now() != line::phase::idle || !l.connected()) continue;
      if (l.still_there()) return static_cast<std::int32_t>(i);
      l.drop();
    }
    return -1;
  }
  /// Connections that are there.
  std::uint32_t ready() const noexcept {
    std::uint32_t n = 0;
    for (std::uint32_t i = 0; i < count_; ++i)
      n += lines_[i].connected() && lines_[i].now() != line::phase::opening ? 1 : 0;
    return n;
  }
  /// Whether a further connection is being made, or can be.
  bool another_may_come() const noexcept {
    return connected() > ready() || (place_ && connected() < std::min(count_, allowed_));
  }
  /// Takes the connection away from the request that is wanted last: all of them may be busy with what comes behind the
  /// first one. Returns its place.
  std::int32_t give_up_last() noexcept {
    std::int32_t free = 0;
    for (std::size_t n = queued_; n-- > 0;)
      if (item& i = queue_[(first_ + n) % queue_.size()]; i.line >= 0) {
        free = i.line;
        take_back(i);
        break;
      }
    lines_[static_cast<std::size_t>(free)].drop();
    return free;
  }
  /// Begins to make connections, until so many are under way.
  void open_another(std::uint32_t wanted) {
    if (!place_) return;
    std::uint32_t opening = connected() - ready();
    for (std::uint32_t i = 0; i < count_ && opening < wanted && connected() < allowed_; ++i) {
      if (lines_[i].connected()) continue;
      auto s = dial_.start(url_, to_.proxy, *place_);
      if (!s) return fewer();
      lines_[i].open(std::move(*s));
      ++opening;
    }
  }
  /// True: a connection has been made, or cannot be.
  bool go_on_opening() noexcept {
    bool moved = false;
    for (std::uint32_t i = 0; i < count_; ++i) {
      line& l = lines_[i];
      if (l.now() != line::phase::opening) continue;
      const auto there = l.establish();
      if (there && !*there) continue;
      moved = true;
      if (there) {
        tune_connected(l.stream().native_handle());
      } else {
        l.drop();
        fewer();
      }
    }
    return moved;
  }
  /// The server, or this process, wants no more connections than there are.
  void fewer() noexcept { allowed_ = std::max<std::uint32_t>(1, connected()); }

  /// Of a server that sends no ranges: the answer that has everything, again from its first byte if the connection was
  /// lost.
  template <class Pull>
  result<void> open_whole(Pull& pull) {
    line& l = lines_[0];
    if (l.now() == line::phase::body) return {};
    if (const auto ok = exchange(pull, l, [&] { l.ask(common_); }); !ok || pull.ended()) return ok;
    http_head& h = l.head();
    if (h.status != 200) {
      frame f;
      f.id = queue_[first_].id, f.ref = pull.transfer().request().ref;
      if (const auto ok = refused(pull, f, l); !ok) return ok;
      return failure(errc::busy);
    }
    if (const auto ok = check_body(h); !ok) return ok;
    if (!same_file(h) || (h.has_length && h.length != total_))
      return failure(errc::stale_version, 0, std::string_view("another file"));
    position_ = 0;
    return {};
  }

  /// Moves bytes of the first request that is queued to where they belong.
  template <class Pull>
  result<bool> land(Pull& pull, item& i) {
    auto& t = pull.transfer();
    constexpr std::uint64_t most_a_step = 4 << 20;
    std::array<std::span<std::byte>, 16> spans;
    bool moved = false;
    for (std::uint64_t in_step = 0; i.landed < i.length && in_step < most_a_step;) {
      const std::uint64_t at = i.offset + i.landed;
      std::uint64_t most = std::min<std::uint64_t>(i.length - i.landed, pull.transfer().read_piece_bytes);
      line* l = nullptr;
      if (at < prefix_.size()) {
        most = std::min<std::uint64_t>(most, prefix_.size() - at);
      } else {
        l = whole_ ? &lines_[0] : &line_of(i);
        const auto room = l->available();
        if (!room) return failure(room.error());
        if (*room == 0) {
          if (l->body_ended()) return failure(errc::connection_lost);
          return moved;
        }
        most = std::min(most, *room);
        if (whole_ && position_ < at) {  // what has landed comes again
          std::array<std::byte, 4096> passing;
          const std::array<std::span<std::byte>, 1> out{std::span(passing).first(
              static_cast<std::size_t>(std::min<std::uint64_t>({passing.size(), at - position_, *room})))};
          const io_result io = l->take(out);
          position_ += io.bytes, in_step += io.bytes;
          if ((progress_ += io.bytes) >= 1 << 20) progress_ = 0, pull.excuse();
          if (io.status == io_status::would_block) return moved;
          if (io.status != io_status::ok) return failure(error_of(io));
          moved = true;
          continue;
        }
      }
      const prepared p = t.prepare(spans, most);
      if (p.bytes == 0) {
        wait(std::chrono::milliseconds(1));  // the consumer has no memory now
        pull.excuse();
        return moved;
      }
      const auto memory = std::span(spans).first(p.pieces);
      std::uint64_t got = p.bytes;
      if (l == nullptr) {
        std::size_t from = static_cast<std::size_t>(at);
        for (const auto& s : memory) std::memcpy(s.data(), prefix_.data() + from, s.size()), from += s.size();
      } else {
        const io_result io = l->take(memory);
        if (io.status == io_status::would_block) return moved;
        if (io.status != io_status::ok) return failure(error_of(io));
        got = io.bytes;
        position_ += got;
      }
      i.landed += got, in_step += got;
      moved = true;
      if (l != nullptr && i.landed == i.length && (!whole_ || at + got == total_)) {  // before the last byte counts
        if (const auto ok = until(pull, [&] { return l->at_end(); }); !ok || pull.ended())
          return ok ? result<bool>(true) : failure(ok.error());
      }
      for (const auto& s : memory) {
        const std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>(s.size(), got));
        if (n > 0) t.landed(s.first(n));
        got -= n;
      }
      if (t.ended()) return true;
    }
    if (i.landed < i.length) return moved;
    if (i.line >= 0) line_of(i).done();
    first_ = (first_ + 1) % queue_.size(), --queued_;
    return true;
  }

  // ---- the end ----
  /// What an owner of this library is told of the end, without the empty line.
  std::string about_the_end(std::string_view how) const {
    const std::size_t query = std::min(url_.target.find('?'), url_.target.size());
    std::string text = "POST ";
    add_target(text, to_, url_, url_.target.substr(0, query).append(how) + url_.target.substr(query));
    text += " HTTP/1.1\r\n";
    add_fields(text, to_, url_, origin_);
    add_field(text, "Content-Length", "0");
    return text;
  }
  /// Tells an owner of this library that we have given up, so that it need not wait for us until our budget has run
  /// out. Nobody is waited for who is asked to stop, or whose server has gone; another has a second.
  template <class Pull>
  void say_goodbye(Pull& pull) {
    const auto outcome = pull.transfer().outcome();
    if (!ours_ || !known_ || outcome || is_passing(outcome.error().code) || !pull.transfer().farewell()) return;
    const auto deadline = deadline_after(
        std::min<std::chrono::milliseconds>(options_.per_request_timeout, std::chrono::seconds(1)));
    const std::string text = about_the_end("/cancel");
    line* l = nullptr;
    for (std::uint32_t i = 0; i < count_ && l == nullptr; ++i)
      if (lines_[i].now() == line::phase::idle && lines_[i].connected() && lines_[i].still_there()) l = &lines_[i];
    if (l == nullptr) {
      l = &lines_[0];
      l->drop();
      auto s = dial_.connect(url_, to_.proxy,
                             std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()),
                             options_.stop);
      if (!s) return;
      l->connect(std::move(*s));
    }
    l->ask(text);
    while (std::chrono::steady_clock::now() < deadline) {
      const auto there = l->step();
      if (!there || *there || options_.stop.stop_requested()) break;
      const pollfd waits = l->waits_for(true);
      wait_for_descriptor(waits.fd, {(waits.events & POLLIN) != 0, (waits.events & POLLOUT) != 0}, wait_step);
    }
    l->drop();  // it borrows the text
  }
  /// Tells an owner of this library. Any other server has nothing to be told: the pull has ended well, without a
  /// confirmation.
  template <class Pull>
  result<void> confirm(Pull& pull, const frame& f) {
    auto& t = pull.transfer();
    if (!ours_) return t.fail({errc::unsupported_request, 0, 0, {}}), result<void>{};
    std::string text = about_the_end("/confirm");
    if (f.flag) {
      std::array<char, 8> eight{};
      for (std::size_t b = 0; b < 8; ++b) eight[b] = static_cast<char>(f.digest >> (56 - 8 * b) & 0xff);
      add_field(text, "Repr-Digest", "xxh3=:" + to_base64({eight.data(), 8}) + ":");
    }
    line& l = lines_[0];
    if (const auto ok = exchange(pull, l, [&] { l.ask(text); }); !ok || pull.ended()) return l.drop(), ok;
    const unsigned s = l.head().status;
    result<void> how{};
    if (s >= 200 && s < 300) {
      frame m;
      m.kind = frame_kind::confirmed;
      m.id = f.id, m.ref = f.ref, m.version = version_, m.nonce = 1;
      t.on(m);
    } else {
      how = refused(pull, f, l);
    }
    l.drop();  // it borrows the text
    return how;
  }

  Dial dial_;
  http_address to_;
  const pull_options& options_;
  stated_digest stated_;
  bool needs_digest_;
  std::uint32_t count_;
  std::uint32_t allowed_ = most_connections;  // at the same time, as far as the server has shown
  std::unique_ptr<line[]> lines_;
  http_url origin_{}, url_{};
  optional<reached_place> place_{};
  std::array<char, 16> name_{};  // of one that has none
  std::string common_{};

  // what the server has
  bool known_ = false, whole_ = false, resumable_ = false, verifiable_ = false, ours_ = false;
  std::uint64_t total_ = 0, data_start_ = 0, fingerprint_ = 0, tensors_ = 0, version_ = 0;
  bounded_text<256> if_range_{};
  optional<sha256_value> sha256_{};
  std::vector<std::byte> prefix_{};  // the first bytes of the file, which came with the first answer
  std::uint64_t position_ = 0;  // of a server without ranges: where its answer is
  std::chrono::nanoseconds first_answer_{0};  // how long it took to come
  std::uint64_t progress_ = 0;  // bytes since the time-out was put off

  std::array<item, 16> queue_{};
  std::size_t first_ = 0, queued_ = 0;
};

/// A pull over HTTP. The driver is that of pull_with(), with requests for ranges instead of frames.
template <class Parts, class Dial, consumer Consumer>
result<receipt> http_pull_with(const Dial& dial, const http_address& to, const reference& ref, Consumer& consumer,
                               const pull_options& options, typename Parts::chunking chunking) noexcept {
  static_assert(!Parts::integrity::per_chunk,
                "tensorpull: an HTTP server sends no digest with a chunk: use image_digest, which is the default");
  try {
    if (!options.tensors.empty()) return failure(errc::unsupported_request, 0, std::string_view("tensors by name"));
    auto stated = parse_stated_digest(to.digest);
    if (!stated) return failure(stated.error());
    if (!stated->sha256 && stated->xxh3 == 0 && Parts::integrity::whole)
      stated->xxh3 = options.version != 0 ? options.version : ref.version;
    reference asked_ref = ref;
    pull_options asked = options;
    asked_ref.version = asked.version = stated->xxh3;
    asked.unverified = true;  // whether a digest is known shows when the server has answered
    const auto exchange = std::make_unique<http_exchange<Dial, typename Parts::limits>>(
        dial, to, asked, *stated, Parts::integrity::whole && !options.unverified);
    if (const auto ok = exchange->prepare(); !ok) return failure(ok.error());
    if (!asked_ref.id) asked_ref.id = http_reference(exchange->origin());
    sha256_checked<Consumer> checked(consumer);
    running_pull<Parts, sha256_checked<Consumer>> pull(asked_ref, checked, asked, chunking, 1,
                                                       options.recipient ? options.recipient : random_recipient());
    while (!pull.ended()) {
      const optional<error> why = exchange->drive(pull, checked);
      if (!why || pull.ended()) break;
      const auto delay = pull.try_again(*why);
      if (!delay) break;
      if (!wait_out(*delay, options.stop, [](std::chrono::milliseconds time) { pause(time); }))
        pull.fail({errc::cancelled, 0, 0, {}});
      pull.transfer().restart();
    }
    auto how = pull.outcome();
    if (how && checked.verified()) how->outcome = outcome::completed;
    return how;
  } catch (const std::bad_alloc&) {
    return failure(errc::out_of_memory);
  }
}

/// Where an owner over HTTP would be: it has a header of its own.
template <class Parts>
class no_http_downloader {
  static_assert(never<Parts>,
                "tensorpull: `http` only pulls: publish over tcp or tls, and let the owner answer HTTP beside it");
};

}  // namespace detail

/// Policy for the transport slot: a recipient that pulls a safetensors file from any HTTP server. An address is an
/// http_address, or its URL as text. The reference may be empty: its version, if it has one, is the digest that the
/// bytes have to have. tests/transports/http_pull.test.cpp has an example of each case. Errors: bad_address;
/// not_verifiable: nobody has said which digest the file has; digest_mismatch; bad_file: no safetensors file, or its
/// length is not what its header says; not_permitted (401, 403, a redirect from https to http, too many);
/// unknown_reference (404); withdrawn (410); stale_version (412, 416, another ETag: the file was replaced); busy (429,
/// 503, after as long as the server asks); unsupported_request, unsupported_layout (Content-Encoding), wrong_payload,
/// bad_frame, unexpected_frame, too_large: what the server does is not what was asked. The name has the status and the
/// server.
struct http {
  using is_transport_policy = void;  ///< marks it
  static constexpr std::uint64_t max_payload_bytes = tensorpull::max_payload_bytes;  ///< a range may have any length
  /// Of a connection, on the heap.
  static constexpr std::size_t connection_bytes = sizeof(detail::http_line<posix_stream>);
  static constexpr bool reliable = true;  ///< TCP is
  static constexpr bool ordered = true;  ///< chunks land in order, whatever the connections do
  static constexpr bool shares_memory = false;  ///< none is shared
  static constexpr bool encrypted = false;  ///< nothing is
  static constexpr identity_kind identifies = identity_kind::none;  ///< nobody proves anything
  /// The connections, and the first bytes of the file, on the heap. A longer header is held besides, until it has
  /// landed.
  template <class Parts>
  static constexpr std::size_t pull_bytes = 4 * connection_bytes + 96 * 1024;

  /// There is none.
  template <class Parts>
  using downloader = detail::no_http_downloader<Parts>;
  /// There is none.
  template <class Parts>
  using session = no_session<http>;

  /// As the policy says.
  template <class Parts, consumer Consumer>
  static result<receipt> pull(const http_address& to, const reference& ref, Consumer& consumer,
                              const pull_options& options, typename Parts::chunking chunking) noexcept {
    return detail::http_pull_with<Parts>(detail::http_dial{}, to, ref, consumer, options, chunking);
  }
  /// The same with a URL as text.
  template <class Parts, consumer Consumer>
  static result<receipt> pull(std::string_view url, const reference& ref, Consumer& consumer,
                              const pull_options& options, typename Parts::chunking chunking) noexcept {
    return pull<Parts>(http_address{.url = url}, ref, consumer, options, chunking);
  }
};
static_assert(transport<http>);

}  // namespace tensorpull
