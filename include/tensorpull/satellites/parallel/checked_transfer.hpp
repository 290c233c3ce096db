// One pull over several connections into a consumer that knows which bytes are right before they arrive: whoever gives
// others is known as soon as a part has landed.
#pragma once

#include <tensorpull/protocol/recipient/transfer.hpp>
#include <tensorpull/satellites/parallel/detail/checked_lines.hpp>
#include <tensorpull/satellites/parallel/detail/claimed_parts.hpp>
#include <tensorpull/satellites/parallel/detail/header_length.hpp>
#include <tensorpull/satellites/parallel/detail/line_role.hpp>
#include <tensorpull/satellites/parallel/every_source.hpp>
#include <tensorpull/satellites/parallel/parallel_recipient.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/optional.hpp>

#include <utility>

namespace tensorpull {

/// A parallel_transfer for a consumer that checks groups (consumer, 15). No digest is compared, and no source is
/// believed. One line brings the parts with the header, all of them the others. Each part is from one source
/// alone: if it is wrong, that source is named by wrong(), its lines end, and others bring the part. So nothing else is
/// fetched twice than a part of each source that lies, is lost or is slow. The pull completes if one source is honest
/// and can be reached. Borrows the consumer.
/// Of a consumer that wants some parts alone (consumer, 17) the others are never asked for, nor are parts with the
/// header kept; it is confirmed to the owner as without a digest, since nobody here has the whole.
/// `Plan`: which source gives what, as every_source has it. Size: 20 KiB for eight lines.
template <consumer Consumer, chunking_strategy Chunking, class Limits = default_limits, class Plan = every_source>
class checked_transfer : private detail::checked_lines<parallel_recipient<Chunking, Limits>, Plan> {
  using machine_type = parallel_recipient<Chunking, Limits>;
  using base = detail::checked_lines<machine_type, Plan>;
  using part_type = detail::claimed_part;
  using parts_type = detail::claimed_parts<Plan::most_parts>;
  static_assert(
      requires { requires Consumer::checks_groups; },
      "tensorpull: the parts of this pull are checked by a consumer that checks groups (consumer, 15)");
  static constexpr bool wants_some = requires { requires Consumer::wants_some; };
  static_assert(
      [] {
        if constexpr (wants_some) return Plan::most_lines <= Consumer::most_lines;
        else return true;
      }(),
      "tensorpull: this consumer takes bytes from fewer lines (consumer, 17)");
  using base::begun_, base::describes_it, base::ended_, base::error_, base::finished_, base::first_, base::is_wrong,
      base::lines_, base::machine, base::nobody, base::plan_, base::returns, base::said_, base::sharing_, base::usable;
  using typename base::line_state, typename base::state;

 public:
  using consumer_type = Consumer;  ///< where the bytes go
  using base::most_lines, base::follow, base::handler_of, base::line_ended, base::line_pause, base::resume_line,
      base::waits_for_first, base::first_line, base::awaits, base::idles, base::repeats, base::parts_of, base::wrong,
      base::ended, base::pause, base::give_reason, base::farewell_of, base::farewell;
  /// As transfer::read_piece_bytes.
  static constexpr std::size_t read_piece_bytes = std::size_t{4} << 20;

  /// Fails with not_verifiable if the request names tensors: a group has bytes of others, too.
  checked_transfer(Consumer& to, pull_request request, Chunking chunking, std::uint32_t) noexcept
      : to_(to), request_(request), chunking_(chunking) {
    if (to.fingerprint() != 0) request_.fingerprint = to.fingerprint();
    request_.schema = to.schema();
    if (request_.by_name()) fail({errc::not_verifiable});
  }

  /// The consumer knows itself what is there.
  bool resume(const resume_cursor&) noexcept { return to_.right_bytes() > 0; }
  /// How far it has got; without a digest, since the consumer can check what is there.
  resume_cursor cursor() const noexcept {
    resume_cursor c;
    if (said_.ref) c = {said_.ref, said_.fingerprint, said_.version, parts_.first_missing_byte(), 0};
    return c;
  }

  /// A line as an endpoint drives it: a model of transfer_role.
  using line = detail::line_role<checked_transfer>;
  /// Valid as long as this object is.
  line line_of(std::uint8_t number) noexcept { return {*this, number}; }

