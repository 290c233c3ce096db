// The beginning of a pull over HTTP: the first request, redirects, and the file's header.
#pragma once

#include <tensorpull/satellites/http/recipient/detail/http_connections.hpp>
#include <tensorpull/satellites/http/recipient/detail/http_file.hpp>
#include <tensorpull/satellites/http/recipient/detail/request_text.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <utility>
#include <vector>

namespace tensorpull::detail {

/// An answer that is none of those that were hoped for, to the request `asked`. A server that is busy is told to the
/// transfer, and is no error.
template <class Transfer>
result<void> refused_by(Transfer& t, const frame& asked, const http_head& h, const http_url& url) {
  if (h.status != 429 && h.status != 503) return failure(error_of_status(h.status, url));
  frame m;
  m.kind = frame_kind::refused;
  m.status = status::busy;
  m.id = asked.id;
  m.ref = asked.ref;
  m.delay_ms = static_cast<std::uint32_t>(std::min<std::uint64_t>(h.retry_after_s, 1'000'000) * 1000);
  t.on(m);
  return {};
}

/// What there is, and the first bytes of it. The first request asks for a range, so that it shows whether the server
/// knows them: for everything, if all of it is wanted over one connection. So a pull asks once, and no round trip more
/// than a program that only copies the file.
template <class Dial>
class http_description {
  using connections = http_connections<Dial>;
  using line = typename connections::line;
  using rest = typename connections::rest;

 public:
  /// Bytes that the first request asks for if it does not ask for everything, and the fewest of a longer file that may
  /// answer it: the header of most files is in them.
  static constexpr std::uint64_t first_bytes = 64 * 1024;

  /// `lands`: bytes are wanted, and not only what there is.
  http_description(connections& over, http_requests& requests, const http_address& to, const stated_digest& stated,
                   bool lands) noexcept
      : over_(over), requests_(requests), most_header_bytes_(to.most_header_bytes),
        most_whole_bytes_(to.most_whole_bytes), most_redirects_(to.redirects), stated_(stated), lands_(lands) {}

  const http_file& file() const noexcept { return file_; }
  /// The first bytes of the file, which came with the first answers: at least its header.
  std::span<const std::byte> prefix() const noexcept { return prefix_; }
  /// What the answer has behind prefix(), which is left to the caller.
  rest take_rest() noexcept { return std::exchange(rest_, rest{}); }
  /// How long the first answer took to come.
  std::chrono::nanoseconds first_answer() const noexcept { return first_answer_; }

  /// Asks what there is. file() is known then, unless the pull has ended or the server is busy. If the file comes in
  /// one answer, what is behind prefix() follows over the first connection. If it comes in ranges, see take_rest().
  template <class Pull>
  result<void> ask(Pull& pull, const frame& asked, std::uint64_t most_tensors) {
    if (led_away()) start_at_origin();  // an earlier try was led away, perhaps to what gives nothing any more
    line& l = over_.first();
    http_file found;
    bool ranged = true;
    rest_ = {};
    const bool all = lands_ && over_.one_range() && pull.transfer().landed_bytes() == 0;
    const std::uint64_t to = all ? line::to_the_end : first_bytes;
    while (!found.known()) {
      const auto ok = follow(pull, [&] {
        if (ranged) l.ask(requests_.common(), 0, to, {});
        else l.ask(requests_.common());
      });
      if (!ok || pull.ended()) return ok;
      const http_head& h = l.head();
      if (h.status == 416 && ranged) return failure(errc::bad_file, 416, std::string_view("an empty file"));
      if (h.status != 200 && h.status != 206) return refused_by(pull.transfer(), asked, h, requests_.url());
      if (const auto well = identify(found, h, ranged ? to : 0); !well) return well;
      if (found.known()) break;
      l.drop();
      ranged = false;
    }
    only_said_ = l.head().status == 200;
    const auto ok = read_header(pull, l, asked, found, most_tensors, all);
    if (ok && !pull.ended()) file_ = found;
    return ok;
  }
  /// A server that said that it knows ranges, and was not seen to, has answered a request for one with everything:
  /// somebody on the way takes the range off. Then all of it comes again, and what has landed is passed over. False: it
  /// is another file, or too long for that.
  bool goes_on_whole(const http_head& h) noexcept {
    if (!only_said_ || h.status != 200 || file_.total > most_whole_bytes_ || !file_.check_whole(h)) return false;
    file_.comes = http_delivery::whole;
    return true;
  }
  /// What there is has to be asked again.
  void forget() noexcept { file_ = {}; }
  /// Whether the origin has led to another place.
  bool led_away() const noexcept { return requests_.led_away(); }
  /// Whether the origin has to say anew where the file is: this place leads to another, or the origin led here and what
  /// it gave us has run out.
  bool may_lead_anew(unsigned status) const noexcept {
    return is_redirect(status) || (led_away() && may_have_expired(status));
  }
  /// Asks over the first connection where the file is, and the origin again if the file is not there any more.
  template <class Pull, class Ask>
  result<void> ask_there(Pull& pull, Ask ask) {
    line& l = over_.first();
    auto ok = over_.exchange(pull, l, requests_.url(), ask);
    const bool gone = !ok && led_away() && ok.error().code == errc::connection_failed;
    if (gone || (ok && !pull.ended() && may_lead_anew(l.head().status))) ok = ask_origin(pull, ask);
    return ok;
  }
  /// Asks the origin again over the first connection, which may be another one then, and follows it. `ask` writes the
  /// request to requests_.url().
  template <class Pull, class Ask>
  result<void> ask_origin(Pull& pull, Ask ask) {
    start_at_origin();
    return follow(pull, ask);
  }

