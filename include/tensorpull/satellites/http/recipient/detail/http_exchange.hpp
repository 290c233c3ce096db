// The server's side of one pull over HTTP, as the state machine of the recipient sees it: requests become ranges, and
// answers become frames.
#pragma once

#include <tensorpull/satellites/http/detail/base64.hpp>
#include <tensorpull/satellites/http/recipient/detail/http_file.hpp>
#include <tensorpull/satellites/http/recipient/detail/http_ranges.hpp>
#include <tensorpull/satellites/http/recipient/detail/http_requests.hpp>
#include <tensorpull/transports/blocking/stream_pull.hpp>

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorpull::detail {

/// Stands for the endpoint that running_pull expects, since this driver has no frames.
struct no_http_endpoint {
  static void begin_pull() noexcept {}
  template <class Transfer>
  static void end_pull(Transfer&) noexcept {}
  static bool send_control(const frame&) noexcept { return false; }
};

/// A request is for what comes next in a file: its header, then the ranges that the transfer asks for, in their order.
/// An answer serves whatever comes next where it stands, and what is not wanted yet waits in the kernel. Over a single
/// connection one request asks for all that is missing: then TCP's window follows the path.
template <class Pull, class Checked, class Limits>
class http_exchange final : http_taker {
  using clock = std::chrono::steady_clock;
  using phase = http_line::phase;
  using transfer_type = typename Pull::transfer_type;
  using item = typename http_ranges<transfer_type>::item;

 public:
  /// Borrows all but `about`. Throws std::bad_alloc.
  http_exchange(http_requests& requests, const http_address& to, const http_asked& about, Pull& pull, Checked& checked,
                const pull_options& options)
      : requests_(requests), to_(to), asked_(about), pull_(pull), t_(pull.transfer()), checked_(checked),
        options_(options), ranges_(t_), one_range_(http_requests_at_a_time(to.connections, options.window) == 0),
        over_(http_requests_at_a_time(to.connections, options.window)) {}

  /// Goes on until the transfer has ended, or until an error after which another try may succeed. Each try begins at
  /// the origin, which says where the file is now.
  result<void> drive() {
    no_http_endpoint end;
    pull_.begin(end);
    go_to(requests_.origin());
    redirects_ = 0;
    if (!file_.can_go_on() && t_.landed_bytes() == 0) forget();
    error why{};
    while (!t_.ended() && why.code == errc{} && !pull_.stopped()) {
      const auto moved = turn();
      pull_.note();
      if (!moved && !is_passing(moved.error().code)) {
        t_.fail(moved.error());
        break;
      }
      why = moved ? error{pull_.judge(), 0, 0, {}} : moved.error();
      if (!t_.ended() && why.code == errc{} && !*moved) over_.wait(std::min(wait_step, pull_.left()));
    }
    if (t_.ended()) say_goodbye();
    over_.drop_all();
    ranges_.clear();
    waiting_ = {};
    (void)pull_.finish(end);
    if (why.code != errc{}) return failure(why);
    return {};
  }

 private:
  /// Bytes that the first request asks for if it does not ask for everything: the header of most files is in them.
  static constexpr std::uint64_t first_bytes = 64 * 1024;

  // ---- what the state machine asks ----
  /// Goes on with what was asked. Whether anything has moved.
  result<bool> turn() {
    bool moved = false;
    for (frame f; !waiting_ && ranges_.next_frame(f); moved = true) {
      if (const auto ok = asked(f); !ok) return failure(ok.error());
      if (t_.ended()) return true;
    }
    moved = over_.perform() || moved;
    if (waiting_ && waiting_->kind == frame_kind::confirm) return hear_of_confirmation(moved);
    for (http_line& l : over_.lines())
      if (l.now() != phase::idle && !l.judged)
        if (const auto did = judge(l); !did || *did || t_.pause().count() > 0) return did;
    const auto did = ask_ahead();
    if (!did) return did;
    const auto landed = go_on_landing();
    if (!landed) return landed;
    return moved || *did || *landed;
  }
  result<void> asked(const frame& f) {
    if (f.kind == frame_kind::pull) {
      ranges_.push(f, file_.total);
    } else if (f.kind == frame_kind::describe) {
      waiting_ = f;
      if (file_.described) return describe();
    } else if (f.kind == frame_kind::confirm) {
      return confirm(f);
    } else {
      refuse(f.id, f.kind == frame_kind::schema ? status::schema_mismatch : status::unsupported);
    }
    return {};
  }
  /// A frame about the file, as its owner would send it.
  frame about(frame_kind kind, std::uint32_t id) const noexcept {
    frame m;
    m.kind = kind;
    m.id = id;
    m.ref = t_.request().ref;
    m.version = file_.version;
    m.nonce = 1;
    return m;
  }
  void refuse(std::uint32_t id, status why, std::chrono::milliseconds delay = {}) noexcept {
    frame m = about(frame_kind::refused, id);
    m.status = why;
    m.delay_ms = static_cast<std::uint32_t>(std::min<std::int64_t>(delay.count(), 1'000'000'000));
    t_.on(m);
  }
  /// Says what there is.
  result<void> describe() {
    if (!file_.can_go_on() && t_.landed_bytes() > 0) {
      t_.fail({errc::connection_lost, 0, 0, std::string_view("and nothing can be gone on with")});
      return {};
    }
    if (asked_.needs_digest && !file_.proved) return failure(errc::not_verifiable);
    if (asked_.version != 0 && file_.stated_xxh3 != 0 && file_.stated_xxh3 != asked_.version)
      return failure(errc::stale_version);
    if (file_.digest.sha256) checked_.expect(*file_.digest.sha256);
    frame m = about(frame_kind::description, waiting_->id);
    m.fingerprint = file_.fingerprint;
    m.image_bytes = file_.total;
    m.data_start = file_.data_start;
    m.tensors = file_.tensors;
    m.length = static_cast<std::uint32_t>(max_payload_bytes);
    m.window = static_cast<std::uint16_t>(over_.size());
    m.flag = file_.digest.xxh3 != 0;
    file_.described = true;
    waiting_ = {};
    t_.on(m);
    return {};
  }

  /// The bytes that the n-th request is for: the header, or a range.
  std::pair<std::uint64_t, std::uint64_t> missing(std::size_t n) noexcept {
    const bool all = one_range_ && asked_.lands && t_.landed_bytes() == 0;
    if (!file_.described)
      return {prefix_.size(), all ? http_requests::to_the_end : std::max(first_bytes, file_.data_start)};
    const std::uint64_t from = std::max<std::uint64_t>(ranges_[n].next(), prefix_.size());
    return {from, one_range_ ? file_.total : ranges_[n].end()};
  }
  std::size_t requests() const noexcept {
    if (file_.described) return ranges_.size();
    return waiting_ ? 1 : 0;
  }
  /// The answer that has this byte, or will.
  http_line* serving(std::uint64_t byte) noexcept {
    for (http_line& l : over_.lines())
      if (l.now() != phase::idle && l.at <= byte && byte < l.until) return &l;
    return nullptr;
  }
  /// Sees to it that the requests are on their way, in their order. Whether one is new.
  result<bool> ask_ahead() {
    bool moved = false, waits = false;  // an earlier one waits for a connection: what is kept is not for a later one
    for (std::size_t n = 0; n < requests(); ++n) {
      const auto [from, to] = missing(n);
      const http_line* const there = from < to ? serving(from) : nullptr;
      waits = waits || (there != nullptr && !there->connected());
      if (from >= to || there != nullptr) continue;
      if (unsure_ && asks_here()) break;  // one finds out where the file is
      http_line* const l = line_for(n, !waits);
      if (l == nullptr) break;
      if (const auto ok = requests_.get(over_, *l, *this, from, to, file_.if_range(), asks_whole_); !ok)
        return failure(ok.error());
      l->at = from, l->until = to, l->place = place_, l->asked = clock::now();
      moved = true;
    }
    if (requests() == 0) return moved;
    http_line* const first = serving(missing(0).first);
    if (first == nullptr || first->judged || !is_neglected(*first)) return moved;
    // it waits for a connection that is not made, or on which the server never says a word, as one does that serves a
    // single one at a time: the others hold what comes behind it
    if (first->connected() || !is_crowded(*first)) over_.drop_all(), over_.allow(1);
    return true;
  }
  bool asks_here() noexcept {
    for (const http_line& l : over_.lines())
      if (l.now() != phase::idle && l.place == place_) return true;
    return false;
  }
  /// For the n-th request; null: it has to wait. The first does not: all lines may be busy with what comes behind it.
  http_line* line_for(std::size_t n, bool kept) noexcept {
    http_line* last = &over_.first();
    for (http_line& l : over_.lines()) {
      bool wanted = false;
      for (std::size_t i = 0; i < requests(); ++i) wanted = wanted || serving(missing(i).first) == &l;
      if (!wanted) over_.drop(l);
      if (l.at > last->at) last = &l;
    }
    if (over_.busy() >= over_.allowed()) {
      if (n > 0) return nullptr;
      over_.drop(*last);
    }
    return over_.idle(kept);
  }
  void go_to(http_url place) {
    requests_.go_to(std::move(place));
    over_.leave();
    ++place_;
    unsure_ = true;
  }
  /// Looks at the head of an answer, once it has come. Whether the other lines have changed.
  result<bool> judge(http_line& l) {
    const auto there = l.answered();
    if (!there && !l.heard() && is_crowded(l)) return true;
    if (!there || !*there) return there;
    const http_head& h = l.head();
    if (h.is_part() || h.is_whole()) return begin(l);
    if (h.is_busy() && is_crowded(l)) return true;
    const bool moved_on = l.place != place_;  // another answer has led us away meanwhile
    const bool expired = !unsure_ && requests_.led_away() && may_have_expired(h.status);
    if (!moved_on && h.is_redirect()) {
      auto next = requests_.next(h, redirects_);
      if (!next) return failure(next.error());
      go_to(std::move(*next));
    } else if (!moved_on && expired) {
      go_to(requests_.origin());
    } else if (!moved_on) {
      if (h.status == 416 && !file_.found) return failure(errc::bad_file, 416, std::string_view("an empty file"));
      if (!h.is_busy()) return failure(error_of_status(h.status, requests_.url()));
      refuse(waiting_ ? waiting_->id : ranges_[0].id, status::busy, back_off(options_.retry, busy_++, h.wait));
    }
    over_.drop(l);
    return true;
  }
  /// An answer has bytes. Whether the other lines have changed.
  result<bool> begin(http_line& l) {
    const http_head& h = l.head();
    if (const auto ok = file_.check(h, l.at, l.until); !ok) return failure(ok.error());
    if (!file_.found) {
      if (const auto ok = file_.identify(h, asked_.digest, asked_.hashes); !ok) return failure(ok.error());
      if (file_.found && file_.total < 8) return failure(errc::bad_file, 0, std::string_view("it is too short"));
      ours_ = h.digest.ours && requests_.url().origin() == requests_.origin().origin();
      owner_ = requests_.url();
      first_answer_ = clock::now() - l.asked;
    }
    if (l.place == place_) unsure_ = false, redirects_ = 0;
    busy_ = 0;
    if (!file_.found) {  // two ranges may be of two files: the whole is asked for at once
      if (std::exchange(asks_whole_, true)) return failure(errc::wrong_payload, 0, std::string_view("Content-Range"));
      over_.drop(l);
      return true;
    }
    asks_whole_ = false;
    l.judged = true;
    l.at = h.is_part() ? l.at : 0;
    l.until = h.is_part() ? h.range->to : file_.total;
    if (h.is_part()) return false;
    if (const auto ok = check_length(h); !ok) return failure(ok.error());
    for (http_line& other : over_.lines())  // all of it comes: what has landed is passed over
      if (&other != &l) over_.drop(other);
    over_.allow(1);
    return true;
  }
  /// After a lost connection a server without ranges would send all of it again.
  result<void> check_length(const http_head& h) const noexcept {
    if (h.is_part() || h.knows_ranges || file_.total == http_file::no_length || file_.total <= to_.most_whole_bytes)
      return {};
    return failure(errc::unsupported_request, file_.total, std::string_view("a server without ranges"));
  }
  /// A server turns one connection away while others are open: it allows fewer at a time. False: there is no other.
  bool is_crowded(http_line& l) noexcept {
    const std::uint32_t others = over_.connected() - (l.connected() ? 1 : 0);
    if (others == 0) return false;
    over_.close(l);
    over_.allow(others);
    return true;
  }
  /// Whether what comes next has waited too long for the head of its answer.
  bool is_neglected(const http_line& l) const noexcept {
    if (over_.size() == 1 || l.heard()) return false;
    const auto usual = std::chrono::duration_cast<std::chrono::milliseconds>(4 * first_answer_);
    const std::chrono::milliseconds enough = std::chrono::seconds(l.connected() ? 5 : 1) + usual;
    return has_passed(clock::now() - l.asked, std::min(options_.per_request_timeout / 4, enough));
  }

  // ---- bytes ----
  std::size_t take(http_line& from, std::span<const std::byte> bytes) noexcept override {
    try {
      // what is like all before it need not wait to be looked at
      if (!from.judged && file_.described && from.head().is_part()) {
        const auto ok = begin(from);
        if (!ok) from.refuse(ok.error());
      }
      std::size_t took = 0;
      while (from.judged && from.outcome() && took < bytes.size() && !t_.ended()) {
        const auto rest = bytes.subspan(took);
        if (from.held || from.at == from.until) {
          from.refuse({errc::wrong_payload, 0, 0, std::string_view("more bytes than were asked for")});
          break;
        }
        // the last byte of an answer that does not state its length counts when the answer has ended
        const std::uint64_t sure = from.until - (from.head().length ? 0 : 1);
        const std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>(rest.size(), sure - from.at));
        if (n == 0) {
          from.held = rest[0];
          ++took;
          continue;
        }
        const std::size_t used = consume(from, rest.first(n));
        if (used == 0) break;
        from.at += used;
        took += used;
      }
      return took;
    } catch (...) {
      from.refuse({errc::out_of_memory, 0, 0, {}});
      return 0;
    }
  }
  /// Bytes of an answer. How many were taken: those that come next, or come again.
  std::size_t consume(http_line& l, std::span<const std::byte> bytes) {
    item* const i = file_.described ? ranges_.wanted(file_.total) : nullptr;
    if (file_.described && (i == nullptr || i->next() < prefix_.size())) return 0;
    const std::uint64_t next = i != nullptr ? i->next() : prefix_.size();
    if (l.at < next)
      return come_again(static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), next - l.at)), 1 << 20);
    if (l.at > next || (i != nullptr && !deliver(*i))) return 0;
    return i != nullptr ? ranges_.land(*i, bytes) : collect(l, bytes);
  }
  /// Bytes that the transfer does not see. So many are progress.
  std::size_t come_again(std::size_t bytes, std::uint64_t enough) noexcept {
    if ((unseen_ += bytes) >= enough) unseen_ = 0, pull_.excuse();
    return bytes;
  }
  /// Reads the header of the file, and says what there is once it is whole.
  std::size_t collect(http_line& l, std::span<const std::byte> bytes) {
    const std::uint64_t whole = file_.data_start != 0 ? file_.data_start : 8;
    bytes = bytes.first(static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), whole - prefix_.size())));
    // once, so that how the bytes come does not decide how much is allocated
    if (prefix_.empty()) prefix_.reserve(first_bytes);
    prefix_.insert(prefix_.end(), bytes.begin(), bytes.end());
    if (prefix_.size() == whole)
      if (const auto ok = file_.data_start == 0 ? read_length() : read_header(l); !ok) l.refuse(ok.error());
    return come_again(bytes.size(), 4096);
  }
  result<void> read_length() noexcept {
    const std::uint64_t text = load_le64(prefix_.data());
    if (text > to_.most_header_bytes) return failure(errc::too_large, text, std::string_view("the file's header"));
    if (text < 2 || 8 + text > file_.total) return failure(errc::bad_file, 0, std::string_view("no safetensors file"));
    file_.data_start = 8 + text;
    return {};
  }
  result<void> read_header(http_line& l) {
    if (prefix_[8] != std::byte{'{'}) return failure(errc::bad_file, 0, std::string_view("no safetensors file"));
    if (const auto ok = file_.read_header(prefix_, Limits::tensors); !ok) return ok;
    if (const auto ok = check_length(l.head()); !ok) return ok;
    l.until = std::min(l.until, file_.total);
    return describe();
  }
  /// Lands the bytes that arrived with the header, and those of the next answer. Whether anything has moved.
  result<bool> go_on_landing() {
    bool moved = false;
    ranges_.starved = false;
    // a file that came with its header lands when the answer has ended, too
    const bool all = prefix_.size() == file_.total && over_.busy() > 0 && !over_.first().head().length;
    while (file_.described && !t_.ended() && !ranges_.starved && !all) {
      item* const i = ranges_.wanted(file_.total);
      if (i == nullptr || i->next() >= prefix_.size()) break;
      moved = true;
      if (deliver(*i)) (void)ranges_.land(*i, std::span(prefix_).subspan(static_cast<std::size_t>(i->next())));
    }
    for (http_line& l : over_.lines()) {
      const bool next = l.at == l.until || (requests() > 0 && &l == serving(missing(0).first));
      if (!l.judged || !next || ranges_.starved || t_.ended()) continue;
      l.go_on();
      if (l.now() != phase::ended || t_.ended()) continue;
      const auto did = settle(l);
      if (!did || *did) return did;
    }
    if (!ranges_.starved || t_.ended()) return moved;
    over_.wait(std::chrono::milliseconds(1));  // the consumer has no memory now
    pull_.excuse();
    return true;
  }
  /// An answer has ended. Whether it is done with.
  result<bool> settle(http_line& l) {
    const bool complete = l.at == l.until;
    if (const auto ok = l.outcome(); !ok && !(complete && is_passing(ok.error().code))) return failure(ok.error());
    if (l.held) {
      const std::byte last = *l.held;
      if (consume(l, std::span(&last, 1)) == 0) return false;
      ++l.at;
      l.held = {};
      if (const auto ok = l.outcome(); !ok) return failure(ok.error());
    }
    const bool whole = l.at == l.until;
    over_.drop(l);
    if (!whole) return failure(errc::connection_lost);
    return true;
  }
  /// The file has to be asked for again.
  void forget() noexcept { file_ = {}, prefix_.clear(); }
  /// Offers a range whose bytes begin to come to the transfer. False: it does not want it any more.
  bool deliver(item& i) noexcept { return i.delivered || ranges_.deliver(i, about(frame_kind::chunk, i.id)); }

  // ---- the end ----
  /// Begins to tell an owner of this library how it ended, where it described the file: at the origin that the caller
  /// named. Where a redirect led is told nothing.
  result<void> tell(std::string_view how, const std::string& field) {
    for (http_line& l : over_.lines()) over_.drop(l);
    http_line& l = over_.first();
    http_url url = owner_;
    url.text.insert(std::min(url.text.find('?'), url.text.size()), how);
    if (const auto ok = requests_.begin(over_, l, *this, url); !ok) return ok;
    l.set(CURLOPT_POST, 1L);
    l.set(CURLOPT_POSTFIELDS, "");
    if (!field.empty()) l.add(field.c_str());
    return over_.start(l);
  }
  /// Tells an owner of this library. Any other server has nothing to be told: the pull has ended well, without a
  /// confirmation.
  result<void> confirm(const frame& f) {
    if (!ours_) {
      t_.fail({errc::unsupported_request, 0, 0, {}});
      return {};
    }
    waiting_ = f;
    std::string digest(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) digest[i] = static_cast<char>(f.digest >> (56 - 8 * i) & 0xff);
    return tell("/confirm", f.flag ? "Repr-Digest: xxh3=:" + to_base64(digest) + ":" : std::string());
  }
  result<bool> hear_of_confirmation(bool moved) {
    const auto there = over_.first().answered();
    if (!there) return there;
    if (!*there) return moved;
    const http_head& h = over_.first().head();
    const frame f = *waiting_;
    waiting_ = {};
    if (h.status / 100 == 2) {
      t_.on(about(frame_kind::confirmed, f.id));
    } else if (h.status == 409) {
      // The owner does not know that we have every byte: it was started again, or has forgotten us. It is asked again
      // what there is, and then for the last byte.
      refuse(f.id, status::bad_request);
      forget();
    } else if (h.is_busy()) {
      refuse(f.id, status::busy, back_off(options_.retry, busy_++, h.wait));
    } else return failure(error_of_status(h.status, owner_));
    over_.drop(over_.first());
    return true;
  }
  /// Tells an owner of this library that we have given up, so that it need not wait until our budget has run out. It
  /// has 0.1 s for that if we are asked to stop, otherwise a second; a server that has gone is not told.
  void say_goodbye() {
    const auto outcome = t_.outcome();
    const auto bye = t_.farewell();
    if (!ours_ || outcome || is_passing(outcome.error().code) || !bye || bye->status == status::looked) return;
    if (declines(bye->status)) return;
    const std::chrono::milliseconds most = options_.stop.stop_requested() ? wait_step : std::chrono::seconds(1);
    const auto deadline = deadline_after(std::min(options_.per_request_timeout, most));
    if (!tell("/cancel", {})) return;
    const http_line& l = over_.first();
    for (auto there = l.answered(); there && !*there && clock::now() < deadline; there = l.answered())
      if (!over_.perform()) over_.wait(std::chrono::ceil<std::chrono::milliseconds>(deadline - clock::now()));
  }

  http_requests& requests_;
  const http_address& to_;
  const http_asked asked_;
  Pull& pull_;
  transfer_type& t_;
  Checked& checked_;
  const pull_options& options_;
  http_ranges<transfer_type> ranges_;
  const bool one_range_;  // one range over one connection brings all that is missing
  http_lines over_;
  http_file file_{};
  std::vector<std::byte> prefix_{};  // its header
  http_url owner_{};  // where it was found
  optional<frame> waiting_{};  // a frame that is being answered
  std::uint64_t unseen_ = 0;  // bytes since the time-out was put off
  std::chrono::nanoseconds first_answer_{0};
  unsigned place_ = 0, busy_ = 0;  // how often the place has changed; how often the server was busy in a row
  std::uint32_t redirects_ = 0;  // in a row
  bool unsure_ = true;  // no answer has shown that the file is where we ask
  bool asks_whole_ = false;  // the server's answers do not show which file they are of
  bool ours_ = false;  // an owner of this library has the file, which wants to hear of the end
};

}  // namespace tensorpull::detail
