// The lines of a pull whose parts are checked: which can be used, which has ended and why, and whom to wait for.
#pragma once

#include <tensorpull/integrity/policies.hpp>
#include <tensorpull/protocol/recipient/transfer.hpp>
#include <tensorpull/satellites/parallel/detail/line_state.hpp>
#include <tensorpull/satellites/parallel/parallel_recipient.hpp>
#include <tensorpull/std/optional.hpp>

#include <array>
#include <type_traits>

namespace tensorpull::detail {

/// The part of a checked_transfer that touches no bytes. The pull asks it which line may do what, decides, and tells it
/// how far the pull is. `Machine`: a parallel_recipient. `Plan`: as every_source.
template <class Machine, class Plan>
class checked_lines {
  using sources_type = std::conditional_t<(Plan::most_lines > 8), std::uint32_t, std::uint8_t>;  // a bit each

 public:
  /// The most lines.
  static constexpr std::uint8_t most_lines = Plan::most_lines;

  /// By another plan than a new one. Call it before there are lines.
  void follow(const Plan& plan) noexcept { plan_ = plan; }
  /// Takes what a line's source tells.
  auto handler_of(std::uint8_t number) const noexcept { return plan_.handler_of(lines_[number].source); }
  /// Why a line can no longer be used although it is connected; nothing: it can.
  optional<error> line_ended(std::uint8_t number) const noexcept { return lines_[number].why; }
  /// How long its owner asks us to wait; 0: it does not.
  std::chrono::milliseconds line_pause(std::uint8_t number) const noexcept { return lines_[number].pause; }
  /// A line whose owner was busy asks again.
  void resume_line(std::uint8_t number) noexcept {
    lines_[number].pause = {};
    lines_[number].machine.restart(0);
  }
  /// Whether all others wait for the line that brings the beginning, or for its source to return.
  bool waits_for_first() const noexcept { return begun_ && !sharing_ && !finished_ && !ended_; }
  /// The line that brings the beginning or confirms; most_lines or more: there is none.
  std::uint8_t first_line() const noexcept { return first_; }
  /// Whether a line waits for an answer.
  bool awaits(std::uint8_t number) const noexcept {
    const state& l = lines_[number];
    return l.up && (l.machine.describing() || l.machine.in_flight() > 0 || number == first_);
  }
  /// Whether a line could bring more than others leave to it.
  bool idles(std::uint8_t number) const noexcept {
    return sharing_ && usable(number) && lines_[number].machine.takes_chunks() &&
           lines_[number].machine.in_flight() == 0;
  }
  /// How often a source's parts were given to others a second time: perhaps all are as slow.
  unsigned repeats() const noexcept { return repeats_; }
  /// How many parts it has brought.
  std::uint32_t parts_of(std::uint8_t number) const noexcept { return lines_[number].brought; }
  /// Sources whose words or bytes were not those of the image, one bit each.
  sources_type wrong() const noexcept { return wrong_; }
  bool ended() const noexcept { return ended_; }  ///< whether outcome() is final
  /// How long to wait if all owners are busy; 0: they are not.
  std::chrono::milliseconds pause() const noexcept {
    std::chrono::milliseconds least{};
    for (std::uint8_t i = 0; i < most_lines; ++i) {
      const state& l = lines_[i];
      if (usable(i) || (l.coming && !l.up)) return {};
      if (l.works() && (least.count() == 0 || l.pause < least)) least = l.pause;
    }
    return least;
  }
  void give_reason(std::uint32_t reason) noexcept { reason_ = reason; }  ///< for the farewell of one that gives up
  /// The farewell to the owner of a connection after the transfer. The owner forgets this recipient if another got the
  /// confirmation.
  optional<frame> farewell_of(std::uint8_t number) const noexcept {
    if (!ended_ || number >= most_lines) return {};
    const state& l = lines_[number];
    if (!l.up || l.machine.nonce() == 0) return {};
    frame bye = l.machine.farewell();
    if (is_wrong(l.source)) bye.status = status::digest_mismatch;
    else if (finished_) {
      if (first_ == nobody || l.machine.nonce() == lines_[first_].machine.nonce()) return {};
      bye.status = status::looked;
    } else {
      bye.reason = reason_;
      if (!sharing_) bye.status = declining(error_->code);
    }
    return bye;
  }
  optional<frame> farewell() const noexcept { return farewell_of(first_); }  ///< of the first_line()

 protected:
  static constexpr std::uint8_t nobody = 0xff;
  using line_state = detail::line_state<Machine, unverified>;
  struct state : line_state {
    std::uint32_t brought = 0;
    bool is_late = false;  // it is asked for nothing more before it has answered
    bool served_end = false;  // its owner has served the last byte over this connection
  };

