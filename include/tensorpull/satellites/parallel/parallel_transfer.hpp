// One pull over several connections at a time, to one owner or to several of the same version: one cursor, one digest,
// one outcome. Each line asks for the next chunk that nobody was asked for, so a fast one brings more. The chunks of a
// line that stalls or is lost are asked of another.
#pragma once

#include <tensorpull/protocol/recipient/transfer.hpp>
#include <tensorpull/satellites/parallel/detail/line_role.hpp>
#include <tensorpull/satellites/parallel/detail/line_state.hpp>
#include <tensorpull/satellites/parallel/parallel_recipient.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/optional.hpp>

#include <array>
#include <utility>

namespace tensorpull {

/// One pull over several connections. Borrows the consumer, whose memory takes bytes in any order (consumer, 13). The
/// header arrives over the first line, which has described the image; chunks follow over all of them. The first line
/// also fetches the last chunk and confirms. If it is lost, another replaces it. A driver reports up(), lost(), and
/// ended(line) after each step. line_of() is for an endpoint.
///
/// A source whose answers contradict the first line's description is left out. Otherwise all are believed until the
/// whole has its digest: if it has not, the pull fails with digest_mismatch, since a digest of the whole does not tell
/// who gave the wrong bytes. A root does: checked_transfer names them and goes on with the others.
/// Size: that of a transfer, 28 KiB for eight lines, and a digest's state for each line if chunks have digests.
template <consumer Consumer, chunking_strategy Chunking, integrity_policy Integrity, class Limits = default_limits>
class parallel_transfer
    : private transfer<Consumer, Chunking, Integrity, Limits, parallel_recipient<Chunking, Limits>> {
  using machine_type = parallel_recipient<Chunking, Limits>;
  using base = transfer<Consumer, Chunking, Integrity, Limits, machine_type>;
  using ledger_type = typename machine_type::ledger;
  using chunk_type = typename ledger_type::chunk;
  static_assert(
      requires { requires Consumer::any_order; },
      "tensorpull: a pull over several connections at a time needs a consumer whose memory takes bytes in any order (consumer, 13), "
      "such as the model itself or a file");
  using base::answers_, base::arrived, base::begun_, base::chunk_complete, base::chunk_left_, base::chunk_offset_,
      base::damaged_, base::damaged_in_a_row_, base::ended_, base::error_, base::finished_, base::hash_back,
      base::landed_, base::machine_, base::paused_, base::to_;

 public:
  /// The most lines.
  static constexpr std::uint8_t most_lines = static_cast<std::uint8_t>(machine_type::most_lines);
  using base::base;
  using base::read_piece_bytes, base::resume, base::next_is_long, base::measured, base::described, base::awaiting_chunk,
      base::total_bytes, base::ended, base::request, base::chunks, base::next_id, base::outcome, base::give_reason,
      base::cursor, base::fail;
  using typename base::consumer_type;

  /// A line as an endpoint drives it: a model of transfer_role.
  using line = detail::line_role<parallel_transfer>;
  /// Valid as long as this object is.
  line line_of(std::uint8_t number) noexcept { return {*this, number}; }

  /// A line has a connection. `source`: which of the owners is at its other end, below 8. `first_id`: the endpoint's
  /// next_id().
  void up(std::uint8_t number, std::uint8_t source, std::uint32_t first_id) noexcept {
    const bool has_first = first_ != nobody && first_ != number && lines_[first_].works();
    state& l = lines_[number];
    l = {};
    l.up = true;
    l.source = source;
    if (has_first) begin_other(number, first_id);
    else begin_with(number, first_id);
  }
  /// Whether a line without a connection may have one soon. Until that is known, no other line's error ends the
  /// transfer.
  void coming(std::uint8_t number, bool may) noexcept { lines_[number].coming = may; }
  /// Whether a line that ends may have a connection to a source that was not tried yet.
  void more_sources(bool more) noexcept { more_sources_ = more; }
  /// A line has lost its connection. If it was the first one, another replaces it.
  void lost(std::uint8_t number) noexcept {
    state& l = lines_[number];
    if (!l.up) return;
    give_back(number, true);
    l.up = false;
    if (ended_) return;
    if (number == first_) (void)replace_first();
  }
  /// Why a line can no longer be used although it is connected; nothing: it can.
  optional<error> line_ended(std::uint8_t number) const noexcept { return lines_[number].why; }
  /// How long a busy owner asks this line to wait; 0: it is not busy.
  std::chrono::milliseconds line_pause(std::uint8_t number) const noexcept {
    return number == first_ ? base::pause() : lines_[number].pause;
  }
  /// A line whose owner was busy asks again.
  void resume_line(std::uint8_t number) noexcept {
    if (number == first_) return;
    state& l = lines_[number];
    l.pause = {};
    if (first_ == nobody || !lines_[first_].works()) begin_with(number, l.machine.next_id());
    else l.machine.restart(0);
  }
  /// Replaces the first line, which is silent. False: there is no other.
  bool replace_first() noexcept {
    for (std::uint8_t i = 0; i < most_lines; ++i) {
      const std::uint8_t n = static_cast<std::uint8_t>((first_ + 1 + i) % most_lines);
      if (n == first_ || !usable(n)) continue;
      give_back(n, true);
      give_back(first_, true);
      move_first(n);
      return true;
    }
    return false;
  }
  /// Whether all others wait for the first line, which brings the beginning.
  bool waits_for_first() const noexcept { return !sharing_ && !finished_ && !ended_ && first_ != nobody; }
  /// The line that confirms; most_lines or more: there is none.
  std::uint8_t first_line() const noexcept { return first_; }
  /// Whether a line waits for an answer.
  bool awaits(std::uint8_t number) const noexcept {
    const machine_type& m = machine(number);
    return lines_[number].up && (m.describing() || m.in_flight() > 0 || (number == first_ && !sharing_));
  }

  /// Answers that are progress. A repeated description is not: its owner may never send a byte.
  std::uint32_t answers() const noexcept { return base::answers() - repeated_; }
  /// Bytes that have landed and count, those behind the first missing one among them.
  std::uint64_t landed_bytes() const noexcept { return sharing_ ? missing_.end() - missing_.missing() : landed_; }
  /// The first line's, if no other one can replace it now.
  std::chrono::milliseconds pause() const noexcept { return others(false) ? decltype(base::pause()){} : base::pause(); }

  /// After all connections were lost: as transfer::restart.
  void restart() noexcept {
    drop_sequential();
    for (std::uint8_t i = 0; i < most_lines; ++i) {
      give_back(i, true);
      lines_[i] = {};
    }
    first_ = nobody;
    base::restart();
  }

  /// The farewell to the owner of a connection after the transfer. The owner forgets this recipient if another got the
  /// confirmation, or if others have given some of the bytes whose digest is wrong: it may have been one of these.
  optional<frame> farewell_of(std::uint8_t number) const noexcept {
    if (!ended_ || number >= most_lines) return {};
    const state& l = lines_[number];
    optional<frame> bye;
    if (number == first_) {
      bye = base::farewell();
      if (!bye || error_->code != errc::digest_mismatch || gave_ == bit_of(l)) return bye;
    } else {
      if (!l.up || l.machine.nonce() == 0 || l.machine.nonce() == machine_.nonce()) return {};
      bye = l.machine.farewell();
    }
    bye->status = status::looked;
    return bye;
  }
  optional<frame> farewell() const noexcept { return farewell_of(first_); }  ///< that of the first line

 private:
  friend line;
  static constexpr std::uint8_t nobody = 0xff;
  /// No chunk is shorter than this, unless less is left.
  static constexpr std::uint64_t least_chunk = 64 * 1024;

  using state = detail::line_state<machine_type, Integrity>;
  machine_type& machine(std::uint8_t n) noexcept { return n == first_ ? machine_ : lines_[n].machine; }
  const machine_type& machine(std::uint8_t n) const noexcept { return n == first_ ? machine_ : lines_[n].machine; }
  static unsigned bit_of(const state& l) noexcept { return 1U << l.source; }
  bool usable(std::uint8_t n) const noexcept { return lines_[n].works() && lines_[n].pause.count() == 0; }
  /// Whether another line can replace the first one, now or `soon`.
  bool others(bool soon = true) const noexcept {
    for (std::uint8_t i = 0; i < most_lines; ++i)
      if (i != first_ && (usable(i) || (soon && lines_[i].coming))) return true;
    return soon && more_sources_;
  }

  /// The transfer's own machine continues over another connection, and the one that it leaves joins the others.
  void move_first(std::uint8_t to) noexcept {
    const std::uint8_t from = first_;
    const std::uint32_t used = lines_[to].machine.next_id(), was = machine_.next_id();
    begin_with(to, used);
    if (from < most_lines && lines_[from].works()) begin_other(from, was);
  }
  /// The transfer's own machine continues over this connection.
  void begin_with(std::uint8_t number, std::uint32_t first_id) noexcept {
    if (first_ == number) first_ = nobody;  // it has another connection
    drop_sequential();
    first_ = number;
    if (machine_.comparing()) machine_.forget();
    machine_.number_from(first_id);
    ask_again();
  }
  void ask_again() noexcept {
    base::restart();
    machine_.name_again();
  }
  void begin_other(std::uint8_t number, std::uint32_t first_id) noexcept {
    const pull_request& all = machine_.request();
    const pull_request r{.ref = all.ref,
                         .version = machine_.version() != 0 ? machine_.version() : all.version,
                         .window = all.window,
                         .chunk_digest = all.chunk_digest,
                         .recipient = all.recipient};
    lines_[number].machine = machine_type(r, Chunking{}, first_id);
    lines_[number].machine.take(chunk_order::given);
  }
  /// The chunk that the first line was landing in sequence will not be complete.
  void drop_sequential() noexcept {
    if (first_ < most_lines && chunk_left_ > 0) lines_[first_].left = chunk_left_;
    if constexpr (!Integrity::per_chunk) chunk_left_ = 0;
  }

  bool next(std::uint8_t n, frame& out) noexcept {
    if (ended_ || lines_[n].why) return false;
    if (n == first_) {
      if (is_sequential(n) && machine_.order() == chunk_order::one_by_one) return false;
      if (base::next(out)) return true;
      if (paused_) return false;
    } else {
      // the others follow when there is a description that theirs has to agree with
      if (lines_[n].pause.count() > 0 || !begun_) return false;
      if (lines_[n].machine.next(out)) return true;
    }
    machine_type& m = machine(n);
    if (!m.may_ask() || !sharing_) return false;
    chunk_type* const c = choose(n);
    if (c == nullptr) return false;
    ++c->asked;
    // another line may have cut it, whose owner serves longer ones
    const std::uint64_t length = std::min(c->length(), m.longest_chunk());
    m.ask(out, machine_.chunk_at(c->begin, length, missing_.number_of(*c)));
    return true;
  }
  /// The next chunk for a line; nullptr: none. The last byte is for the line that will confirm, since an owner accepts
  /// a confirmation only from a connection that it has served the end.
  chunk_type* choose(std::uint8_t n) noexcept {
    const auto not_for_it = [&](const chunk_type& c) {
      return c.writer == n || (c.end == missing_.end() && n != first_);
    };
    if (auto* const c = missing_.first_asked(0, not_for_it)) return c;
    if (missing_.has_part(n, least_chunk)) {
      const std::uint64_t most = std::min(missing_.rest_of(n), machine(n).longest_chunk());
      return missing_.cut(n, machine_.length_from(missing_.next_of(n), most));
    }
    if (machine(n).in_flight() > 0) return nullptr;
    // it has nothing else to do: perhaps it is faster than the one that was asked
    chunk_type* c = nullptr;
    for (std::uint8_t asked = 1; c == nullptr && asked < most_asked_for_one; ++asked)
      c = missing_.first_asked(asked, not_for_it);
    return c;
  }

  void on(std::uint8_t n, const frame& m) noexcept {
    if (ended_ || lines_[n].why) return;
    if (n != first_) return on_other(n, m);
    if (!goes_on_with(n, m)) return;
    const bool is_known = m.kind == frame_kind::description && machine_.version() != 0;
    const std::uint32_t before = base::answers();
    base::on(m);
    if (is_known) repeated_ += base::answers() - before;
    settle_first();
  }
  /// An answer over the first line has to make sense, and once bytes land nobody has another schema. If it does not,
  /// and others can go on, it ends this line alone. If its owner is busy, a line that can go on replaces it.
  bool goes_on_with(std::uint8_t n, const frame& m) noexcept {
    const bool elsewhere = others();
    if (!elsewhere && !begun_) return true;
    machine_type looks = machine_;
    auto event = looks.on(m);
    if (begun_ && looks.comparing()) event = failure(errc::schema_mismatch);
    if (!event) {
      if (elsewhere) end_line(n, event.error());
      else fail(event.error());
      return false;
    }
    if (!elsewhere || *event != recipient_event::busy || !replace_first()) return true;
    lines_[n].pause = std::max(looks.delay(), std::chrono::milliseconds(1));
    return false;
  }
  void on_other(std::uint8_t n, const frame& m) noexcept {
    state& l = lines_[n];
    const auto event = l.machine.on(m);
    if (!event) return end_line(n, event.error());
    if (*event == recipient_event::nothing) return;
    if (*event == recipient_event::busy) l.pause = std::max(l.machine.delay(), std::chrono::milliseconds(1));
    else if (!l.machine.describing() && !l.machine.agrees_with(machine_)) return end_line(n, {errc::bad_frame});
    give_back(n, false);
  }
  /// The first line's machine has moved on.
  void settle_first() noexcept {
    give_back(first_, false);
    if (ended_ || machine_.describing()) return;
    std::uint64_t lines = 0;
    for (const state& l : lines_) lines += l.up;
    machine_.cut_at(std::max(least_chunk, machine_.part_end() / (16 * std::max<std::uint64_t>(lines, 2))));
    if (sharing_ || landed_ < machine_.description().data_start || chunk_left_ > 0 || landed_ >= machine_.part_end() ||
        finished_)
      return;
    if (Integrity::whole && arrived().schema == nullptr) return machine_.take(chunk_order::all);
    sharing_ = true;
    machine_.take(chunk_order::given);
    missing_.begin(landed_, machine_.part_end());
  }
  void end_line(std::uint8_t n, const error& why) noexcept {
    give_back(n, true);
    lines_[n].why = why;
    if (n == first_) (void)replace_first();
  }
  /// The chunks that a line will not answer for are asked of others.
  void give_back(std::uint8_t n, bool gone) noexcept {
    if (n >= most_lines) return;
    const auto back = [&](const typename ledger_type::number& of) {
      auto* const c = missing_.find(of);
      if (c != nullptr) missing_.give_back(*c, n, !Integrity::per_chunk);
    };
    if (gone && lines_[n].left > 0) back(std::exchange(lines_[n].chunk, ledger_type::number::none()));
    machine(n).unanswered(gone, [&](const auto& asked) { back(asked.of); });
    if (sharing_ && gone) {
      missing_.leave(n);
      drain();
    }
  }

  bool on_chunk(std::uint8_t n, const frame& m) noexcept {
    state& l = lines_[n];
    if (ended_ || l.why) return false;
    if (n == first_ && !machine_.takes_chunks()) {
      if (!goes_on_with(n, m)) return false;
      const bool wanted = base::on_chunk(m);
      if (!wanted) pass(l, m);
      settle_first();
      return !ended_ && !l.why;
    }
    const auto asked = machine(n).answered(m);
    if (!asked) {
      end_line(n, asked.error());
      return false;
    }
    give_back(n, false);
    pass(l, m);
    if (!*asked) return true;
    auto* const c = missing_.find((*asked)->of);
    if (c == nullptr) return true;
    l.at = (*asked)->position;
    c->writer = n;  // the line that delivers now is faster than the one that began
    c->landed = 0;
    l.chunk = (*asked)->of;
    l.digest = m.digest;
    if constexpr (Integrity::per_chunk) l.hash = {};
    return true;
  }
  /// A chunk that does not land: its bytes are read, and nothing else.
  static void pass(state& l, const frame& m) noexcept {
    l.left = m.length;
    l.chunk = ledger_type::number::none();
  }
  bool is_sequential(std::uint8_t n) const noexcept { return n == first_ && chunk_left_ > 0; }
  /// The chunk that lands over this connection; nullptr: another one lands it.
  chunk_type* landing(std::uint8_t n) noexcept {
    auto* const c = missing_.find(lines_[n].chunk);
    return c != nullptr && c->writer == n ? c : nullptr;
  }
  bool drops(std::uint8_t n) noexcept { return ended_ || lines_[n].why || (!is_sequential(n) && lines_[n].left == 0); }
  prepared prepare(std::uint8_t n, std::span<std::span<std::byte>> out, std::uint64_t most) noexcept {
    if (is_sequential(n)) return base::prepare(out, most);
    most = std::min(most, lines_[n].left);
    return landing(n) == nullptr ? detail::prepare_in(passing_, most, out) : to_.prepare(lines_[n].at, most, out);
  }
  void landed(std::uint8_t n, std::span<const std::byte> bytes) noexcept {
    if (ended_) return;
    if (is_sequential(n)) {
      const std::uint64_t before = damaged_;
      gave_ |= bit_of(lines_[n]);
      base::landed(bytes);
      if (damaged_ != before && others()) {
        damaged_in_a_row_ = 0;  // they are this line's, and not the transfer's
        count_damage(n);
      }
      return settle_first();
    }
    state& l = lines_[n];
    l.left -= bytes.size();
    auto* const c = landing(n);
    if (c == nullptr) return;
    gave_ |= bit_of(l);
    if (const auto ok = to_.commit(l.at, bytes); !ok) return fail(ok.error());
    if constexpr (Integrity::per_chunk) l.hash.update(bytes);
    l.at += bytes.size();
    c->landed += bytes.size();
    if (l.left > 0) return;
    if constexpr (Integrity::per_chunk)
      if (l.hash.digest() != l.digest) {
        ++damaged_;
        c->landed = 0;
        missing_.give_back(*c, n, false);
        return count_damage(n);
      }
    if (c->landed < c->length()) missing_.go_on(*c);
    else missing_.done(*c);
    drain();
  }

  void count_damage(std::uint8_t n) noexcept {
    if (++lines_[n].damaged == base::most_damaged) end_line(n, {errc::chunk_digest_mismatch});
  }
  /// Accounts for the bytes up to the first missing one.
  void drain() noexcept {
    if (ended_ || !sharing_) return;
    const std::uint64_t n = missing_.first_missing() - landed_;  // not hashed yet
    if (n == 0) return;
    if (!hash_back(n)) return fail({errc::io});
    landed_ += n;
    if (landed_ == machine_.part_end()) {
      sharing_ = false;
      machine_.take(chunk_order::one_by_one);
    }
    const bool describes = machine_.describing();
    chunk_complete(true);
    if (sharing_ || error_) return;
    if (finished_) confirm_over_idle_line();
    give_back_quietly(first_);
    if (describes) ask_again();  // what it was about to answer was asked when bytes were missing
    settle_first();
  }
  /// The first line may still be receiving what others have brought, and an answer would have to wait for it.
  void confirm_over_idle_line() noexcept {
    if (machine_.request().by_name()) return;  // another line's owner would have to be told the names first
    std::uint8_t best = first_;
    for (std::uint8_t i = 0; i < most_lines; ++i)
      if (i != first_ && usable(i) && !machine(i).describing() && machine(i).in_flight() < machine(best).in_flight())
        best = i;
    if (best != first_) move_first(best);
  }
  void give_back_quietly(std::uint8_t n) noexcept {
    lines_[n].chunk = ledger_type::number::none();
    machine(n).unanswered(true, [](const auto&) {});
  }

  static constexpr std::uint8_t most_asked_for_one = 4;  // lines, for one chunk

  std::array<state, machine_type::most_lines> lines_{};
  ledger_type missing_{};
  std::uint32_t repeated_ = 0;
  unsigned gave_ = 0;  // the sources that bytes have landed from, a bit each
  std::uint8_t first_ = nobody;
  bool sharing_ = false, more_sources_ = false;
  std::byte passing_[16 * 1024];  // what is read and wanted no more
};

}  // namespace tensorpull