 private:
  void start_at_origin() {
    over_.drop_all();
    requests_.go_to(requests_.origin());
  }
  /// Asks over the first connection, and goes where redirects lead, until an answer is none.
  template <class Pull, class Ask>
  result<void> follow(Pull& pull, Ask ask) {
    line& l = over_.first();
    for (std::uint32_t redirects = 0;; ++redirects) {
      const auto began = std::chrono::steady_clock::now();
      if (const auto ok = over_.exchange(pull, l, requests_.url(), ask); !ok || pull.ended()) return ok;
      first_answer_ = std::chrono::steady_clock::now() - began;
      const http_head& h = l.head();
      if (!is_redirect(h.status)) return {};
      if (redirects == most_redirects_)
        return failure(errc::not_permitted, h.status, std::string_view("too many redirects"));
      auto next = resolve_location(requests_.url(), h.location);
      if (!next) return failure(next.error());
      l.drop();
      requests_.go_to(std::move(*next));
    }
  }
  /// What an answer with bytes says, to a request for those before `to`; 0: for the whole. It stays unknown if it is a
  /// range, and two ranges may be of two files: then the whole is asked for at once. A server may answer 200 if
  /// everything was asked for, and know ranges all the same.
  result<void> identify(http_file& found, const http_head& h, std::uint64_t to) const noexcept {
    if (const auto ok = http_file::check_body(h); !ok) return ok;
    if (h.status == 206) {
      if (to == 0) return failure(errc::wrong_payload, 0, std::string_view("Content-Range"));
      if (const auto ok = http_file::check_first(h, first_bytes, to); !ok) return ok;
    }
    if (const auto ok = found.identify(h, stated_); !ok) return ok;
    if (h.status == 206) {
      found.total = h.range.total;
      if (found.can_go_on()) found.comes = http_delivery::ranges;
      return {};
    }
    found.total = h.has_length ? h.length : http_file::no_length;
    found.comes = found.can_go_on() ? http_delivery::whole : http_delivery::once;
    if (to == line::to_the_end && h.knows_ranges && h.has_length && found.can_go_on())
      found.comes = http_delivery::ranges;
    return {};
  }

