// The ranges that a pull over HTTP has asked for, in their order, and which connections bring them.
#pragma once

#include <tensorpull/satellites/http/recipient/detail/http_description.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace tensorpull::detail {

/// A frame about a file, as its owner would send it.
inline frame frame_about(const http_file& file, frame_kind kind, std::uint32_t id, const ref_id& ref) noexcept {
  frame m;
  m.kind = kind;
  m.id = id;
  m.ref = ref;
  m.version = file.version;
  m.nonce = 1;
  return m;
}

template <class Dial>
class http_ranges {
  using connections = http_connections<Dial>;
  using rest = typename connections::rest;
  using clock = std::chrono::steady_clock;

 public:
  using line = typename connections::line;

  http_ranges(connections& over, const http_requests& requests, http_description<Dial>& described,
              std::chrono::milliseconds patience) noexcept
      : over_(over), requests_(requests), described_(described), patience_(patience) {}

  /// A range that the transfer has asked for.
  struct item {
    std::uint32_t id = 0;
    std::uint64_t offset = 0, length = 0, landed = 0;
    line* over = nullptr;      // which connection it has
    std::uint64_t until = 0;   // where the answer ends that has it there, at its own end or behind it
    bool delivered = false;    // the transfer has taken it
    clock::time_point asked{};  // or when it began to wait for a connection, as the first

    std::uint64_t end() const noexcept { return offset + length; }
    void take_back() noexcept {
      over = nullptr;
      asked = {};
    }
  };

