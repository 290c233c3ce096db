// Fetches files of any kind from one web server, one after the other: their bytes in order, from any of them on. A
// model's safetensors file is pulled by the policy `http`, which knows its tensors; here nobody looks at the bytes, and
// whether they are right is the caller's to find out. It needs libcurl.
#pragma once

#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/satellites/http/recipient/detail/http_file.hpp>
#include <tensorpull/satellites/http/recipient/detail/http_requests.hpp>
#include <tensorpull/std/functional.hpp>
#include <tensorpull/transports/blocking/tries.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tensorpull {

/// How files are fetched.
struct http_fetch_options {
  /// How long a connection, an answer, and each 16 KiB may take.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  /// Ends it; noticed within 0.1 s.
  stop_token stop{};
  /// How often to try again without progress in between.
  retry_policy retry{};
};

/// The statements of the server itself about a file: in its answer, or in a redirect, which may lead to another host.
/// Whatever that one states is not here. The texts are valid during the call that gets them; those that are not stated
/// are empty.
struct http_statement {
  bool redirect = false;  ///< the file is elsewhere
  std::string_view etag{};  ///< a strong entity tag without its quotes: of a redirect, X-Linked-Etag
  std::optional<std::uint64_t> bytes{};  ///< of the whole file: of a redirect, X-Linked-Size
  std::string_view commit{};  ///< X-Repo-Commit: of which version of a repository it is
};

/// A server, and the connection to it, which is kept from one file to the next. One thread at a time. A target is a
/// URL's path and query, percent-encoded. The authorisation of the address, its certificate and its recipient go to the
/// origin of its URL alone, wherever redirects lead. Errors of all calls: as those of `http`; those of the callbacks.
class http_fetcher final : detail::http_taker {
 public:
  /// Takes the server's statements, before any byte, and may refuse them.
  using look = std::function<result<void>(const http_statement&)>;
  /// Takes bytes in their order.
  using sink = std::function<result<void>(std::span<const std::byte>)>;

  /// Of `to` only scheme, host and port of the URL count; its digest means nothing. Borrows its texts. Errors: as those
  /// of parse_http_url; invalid_argument. Throws std::bad_alloc.
  http_fetcher(const http_address& to, const http_fetch_options& options)
      : options_(options), requests_(to, {}), ready_(requests_.prepare()), over_(1) {}

  /// Fetches the file of `bytes` bytes from its byte `from` on. After a lost connection it goes on behind the last byte
  /// that was taken. Errors: wrong_payload, with what differs: the file has another length, or other bytes were sent
  /// than those that were asked for; out_of_range: `from` lies behind the end.
  result<void> get(std::string_view target, std::uint64_t from, std::uint64_t bytes, const look& statement,
                   const sink& take) noexcept {
    if (from > bytes) return failure(errc::out_of_range, from);
    next_ = from, bytes_ = bytes, exact_ = true;
    return fetch(target, kind::file, statement, take);
  }
  /// Fetches a text of at most so many bytes; the server itself has to have it (not_permitted). Error: too_large.
  result<std::string> text(std::string_view target, std::size_t most_bytes, const look& statement) noexcept {
    std::string out;
    const auto take = [&](std::span<const std::byte> bytes) -> result<void> {
      if (next_ == 0) out.clear();
      out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return {};
    };
    bytes_ = most_bytes, exact_ = false;
    if (const auto done = fetch(target, kind::text, statement, take); !done) return failure(done.error());
    return out;
  }
  /// Asks what there is (HEAD). A redirect to another host is not followed.
  result<void> head(std::string_view target, const look& statement) noexcept {
    next_ = bytes_ = 0, exact_ = false;
    return fetch(target, kind::head, statement, {});
  }

 private:
  using clock = std::chrono::steady_clock;
  enum class kind : std::uint8_t {
    file,
    text,
    head
  };
  /// The longest text of a redirect that is waited for, so that the connection can be kept.
  static constexpr std::uint64_t most_redirect_text = 64 * 1024;

