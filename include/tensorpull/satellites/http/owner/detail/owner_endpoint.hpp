// One end of an HTTP/1.1 connection at an owner, without the stream: bytes in, bytes out. It has the members of
// `endpoint`, so that a host's connection drives it as it drives one that speaks frames: with the same budgets, limits
// and streams.
#pragma once

#include <tensorpull/core/buffer_pool.hpp>
#include <tensorpull/protocol/connection/connection_end.hpp>
#include <tensorpull/protocol/detail/reply_writer.hpp>
#include <tensorpull/satellites/http/owner/detail/answer_text.hpp>
#include <tensorpull/satellites/http/owner/detail/frameless_end.hpp>
#include <tensorpull/satellites/http/owner/detail/input_window.hpp>
#include <tensorpull/satellites/http/owner/detail/metrics_page.hpp>
#include <tensorpull/satellites/http/owner/detail/owner_coverage.hpp>
#include <tensorpull/satellites/http/owner/detail/served_bytes.hpp>
#include <tensorpull/satellites/http/owner/detail/status_views.hpp>
#include <tensorpull/satellites/http/owner/http_shared.hpp>

#include <chrono>
#include <utility>

namespace tensorpull::detail {

/// `Handler` has shared(): an http_shared.
template <class Owner, class Handler>
class owner_endpoint : public frameless_end {
  using clock = std::chrono::steady_clock;

 public:
  using pool_type = buffer_pool<typename Owner::lock_type>;
  using plan_type = write_plan;
  static constexpr std::size_t input_bytes = http_request_reader::most_line_bytes;

  owner_endpoint(Owner& owner, pool_type&, Handler& handler) noexcept
      : owner_(&owner), handler_(handler), reader_(fresh_reader()) {
    static_assert(connection_end<owner_endpoint>);
    handler_.shared().counts.began();
  }
  owner_endpoint(owner_endpoint&&) = delete;
  ~owner_endpoint() { closed(); }

  void closed() noexcept {
    if (owner_ == nullptr) return;
    view_.end(handler_.shared());
    handler_.shared().counts.ended();
    std::exchange(owner_, nullptr)->forget(peer_);
  }

  /// Whether it reads no more until the other end has taken an answer. It never waits for memory.
  bool holds_back() const noexcept { return in_.full(); }
  /// Whether time has to pass before it goes on.
  bool awaits_time() const noexcept { return phase_ == phase::leaving; }
  /// Whether a request has begun and not ended.
  bool mid_frame() const noexcept { return long_frame() != 0 || phase_ == phase::leaving; }
  /// The number of the request that is coming in; 0: none. The host's budget of a frame ends a slow one.
  std::uint32_t long_frame() const noexcept {
    return (phase_ == phase::head && (begun_ || !in_.empty())) || phase_ == phase::body ? number_ : 0;
  }
  /// Grows with each request that is answered with what it asks for.
  std::uint32_t heard() const noexcept { return heard_; }
  bool output_ready() const noexcept { return !out_.empty() || at_ < stop_ || metrics_.open() || view_.open(); }
  bool output_idle() const noexcept { return !output_ready(); }
  /// Once: all has been said, and what still comes is only thrown away.
  bool said_all() noexcept { return phase_ == phase::leaving && !std::exchange(said_, true); }

  template <class Transfer>
  result<void> plan_write(Transfer&, plan_type& plan, std::span<std::byte> scratch, std::size_t) noexcept {
    plan.span_count = plan.item_count = plan.bytes = 0;
    plan.descriptors = {};
    if (phase_ == phase::leaving) return clock::now() < leaves_at_ ? result<void>{} : failure(errc::cancelled);
    go_on();
    if (metrics_.open()) plan_text(plan, metrics_.next(scratch));
    if (view_.open()) plan_text(plan, std::as_bytes(view_.next(*owner_, handler_.shared())));
    if (const auto ok = at_ < stop_ ? plan_image(plan, scratch) : result<void>{}; !ok) return ok;
    const std::span<const char> first = out_.rest();
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
    n = out_.sent(n);
    metrics_.taken(n);
    view_.taken(handler_.shared(), n);
    if (std::exchange(pinned_, false)) {
      const std::uint64_t from = at_;
      at_ += n;
      owner_->unpin(reply_, n);
      if (n > 0) {
        handler_.shared().counts.sent(n);
        if (handler_.shared().coverage.add(reply_.record, sent_to_, from, at_, image_bytes_))
          owner_->served_whole(reply_);
        else if (at_ == image_bytes_) owner_->served_last(reply_);
      }
    }
    if (phase_ != phase::answering || output_ready()) return {};
    if (closes_) {
      // nothing of the other end's is unread, so closing destroys nothing on its way
      if (!dirty_ && in_.empty()) return failure(errc::cancelled);
      phase_ = phase::leaving;
      leaves_at_ = clock::now() + std::chrono::milliseconds(500);
      in_.clear();
      return {};
    }
    phase_ = interim_ ? phase::body : phase::head;
    if (!std::exchange(interim_, false)) {
      reader_ = fresh_reader();
      begun_ = false;
      if (++number_ == 0) number_ = 1;
    }
    go_on();
    return {};
  }