  /// A line has a connection. `source`: which of the owners is at its other end, below 8. `first_id`: the endpoint's
  /// next_id().
  void up(std::uint8_t number, std::uint8_t source, std::uint32_t first_id) noexcept {
    if (base::connected(number, source, machine_type(request_, chunking_, first_id))) settle();
  }
  /// Whether a line without a connection may have one soon.
  void coming(std::uint8_t number, bool may) noexcept {
    lines_[number].coming = may;
    if (!may) settle();
  }
  void more_sources(bool) noexcept {}  ///< nothing follows from it
  /// A line has lost its connection.
  void lost(std::uint8_t number) noexcept {
    if (lines_[number].up) leave(number, &line_state::up, false);
  }
  /// Replaces the line that brings the beginning or confirms, which is silent, slow or lost. False: there is no other.
  bool replace_first() noexcept {
    const std::uint8_t n = ended_ || (sharing_ && !finished_) ? nobody : base::next_first();
    if (n == nobody) return false;
    if (first_ != nobody) parts_.leave(first_, Plan::goes_on);
    begin_with(n);
    return true;
  }
  /// A line that has nothing to do brings the parts of a slower one instead. False: there are none.
  /// `had_time(number, begun)`: whether that one had its time for a part that was begun anew so often.
  template <class HadTime>
  bool take_over(std::uint8_t number, HadTime had_time) noexcept {
    const std::uint8_t from = lines_[number].source;
    const auto of = parts_.free_slowest(number, [&](const part_type& p) {
      return had_time(p.line, unsigned{p.freed}) && plan_.gives(from, parts_.index_of(p), true) != 0;
    });
    if (of) base::relieved(of->line, of->source);
    return of.has_value();
  }
  /// Grows when bytes that had landed were wrong.
  std::uint8_t stage() const noexcept { return stage_; }
  const pull_request& request() const noexcept { return request_; }  ///< with the consumer's schema
  std::uint64_t chunks() const noexcept { return chunks_; }  ///< that have landed whole
  std::uint32_t answers() const noexcept { return answers_; }  ///< that were progress
  /// Bytes that have landed and are not known to be wrong.
  std::uint64_t landed_bytes() const noexcept { return finished_ ? said_.image_bytes : parts_.landed(); }
  std::uint64_t total_bytes() const noexcept { return said_.image_bytes; }  ///< of the image; 0: not known yet
  /// As transfer::measured().
  void measured(std::chrono::nanoseconds time) noexcept
    requires detail::adapts<Chunking>
  {
    base::measured(came_, time);
  }
  /// After all connections were lost: as transfer::restart.
  void restart() noexcept {
    for (std::uint8_t i = 0; i < most_lines; ++i) parts_.leave(i, Plan::goes_on);
    base::all_lost();
  }
  /// As transfer::fail().
  void fail(error why) noexcept {
    if (ended_) return;
    ended_ = true;
    if (finished_) {
      unconfirmed_because_ = why.code;
      return;
    }
    why.at = parts_.landed();
    error_ = why;
    if (std::exchange(begun_, false)) to_.abandon(why);
  }
  /// The receipt, or why there is none. Call it when ended().
  result<receipt> outcome() const noexcept {
    if (error_) return failure(*error_);
    return made_receipt();
  }

 private:
  friend line;
  /// A line has no connection any more, or is of no use.
  template <class Flag>
  void leave(std::uint8_t n, Flag line_state::* flag, Flag value) noexcept {
    parts_.leave(n, Plan::goes_on);
    base::left(n, flag, value);
    settle();
  }
  void end_line(std::uint8_t n, const error& why) noexcept { leave<optional<error>>(n, &line_state::why, why); }
  void end_source(std::uint8_t source, const error& why) noexcept {
    for (std::uint8_t i = 0; i < most_lines; ++i)
      if (lines_[i].works() && lines_[i].source == source) end_line(i, why);
  }
  /// Its words or bytes are not those of the image.
  void accuse(std::uint8_t source) noexcept {
    base::accused(source);
    ++stage_;
    if (source == begun_by_) begun_by_ = nobody;
    parts_.forget(source);
    end_source(source, {errc::digest_mismatch});
  }

