// One end of an HTTP/1.1 connection at an owner, without the stream: bytes in, bytes out. It has the members of
// `endpoint`, so that a host's connection drives it as it drives one that speaks frames: with the same budgets, limits
// and streams.
#pragma once

#include <tensorpull/core/buffer_pool.hpp>
#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>
#include <tensorpull/protocol/connection/write_plan.hpp>
#include <tensorpull/transports/http/detail/owner_text.hpp>
#include <tensorpull/transports/http/http_metrics.hpp>
#include <tensorpull/transports/http/http_origin.hpp>
#include <tensorpull/transports/http/http_request.hpp>

#include <array>
#include <chrono>
#include <cstring>
#include <ctime>
#include <utility>

namespace tensorpull::detail {

/// `Handler` has shared(): an http_shared.
template <class Owner, class Handler>
class owner_endpoint {
  using clock = std::chrono::steady_clock;

 public:
  using pool_type = buffer_pool<typename Owner::lock_type>;
  using plan_type = write_plan;
  static constexpr std::size_t input_bytes = http_request_reader::most_line_bytes;

  owner_endpoint(Owner& owner, pool_type& pool, Handler& handler) noexcept
      : owner_(&owner), pool_(pool), handler_(handler), reader_(bool(handler.shared().options.allow_origin)) {
    handler_.shared().counts.began();
  }
  owner_endpoint(owner_endpoint&&) = delete;
  ~owner_endpoint() { closed(); }

  void closed() noexcept {
    if (owner_ == nullptr) return;
    drop_page();
    handler_.shared().counts.ended();
    std::exchange(owner_, nullptr)->forget(peer_);
  }

  // It pulls nothing and sends no messages.
  void begin_pull() noexcept {}
  template <class Transfer>
  void end_pull(const Transfer&) noexcept {}
  std::uint32_t next_id() const noexcept { return 1; }
  result<void> send_message(std::uint32_t, std::span<const reference>, std::span<const std::byte>) noexcept {
    return failure(errc::unsupported_request);
  }
  bool send_control(const frame&) noexcept { return true; }
  bool long_frame_sent() const noexcept { return true; }
  bool works() const noexcept { return false; }
  bool stalled() const noexcept { return false; }
  /// Whether it reads no more until the other end has taken an answer. It never waits for memory.
  bool holds_back() const noexcept { return end_ - begin_ == in_.size(); }
  void doubt() noexcept {}
  void trust() noexcept {}

  /// Whether time has to pass before it goes on.
  bool awaits_time() const noexcept { return phase_ == phase::leaving; }
  /// Whether a request has begun and not ended.
  bool mid_frame() const noexcept { return long_frame() != 0 || phase_ == phase::leaving; }
  /// The number of the request that is coming in; 0: none. The host's budget of a frame ends a slow one.
  std::uint32_t long_frame() const noexcept {
    return (phase_ == phase::head && (begun_ || end_ > begin_)) || phase_ == phase::body ? number_ : 0;
  }
  /// Grows with each request that is answered with what it asks for.
  std::uint32_t heard() const noexcept { return heard_; }
  bool output_ready() const noexcept { return head_sent_ < head_end_ || page_sent_ < page_end_ || at_ < stop_; }
  bool output_idle() const noexcept { return !output_ready(); }
  /// Once: all has been said, and what still comes is only thrown away.
  bool said_all() noexcept { return phase_ == phase::leaving && !std::exchange(said_, true); }

