// One pull over several connections at a time, to one owner or to several of the same version: one cursor, one digest,
// one outcome. Each line asks for the next chunk that nobody was asked for, so a fast one brings more. The chunks of a
// line that stalls or is lost are asked of another.
#pragma once

#include <tensorpull/protocol/recipient/transfer.hpp>
#include <tensorpull/satellites/parallel/detail/line_role.hpp>
#include <tensorpull/satellites/parallel/detail/sources.hpp>
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
/// If the digest of the whole is wrong and several sources took part, the image is pulled again from one of them alone,
/// if need be from each in turn: wrong() names those whose bytes were wrong. A pull of named tensors fails instead,
/// since only the first line's owner tells their digest.
/// Size: that of a transfer, 8 KiB for eight lines, and a digest's state for each line if chunks have digests.
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
  using base::answers_, base::arrived, base::chunk_complete, base::chunk_left_, base::chunk_offset_, base::damaged_,
      base::damaged_in_a_row_, base::ended_, base::finished_, base::hash_back, base::landed_, base::machine_,
      base::paused_, base::to_, base::verifiable, base::whole_hash_;

 public:
  /// The most lines.
  static constexpr std::uint8_t most_lines = static_cast<std::uint8_t>(machine_type::most_lines);
  using base::base;
  // what stays as it is
  using base::read_piece_bytes, base::resume, base::cursor, base::next_is_long, base::measured, base::described,
      base::awaiting_chunk, base::total_bytes, base::ended, base::request, base::chunks, base::next_id, base::outcome,
      base::give_reason, base::fail;
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
    if (!has_first && sources_.is_asked(source)) begin_with(number, first_id);
    else begin_other(number, first_id);
  }
  /// Whether a line without a connection may have one soon. Until that is known, no other line's error ends the
  /// transfer.
  void coming(std::uint8_t number, bool may) noexcept { lines_[number].coming = may; }
  /// A line has lost its connection. If it was the first one, another replaces it.
  void lost(std::uint8_t number) noexcept {
    state& l = lines_[number];
    if (!l.up) return;
    give_back(number, true);
    l.up = false;
    if (ended_) return;
    if (sources_.alone() == l.source && !is_up(l.source)) (void)begin_alone();
    else if (number == first_) (void)replace_first();
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
    lines_[number].pause = {};
    lines_[number].machine.restart(0);
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
  bool waits_for_first() const noexcept { return !sharing_ && !finished_ && !ended_; }
  /// The line that confirms; most_lines or more: there is none.
  std::uint8_t first_line() const noexcept { return first_; }
  /// Whether a line waits for an answer.
  bool awaits(std::uint8_t number) const noexcept {
    const machine_type& m = machine(number);
    return lines_[number].up && (m.describing() || m.in_flight() > 0 || (number == first_ && !sharing_));
  }
  /// The only source that is asked, since several have given wrong bytes; another number: all are.
  std::uint8_t alone() const noexcept { return sources_.alone(); }
  /// Sources whose bytes were not those of the version, one bit each; of another one's bytes in the same 64th of the
  /// image it cannot be told.
  std::uint8_t wrong() const noexcept { return sources_.wrong(); }

  /// Answers that are progress. A repeated description is not: its owner may never send a byte.
  std::uint32_t answers() const noexcept { return base::answers() - repeated_; }
  /// Bytes that have landed and count, those behind the first missing one among them.
  std::uint64_t landed_bytes() const noexcept { return sharing_ ? missing_.end() - missing_.missing() : landed_; }
  /// The first line's, if no other one can replace it now.
  std::chrono::milliseconds pause() const noexcept { return others(false) ? decltype(base::pause()){} : base::pause(); }

  /// After all connections were lost: as transfer::restart.
  void restart() noexcept {
    for (std::uint8_t i = 0; i < most_lines; ++i) {
      give_back(i, true);
      lines_[i] = {};
    }
    first_ = nobody;
    drop_sequential();
    base::restart();
  }

  /// The farewell to the owner of a connection after the transfer. The owner forgets this recipient if another got the
  /// confirmation.
  optional<frame> farewell_of(std::uint8_t number) const noexcept {
    if (!ended_ || number >= most_lines) return {};
    const state& l = lines_[number];
    const machine_type& m = machine(number);
    const bool is_wrong = sources_.is_wrong(l.source);
    if (number == first_ && !is_wrong) return base::farewell();
    if (!l.up || m.nonce() == 0 || (m.nonce() == machine_.nonce() && !is_wrong)) return {};
    frame bye = m.farewell();
    bye.status = is_wrong ? status::digest_mismatch : status::looked;
    return bye;
  }

  optional<frame> farewell() const noexcept { return farewell_of(first_); }  ///< that of the first line

 private:
  friend line;
  static constexpr std::uint8_t nobody = 0xff;
  /// No chunk is shorter than this, unless less is left.
  static constexpr std::uint64_t least_chunk = 64 * 1024;

  struct state {
    machine_type machine{pull_request{}, Chunking{}, 1};  // not the first line's: that is the transfer's own
    [[no_unique_address]] std::conditional_t<Integrity::per_chunk, chunk_hash_of<Integrity>, detail::no_chunk_hash>
        hash{};
    typename ledger_type::number chunk{};  // that is landing
    std::uint64_t at = 0, left = 0, digest = 0;  // of it: where its next byte goes, and how many are missing
    optional<error> why;
    std::chrono::milliseconds pause{};
    std::uint8_t source = 0, damaged = 0;
    bool up = false, coming = false;
    bool works() const noexcept { return up && !why; }
  };

  machine_type& machine(std::uint8_t n) noexcept { return n == first_ ? machine_ : lines_[n].machine; }
  const machine_type& machine(std::uint8_t n) const noexcept { return n == first_ ? machine_ : lines_[n].machine; }
  bool usable(std::uint8_t n) const noexcept {
    const state& l = lines_[n];
    return l.works() && l.pause.count() == 0 && sources_.is_asked(l.source);
  }
  /// Whether another line can replace the first one, now or `soon`.
  bool others(bool soon = true) const noexcept {
    for (std::uint8_t i = 0; i < most_lines; ++i)
      if (i != first_ && (usable(i) || (soon && lines_[i].coming))) return true;
    return false;
  }
  std::uint64_t up_lines() const noexcept {
    std::uint64_t n = 0;
    for (const state& l : lines_) n += l.up;
    return n;
  }
  bool is_up(std::uint8_t source) const noexcept {
    for (const state& l : lines_)
      if (l.works() && l.source == source) return true;
    return false;
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
    if (!sharing_) kept_ = landed_;
    first_ = number;
    machine_.number_from(first_id);
    drop_sequential();
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
    if constexpr (!Integrity::per_chunk) chunk_left_ = 0;
  }

  bool next(std::uint8_t n, frame& out) noexcept {
    if (ended_ || lines_[n].why) return false;
    if (n == first_) {
      if (is_sequential(n) && machine_.order() == chunk_order::one_by_one) return false;
      if (base::next(out)) return true;
      if (paused_) return false;
    } else {
      // the others follow when the version is known
      if (lines_[n].pause.count() > 0 || machine_.version() == 0) return false;
      if (lines_[n].machine.next(out)) return true;
    }
    machine_type& m = machine(n);
    if (!sharing_ || !m.may_ask() || !sources_.is_asked(lines_[n].source)) return false;
    chunk_type* const c = choose(n);
    if (c == nullptr) return false;
    ++c->asked;
    // another line may have cut it, whose owner serves longer ones
    const auto length = static_cast<std::uint32_t>(std::min(c->length(), m.longest_chunk()));
    m.ask(out, {c->begin, machine_.offset_of(c->begin), length, missing_.number_of(*c)});
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
  /// An answer over the first line has to make sense. If it does not, and others can go on, it ends this line alone. If
  /// its owner is busy, a line that can go on replaces it.
  bool goes_on_with(std::uint8_t n, const frame& m) noexcept {
    if (!others()) return true;
    machine_type looks = machine_;
    const auto event = looks.on(m);
    if (!event) {
      end_line(n, event.error());
      return false;
    }
    if (*event != recipient_event::busy || !replace_first()) return true;
    lines_[n].pause = std::max(looks.delay(), std::chrono::milliseconds(1));
    return false;
  }
  void on_other(std::uint8_t n, const frame& m) noexcept {
    state& l = lines_[n];
    const auto event = l.machine.on(m);
    if (!event) return end_line(n, event.error());
    if (*event == recipient_event::nothing) return;
    answers_ += m.kind != frame_kind::description;
    if (*event == recipient_event::busy) l.pause = std::max(l.machine.delay(), std::chrono::milliseconds(1));
    else if (!l.machine.describing() && !l.machine.agrees_with(machine_)) return end_line(n, {errc::bad_frame});
    give_back(n, false);
  }
  /// The first line's machine has moved on.
  void settle_first() noexcept {
    give_back(first_, false);
    if (ended_ || machine_.describing()) return;
    const std::uint64_t lines = std::max<std::uint64_t>(up_lines(), 2);
    machine_.cut_at(std::max(least_chunk, machine_.part_end() / (16 * lines)));
    if (sharing_ || landed_ < machine_.description().data_start || chunk_left_ > 0 || landed_ >= machine_.part_end() ||
        finished_)
      return;
    if (Integrity::whole && arrived().schema == nullptr) return machine_.take(chunk_order::all);
    sharing_ = true;
    machine_.take(chunk_order::given);
    const std::uint8_t shift = ledger_type::shift_for(machine_.part_end());
    missing_.begin(landed_, machine_.part_end(), shift);
    sources_.begin(shift, kept_);
    note_given(first_, kept_, landed_);
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
      if (c == nullptr) return;
      if (c->writer == n) note_given(n, c->begin, c->begin + c->landed);
      missing_.give_back(*c, n, !Integrity::per_chunk);
    };
    if (gone && std::exchange(lines_[n].left, 0) > 0) back(lines_[n].chunk);
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
      settle_first();
      return wanted;
    }
    const auto asked = machine(n).answered(m);
    if (!asked) {
      end_line(n, asked.error());
      return false;
    }
    give_back(n, false);
    if (!*asked) return false;
    auto* const c = missing_.find((*asked)->of);
    if (c == nullptr) return false;
    c->writer = n;  // the line that delivers now is faster than the one that began
    c->landed = 0;
    l.chunk = (*asked)->of;
    l.at = (*asked)->position;
    l.left = m.length;
    l.digest = m.digest;
    if constexpr (Integrity::per_chunk) l.hash = {};
    return true;
  }
  void note_given(std::uint8_t n, std::uint64_t begin, std::uint64_t end) noexcept {
    sources_.gave(lines_[n].source, begin, end);
  }
  bool is_sequential(std::uint8_t n) const noexcept { return n == first_ && chunk_left_ > 0; }
  /// The chunk that lands over this connection; nullptr: another one lands it.
  chunk_type* landing(std::uint8_t n) noexcept {
    auto* const c = missing_.find(lines_[n].chunk);
    return c != nullptr && c->writer == n ? c : nullptr;
  }
  bool drops(std::uint8_t n) noexcept {
    if (ended_ || lines_[n].why) return true;
    return !is_sequential(n) && (lines_[n].left == 0 || landing(n) == nullptr);
  }
  prepared prepare(std::uint8_t n, std::span<std::span<std::byte>> out, std::uint64_t most) noexcept {
    if (is_sequential(n)) return base::prepare(out, most);
    return to_.prepare(lines_[n].at, std::min(most, lines_[n].left), out);
  }
  void landed(std::uint8_t n, std::span<const std::byte> bytes) noexcept {
    if (ended_) return;
    if (is_sequential(n)) {
      const std::uint64_t before = damaged_;
      base::landed(bytes);
      if (damaged_ != before && others()) {
        damaged_in_a_row_ = 0;  // they are this line's, and not the transfer's
        count_damage(n);
      }
      return settle_first();
    }
    state& l = lines_[n];
    auto* const c = landing(n);
    if (c == nullptr) return;
    if (const auto ok = to_.commit(l.at, bytes); !ok) return fail(ok.error());
    if constexpr (Integrity::per_chunk) l.hash.update(bytes);
    l.at += bytes.size();
    l.left -= bytes.size();
    c->landed += bytes.size();
    if (l.left > 0) return;
    if constexpr (Integrity::per_chunk)
      if (l.hash.digest() != l.digest) {
        ++damaged_;
        c->landed = 0;
        missing_.give_back(*c, n, false);
        return count_damage(n);
      }
    note_given(n, c->begin, c->begin + c->landed);
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
      const auto of_range = [this](std::uint64_t begin, std::uint64_t end) { return digest_of(begin, end); };
      if (is_wrong() && sources_.accuse(machine_.part_end(), of_range) && begin_alone()) return;
      if constexpr (Integrity::whole) sources_.compare(machine_.part_end(), of_range);
      sharing_ = false;
      machine_.take(chunk_order::one_by_one);
    }
    chunk_complete(true);
    if (sharing_) return;
    if (finished_) confirm_over_idle_line();
    give_back_quietly(first_);
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
  /// Whether the whole is here and wrong.
  bool is_wrong() const noexcept {
    if constexpr (Integrity::whole)
      return !machine_.request().by_name() && verifiable() && whole_hash_.digest() != machine_.expected_digest();
    else return false;
  }
  /// Begins from the first byte with one source that has not been wrong. False: there is none.
  bool begin_alone() noexcept {
    if constexpr (Integrity::whole) {
      for (std::uint8_t i = 0; i < most_lines; ++i) {
        const state& l = lines_[i];
        if (!l.works() || sources_.is_wrong(l.source)) continue;
        sources_.ask_alone(l.source);
        for (std::uint8_t k = 0; k < most_lines; ++k) give_back_quietly(k);
        sharing_ = false;
        machine_.take(chunk_order::one_by_one);
        landed_ = chunk_offset_ = chunk_left_ = 0;
        whole_hash_ = {};
        if (const auto ok = to_.begin(machine_.description()); !ok) fail(ok.error());
        else if (i == first_) base::restart();
        else move_first(i);
        return true;
      }
    }
    return false;
  }
  void give_back_quietly(std::uint8_t n) noexcept {
    lines_[n].left = 0;
    machine(n).unanswered(true, [](const auto&) {});
  }
  std::uint64_t digest_of(std::uint64_t begin, std::uint64_t end) const noexcept {
    const std::uint64_t start = machine_.description().data_start, from = std::max(begin, start);
    if (from >= end) return 0;
    const source_view there = arrived();
    const auto d = range_digest<xxh3_64>(there, there.schema->header_bytes + (from - start), end - from);
    return d ? *d : 0;
  }

  static constexpr std::uint8_t most_asked_for_one = 4;  // lines, for one chunk

  std::array<state, machine_type::most_lines> lines_{};
  ledger_type missing_{};
  detail::sources sources_{};
  std::uint64_t kept_ = 0;  // bytes that were there before the first line began, from any source
  std::uint32_t repeated_ = 0;
  std::uint8_t first_ = nobody;
  bool sharing_ = false;
};

}  // namespace tensorpull
