// Chooses what a page shows of what an owner has published and of the recipients, and walks over that row by row: each
// step takes the owner's lock for one look, and copies one row.
#pragma once

#include <tensorpull/core/ids.hpp>
#include <tensorpull/protocol/owner/detail/owner_tables.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull::detail {

/// A publication, as a page shows it: without its ID, which is a key, and without its version, which tells whoever can
/// guess the model that the guess is right.
struct shown_publication {
  ref_id id{};  ///< to look up its title, and for nothing else
  std::uint64_t number = 0;  ///< the order of publishing
  std::uint64_t image_bytes = 0, bytes_sent = 0;
  std::chrono::milliseconds age{};  ///< since its transaction was opened; until it has settled
  std::uint32_t tensors = 0;
  std::uint32_t expected = 0;  ///< of its transaction; 0: not known
  std::uint32_t have = 0;  ///< recipients that have it
  tensorpull::verdict verdict = verdict::open;
  bool published = false, unreadable = false, beside = false;
};
/// A recipient of it.
struct shown_recipient {
  recipient_id who{};  ///< to look up its name; none: it has not said one
  std::uint64_t key = 0;  ///< tells it from others that had its record before
  std::uint64_t bytes = 0, image_bytes = 0;
  std::uint32_t record = 0;
  recipient_state state = recipient_state::unseen;
  errc ended_by{};  ///< of `unfinished`
  bool connected = false;
};

/// What comes next on a page.
struct status_row {
  enum class kind : std::uint8_t {
    publication,  ///< begins
    recipient,  ///< of it
    publication_ends,  ///< `more` recipients are not shown
    end,  ///< `more` publications are not shown
  };
  kind is = kind::end;
  std::uint32_t more = 0;
  shown_publication publication{};
  shown_recipient recipient{};
};

/// The limits of a page, and the order on it: what is published, the newest first, then what is over; in each the
/// recipients under way, then those that failed, then those that have it.
class status_walk {
 public:
  static constexpr std::uint32_t most_publications = 100, most_recipients_of_one = 200, most_recipients = 2000;

  /// Chooses the rows. A later publication or recipient is not shown, and one that is over by then is left out. Cost: a
  /// pass over the slots and two over the records, however many publications there are.
  template <class Owner>
  void begin(const Owner& owner) noexcept {
    owner.look_over([this](const auto& all) noexcept { this->choose(all); });
  }
  /// The next row, as it is now.
  template <class Owner>
  status_row next(const Owner& owner) noexcept {
    return owner.look_over([this](const auto& all) noexcept { return this->next_of(all); });
  }

 private:
  static constexpr std::uint8_t groups = 3;
  static constexpr std::uint8_t group_of(recipient_state s) noexcept {
    return static_cast<std::uint8_t>(is_final(s) + has_completed(s));
  }
  /// A publication, and where in `records_` its recipients are.
  struct choice {
    std::uint64_t order = 0;
    std::uint32_t slot = 0;
    std::uint32_t more = 0;  ///< recipients that are not shown
    std::array<std::uint32_t, groups> left{};  ///< to be placed, by group
    std::array<std::uint16_t, groups> next{};  ///< where the next one is placed
    std::uint16_t first = 0, end = 0;
    bool over = false;
    bool is_before(const choice& o) const noexcept { return over != o.over ? o.over : order > o.order; }
  };
  static choice choice_of(const publication& p) noexcept {
    return {.order = p.order, .over = p.now == publication::state::withdrawn};
  }

  auto place_of(const choice& c) noexcept {
    return std::lower_bound(choices_.begin(), choices_.begin() + chosen_, c,
                            [](const choice& a, const choice& b) { return a.is_before(b); });
  }