  template <class Transfer>
  result<void> plan_write(Transfer&, plan_type& plan, std::span<std::byte> scratch, std::size_t) noexcept {
    plan.span_count = plan.item_count = plan.bytes = 0;
    plan.descriptors = {};
    if (phase_ == phase::leaving) return clock::now() < leaves_at_ ? result<void>{} : failure(errc::cancelled);
    go_on();
    const source_view* image = nullptr;
    if (at_ < stop_) {
      image = owner_->pin(reply_);
      if (image == nullptr && head_sent_ > 0)
        return failure(errc::connection_lost);  // the rest cannot be sent, and the length was promised
      if (image == nullptr) refuse(410, "it is not published any more\n", false);
    }
    if (image != nullptr) {
      const std::span<std::span<const std::byte>> room{plan.spans.data() + 1, plan_type::max_spans - 1};
      const gathered g = gather(*image, at_, std::min<std::uint64_t>(stop_ - at_, default_chunk_bytes), room, scratch);
      if (g.bytes > 0) {
        plan.span_count = g.pieces;
        plan.bytes = static_cast<std::size_t>(g.bytes);
        pinned_ = true;
      } else {
        owner_->unreadable(reply_);
        owner_->unpin(reply_, 0);
        if (head_sent_ > 0) return failure(errc::connection_lost);
        refuse(410, "it cannot be read any more\n", false);
      }
    }
    const std::span<const char> first = head_sent_ < head_end_
                                            ? std::span<const char>(head_.data() + head_sent_, head_end_ - head_sent_)
                                        : page_sent_ < page_end_
                                            ? std::span<const char>(reinterpret_cast<const char*>(page_) + page_sent_,
                                                                    page_end_ - page_sent_)
                                            : std::span<const char>();
    if (!first.empty()) {
      plan.spans[0] = std::as_bytes(first);
      plan.bytes += first.size();
      ++plan.span_count;
    } else if (plan.span_count > 0) {
      for (std::size_t i = 0; i < plan.span_count; ++i) plan.spans[i] = plan.spans[i + 1];
    }
    return {};
  }

  template <class Transfer>
  result<void> written(Transfer&, const plan_type&, std::size_t n) noexcept {
    if (head_sent_ < head_end_) {
      const std::size_t head = std::min(n, head_end_ - head_sent_);
      head_sent_ += head, n -= head;
    } else if (page_sent_ < page_end_) {
      page_sent_ += std::exchange(n, 0);
    }
    if (std::exchange(pinned_, false)) {
      const std::uint64_t from = at_;
      at_ += n;
      owner_->unpin(reply_, n);
      if (n > 0) {
        handler_.shared().counts.sent(n);
        if (handler_.shared().coverage.add(reply_.record, reply_.nonce, from, at_, image_bytes_))
          owner_->served_whole(reply_);
      }
    }
    if (phase_ != phase::answering || output_ready()) return {};
    drop_page();
    if (closes_) {
      if (!dirty_ && begin_ == end_)
        return failure(errc::cancelled);  // nothing of the other end's is unread, so closing destroys nothing on its
                                                                       // way
      phase_ = phase::leaving;
      leaves_at_ = clock::now() + std::chrono::milliseconds(500);
      begin_ = end_ = 0;
      return {};
    }
    phase_ = interim_ ? phase::body : phase::head;
    if (!std::exchange(interim_, false)) {
      reader_ = http_request_reader(bool(handler_.shared().options.allow_origin));
      begun_ = false;
      if (++number_ == 0) number_ = 1;
    }
    go_on();
    return {};
  }

  template <class Transfer>
  std::size_t plan_read(Transfer&, std::span<std::span<std::byte>> out, std::size_t) noexcept {
    if (phase_ == phase::leaving) {
      out[0] = in_;
      return 1;
    }
    if (begin_ > 0) {
      std::memmove(in_.data(), in_.data() + begin_, end_ - begin_);
      end_ -= std::exchange(begin_, 0);
    }
    out[0] = std::span<std::byte>(in_).subspan(end_);
    return out[0].empty() ? 0 : 1;
  }
  template <class Transfer>
  void arrived(Transfer&, std::span<const std::span<std::byte>>, std::size_t n) noexcept {
    if (phase_ != phase::leaving) end_ += n;
    else if ((thrown_ += n) > most_thrown) leaves_at_ = {};
  }
  template <class Transfer>
  result<void> received(Transfer& t, std::span<const std::span<std::byte>> spans, std::size_t n) noexcept {
    arrived(t, spans, n);
    return parse(t);
  }
  template <class Transfer>
  result<void> parse(Transfer&) noexcept {
    go_on();
    return {};
  }