  template <class Pull>
  result<void> read_header(Pull& pull, line& l, const frame& asked, http_file& found, std::uint64_t most_tensors,
                           bool all) {
    const bool ranges = found.comes == http_delivery::ranges;
    const std::uint64_t in_answer = l.head().status == 206 ? l.head().range.to : found.total;
    prefix_.clear();
    // once, so that how the bytes come does not decide how much is allocated
    prefix_.reserve(static_cast<std::size_t>(std::min(in_answer, first_bytes)));
    if (const auto ok = more(pull, l, 8); !ok || pull.ended()) return ok;
    if (prefix_.size() < 8 || found.total < 8) return bad_file("it is too short");
    const std::uint64_t text = load_le64(prefix_.data());
    if (text > most_header_bytes_) return failure(errc::too_large, text, std::string_view("the file's header"));
    found.data_start = 8 + text;
    if (text < 2 || found.data_start > found.total) return bad_file("no safetensors file");
    if (ranges && all && found.data_start < in_answer) {
      if (const auto ok = more(pull, l, found.data_start); !ok || pull.ended()) return ok;
      if (prefix_.size() < found.data_start) return failure(errc::connection_lost);
      rest_ = {&l, found.data_start, in_answer};
    } else if (ranges) {
      if (const auto ok = take_all(pull, l, in_answer); !ok || pull.ended()) return ok;
      if (const auto ok = take_rest(pull, l, asked, found); !ok || pull.ended()) return ok;
    } else {
      if (const auto ok = more(pull, l, found.data_start); !ok || pull.ended()) return ok;
      if (prefix_.size() < found.data_start) return failure(errc::connection_lost);
    }
    if (prefix_[8] != std::byte{'{'}) return bad_file("no safetensors file");
    const auto header = std::span(prefix_).first(static_cast<std::size_t>(found.data_start));
    if (const auto ok = found.read_header(header, most_tensors); !ok || ranges) return ok;
    if (found.data_start == found.total)  // known only now, if the answer did not say its length
      if (const auto ok = over_.until(pull, l, [&] { return l.at_end(); }); !ok || pull.ended()) return ok;
    if (found.total > most_whole_bytes_)
      return failure(errc::unsupported_request, found.total, std::string_view("a server without ranges"));
    return {};
  }
  static result<void> bad_file(std::string_view what) noexcept { return failure(errc::bad_file, 0, what); }
  /// Of a longer header: what is missing, in as many answers as the server gives.
  template <class Pull>
  result<void> take_rest(Pull& pull, line& l, const frame& asked, const http_file& found) {
    while (prefix_.size() < found.data_start) {
      const std::uint64_t from = prefix_.size();
      const auto ask = [&] { l.ask(requests_.common(), from, found.data_start, found.if_range.view()); };
      auto ok = ask_there(pull, ask);
      if (!ok || pull.ended()) return ok;
      const http_head& h = l.head();
      if (h.status != 200 && h.status != 206) {
        const auto why = refused_by(pull.transfer(), asked, h, requests_.url());
        return why ? failure(errc::busy) : why;
      }
      if (ok = found.check_range(h, from, found.data_start, from + 1); !ok) return ok;
      if (ok = take_all(pull, l, h.range.to); !ok || pull.ended()) return ok;
    }
    return {};
  }
  /// Reads an answer up to this byte of the file, which is its last.
  template <class Pull>
  result<void> take_all(Pull& pull, line& l, std::uint64_t to) {
    if (const auto ok = more(pull, l, to); !ok || pull.ended()) return ok;
    if (prefix_.size() < to) return failure(errc::connection_lost);
    if (const auto ok = over_.until(pull, l, [&] { return l.at_end(); }); !ok || pull.ended()) return ok;
    l.done();
    return {};
  }
  /// Reads until prefix_ has so many bytes, or the body has ended.
  template <class Pull>
  result<void> more(Pull& pull, line& l, std::uint64_t to) {
    return over_.until(pull, l, [&] { return collect(pull, l, to); });
  }
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
      if (progress_ >= 4096) {
        progress_ = 0;
        pull.excuse();
      }
      if (io.status == io_status::would_block) return false;
      if (io.status != io_status::ok && !l.body_ended()) return failure(error_of(io));
    }
    return true;
  }

  connections& over_;
  http_requests& requests_;
  std::uint64_t most_header_bytes_, most_whole_bytes_;
  std::uint32_t most_redirects_;
  stated_digest stated_;
  bool lands_, only_said_ = false;
  rest rest_{};
  http_file file_{};
  std::vector<std::byte> prefix_{};
  std::chrono::nanoseconds first_answer_{0};
  std::uint64_t progress_ = 0;  // bytes since the time-out was put off
};

}  // namespace tensorpull::detail