  /// After an answer or a loss: chooses who brings the beginning, or confirms.
  void settle() noexcept {
    if (ended_ || first_ != nobody) return;
    if (finished_) {
      if (const auto best = base::best_to_confirm(); best != nobody) confirm_over(best);
      else if (!base::somebody_settles()) fail({errc::connection_lost});
      return;
    }
    // the beginning that a source has brought is not thrown away because its connection was lost
    const bool waits = waits_for_first() && begun_by_ != nobody && parts_.landed() > 0 && returns(begun_by_);
    const std::uint8_t n = base::next_described(waits ? begun_by_ : nobody);
    if (n != nobody && sharing_) accuse(lines_[n].source);
    else if (n != nobody) begin_with(n);
  }
  /// The line brings the parts with the header, or confirms.
  void begin_with(std::uint8_t n) noexcept {
    if (finished_) return confirm_over(n);
    first_ = nobody;
    const state& l = lines_[n];
    if (begun_ && l.source == begun_by_ && describes_it(l)) {
      first_ = n;
      return;
    }
    const std::uint8_t source = l.source;
    const description d = l.machine.description();
    begun_ = true;
    begun_by_ = source;
    said_ = d;
    if (const auto ok = to_.begin(d); !ok) return refuse(source, ok.error());
    const std::uint64_t right = std::min(to_.right_bytes(), d.image_bytes);
    if constexpr (requires { to_.read_back(); })
      if (right > 0 && !header_.take_all(to_.read_back(), d.data_start)) return accuse(source);
    parts_.begin(d.image_bytes, to_.group_bytes(), right, wants_some);
    wanted_ = parts_.size();
    first_ = n;
    ++answers_;
    share();
  }
  /// The consumer does not take the beginning that a source gives.
  void refuse(std::uint8_t source, const error& why) noexcept {
    if (why.code == errc::digest_mismatch && !to_.refused()) return accuse(source);
    if (why.code == errc::io || why.code == errc::disk_full || why.code == errc::out_of_memory) return fail(why);
    if (wants_some && to_.refused()) return fail(why);  // the header is proved, so that of any other source is the same
    begun_by_ = nobody;
    end_source(source, why);
  }
  /// Once the header is right, all lines bring parts.
  void share() noexcept {
    std::size_t i = parts_.first_missing();
    if (i < parts_.parts_with(said_.data_start)) return;
    const std::uint64_t first = std::uint64_t{parts_.parts_with(said_.data_start)} << parts_.shift();
    plan_.begun(to_, said_, parts_.shift(), std::min(first, said_.image_bytes),
                [this](std::size_t part) { return parts_[part].right; });
    to_.in_any_order(parts_.first_missing_byte());
    if constexpr (wants_some) {
      wanted_ = parts_.want([this](std::uint64_t at, std::uint64_t length) { return to_.wants(at, length); });
      i = parts_.first_missing();
      ++stage_;  // those with the header may arrive again, and that is progress
    }
    told_ = i;
    sharing_ = true;
    first_ = nobody;
    for (state& l : lines_)  // those that were refused among them
      if (l.machine.description().ref && !describes_it(l) && !is_wrong(l.source)) accuse(l.source);
    if (i == parts_.size()) return finish();
    settle();
  }

  bool next(std::uint8_t n, frame& out) noexcept {
    state& l = lines_[n];
    if (ended_ || !usable(n)) return false;
    if (l.machine.next(out)) return true;
    if (!base::may_ask(n)) return false;
    const std::size_t end = sharing_ ? parts_.size() : parts_.parts_with(said_.data_start);
    part_type* const p = parts_.next_for(
        n, l.source, end, plan_.most_claimed(wanted_, base::usable_lines()),
        [this](std::uint8_t source) { return returns(source); },
        [&](const part_type& part) {
          return !sharing_ ? 1U : plan_.gives(l.source, parts_.index_of(part), part.free);
        });
    if (p == nullptr) return false;
    const std::size_t i = parts_.index_of(*p);
    const std::uint64_t at = parts_.begin_of(i) + p->asked;
    const std::uint64_t most = std::min(parts_.length_of(i) - p->asked, l.machine.longest_chunk());
    const std::uint64_t length = l.machine.length_from(at, most);
    l.machine.ask(out, {at, at, static_cast<std::uint32_t>(length), {0, 0}});
    p->asked += length;
    return true;
  }
  bool next_is_long() const noexcept { return false; }