 private:
  enum class phase : std::uint8_t {
    head,
    body,
    answering,
    leaving
  };
  static constexpr std::size_t most_thrown = 1024 * 1024;
  static constexpr unsigned most_pages = 2;  // at a time, over all connections: the pool's other buffers are for frames

  /// Reads on, up to the next request that has an answer.
  void go_on() noexcept {
    while (phase_ == phase::head) {
      const std::string_view there(reinterpret_cast<const char*>(in_.data()) + begin_, end_ - begin_);
      const std::size_t newline = there.find('\n');
      if (newline == there.npos) {
        if (!begun_ && !there.empty() && !is_http_token(there[0]) && there[0] != '\r')
          fail(400);  // another protocol, whose other end may wait for ever
        else if (there.size() == in_.size()) fail(begun_ ? 431 : 414);
        return;
      }
      if (newline == 0 || there[newline - 1] != '\r')
        return fail(400);  // one reader ends a line here, and another does not
      begin_ += newline + 1;
      const std::uint16_t now = reader_.line(there.substr(0, newline - 1));
      begun_ = begun_ || newline > 1;
      if (now > http_request_reader::whole) return fail(now);
      if (now == http_request_reader::more) continue;
      phase_ = phase::body;
      const http_request& q = reader_.request();
      if (q.expects_continue && q.body_bytes > end_ - begin_) return say_continue();
    }
    if (phase_ != phase::body) return;
    const http_request& q = reader_.request();
    if (end_ - begin_ < q.body_bytes) {
      if (begin_ > 0 && begin_ + q.body_bytes > in_.size()) {
        std::memmove(in_.data(), in_.data() + begin_, end_ - begin_);
        end_ -= std::exchange(begin_, 0);
      }
      return;
    }
    const std::string_view body(reinterpret_cast<const char*>(in_.data()) + begin_,
                                static_cast<std::size_t>(q.body_bytes));
    begin_ += static_cast<std::size_t>(q.body_bytes);
    answer(q, body);
  }
  void say_continue() noexcept {
    owner_text text(head_);
    text << "HTTP/1.1 100 Continue\r\n\r\n";
    head_sent_ = 0, head_end_ = text.text().size();
    interim_ = true;
    phase_ = phase::answering;
  }

  static std::string_view reason(std::uint16_t status) noexcept {
    switch (status) {
      case 200: return "OK";
      case 204: return "No Content";
      case 206: return "Partial Content";
      case 304: return "Not Modified";
      case 400: return "Bad Request";
      case 401: return "Unauthorized";
      case 404: return "Not Found";
      case 405: return "Method Not Allowed";
      case 409: return "Conflict";
      case 410: return "Gone";
      case 411: return "Length Required";
      case 412: return "Precondition Failed";
      case 413: return "Content Too Large";
      case 414: return "URI Too Long";
      case 416: return "Range Not Satisfiable";
      case 417: return "Expectation Failed";
      case 431: return "Request Header Fields Too Large";
      case 501: return "Not Implemented";
      case 503: return "Service Unavailable";
      case 505: return "HTTP Version Not Supported";
      default: return "Internal Server Error";
    }
  }
  /// Begins an answer. The caller goes on with its fields, and ends with finish().
  owner_text begin(std::uint16_t status) noexcept {
    head_sent_ = head_end_ = page_sent_ = page_end_ = 0;
    at_ = stop_ = 0;
    phase_ = phase::answering;
    handler_.shared().counts.answered(status);
    const http_request& q = reader_.request();
    if (status < 400 && q.route != http_route::metrics && q.method != http_method::options)
      ++heard_;  // those two are answered without a key
    owner_text text(head_);
    text << "HTTP/1.1 " << std::uint64_t{status} << " " << reason(status) << "\r\nDate: ";
    text.date(std::time(nullptr)) << "\r\n";
    if (closes_) text << "Connection: close\r\n";
    else if (q.old) text << "Connection: keep-alive\r\n";
    // The same whatever the request says: then caches need no `Vary: Origin` (the Fetch standard, CORS protocol and
    // HTTP caches).
    if (const http_origin& pages = handler_.shared().options.allow_origin; pages && q.route != http_route::metrics)
      text << "Access-Control-Allow-Origin: " << pages.text()
           << "\r\nAccess-Control-Expose-Headers: Accept-Ranges, Content-Range, ETag, Repr-Digest, Retry-After\r\n";
    return text;
  }
  void finish(owner_text& text, std::string_view body = {}) noexcept {
    text << "\r\n" << body;
    head_end_ = text.text().size();
  }
  /// An answer of one line of text.
  void say(std::uint16_t status, std::string_view line, bool head) noexcept {
    owner_text text = begin(status);
    if (status == 401) text << "WWW-Authenticate: Bearer realm=\"tensorpull\"\r\n";
    if (status == 405) text << "Allow: GET, HEAD, POST\r\n";
    if (status == 503) text << "Retry-After: 1\r\n";
    text << "Content-Type: text/plain\r\nCache-Control: no-store\r\nContent-Length: " << std::uint64_t{line.size()}
         << "\r\n";
    finish(text, head ? std::string_view() : line);
  }
  void refuse(std::uint16_t status, std::string_view line, bool head) noexcept { say(status, line, head); }
  /// The request cannot be understood for sure, so neither can what follows.
  void fail(std::uint16_t status) noexcept {
    closes_ = dirty_ = true;
    begin_ = end_;
    refuse(status, "", false);
  }

