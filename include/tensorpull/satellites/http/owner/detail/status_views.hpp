// The pages of status that are on their way: a few at a time, each with a buffer of its own, which is filled again when
// the other end has taken it. So a page of any length has this memory, and one that reads slowly takes nobody else's.
#pragma once

#include <tensorpull/satellites/http/owner/detail/rate_samples.hpp>
#include <tensorpull/satellites/http/owner/detail/status_text.hpp>
#include <tensorpull/satellites/http/owner/detail/status_walk.hpp>
#include <tensorpull/satellites/http/owner/status_names.hpp>
#include <tensorpull/std/mutex.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <utility>

namespace tensorpull::detail {

/// What is shared between those who look: rates.
template <class Lock>
class status_rates {
 public:
  optional<std::uint64_t> of_all(std::uint64_t bytes, std::uint64_t now_ms) noexcept {
    const lock_guard hold(lock_);
    return all_.look(0, bytes, now_ms);
  }
  /// Two recipients whose records are `most` apart take each other's room: then there is no rate of either.
  optional<std::uint64_t> of(const shown_recipient& r, std::uint64_t now_ms) noexcept {
    if (is_final(r.state) || r.state == recipient_state::unseen) return {};
    const lock_guard hold(lock_);
    return each_[r.record % most].look(r.key, r.bytes, now_ms);
  }

 private:
  static constexpr std::size_t most = 512;
  [[no_unique_address]] Lock lock_{};
  rate_sample all_{};
  std::array<rate_sample, most> each_{};
};

/// One page on its way.
class status_view {
 public:
  static constexpr std::size_t bytes = 4096;

  /// `chunked`: the text is in chunks of HTTP/1.1; otherwise its end is that of the connection.
  template <class Owner>
  void begin(const Owner& owner, bool json, bool chunked, const status_summary& summary) noexcept {
    walk_.begin(owner);
    summary_ = summary;
    begin_ = end_ = 0;
    json_ = json, chunked_ = chunked;
    headed_ = kept_ = over_ = false;
    first_ = true;
  }
  /// What has been made and not been taken.
  std::span<const char> rest() const noexcept { return std::span(text_).subspan(begin_, end_ - begin_); }
  void taken(std::size_t n) noexcept { begin_ += n; }
  bool over() const noexcept { return over_ && begin_ == end_; }

  /// Makes the next piece, once the one before is taken.
  template <class Owner, class Rates>
  void fill(const Owner& owner, Rates& rates, const status_names* names, std::uint64_t now_ms) noexcept {
    const std::span<char> room = std::span<char>(text_).subspan(before, bytes - before - behind);
    text_writer to(room);
    if (json_) write<json_status>(owner, rates, names, now_ms, to);
    else write<html_status>(owner, rates, names, now_ms, to);
    const std::size_t n = to.text().size();
    begin_ = before, end_ = before + n;
    if (!chunked_) return;
    begin_ = 0;
    for (std::size_t i = 0; i < 3; ++i) text_[i] = hex_digit(n >> (8 - 4 * i));
    put("\r\n", 3);
    put("\r\n", end_);
    end_ += 2;
    if (over_) put("0\r\n\r\n", end_), end_ += 5;
  }