  template <class Tables>
  void choose(const Tables& all) noexcept {
    chosen_ = at_ = more_ = 0;
    inside_ = false;
    for (const publication& p : all.publications.all()) {
      if (p.now == publication::state::empty) continue;
      choice c = choice_of(p);
      c.slot = all.publications.index(p);
      const auto at = place_of(c);
      more_ += at == choices_.end() || chosen_ == most_publications;
      if (at == choices_.end()) continue;
      chosen_ = std::min(chosen_ + 1, most_publications);
      std::move_backward(at, choices_.begin() + chosen_ - 1, choices_.begin() + chosen_);
      *at = c;
    }
    const auto rows = all.records.all();
    for (const recipient_record& r : rows)
      if (choice* const c = choice_with(all, r)) ++c->left[group_of(r.state)];
    share_out();
    for (std::uint32_t i = 0; i < rows.size(); ++i)
      if (choice* const c = choice_with(all, rows[i]))
        if (const auto group = group_of(rows[i].state); c->left[group] > 0) {
          --c->left[group];
          records_[c->next[group]++] = i;
        }
  }
  /// Gives each its part of the rows.
  void share_out() noexcept {
    std::uint16_t used = 0;
    for (choice& c : std::span(choices_).first(chosen_)) {
      std::uint32_t room = std::min(most_recipients_of_one, most_recipients - used);
      c.first = used;
      for (std::uint8_t group = 0; group < groups; ++group) {
        const std::uint32_t shown = std::min(c.left[group], room);
        c.more += c.left[group] - shown;
        c.left[group] = shown;
        c.next[group] = used;
        room -= shown;
        used = static_cast<std::uint16_t>(used + shown);
      }
      c.end = used;
    }
  }
  /// That of a record's publication; nullptr: it is not shown.
  template <class Tables>
  choice* choice_with(const Tables& all, const recipient_record& r) noexcept {
    if (!r.who) return nullptr;
    const publication& p = all.publications.at(r.slot);
    if (!all.is_of(r, p)) return nullptr;
    const auto at = place_of(choice_of(p));
    return at != choices_.begin() + chosen_ && at->slot == r.slot ? &*at : nullptr;
  }

  template <class Tables>
  status_row next_of(const Tables& all) noexcept {
    status_row row;
    for (; at_ < chosen_; ++at_) {
      const choice& c = choices_[at_];
      const publication& p = all.publications.at(c.slot);
      const bool is_there = p.order == c.order;  // otherwise the slot has something else by now
      if (!inside_ && is_there) {
        inside_ = true;
        row_ = c.first;
        row.is = status_row::kind::publication;
        row.publication = shown(all, p);
        return row;
      }
      if (!inside_) continue;
      while (is_there && row_ < c.end) {
        const std::uint32_t i = records_[row_++];
        const recipient_record& r = all.records.all()[i];
        if (!r.who || !all.is_of(r, p)) continue;
        row.is = status_row::kind::recipient;
        row.recipient = shown(r, i);
        return row;
      }
      inside_ = false;
      ++at_;
      row.is = status_row::kind::publication_ends;
      row.more = c.more;
      return row;
    }
    row.more = more_;
    return row;
  }
  template <class Tables>
  static shown_publication shown(const Tables& all, const publication& p) noexcept {
    shown_publication to{
        .id = p.id,
        .number = p.order,
        .image_bytes = p.image_bytes,
        .bytes_sent = p.counts.bytes_sent,
        .tensors = p.tensors,
        .have = p.counts.completed + p.counts.completed_unverified,
        .verdict = p.verdict,
        .published = p.now == publication::state::published,
        .unreadable = p.unreadable,
        .beside = p.beside,
    };
    if (const transaction* const t = all.find(p.transaction)) {
      to.expected = t->outcome.expected;
      to.age = t->outcome.verdict == verdict::open ? all.now - t->started_at : t->outcome.lasted;
    }
    return to;
  }
  static shown_recipient shown(const recipient_record& r, std::uint32_t index) noexcept {
    return {
        .who = r.anonymous ? recipient_id{} : r.who,
        .key = r.who.value ^ std::uint64_t{r.generation} << 32,
        .bytes = r.bytes,
        .image_bytes = r.image_bytes,
        .record = index,
        .state = r.state,
        .ended_by = r.ended_by,
        .connected = r.connection != 0 && !is_final(r.state),
    };
  }

  std::array<choice, most_publications> choices_{};  ///< in the order of the page
  std::array<std::uint32_t, most_recipients> records_{};
  std::uint32_t chosen_ = 0, at_ = 0, row_ = 0;
  std::uint32_t more_ = 0;  ///< publications that are not shown
  bool inside_ = false;
};

}  // namespace tensorpull::detail