  identity_source who() const noexcept {
    if constexpr (knows_peer<Handler>) return identity_source(handler_);
    else return {};
  }

  void answer(const http_request& q, std::string_view body) noexcept {
    closes_ = !q.keep_alive;
    const bool head = q.method == http_method::head;
    if (q.method == http_method::options) return tell_browser();
    switch (q.route) {
      case http_route::image:
        return q.key_given ? give(q) : refuse(401, "a key is needed: Authorization: Bearer KEY\n", head);
      case http_route::confirm:
      case http_route::cancel:
        return q.key_given ? settle(q, body) : refuse(401, "a key is needed: Authorization: Bearer KEY\n", false);
      case http_route::metrics:
        if (handler_.shared().options.metrics) return measure(head);
        [[fallthrough]];
      default: return refuse(404, "there is nothing here\n", head);
    }
  }

  /// What a browser asks before it sends a page's request. It says nothing about what is published, since such a
  /// request has no key.
  void tell_browser() noexcept {
    owner_text text = begin(204);
    text
        << "Access-Control-Allow-Methods: GET, HEAD, POST\r\nAccess-Control-Allow-Headers: Authorization, Content-Type, If-Match, If-None-Match, If-Range, Range, Repr-Digest, Tensorpull-Recipient\r\n"
           "Access-Control-Max-Age: 7200\r\nCache-Control: no-store\r\n";
    finish(text);
  }

  /// Refuses with what an owner says. A key that is not known and one that may not be used are the same.
  void refuse_as(status why, bool head) noexcept {
    switch (why) {
      case status::unknown_reference: return refuse(404, "there is nothing here\n", head);
      case status::stale: return refuse(404, "another version is published\n", head);
      case status::withdrawn: return refuse(410, "it is not published any more\n", head);
      case status::unreadable: return refuse(410, "it cannot be read any more\n", head);
      case status::already_final: return refuse(410, "this recipient has completed it\n", head);
      case status::busy: return refuse(503, "too many at a time\n", head);
      default: return refuse(400, "", head);
    }
  }