  const Machine& machine(std::uint8_t n) const noexcept { return lines_[n].machine; }
  bool usable(std::uint8_t n) const noexcept { return lines_[n].works() && lines_[n].pause.count() == 0; }
  std::size_t usable_lines() const noexcept {
    std::size_t lines = 0;
    for (std::uint8_t i = 0; i < most_lines; ++i) lines += usable(i);
    return lines;
  }
  bool is_wrong(std::uint8_t source) const noexcept { return (wrong_ & bit_of(source)) != 0; }
  /// Whether a source may go on with what it has begun.
  bool returns(std::uint8_t source) const noexcept {
    for (const state& l : lines_)
      if (l.source == source && (l.works() || l.may_come())) return true;
    return false;
  }
  bool somebody_settles() const noexcept {
    for (std::uint8_t i = 0; i < most_lines; ++i)
      if (settles(i) && (lines_[i].works() || lines_[i].may_come())) return true;
    return false;
  }
  bool describes_it(const state& l) const noexcept {
    const description& d = l.machine.description();
    return d.image_bytes == said_.image_bytes && d.data_start == said_.data_start;
  }

  /// A line asks over a new connection. False: it cannot be used.
  bool connected(std::uint8_t n, std::uint8_t source, const Machine& machine) noexcept {
    state& l = lines_[n];
    l = {};
    l.up = l.coming = true;  // it may return when it is lost
    l.source = source;
    l.machine = machine;
    l.machine.take(chunk_order::given);
    if (is_wrong(source)) l.why = error{errc::digest_mismatch};
    return !l.why;
  }
  /// It has no connection any more, or is of no use.
  template <class Flag>
  void left(std::uint8_t n, Flag line_state::* flag, Flag value) noexcept {
    state& l = lines_[n];
    l.left = 0;
    l.machine.unanswered(true, [](const auto&) {});
    l.*flag = value;
    if (n == first_) first_ = nobody;
  }
  void all_lost() noexcept {
    for (state& l : lines_) l.up = false;
    first_ = nobody;
  }
  void measured(std::uint64_t bytes, std::chrono::nanoseconds time) noexcept {
    for (state& l : lines_)
      if (l.up) l.machine.measured(bytes, time);
  }
  void accused(std::uint8_t source) noexcept {
    wrong_ |= bit_of(source);
    plan_.dropped(source);
  }
  /// The parts of a source are given to others. `line`: that had claimed them, or nobody.
  void relieved(std::uint8_t line, std::uint8_t source) noexcept {
    if (line != nobody) lines_[line].is_late = true;
    const sources_type bit = bit_of(source);
    repeats_ += (relieved_ & bit) != 0 && repeats_ < Plan::most_repeats;
    relieved_ |= bit;
  }
  /// Whether a line may be asked for a part, once its machine has nothing else to send.
  bool may_ask(std::uint8_t n) noexcept {
    state& l = lines_[n];
    l.is_late = l.is_late && l.machine.in_flight() > 0;
    return !finished_ && (sharing_ || n == first_) && !l.is_late && l.machine.may_ask();
  }

  /// The line that may bring the beginning or confirm instead of the first one; nobody: there is none.
  std::uint8_t next_first() const noexcept {
    for (std::uint8_t i = 1; i <= most_lines; ++i) {
      const auto n = static_cast<std::uint8_t>((first_ + i) % most_lines);
      if (n != first_ && has_described(n) && (!finished_ || settles(n))) return n;
    }
    return nobody;
  }
  /// The lowest line that has described the image; nobody: there is none. `of`: of this source, unless nobody. Once
  /// all bring parts: one that describes another image.
  std::uint8_t next_described(std::uint8_t of) const noexcept {
    for (std::uint8_t i = 0; i < most_lines; ++i)
      if (has_described(i) && (of == nobody || lines_[i].source == of) && !(sharing_ && describes_it(lines_[i])))
        return i;
    return nobody;
  }
  /// An owner takes a confirmation over a connection that it has served the last byte; over another one it has to be
  /// asked for that first.
  std::uint8_t best_to_confirm() const noexcept {
    std::uint8_t best = nobody;
    const auto worth = [this](std::uint8_t n) {
      return (lines_[n].served_end ? 2 : 0) + (lines_[n].machine.in_flight() == 0 ? 1 : 0);
    };
    for (std::uint8_t i = 0; i < most_lines; ++i)
      if (has_described(i) && settles(i) && (best == nobody || worth(i) > worth(best))) best = i;
    return best;
  }

  std::array<state, most_lines> lines_{};
  [[no_unique_address]] Plan plan_{};
  description said_{};  // by the source of the beginning
  optional<error> error_;
  std::uint8_t first_ = nobody;
  bool begun_ = false, sharing_ = false, finished_ = false, ended_ = false;  // the pull

 private:
  static constexpr sources_type bit_of(std::uint8_t source) noexcept {
    return static_cast<sources_type>(sources_type{1} << source);
  }
  bool settles(std::uint8_t n) const noexcept { return plan_.settles(lines_[n].source); }
  bool has_described(std::uint8_t n) const noexcept { return usable(n) && !lines_[n].machine.describing(); }

  std::uint32_t reason_ = 0;
  sources_type wrong_ = 0, relieved_ = 0;
  std::uint8_t repeats_ = 0;
};

}  // namespace tensorpull::detail