  result<void> fetch(std::string_view target, kind what, const look& statement, const sink& take) noexcept {
    try {
      if (!ready_) return ready_;
      if (!target.starts_with('/')) return failure(errc::bad_address, 0, std::string_view("URL"));
      auto place = parse_http_url(std::string(requests_.origin().origin()) + std::string(target));
      if (!place) return failure(place.error());
      take_ = &take;
      landed_ = 0;
      busy_ = 0;
      const auto once = [&] {
        if (what == kind::text) next_ = 0;
        const auto how = one_try(*place, what, statement);
        over_.drop(over_.first());
        return how;
      };
      const auto kept = [&] { return what == kind::file ? next_ : 0; };
      return detail::keep_trying(
          once, retry_state(options_.retry, options_.timeout, kept()), options_.stop, [&] { return rest_; }, kept);
    } catch (const std::bad_alloc&) {
      return failure(errc::out_of_memory);
    }
  }
  bool at_origin() const noexcept { return requests_.url().origin() == requests_.origin().origin(); }

  /// Each try begins at the server itself, which knows where the file is now.
  result<void> one_try(const http_url& place, kind what, const look& statement) {
    detail::http_line& l = over_.first();
    requests_.go_to(place);
    rest_ = {};
    for (std::uint32_t redirects = 0;;) {
      if (const auto ok = ask(l, what); !ok) return ok;
      if (const auto ok = until([&] { return l.answered(); }); !ok) return ok;
      const detail::http_head h = l.head();
      const bool has_file = h.is_part() || h.is_whole();
      if (at_origin() && statement && (has_file || h.is_redirect()))
        if (const auto ok = statement(statement_of(h)); !ok) return ok;
      if (h.is_redirect()) {
        auto next = requests_.next(h, redirects);
        if (!next) return failure(next.error());
        if (h.length && *h.length <= most_redirect_text) (void)until_ended(l, true);
        over_.drop(l);
        requests_.go_to(std::move(*next));
        if (at_origin()) continue;
        if (what == kind::head) return {};
        if (what == kind::text) return failure(errc::not_permitted, h.status, std::string_view("another host's text"));
        continue;
      }
      rest_ = h.is_busy() ? detail::back_off(options_.retry, busy_++, h.wait) : h.wait;
      if (!has_file) return failure(detail::error_of_status(h.status, requests_.url()));
      return what == kind::head ? until_ended(l, true) : take_body(l, h);
    }
  }
  static std::string_view without_quotes(std::string_view tag) noexcept {
    return tag.size() < 2 ? tag : tag.substr(1, tag.size() - 2);
  }
  static std::optional<std::uint64_t> as_std(const optional<std::uint64_t>& n) noexcept {
    return n ? std::optional(*n) : std::nullopt;
  }
  static http_statement statement_of(const detail::http_head& h) noexcept {
    const bool redirect = h.is_redirect();
    const auto& etag = redirect || !h.linked_etag.empty() ? h.linked_etag : h.etag;
    std::optional<std::uint64_t> bytes = as_std(h.linked_bytes);
    if (!redirect && h.is_part()) bytes = h.range->total;
    else if (!redirect && !h.linked_bytes) bytes = as_std(h.length);
    return {redirect, without_quotes(etag.view()), bytes, h.commit.view()};
  }
  result<void> ask(detail::http_line& l, kind what) {
    first_ = what == kind::file ? next_ : 0;
    discards_ = false;
    refused_ = {};
    if (const auto ok = requests_.begin(over_, l, *this, requests_.url()); !ok) return ok;
    l.set(CURLOPT_FRESH_CONNECT, 0L);  // libcurl keeps a connection to each host, and there are no other lines
    if (what == kind::head) l.set(CURLOPT_NOBODY, 1L);
    if (first_ != 0) l.set(CURLOPT_RANGE, std::to_string(first_) + "-");
    l.add("Accept-Encoding: identity");
    return over_.start(l);
  }