  void give(const http_request& q) noexcept {
    const bool head = q.method == http_method::head;
    frame m;
    m.kind = frame_kind::describe;
    m.ref = q.key, m.version = q.version, m.recipient = q.recipient;
    publication_facts facts;
    const status found = q.key ? owner_->look(peer_, m, facts, who()) : status::unknown_reference;
    if (found != status::ok) return refuse_as(found, head);
    if (q.if_match.given && !q.if_match.names(facts.version))
      return refuse(412, "another version is published\n", head);
    if (q.if_none_match.given && q.if_none_match.names(facts.version)) {
      owner_text text = begin(304);
      add_validators(text, q, facts);
      return finish(text);
    }
    std::uint64_t from = 0, to = facts.image_bytes;
    std::uint16_t code = 200;
    // without a body there is nothing to take a part of: RFC 9110 defines ranges for GET alone
    if (!head && q.range.is != http_range::kind::none && (!q.if_range_given || q.if_range == facts.version)) {
      const http_range& r = q.range;
      const bool suffix = r.is == http_range::kind::suffix;
      if (r.is == http_range::kind::wrong || (suffix ? r.last == 0 : r.first >= to)) {
        owner_text text = begin(416);
        text << "Content-Range: bytes */" << to << "\r\nCache-Control: no-store\r\nContent-Length: 0\r\n";
        return finish(text);
      }
      if (suffix) from = to - std::min(r.last, to);
      else from = r.first, to = std::min(r.last, to - 1) + 1;
      code = 206;
    }
    if (!head) {
      m.version = facts.version;
      pending_reply r;
      owner_->handle(peer_, m, r, who());
      if (r.kind == frame_kind::refused && r.status == status::busy) {  // this connection was used for many references,
                                                                        // one after the other
        owner_->forget(peer_);
        owner_->handle(peer_, m, r, who());
      }
      if (r.kind != frame_kind::description) return refuse_as(r.status, head);
      reply_ = r;
      reply_.kind = frame_kind::chunk;
      if (!q.recipient) last_ = {q.key, facts.version, r.nonce, facts.verifiable};
    }
    owner_text text = begin(code);
    text
        << "Content-Type: application/octet-stream\r\nX-Content-Type-Options: nosniff\r\nAccept-Ranges: bytes\r\nContent-Length: "
        << to - from << "\r\n";
    if (code == 206) text << "Content-Range: bytes " << from << "-" << to - 1 << "/" << facts.image_bytes << "\r\n";
    add_validators(text, q, facts);
    if (facts.verifiable) (text << "Repr-Digest: xxh3=:").base64(facts.version) << ":\r\n";
    finish(text);
    image_bytes_ = facts.image_bytes;
    if (!head) at_ = from, stop_ = to;
  }
  void add_validators(owner_text& text, const http_request& q, const publication_facts& facts) noexcept {
    (text << "ETag: \"").hex(facts.version) << "\"\r\nCache-Control: ";
    if (q.key_in_url) text << "no-store\r\n";
    else if (q.version == 0) text << "no-cache\r\n";
    else
      text << (handler_.shared().options.shared_caches && !owner_->authorises() ? "public" : "private")
           << ", max-age=31536000, immutable\r\n";
    if (!q.key_in_url)
      text << "Vary: Authorization\r\n";  // a cache gives what it holds to those alone who show the same key
  }