  void on(std::uint8_t n, const frame& m) noexcept {
    state& l = lines_[n];
    if (ended_ || l.why) return;
    const auto event = l.machine.on(m);
    if (!event) return end_line(n, event.error());
    if (*event == recipient_event::nothing) return;
    if (l.machine.comparing()) return end_line(n, {errc::schema_mismatch});
    if (*event == recipient_event::confirmed) {
      confirmed_ = ended_ = true;
      if constexpr (requires { to_.confirmed(); }) to_.confirmed();
      return;
    }
    ask_again(l, n);
    if (*event == recipient_event::busy) {
      plan_.refused(l.source);
      return leave(n, &line_state::pause, std::max(l.machine.delay(), std::chrono::milliseconds(1)));
    }
    settle();
  }
  /// The line's machine has begun anew: some requests will not be answered.
  void ask_again(state& l, std::uint8_t n) noexcept {
    bool some = false;
    l.machine.unanswered(false, [&](const auto&) { some = true; });
    if (some) parts_.leave(n, Plan::goes_on);
  }
  bool on_chunk(std::uint8_t n, const frame& m) noexcept {
    state& l = lines_[n];
    if (ended_ || l.why) return false;
    l.left = m.length;
    l.chunk = machine_type::ledger::number::none();
    if (!l.machine.takes_chunks()) {
      if (const auto event = l.machine.on(m); !event) end_line(n, event.error());
      return !ended_ && !l.why;
    }
    const auto asked = l.machine.answered(m);
    if (!asked) {
      end_line(n, asked.error());
      return false;
    }
    ask_again(l, n);
    if (!*asked) return true;
    l.chunk = (*asked)->of;
    l.at = (*asked)->offset;
    l.served_end = l.served_end || l.at + m.length == said_.image_bytes;
    return true;
  }
  /// The part that a line's chunk lands in; nullptr: nobody wants it any more.
  part_type* landing(std::uint8_t n) noexcept {
    const state& l = lines_[n];
    // the parts with the header land in order, whatever was asked when
    if (l.chunk.is_none() || (!sharing_ && l.at != parts_.landed())) return nullptr;
    return parts_.awaited(n, l.at);
  }
  bool drops(std::uint8_t n) noexcept { return ended_ || lines_[n].why || lines_[n].left == 0; }
  prepared prepare(std::uint8_t n, std::span<std::span<std::byte>> out, std::uint64_t most) noexcept {
    most = std::min(most, lines_[n].left);
    return landing(n) == nullptr ? detail::prepare_in(passing_, most, out) : to_.prepare(lines_[n].at, most, out);
  }
  void landed(std::uint8_t n, std::span<const std::byte> bytes) noexcept {
    state& l = lines_[n];
    if (drops(n)) return;
    l.left -= bytes.size();
    part_type* const p = landing(n);
    if (p == nullptr) {  // nor is anybody going to want its rest
      l.chunk = machine_type::ledger::number::none();
      return;
    }
    if (!sharing_ && !header_.take(l.at, bytes, said_.data_start)) return accuse(l.source);
    if constexpr (wants_some) to_.brought_by(n);
    if (const auto ok = to_.commit(l.at, bytes); !ok) {
      if (!sharing_) return refuse(l.source, ok.error());
      return wants_some && ok.error() == errc::digest_mismatch && !to_.refused() ? accuse(l.source) : fail(ok.error());
    }
    l.at += bytes.size();
    p->landed += bytes.size();
    came_ += bytes.size();
    if (l.left == 0) {
      ++chunks_;
      ++answers_;
    }
    if (p->landed == parts_.length_of(parts_.index_of(*p))) complete(n, *p);
  }
  void complete(std::uint8_t n, part_type& p) noexcept {
    const std::size_t i = parts_.index_of(p);
    if constexpr (!wants_some)
      if (const auto ok = sharing_ ? to_.check(parts_.begin_of(i), parts_.length_of(i)) : result<void>(); !ok)
        return ok.error() == errc::digest_mismatch ? accuse(lines_[n].source) : fail(ok.error());
    p.right = true;
    ++lines_[n].brought;
    plan_.right(lines_[n].source, i);
    if (!sharing_) return share();
    for (; told_ < parts_.size() && parts_[told_].right; ++told_)
      if (const auto ok = to_.chunk(parts_.begin_of(told_), parts_.length_of(told_)); !ok) return fail(ok.error());
    if (told_ == parts_.size()) finish();
  }

  void finish() noexcept {
    if (const auto ok = to_.finish(made_receipt()); !ok) return fail(ok.error());
    finished_ = true;
    settle();
  }
  void confirm_over(std::uint8_t n) noexcept {
    machine_type& m = lines_[n].machine;
    first_ = n;
    m.unanswered(true, [](const auto&) {});
    m.confirm(wants_some ? 0 : said_.version, !wants_some);
  }
  receipt made_receipt() const noexcept {
    receipt r;
    r.outcome = tensorpull::outcome::completed;
    r.bytes = said_.image_bytes;
    r.chunks = chunks_;
    r.version = said_.version;
    r.fingerprint = said_.fingerprint;
    r.confirmed = confirmed_;
    r.unconfirmed_because = unconfirmed_because_;
    r.believed = false;
    return r;
  }

  Consumer& to_;
  pull_request request_;
  [[no_unique_address]] Chunking chunking_;
  parts_type parts_{};
  std::uint64_t chunks_ = 0, came_ = 0;
  std::size_t told_ = 0, wanted_ = 0;  // parts that the consumer was told of; that it wants
  std::uint32_t answers_ = 0;
  errc unconfirmed_because_{};
  std::uint8_t begun_by_ = nobody, stage_ = 0;
  bool confirmed_ = false;
  detail::header_length header_{};
  std::byte passing_[16 * 1024];  // what nobody wants any more
};

}  // namespace tensorpull
