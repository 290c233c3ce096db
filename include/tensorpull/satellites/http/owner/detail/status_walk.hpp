// Walks over what an owner has published and over the recipients, row by row, without memory for them: each step takes
// the owner's lock for one look, and copies one row.
#pragma once

#include <tensorpull/core/ids.hpp>
#include <tensorpull/protocol/owner/detail/owner_tables.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

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

  /// The next row. Cost: a pass over the slots, or over the records from the last row on.
  template <class Owner>
  status_row next(const Owner& owner) noexcept {
    return owner.look_over([this](const owner_tables& all) noexcept { return next_of(all); });
  }

 private:
  static constexpr std::uint8_t groups = 3;
  static constexpr std::uint8_t group_of(recipient_state s) noexcept {
    return static_cast<std::uint8_t>(is_final(s) + has_completed(s));
  }

  status_row next_of(const owner_tables& all) noexcept {
    status_row row;
    if (inside_) return next_recipient(all);
    const publication* const p = next_publication(all);
    if (p != nullptr && shown_ < most_publications) {
      ++shown_;
      begin(all, *p, row);
      return row;
    }
    if (p == nullptr) return row;
    for (const publication& x : all.publications.all()) row.more += x.now != publication::state::empty;
    row.more -= std::min(row.more, shown_);
    return row;
  }
  const publication* next_publication(const owner_tables& all) noexcept {
    for (;; over_ = true, before_ = ~std::uint64_t{0}) {
      const publication* best = nullptr;
      for (const publication& p : all.publications.all())
        if (p.now == (over_ ? publication::state::withdrawn : publication::state::published) && p.order < before_ &&
            (best == nullptr || p.order > best->order))
          best = &p;
      if (best != nullptr || over_) return best;
    }
  }
  void begin(const owner_tables& all, const publication& p, status_row& row) noexcept {
    inside_ = true;
    before_ = p.order;
    slot_ = all.publications.index(p);
    record_ = of_this_ = 0;
    group_ = 0;
    row.is = status_row::kind::publication;
    row.publication = {
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
      row.publication.expected = t->outcome.expected;
      row.publication.age = t->outcome.verdict == verdict::open ? all.now - t->started_at : t->outcome.lasted;
    }
  }
  status_row next_recipient(const owner_tables& all) noexcept {
    status_row row;
    row.is = status_row::kind::publication_ends;
    inside_ = false;
    const publication& p = all.publications.at(slot_);
    const auto rows = all.records.all();
    if (p.order != before_) return row;  // the slot has something else by now
    for (; group_ < groups; ++group_, record_ = 0)
      for (; record_ < rows.size(); ++record_) {
        const recipient_record& r = rows[record_];
        if (!r.who || !all.is_of(r, p) || group_of(r.state) != group_) continue;
        if (of_this_ == most_recipients_of_one || recipients_ == most_recipients) {
          for (const recipient_record& x : rows.subspan(record_))
            row.more += x.who && all.is_of(x, p) && group_of(x.state) == group_;
          for (const recipient_record& x : rows) row.more += x.who && all.is_of(x, p) && group_of(x.state) > group_;
          return row;
        }
        ++of_this_, ++recipients_;
        inside_ = true;
        row.is = status_row::kind::recipient;
        row.recipient = {
            .who = r.anonymous ? recipient_id{} : r.who,
            .key = r.who.value ^ std::uint64_t{r.generation} << 32,
            .bytes = r.bytes,
            .image_bytes = r.image_bytes,
            .record = record_++,
            .state = r.state,
            .ended_by = r.ended_by,
            .connected = r.connection != 0 && !is_final(r.state),
        };
        return row;
      }
    return row;
  }

  std::uint64_t before_ = ~std::uint64_t{0};  ///< the order of the publication that was shown last
  std::uint32_t slot_ = 0, record_ = 0, shown_ = 0, of_this_ = 0, recipients_ = 0;
  std::uint8_t group_ = 0;
  bool over_ = false, inside_ = false;
};

}  // namespace tensorpull::detail