  template <class Transfer>
  std::size_t plan_read(Transfer&, std::span<std::span<std::byte>> out, std::size_t) noexcept {
    if (phase_ == phase::leaving) in_.clear();
    out[0] = in_.room();
    return out[0].empty() ? 0 : 1;
  }
  template <class Transfer>
  void arrived(Transfer&, scatter_list, std::size_t n) noexcept {
    if (phase_ != phase::leaving) in_.arrived(n);
    else if ((thrown_ += n) > most_thrown) leaves_at_ = {};
  }
  template <class Transfer>
  result<void> received(Transfer& t, scatter_list spans, std::size_t n) noexcept {
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

  /// Plans bytes of the image, and leaves the first span to the head. Error: connection_lost: the rest cannot be sent,
  /// and its length was promised.
  result<void> plan_image(plan_type& plan, std::span<std::byte> scratch) noexcept {
    const image_use use = use_image(*owner_, reply_, [&](const source_view& image) noexcept {
      const std::span<std::span<const std::byte>> room{plan.spans.data() + 1, plan_type::max_spans - 1};
      const gathered g = gather(image, at_, std::min<std::uint64_t>(stop_ - at_, default_chunk_bytes), room, scratch);
      plan.span_count = g.pieces;
      plan.bytes = static_cast<std::size_t>(g.bytes);
      return g.bytes > 0;
    });
    pinned_ = use == image_use::pinned;
    if (pinned_) return {};
    plan.span_count = 0;
    if (out_.begun()) return failure(errc::connection_lost);  // the rest cannot be sent, and the length was promised
    refuse_as(use == image_use::gone ? status::withdrawn : status::unreadable, false);
    return {};
  }
  /// Reads on, up to the next request that has an answer.
  void go_on() noexcept {
    while (phase_ == phase::head) {
      const std::string_view there = in_.text();
      const cut_line line = first_line(there);
      if (line.is == cut_line::kind::none) {
        if (!begun_ && !there.empty() && !is_http_token(there[0]) && there[0] != '\r')
          fail(400);  // another protocol, whose other end may wait for ever
        else if (in_.full()) fail(begun_ ? 431 : 414);
        return;
      }
      if (line.is == cut_line::kind::wrong) return fail(400);
      in_.take(line.bytes);
      const std::uint16_t now = reader_.line(line.text);
      begun_ = begun_ || !line.text.empty();
      if (now > http_request_reader::whole) return fail(now);
      if (now == http_request_reader::more) continue;
      phase_ = phase::body;
      const http_request& q = reader_.request();
      if (q.expects_continue && q.body_bytes > in_.size()) return say_continue();
    }
    if (phase_ != phase::body) return;
    const http_request& q = reader_.request();
    if (in_.size() < q.body_bytes) return;
    const std::string_view body = in_.text().substr(0, static_cast<std::size_t>(q.body_bytes));
    in_.take(body.size());
    answer(q, body);
  }
  void say_continue() noexcept {
    text_writer text = out_.begin();
    text << "HTTP/1.1 100 Continue\r\n\r\n";
    out_.finish(text);
    interim_ = true;
    phase_ = phase::answering;
  }

  /// Begins an answer. The caller goes on with its fields, and ends with finish().
  text_writer begin(std::uint16_t status) noexcept {
    at_ = stop_ = 0;
    phase_ = phase::answering;
    handler_.shared().counts.answered(status);
    const http_request& q = reader_.request();
    const bool needs_no_key = (q.route == http_route::metrics && !q.may_look) || q.route == http_route::health;
    if (status < 400 && !needs_no_key && q.method != http_method::options) ++heard_;
    text_writer text = out_.begin();
    begin_answer(text, status, q, closes_, handler_.shared().options.allow_origin);
    return text;
  }
  void finish(text_writer text, std::string_view body = {}) noexcept {
    text << "\r\n" << body;
    out_.finish(text);
  }
  /// An answer of one line of text, which HEAD does not get.
  void say(std::uint16_t status, std::string_view line, bool head) noexcept {
    text_writer text = begin(status);
    add_line_fields(text, status, is_for_the_operator(reader_.request()), line.size());
    finish(text, head ? std::string_view() : line);
  }
  /// The request cannot be understood for sure, so neither can what follows.
  void fail(std::uint16_t status) noexcept {
    closes_ = dirty_ = true;
    in_.clear();
    say(status, "", false);
  }

  identity_source who() const noexcept {
    if constexpr (knows_peer<Handler>) return identity_source(handler_);
    else return {};
  }

  void answer(const http_request& q, std::string_view body) noexcept {
    closes_ = !q.keep_alive;
    const bool head = q.method == http_method::head;
    if (q.method == http_method::options) return finish(begin(204) << browser_fields);
    if (q.route == http_route::health) return say(200, "ok\n", head);
    const http_options& told = handler_.shared().options;
    if (q.route == http_route::metrics && (told.metrics || q.may_look)) return measure(head);
    if (q.route == http_route::nothing || (q.route == http_route::metrics && !told.status))
      return say(404, "there is nothing here\n", head);
    if (is_for_the_operator(q) && !q.may_look) return say(401, "a password is needed\n", head);
    if (is_for_the_operator(q)) return show(q);
    if (!q.key_given) return say(401, "a key is needed: Authorization: Bearer KEY\n", head);
    return q.gives() ? give(q) : settle(q, body);
  }

  void refuse_as(status why, bool head) noexcept {
    const http_refusal r = refusal_for(why);
    say(r.code, r.line, head);
  }

  void give(const http_request& q) noexcept {
    const bool head = q.method == http_method::head;
    frame m;
    m.kind = frame_kind::describe;
    m.ref = q.key, m.version = q.version, m.recipient = q.recipient;
    publication_facts facts;
    served_bytes given;
    const status found = q.key ? owner_->look(peer_, m, facts, who(),
                                              [&](const image_schema& schema) { given = bytes_for(q, schema); })
                               : status::unknown_reference;
    if (found != status::ok) return refuse_as(found, head);
    if (!given.is_there) return say(404, "there is no file of that name\n", head);
    if (q.if_match.given && !q.if_match.names(facts.version)) return say(412, "another version is published\n", head);
    if (q.if_none_match.given && q.if_none_match.names(facts.version)) {
      text_writer text = begin(304);
      describe(text, q, facts.version);
      return finish(text);
    }
    // without a body there is nothing to take a part of: RFC 9110 defines ranges for GET alone
    const bool asks_part = !head && (!q.if_range_given || q.if_range == facts.version);
    const std::uint64_t total = given.end - given.begin;
    const byte_choice chosen = choose_bytes(asks_part ? q.range : http_range{}, total);
    if (chosen.is == byte_choice::kind::none) {
      text_writer text = begin(416);
      put_range(text, chosen, total);
      return finish(text);
    }
    if (!head) {
      m.version = facts.version;
      pending_reply r;
      owner_->handle(peer_, m, r, who());
      // this connection was used for many references, one after the other
      if (r.kind == frame_kind::refused && r.status == status::busy) {
        owner_->forget(peer_);
        owner_->handle(peer_, m, r, who());
      }
      if (r.kind != frame_kind::description) return refuse_as(r.status, head);
      reply_ = r;
      reply_.kind = frame_kind::chunk;
      sent_to_ = sent_to::by(m, r.nonce);
    }
    text_writer text = begin(chosen.is == byte_choice::kind::part ? 206 : 200);
    text << "Content-Type: application/" << (q.route == http_route::files ? "json" : "octet-stream")
         << "\r\nX-Content-Type-Options: nosniff\r\nAccept-Ranges: bytes\r\n";
    put_range(text, chosen, total);
    describe(text, q, facts.version);
    if (q.route == http_route::image && facts.verifiable) given.digest = facts.version;
    if (given.digest) (text << "Repr-Digest: xxh3=:").base64(*given.digest) << ":\r\n";
    finish(text);
    image_bytes_ = facts.image_bytes;
    if (head) return;
    at_ = given.begin + chosen.from;
    stop_ = given.begin + chosen.to;
  }
  void describe(text_writer& text, const http_request& q, std::uint64_t version) noexcept {
    add_validators(text, q, version, handler_.shared().options.shared_caches && !owner_->authorises());
  }

  void settle(const http_request& q, std::string_view body) noexcept {
    const bool confirms = q.route == http_route::confirm;
    frame m;
    m.kind = confirms ? frame_kind::confirm : frame_kind::cancel;
    m.ref = q.key, m.recipient = q.recipient;
    m.digest = q.digest, m.flag = q.digest_given;
    m.status = status::cancelled;
    if (!(confirms ? parse_confirmation(body, m.digest, m.flag) : body.empty()))
      return say(400, "the body is digest= and 16 hexadecimal digits, or empty\n", false);
    m.version = q.version;
    if (const auto record = owner_->recipient_of(peer_, m)) m.nonce = record->nonce, m.version = record->version;
    if (!confirms) {  // nothing answers a cancellation, so what it cannot mean is told here
      frame asked = m;
      asked.version = q.version;
      publication_facts facts;
      if (const status found = owner_->look(peer_, asked, facts, who()); found != status::ok)
        return refuse_as(found, false);
      if (m.nonce == 0 || m.version != facts.version)
        return say(409, "this recipient has fetched nothing of this version\n", false);
    }
    pending_reply r;
    const bool answered = owner_->handle(peer_, m, r, who());
    if (!confirms) return say(200, "cancelled\n", false);
    if (!answered) return refuse_as(status::unknown_reference, false);
    if (r.kind == frame_kind::confirmed) {
      if (r.status == status::ok || r.status == status::digest_mismatch)
        handler_.shared().coverage.ended(r.record, sent_to::by(m, m.nonce));
      const auto record = owner_->recipient_of(peer_, m);
      const http_refusal told = answer_to_confirmation(r.status, record && record->state == recipient_state::completed);
      return say(told.code, told.line, false);
    }
    if (r.status == status::bad_request || r.status == status::stale) return say(409, not_every_byte, false);
    refuse_as(r.status, false);
  }

  void measure(bool head) noexcept {
    http_figures figures = handler_.shared().counts;
    if (const pull_counts* const pulls = handler_.shared().options.pulls) figures.pulls = pull_figures(*pulls);
    const std::size_t n = metrics_.begin(owner_->totals(), figures);
    finish(begin(n != 0 ? 200 : 500) << "Content-Type: text/plain; version=0.0.4\r\nCache-Control: no-store\r\n"
                                        "Content-Length: "
                                     << std::uint64_t{n} << "\r\n");
    if (head) metrics_.end();
  }
  /// Plans a part of a page, and leaves the first span to the head.
  static void plan_text(plan_type& plan, std::span<const std::byte> text) noexcept {
    plan.spans[1] = text;
    plan.bytes = text.size();
    plan.span_count = 1;
  }
  /// Begins a page of status, whose length nobody knows: in chunks, or for HTTP/1.0 up to the connection's end.
  void show(const http_request& q) noexcept {
    const bool head = q.method == http_method::head, json = q.route == http_route::status_json;
    if (!view_.begin(*owner_, handler_.shared(), json, !q.old)) return say(503, "others look at it\n", head);
    closes_ = closes_ || q.old;
    text_writer text = begin(200);
    add_page_fields(text, json ? json_status::type : html_status::type);
    if (!q.old) text << "Transfer-Encoding: chunked\r\n";
    finish(text);
    if (head) view_.end(handler_.shared());
  }
  http_request_reader fresh_reader() const noexcept {
    const http_options& told = handler_.shared().options;
    return http_request_reader(bool(told.allow_origin), told.status);
  }

  Owner* owner_;  // null once closed() was called
  Handler& handler_;
  [[no_unique_address]] typename Owner::peer peer_{};
  http_request_reader reader_{};
  pending_reply reply_{};
  sent_to sent_to_{};  // what `reply_` gives
  std::uint64_t at_ = 0, stop_ = 0, image_bytes_ = 0;  // of the image, what is still to be sent
  std::size_t thrown_ = 0;
  metrics_page metrics_{};
  open_view view_{};  // a page of status that is being sent
  clock::time_point leaves_at_{};
  std::uint32_t heard_ = 0, number_ = 1;
  phase phase_ = phase::head;
  bool begun_ = false, interim_ = false, closes_ = false, dirty_ = false, pinned_ = false, said_ = false;
  outgoing_text out_;
  input_window<input_bytes> in_;
};

}  // namespace tensorpull::detail