  result<void> take_body(detail::http_line& l, const detail::http_head& h) {
    if (const auto ok = detail::http_file{}.check(h, first_, exact_ ? bytes_ : ~std::uint64_t{0}); !ok) return ok;
    if (h.is_whole()) first_ = 0;
    const std::uint64_t no_length = detail::http_file::no_length;
    const std::uint64_t total = h.is_part() ? h.range->total : h.length.value_or(no_length);
    if (exact_ ? total != bytes_ && total != no_length : total > bytes_ && total != no_length)
      return failure(exact_ ? errc::wrong_payload : errc::too_large, total, std::string_view("another length"));
    const auto ended = until_ended(l, false);
    if (refused_.code != errc{}) return failure(refused_);
    const bool complete = exact_ && next_ == bytes_;
    if (!ended && !(complete && is_passing(ended.error().code))) return ended;
    if (exact_ && !complete) return failure(errc::connection_lost, next_, requests_.url().address());
    return {};
  }
  result<void> until_ended(detail::http_line& l, bool discards) {
    discards_ = discards;
    l.judged = true;
    l.go_on();
    const auto ended = until([&]() -> result<bool> { return l.now() == detail::http_line::phase::ended; });
    if (!ended) return ended;
    return l.outcome();
  }
  template <class Done>
  result<void> until(Done done) {
    auto moved = clock::now();
    for (std::uint64_t counted = landed_;;) {
      if (options_.stop.stop_requested()) return failure(errc::cancelled);
      const bool did = over_.perform();
      const auto there = done();
      if (!there) return failure(there.error());
      if (*there) return {};
      if (landed_ - counted >= 16 * 1024) counted = landed_, moved = clock::now();
      const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - moved);
      if (spent >= options_.timeout) return failure(errc::timed_out, 0, requests_.url().address());
      if (!did) over_.wait(std::min(detail::wait_step, options_.timeout - spent));
    }
  }
  /// Waits in the kernel until the head was found to be what was asked for.
  std::size_t take(detail::http_line& l, std::span<const std::byte> bytes) noexcept override {
    if (!l.judged || !l.outcome()) return 0;
    if (discards_) return bytes.size();
    const std::size_t all = bytes.size();
    landed_ += all;
    // a server without ranges sends again what is there
    const auto passed = static_cast<std::size_t>(std::min<std::uint64_t>(all, next_ - std::min(next_, first_)));
    first_ += all;
    bytes = bytes.subspan(passed);
    const auto refuse = [&](const error& why) {
      refused_ = why;
      l.refuse(why);
      return std::size_t{0};
    };
    if (bytes.size() > bytes_ - next_)
      return refuse({exact_ ? errc::wrong_payload : errc::too_large, 0, bytes_, std::string_view("more bytes")});
    try {
      if (!bytes.empty())
        if (const auto ok = (*take_)(bytes); !ok) return refuse(ok.error());
    } catch (const std::bad_alloc&) {
      return refuse({errc::out_of_memory, 0, 0, {}});
    }
    next_ += bytes.size();
    return all;
  }

  const http_fetch_options options_;
  detail::http_requests requests_;
  const result<void> ready_;
  detail::http_lines over_;
  const sink* take_ = nullptr;
  std::uint64_t next_ = 0, bytes_ = 0;  // the next byte that is wanted, and how many there may be
  std::uint64_t first_ = 0;  // the byte of the file with which what comes next begins
  std::uint64_t landed_ = 0;  // bytes of bodies that have come
  std::chrono::milliseconds rest_{0};
  unsigned busy_ = 0;  // how often the server was, in a row
  error refused_{};  // why the caller, or the length, has ended it
  bool exact_ = false, discards_ = false;
};

}  // namespace tensorpull
