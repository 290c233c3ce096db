// Which of several sources to believe: what is read of each of them besides what lands, and what follows from it.
#pragma once

#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/satellites/parallel/detail/sources.hpp>
#include <tensorpull/satellites/parallel/parallel_recipient.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/optional.hpp>

#include <bit>
#include <cstring>
#include <utility>

namespace tensorpull::detail {

/// Borrows the pull, which befriends it.
template <class All>
class source_check {
  using machine_type = typename All::machine_type;
  using state = typename All::state;
  using sources_type = typename All::sources_type;
  static constexpr auto most_lines = All::most_lines;
  static constexpr std::uint8_t nobody = sources_type::nobody;
  static constexpr std::uint64_t most_read = 256 * 1024;  // in one request

 public:
  explicit source_check(All& all) noexcept : all_(all) {}

  /// The line's source has answered so.
  void says(std::uint8_t n, const frame& m) noexcept {
    if (m.kind == frame_kind::description && m.version == all_.machine_.wanted_version())
      all_.sources_.describes(all_.lines_[n].source, m);
  }
  /// An answer over the first line has to make sense. If it does not, and others can go on, it ends this line alone. If
  /// its owner is busy, a line that can go on replaces it.
  bool goes_on_with(std::uint8_t n, const frame& m) noexcept {
    machine_type looks = all_.machine_;
    const auto event = looks.on(m);
    says(n, m);
    if (!event && says_otherwise(n, m)) return false;
    if (!all_.others()) return true;
    if (!event) {
      all_.end_line(n, event.error());
      return false;
    }
    if (looks.comparing() && all_.provable() && m.kind == frame_kind::description) {
      all_.sources_[all_.lines_[n].source].refused = true;
      all_.end_line(n, {errc::schema_mismatch});
      return false;
    }
    if (*event != recipient_event::busy || !all_.replace_first()) return true;
    all_.lines_[n].pause = std::max(looks.delay(), std::chrono::milliseconds(1));
    return false;
  }
  /// The bytes of the first line end the transfer. If another source may bring others, they only end the line. If
  /// others brought the beginning, they end nothing: this line brings all of it.
  void refuse() noexcept {
    const std::uint8_t n = all_.first_, source = all_.lines_[n].source;
    const bool mixed = all_.kept_ > 0 && (all_.landed_ > all_.kept_ || all_.chunk_left_ > 0);
    bool elsewhere = mixed || all_.more_sources_;
    for (const state& l : all_.lines_)
      elsewhere = elsewhere || (l.source != source && all_.may_be_right(l)) || l.may_come();
    if (all_.sharing_ || all_.machine_.verified() || !all_.provable() || !elsewhere) return all_.abandon();
    const error why = *std::exchange(all_.error_, optional<error>());
    all_.ended_ = false;
    if (why.code == errc::digest_mismatch && all_.kept_ == 0) all_.sources_.accuse(sources_type::bit(source));
    if (all_.kept_ == 0) all_.sources_[source].header = all_.header_;
    begin_again();
    if (mixed) return all_.begin_with(n, all_.machine_.next_id());
    all_.sources_[source].refused = true;
    for (std::uint8_t i = 0; i < most_lines; ++i)
      if (i != n && all_.lines_[i].works() && all_.lines_[i].source == source) all_.end_line(i, why);
    all_.end_line(n, why);
    all_.proved_ = all_.proved_ && all_.first_ != n;  // by another one, which goes on
  }
  /// Keeps the digest of the header, which is about to land.
  void lands(std::span<const std::byte> bytes) noexcept {
    const std::uint64_t start = all_.machine_.description().data_start;
    if constexpr (All::checks_whole) {
      if (all_.landed_ >= start || all_.landed_ + bytes.size() < start) return;
      all_.header_hash_ = all_.whole_hash_;
      all_.header_hash_.update(bytes.first(static_cast<std::size_t>(start - all_.landed_)));
      all_.header_ = all_.header_hash_.digest();
    }
  }
  /// Whether a line may bring chunks of the image that the first one has described and begun.
  bool may_share(std::uint8_t n) noexcept {
    const state& l = all_.lines_[n];
    if (!all_.sharing_ || !all_.provable()) return all_.sharing_ && all_.is_asked(l.source);
    const auto& s = all_.sources_[l.source];
    if (all_.is_asked(l.source) && (!l.machine.agrees_with(all_.machine_) || s.header_differs(all_.header_)))
      all_.sources_.doubt(l.source);
    return all_.is_asked(l.source) && (s.header != 0 || all_.header_ == 0 || is_firsts(l.source));
  }
  /// The next request for what is only read: the header, to compare it with that of the first line, or, of a source in
  /// doubt, everything.
  bool ask(std::uint8_t n, frame& out) noexcept {
    state& l = all_.lines_[n];
    auto& s = all_.sources_[l.source];
    const bool doubted = !all_.is_asked(l.source);
    if (!doubted && (!all_.provable() || is_firsts(l.source))) return false;
    if (s.reader == nobody) s.reader = n;
    const description& d = l.machine.description();
    if (l.machine.in_flight() == 0 && !l.reads) l.asked = s.read;
    const std::uint64_t end = doubted ? d.image_bytes : d.data_start;
    if (s.reader != n || l.asked >= end) return false;
    const std::uint64_t length = std::min(std::min(end - l.asked, l.machine.longest_chunk()), most_read);
    l.machine.ask(out, {l.asked, l.asked, static_cast<std::uint32_t>(length), machine_type::ledger::number::none()});
    l.asked += length;
    return true;
  }
  /// These bytes have arrived, and do not land.
  void read(std::uint8_t n, std::span<const std::byte> bytes) noexcept {
    state& l = all_.lines_[n];
    auto& s = all_.sources_[l.source];
    const description& d = l.machine.description();
    l.reads = l.left > 0;
    if (!l.reads) ++all_.answers_;
    if (s.read < d.data_start) {
      const auto text = bytes.first(
          static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), d.data_start - s.read)));
      s.hash.update(text);
      s.read += text.size();
      if (s.read == d.data_start) s.header = s.hash.digest();
      bytes = bytes.subspan(text.size());
    }
    if (all_.checking_) compare(s, bytes);
    s.hash.update(bytes);
    s.read += bytes.size();
    if (s.read < d.image_bytes) return;
    if (s.hash.digest() == all_.machine_.wanted_version()) return prove(n);
    accuse(sources_type::bit(l.source));
  }
  /// The whole is wrong: all sources are read. False: there is none left that may be right.
  bool begin() noexcept {
    if (all_.checks_++ == most_lines) return false;
    const std::uint8_t gave = all_.sources_.givers();
    bool hope = all_.more_sources_;
    for (const state& l : all_.lines_) {
      const bool is_liar = std::popcount(gave) == 1 && gave == sources_type::bit(l.source);
      hope = hope || (all_.may_be_right(l) && !is_liar) || l.may_come();
    }
    if (!hope) return false;
    for (std::uint8_t i = 0; i < most_lines; ++i)
      if (!all_.lines_[i].reads || all_.is_asked(all_.lines_[i].source)) all_.give_back_quietly(i);  // it is read anew
    all_.sharing_ = all_.proved_ = all_.paused_ = false;
    all_.checking_ = true;
    ++all_.stage_;
    all_.sources_.doubt_all();
    if (const std::uint8_t n = std::exchange(all_.first_, nobody); n < most_lines && all_.lines_[n].works())
      all_.begin_other(n, all_.machine_.next_id());
    if (std::popcount(gave) == 1) accuse(gave);
    return true;
  }

 private:
  bool is_firsts(std::uint8_t source) const noexcept {
    return all_.first_ < most_lines && all_.lines_[all_.first_].source == source;
  }
  /// A line that has just become the first describes another image than the one before it: it is the first no more.
  bool says_otherwise(std::uint8_t n, const frame& m) noexcept {
    if (!all_.provable() || all_.finished_ || m.kind != frame_kind::description || !all_.machine_.description().ref)
      return false;
    machine_type looks = all_.machine_;
    looks.forget();
    frame asked;
    (void)looks.next(asked);
    frame same = m;
    same.id = asked.id;
    if (!looks.on(same)) return false;
    all_.sources_.doubt(all_.lines_[n].source);
    if (!all_.replace_first()) all_.begin_other(std::exchange(all_.first_, nobody), all_.machine_.next_id());
    return true;
  }
  /// Nothing that has landed counts, and nothing that was described.
  void begin_again() noexcept {
    for (std::uint8_t i = 0; i < most_lines; ++i) all_.give_back_quietly(i);
    all_.drop_sequential();
    all_.sharing_ = false;
    all_.landed_ = all_.chunk_offset_ = all_.chunk_left_ = all_.header_ = 0;
    all_.whole_hash_ = {};
    all_.machine_.forget();
    ++all_.stage_;
  }
  /// Notes in which parts these bytes, the next of a source, are not what has landed. The giver of the part beside
  /// such a one is not to blame.
  void compare(typename sources_type::source& s, std::span<const std::byte> bytes) const noexcept {
    for (std::uint64_t at = s.read; !bytes.empty();) {
      const std::uint64_t part = all_.sources_.part_of(at), left = all_.sources_.part_end(at) - at;
      const auto some = bytes.first(static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), left)));
      if ((s.differs & part) != part && !landed_as(at, some)) s.differs |= part;
      at += some.size();
      bytes = bytes.subspan(some.size());
    }
  }
  /// Whether these bytes are what has landed there.
  bool landed_as(std::uint64_t position, std::span<const std::byte> bytes) const noexcept {
    const source_view there = all_.arrived();
    if (there.schema == nullptr) return false;
    std::uint64_t at = there.schema->header_bytes + (position - all_.machine_.description().data_start);
    if (at > there.schema->image_bytes || there.schema->image_bytes - at < bytes.size()) return false;
    std::span<const std::byte> pieces[16];
    std::byte slice[1024];
    while (!bytes.empty()) {
      const gathered g = gather(there, at, bytes.size(), pieces, slice);
      if (g.failed) return false;
      for (std::size_t i = 0; i < g.pieces; bytes = bytes.subspan(pieces[i++].size()))
        if (std::memcmp(pieces[i].data(), bytes.data(), pieces[i].size()) != 0) return false;
      at += g.bytes;
    }
    return true;
  }
  void accuse(std::uint8_t set) noexcept {
    all_.sources_.accuse(set);
    for (std::uint8_t i = 0; i < most_lines; ++i)
      if (all_.lines_[i].works() && all_.sources_.is_wrong(all_.lines_[i].source))
        all_.end_line(i, {errc::digest_mismatch});
  }
  /// All that this line's source has given has the digest.
  void prove(std::uint8_t n) noexcept {
    const std::uint8_t source = all_.lines_[n].source;
    const auto& s = all_.sources_[source];
    all_.stop_reading(n);
    if (all_.finished_) return;
    all_.sources_.trust(source, !all_.proved_);
    const bool goes_on = all_.first_ < most_lines && all_.lines_[all_.first_].works();
    if (std::exchange(all_.proved_, true) && goes_on) return;  // another one is asked already
    const bool same = std::exchange(all_.checking_, false) && all_.header_ != 0 && s.header == all_.header_ &&
                      (s.differs | s.unseen) != 0 && all_.lines_[n].machine.agrees_with(all_.machine_);
    if (!same) {
      begin_again();
      return all_.move_first(n);
    }
    if constexpr (All::checks_whole) {
      ++all_.stage_;
      const std::uint8_t wrong = all_.sources_.givers_of(s.differs & ~s.unseen), own = sources_type::bit(source);
      accuse(static_cast<std::uint8_t>(wrong & ~own));  // it is the only one that is known to be right now
      all_.sources_.accuse(wrong);
      all_.landed_ = all_.chunk_offset_ = all_.machine_.description().data_start;
      all_.chunk_left_ = 0;
      all_.whole_hash_ = all_.header_hash_;
      all_.move_first(n);
      all_.sharing_ = true;
      all_.machine_.take(chunk_order::given);
      all_.missing_.begin(all_.landed_, all_.machine_.part_end(), all_.sources_.shift(), s.differs | s.unseen);
      all_.sources_.begin(all_.sources_.shift(), 0);
    }
  }

  All& all_;
};

}  // namespace tensorpull::detail