  /// `digest=` and 16 digits, or nothing. False: neither.
  static bool read_body(std::string_view body, std::uint64_t& digest, bool& given) noexcept {
    if (body.empty()) return true;
    const auto n = body.substr(0, 7) == "digest=" ? http_version_number(body.substr(7)) : optional<std::uint64_t>();
    if (!n || (given && *n != digest)) return false;
    digest = *n;
    return given = true;
  }
  void settle(const http_request& q, std::string_view body) noexcept {
    const bool confirms = q.route == http_route::confirm;
    frame m;
    m.kind = confirms ? frame_kind::confirm : frame_kind::cancel;
    m.ref = q.key, m.recipient = q.recipient;
    m.digest = q.digest, m.flag = q.digest_given;
    m.status = status::cancelled;
    if (!(confirms ? read_body(body, m.digest, m.flag) : body.empty()))
      return refuse(400, "the body is digest= and 16 hexadecimal digits, or empty\n", false);
    std::uint64_t version = last_.version;
    if (!q.recipient) m.nonce = last_.ref == q.key ? last_.nonce : 0;
    else if (const auto record = owner_->recipient_of(q.key, q.recipient))
      m.nonce = record->nonce, version = record->version;
    if (q.version != 0 && q.version != version) m.nonce = 0;
    m.version = version;
    if (!confirms) {  // nothing answers a cancellation, so what it cannot mean is told here
      frame asked = m;
      asked.version = q.version;
      publication_facts facts;
      if (const status found = owner_->look(peer_, asked, facts, who()); found != status::ok)
        return refuse_as(found, false);
      if (m.nonce == 0) return refuse(409, "this recipient has fetched nothing of this version\n", false);
    }
    pending_reply r;
    const bool answered = owner_->handle(peer_, m, r, who());
    if (!confirms) return say(200, "cancelled\n", false);
    if (!answered) return refuse_as(status::unknown_reference, false);
    if (r.kind == frame_kind::confirmed) {
      if (r.status == status::digest_mismatch) return refuse(409, "digest_mismatch\n", false);
      if (r.status != status::ok) return refuse(409, "this recipient has ended otherwise\n", false);
      bool unverified = !m.flag || !last_.verifiable;
      if (q.recipient)
        if (const auto record = owner_->recipient_of(q.key, q.recipient))
          unverified = record->state == recipient_state::completed_unverified;
      return say(200, unverified ? "completed_unverified\n" : "completed\n", false);
    }
    if (r.status == status::bad_request || r.status == status::stale)
      return refuse(
          409,
          "not every byte of this version was sent to this recipient, as far as is known: who uses several connections says Tensorpull-Recipient\n",
          false);
    refuse_as(r.status, false);
  }

  void measure(bool head) noexcept {
    if (auto& pages = handler_.shared().pages; pages.fetch_add(1) < most_pages) page_ = pool_.acquire();
    if (page_ == nullptr) handler_.shared().pages.fetch_sub(1);
    if (page_ == nullptr) return refuse(503, "no memory now\n", head);
    const std::size_t n = write_http_metrics(owner_->totals(), handler_.shared().counts,
                                             {reinterpret_cast<char*>(page_), pool_.buffer_bytes()});
    owner_text text = begin(n != 0 ? 200 : 500);
    text << "Content-Type: text/plain; version=0.0.4\r\nCache-Control: no-store\r\nContent-Length: " << std::uint64_t{n}
         << "\r\n";
    finish(text);
    page_end_ = head ? 0 : n;
    if (page_end_ == 0) drop_page();
  }
  void drop_page() noexcept {
    if (page_ != nullptr) pool_.release(std::exchange(page_, nullptr)), handler_.shared().pages.fetch_sub(1);
    page_sent_ = page_end_ = 0;
  }

  struct served {
    ref_id ref{};
    std::uint64_t version = 0, nonce = 0;
    bool verifiable = false;
  };

  Owner* owner_;  // null once closed() was called
  pool_type& pool_;
  Handler& handler_;
  [[no_unique_address]] typename Owner::peer peer_{};
  http_request_reader reader_{};
  pending_reply reply_{};
  served last_{};  // of this connection, if its recipient has no name
  std::uint64_t at_ = 0, stop_ = 0, image_bytes_ = 0;  // of the image, what is still to be sent
  std::size_t begin_ = 0, end_ = 0;  // of in_, what was not read yet
  std::size_t head_sent_ = 0, head_end_ = 0, page_sent_ = 0, page_end_ = 0, thrown_ = 0;
  std::byte* page_ = nullptr;  // of the pool
  clock::time_point leaves_at_{};
  std::uint32_t heard_ = 0, number_ = 1;
  phase phase_ = phase::head;
  bool begun_ = false, interim_ = false, closes_ = false, dirty_ = false, pinned_ = false, said_ = false;
  std::array<char, 896> head_;
  std::array<std::byte, input_bytes> in_;
};

}  // namespace tensorpull::detail