  bool empty() const noexcept { return queued_ == 0; }
  bool full() const noexcept { return queued_ == queue_.size(); }
  void clear() noexcept {
    first_ = queued_ = 0;
    rest_ = {};
  }
  void push(std::uint32_t id, std::uint64_t offset, std::uint64_t length) noexcept {
    at(queued_++) = {id, offset, length, 0, nullptr, 0, false, {}};
  }
  /// The one whose bytes are wanted now.
  item& front() noexcept { return at(0); }
  void pop() noexcept {
    first_ = (first_ + 1) % queue_.size();
    --queued_;
  }
  /// What is left of an answer is for the range that comes next.
  void go_on_with(const rest& r) noexcept { rest_ = r; }
  /// The front one has landed. What is left of its answer is for the range behind it.
  void pop_landed() noexcept {
    const item& i = front();
    if (i.over != nullptr && i.until > i.end()) rest_ = {i.over, i.end(), i.until};
    else if (i.over != nullptr) i.over->done();
    pop();
  }
  /// Whether nothing of it has come: it has no connection, or its answer has not begun.
  bool waits(item& i) noexcept {
    if (i.over != nullptr) return i.over->now() != line::phase::body;
    if (described_.file().in_one_answer() || i.end() <= described_.prefix().size()) return false;
    if (i.asked == clock::time_point{}) i.asked = clock::now();
    return true;
  }
  /// Whether the first range has waited too long: for connections that do not come, or on a further connection that the
  /// server has taken and never says a word on. One that serves a single connection at a time does that, until the
  /// others end.
  bool is_neglected(const item& i) const noexcept {
    if (i.over != nullptr && (i.over->used() || i.over->heard() || over_.ready() < 2)) return false;
    const auto usual = std::chrono::duration_cast<std::chrono::milliseconds>(4 * described_.first_answer());
    return has_passed(clock::now() - i.asked, std::min(patience_ / 4, std::chrono::seconds(5) + usual));
  }
  void over_one_connection() noexcept {
    over_.drop_all();
    rest_ = {};
    for (std::size_t n = 0; n < queued_; ++n) at(n).take_back();
    over_.allow(1);
  }
  /// Sees to it that the requests which are queued are on their way, each on an idle connection, in their order.
  /// Further connections are made meanwhile: one that cannot be had, or whose other end is silent, holds nobody up.
  /// Over a single connection one request asks for all that is missing: the bytes wait at the server until they are
  /// taken, since the kernel's buffer is as long as the path needs and no longer.
  template <class Pull>
  result<bool> ask_ahead(Pull& pull) {
    bool moved = over_.go_on_opening();
    std::uint32_t waiting = 0;  // requests that have no connection
    for (std::size_t n = 0; n < queued_; ++n) {
      item& i = at(n);
      const std::uint64_t from = std::max<std::uint64_t>(i.offset, described_.prefix().size());
      if (from >= i.end()) continue;
      if (n == 0 && i.over == nullptr) take_rest(i, from);
      if (i.over == nullptr) {
        if (expired_) {  // what is on its way may land before
          if (n > 0) return moved;
          const auto how = lead_anew(pull, i, from);
          if (!how) return failure(how.error());
          return true;
        }
        line* free = over_.idle();
        if (free == nullptr && (over_.ready() == 0 || (n == 0 && !over_.another_may_come()))) {
          free = &give_up_last();
          if (const auto ok = over_.connect(*free, requests_.url(), pull.left()); !ok) {
            expired_ = described_.led_away();  // for the next try: nobody is there any more
            return failure(ok.error());
          }
        }
        if (free == nullptr) {
          over_.open_another(++waiting, requests_.url());
          continue;
        }
        ask(*free, i, from);
        i.over = free;
        i.asked = clock::now();
        moved = true;
      }
      if (i.over->now() != line::phase::asking && i.over->now() != line::phase::head) continue;
      const auto how = await_head(pull, i, n, from);
      if (!how) return failure(how.error());
      if (*how == head_outcome::later) return true;
      moved = moved || *how == head_outcome::moved;
    }
    return moved;
  }
 private:
  enum class head_outcome : std::uint8_t {
    none,  ///< the head has not come
    moved,  ///< it has, or the range waits for a connection again
    later,  ///< the server is busy, or takes fewer connections: the queue is looked at anew
  };
  /// The range has what is left of the answer before it, if its missing bytes come next there. If not, nobody wants
  /// that.
  void take_rest(item& i, std::uint64_t from) noexcept {
    const rest r = std::exchange(rest_, rest{});
    if (r.over == nullptr) return;
    if (r.from != from || r.until < i.end()) return r.over->drop();
    i.over = r.over;
    i.until = r.until;
  }
  void ask(line& l, item& i, std::uint64_t from) noexcept {
    i.until = over_.one_range() ? described_.file().total : i.end();
    l.ask(requests_.common(), from, i.until, described_.file().if_range.view());
  }
  /// The head of its answer has come. One that ends early has the range all the same.
  result<void> begins(item& i, const http_head& h, std::uint64_t from) noexcept {
    if (const auto ok = described_.file().check_range(h, from, i.until, i.end()); !ok) return ok;
    i.until = h.range.to;
    return {};
  }
  /// Goes on with the request of the n-th range, whose bytes begin at `from`.
  template <class Pull>
  result<head_outcome> await_head(Pull& pull, item& i, std::size_t n, std::uint64_t from) {
    line& l = *i.over;
    const auto there = l.step();
    if (!there) {
      if (connections::closed_while_idle(l, there.error())) {  // it has given an answer before, so this cannot go on
        over_.drop_idle();  // for ever
        l.drop();
        i.take_back();
        return head_outcome::moved;
      }
      if (!l.used() && !l.heard() && is_passing(there.error().code) && is_crowded(i)) return head_outcome::later;
      return failure(there.error());
    }
    if (!*there) return head_outcome::none;
    const http_head& h = l.head();
    if (described_.goes_on_whole(h)) {
      over_one_connection();
      return head_outcome::later;
    }
    if (h.status == 200 || h.status == 206) {
      if (const auto ok = begins(i, h, from); !ok) return failure(ok.error());
      return head_outcome::moved;
    }
    if ((n > 0 || !l.used()) && (h.status == 429 || h.status == 503) && is_crowded(i)) return head_outcome::later;
    if (described_.may_lead_anew(h.status)) {
      expired_ = true;
      l.drop();
      i.take_back();
      return head_outcome::moved;
    }
    if (const auto ok = refused(pull, i, h); !ok) return failure(ok.error());
    return head_outcome::later;
  }
  template <class Pull>
  result<void> refused(Pull& pull, const item& i, const http_head& h) {
    const frame asked = frame_about(described_.file(), frame_kind::pull, i.id, pull.transfer().request().ref);
    return refused_by(pull.transfer(), asked, h, requests_.url());
  }
  /// Asks the origin for the first range, so that it says anew where the file is. What the other connections bring is
  /// asked for again, there.
  template <class Pull>
  result<void> lead_anew(Pull& pull, item& first, std::uint64_t from) {
    for (std::size_t n = 0; n < queued_; ++n) at(n).take_back();
    line& l = over_.first();
    if (const auto ok = described_.ask_origin(pull, [&] { ask(l, first, from); }); !ok || pull.ended()) return ok;
    const http_head& h = l.head();
    if (h.status != 200 && h.status != 206) return refused(pull, first, h);
    expired_ = false;
    if (described_.goes_on_whole(h)) {
      over_one_connection();
      return {};
    }
    if (const auto ok = begins(first, h, from); !ok) return ok;
    first.over = &l;
    first.asked = clock::now();
    return {};
  }
  /// A server turns one connection away while others are open: it allows fewer at a time. The range waits for one of
  /// those. False: there is no other.
  bool is_crowded(item& i) noexcept {
    i.over->drop();
    const std::uint32_t others = over_.connected();
    if (others == 0) return false;
    over_.allow(others);
    i.take_back();
    return true;
  }
  /// Takes the connection away from the request that is wanted last: all of them may be busy with what comes behind the
  /// first one.
  line& give_up_last() noexcept {
    line* free = &over_.first();
    for (std::size_t n = queued_; n-- > 0;)
      if (item& i = at(n); i.over != nullptr) {
        free = i.over;
        i.take_back();
        break;
      }
    free->drop();
    return *free;
  }

  item& at(std::size_t n) noexcept { return queue_[(first_ + n) % queue_.size()]; }

  connections& over_;
  const http_requests& requests_;
  http_description<Dial>& described_;
  std::chrono::milliseconds patience_;
  bool expired_ = false;  // the place to which the origin led gives nothing any more
  std::array<item, 16> queue_{};
  std::size_t first_ = 0, queued_ = 0;
  rest rest_{};
};

}  // namespace tensorpull::detail