 private:
  static constexpr std::size_t before = 5, behind = 7;
  void put(std::string_view s, std::size_t at) noexcept {
    for (std::size_t i = 0; i < s.size(); ++i) text_[at + i] = s[i];
  }
  template <class Format, class Owner, class Rates>
  void write(const Owner& owner, Rates& rates, const status_names* names, std::uint64_t now_ms,
             text_writer& to) noexcept {
    if (!headed_) Format::head(to, summary_);
    headed_ = true;
    for (std::size_t n = to.text().size(); !over_; n = to.text().size()) {
      if (!kept_) row_ = walk_.next(owner);
      kept_ = false;
      write_row<Format>(rates, names, now_ms, to);
      if (!to.whole()) {  // it begins the next piece; none is longer than a piece
        to.cut(n);
        kept_ = true;
        return;
      }
      first_ = row_.is == status_row::kind::publication;
      over_ = row_.is == status_row::kind::end;
    }
  }
  template <class Format, class Rates>
  void write_row(Rates& rates, const status_names* names, std::uint64_t now_ms, text_writer& to) const noexcept {
    std::array<char, status_names::most_bytes> name{};
    const auto named = [&](const auto& id) {
      return std::string_view(name.data(), names != nullptr && id ? names->find(id, name) : 0);
    };
    switch (row_.is) {
      case status_row::kind::publication:
        return Format::publication(to, row_.publication, named(row_.publication.id), first_);
      case status_row::kind::recipient:
        return Format::recipient(to, row_.recipient, named(row_.recipient.who), rates.of(row_.recipient, now_ms),
                                 first_);
      case status_row::kind::publication_ends: return Format::publication_ends(to, row_.more);
      default: return Format::end(to, row_.more);
    }
  }

  std::array<char, bytes> text_{};
  std::size_t begin_ = 0, end_ = 0;
  status_walk walk_{};
  status_row row_{};
  status_summary summary_{};
  bool json_ = false, chunked_ = false, headed_ = false, kept_ = false, over_ = false, first_ = true;
};

/// The views of one host. Nothing is allocated before somebody who may look does; then 96 KiB once.
template <class Lock>
class status_views {
 public:
  static constexpr std::size_t most = 4;  ///< at a time

  /// nullptr: others look, or there is no memory.
  status_view* acquire() noexcept {
    const lock_guard hold(lock_);
    if (!all_) all_.reset(new (std::nothrow) all);
    for (std::size_t i = 0; all_ && i < most; ++i)
      if (!all_->used[i]) {
        all_->used[i] = true;
        return &all_->views[i];
      }
    return nullptr;
  }
  void release(const status_view* view) noexcept {
    const lock_guard hold(lock_);
    all_->used[static_cast<std::size_t>(view - all_->views.data())] = false;
  }
  /// Once acquire() has given one.
  status_rates<Lock>& rates() noexcept { return all_->rates; }
  static std::uint64_t now_ms() noexcept {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
  }
  /// Since this was made.
  std::uint64_t up_ms() const noexcept { return now_ms() - begun_ms_; }

 private:
  struct all {
    std::array<status_view, most> views{};
    std::array<bool, most> used{};
    status_rates<Lock> rates{};
  };
  static_assert(sizeof(all) <= 96 * 1024);
  [[no_unique_address]] Lock lock_{};
  std::unique_ptr<all> all_;
  std::uint64_t begun_ms_ = now_ms();
};

/// The view that a connection has, if it sends one. `Shared`: an http_shared, the same each time.
class open_view {
 public:
  bool open() const noexcept { return view_ != nullptr; }
  /// False: none is free.
  template <class Owner, class Shared>
  bool begin(Owner& owner, Shared& shared, bool json, bool chunked) noexcept {
    view_ = shared.views.acquire();
    if (view_ == nullptr) return false;
    status_summary s{owner.totals(), shared.counts, shared.views.up_ms(), {}};
    s.rate = shared.views.rates().of_all(s.totals.bytes_sent, shared.views.now_ms());
    view_->begin(owner, json, chunked, s);
    return true;
  }
  /// What is to be sent next; valid until it was taken.
  template <class Owner, class Shared>
  std::span<const char> next(const Owner& owner, Shared& shared) noexcept {
    if (view_->rest().empty()) view_->fill(owner, shared.views.rates(), shared.options.names, shared.views.now_ms());
    return view_->rest();
  }
  /// So many bytes of it have left.
  template <class Shared>
  void taken(Shared& shared, std::size_t n) noexcept {
    if (view_ == nullptr) return;
    view_->taken(n);
    if (view_->over()) end(shared);
  }
  /// Does nothing without one.
  template <class Shared>
  void end(Shared& shared) noexcept {
    if (view_ != nullptr) shared.views.release(std::exchange(view_, nullptr));
  }

 private:
  status_view* view_ = nullptr;
};

}  // namespace tensorpull::detail
