// The programs of hosts over datagrams: the owner's ends, one for each address, the recipients', and the datagrams that
// are on their way between them.
#pragma once

#include "explored/host_owner.hpp"

#include <tensorpull/protocol/datagrams/datagram_transfer.hpp>

#include <algorithm>
#include <bit>
#include <map>
#include <string>
#include <utility>

namespace test::hosts {

/// The header in two chunks, and the data in two: all four may be on their way at a time, in two datagrams.
struct four_chunks {
  using is_chunking_policy = void;
  static constexpr std::uint64_t max_chunk_bytes = 32;
  static constexpr bool needs_layout = false;
  std::uint64_t next(std::uint64_t offset, const tp::chunk_context& c) const noexcept {
    const std::uint64_t each = offset < c.data_start ? 32 : 8;
    return each - offset % each;
  }
};
/// Takes bytes as they arrive, or only looks at what there is.
struct in_any_order : noted {
  using noted::noted;
  tp::result<void> begin(const tp::description& d) noexcept {
    return only_looks ? tp::failure(errc::cancelled) : noted::begin(d);
  }
  bool looked() const noexcept { return only_looks; }
  bool only_looks = false;
};
/// Wants its bytes in order, and has no memory for a while.
struct in_order : noted {
  using noted::noted;
  static constexpr bool any_order = false;
  tp::prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<byte_span> out) noexcept {
    disordered = disordered || offset != reached;
    return dry ? tp::prepared{} : noted::prepare(offset, length, out);
  }
  tp::result<void> commit(std::uint64_t offset, const_byte_span bytes) noexcept {
    disordered = disordered || offset != reached;
    reached += bytes.size();
    return noted::commit(offset, bytes);
  }
  void rewind(std::uint64_t offset) noexcept { reached = offset; }
  std::uint64_t reached = 0;
  bool disordered = false, dry = false;
};
struct tiny_chunk_digests {
  using is_integrity_policy = void;
  static constexpr bool whole = true, per_chunk = true;
  using hash_type = tiny_hash;
};

/// `How`: landing and integrity.
template <class How>
class datagram_programs : public host_owner {
 public:
  using host_owner::host_owner;
  void begin() {
    begin_machines();
    state.us = 1'000 * state.now;
    for (unsigned i = 0; i < 2; ++i) {
      make_end(i);
      start_transfer(i);
    }
    pump();
    look();
  }

 protected:
  using time = std::chrono::microseconds;
  using owner_end = host_machines::owner_datagram_end;
  using recipient_end = host_machines::recipient_datagram_end;
  using landing_type = typename How::landing;
  using transfer = tp::datagram_transfer<landing_type, four_chunks, typename How::integrity, limits>;
  using plan_type = tp::datagram_plan;
  static_assert(sizeof(transfer) <= transfer_bytes);
  static_assert(sizeof(landing_type) <= landing_bytes);
  static constexpr bool checks_chunks = How::integrity::per_chunk;
  static constexpr bool wants_order = !landing_type::any_order;
  static constexpr unsigned most_damaged = 3;
  static constexpr std::size_t most_datagram_bytes = 256;

  /// The description fits no datagram.
  bool in_pieces() const noexcept { return setting_.datagram_bytes < tp::detail::short_frame_bytes; }

  owner_end& end(unsigned e) noexcept { return *std::launder(reinterpret_cast<owner_end*>(state.ends_at[e])); }
  recipient_end& rend(unsigned i) noexcept { return *std::launder(reinterpret_cast<recipient_end*>(at(i).end_at)); }
  transfer& tr(unsigned i) noexcept { return *std::launder(reinterpret_cast<transfer*>(at(i).transfer_at)); }
  landing_type& landed_in(unsigned i) noexcept {
    return *std::launder(reinterpret_cast<landing_type*>(at(i).landing_at));
  }
  tp::buffer_pool<>& pool_of(unsigned i) noexcept {
    return *std::launder(reinterpret_cast<tp::buffer_pool<>*>(at(i).pool_at));
  }
  time now() const noexcept { return time(static_cast<time::rep>(state_.us)); }
  bool is_here(unsigned i) noexcept { return at(i).lives != 0; }

  template <class F>
  auto pulling(unsigned i, F f) noexcept {
    tp::no_transfer idle;
    return at(i).pulls < 2 ? f(tr(i)) : f(idle);
  }

  void look() {
    must(!told_lock::wrong, "a lock is taken twice");
    deliver();
    for (unsigned i = 0; i < 2; ++i) {
      one_recipient& r = at(i);
      if (r.pulls == 2) continue;
      if constexpr (wants_order)
        must(!landed_in(i).disordered, "a consumer that takes bytes in order gets others (42)");
      must(r.lied_to || tr(i).landed_bytes() <= reached(i), "bytes land that do not answer a request (1, 42)");
      look_at_recipient(i, tr(i));
    }
    look_at_owner();
  }
  /// The first byte of which no right answer has arrived.
  std::uint64_t reached(unsigned i) noexcept {
    const auto& c = at(i).covered;
    return ~c[0] != 0 ? static_cast<std::uint64_t>(std::countr_one(c[0]))
                      : 64 + static_cast<std::uint64_t>(std::countr_one(c[1]));
  }
  bool is_covered(unsigned i, std::uint64_t at_byte) noexcept {
    return (at(i).covered[at_byte / 64] >> (at_byte % 64) & 1) != 0;
  }
  void cover(unsigned i, std::uint64_t offset, std::uint64_t length) noexcept {
    for (std::uint64_t k = offset, to = std::min<std::uint64_t>(offset + length, 128); k < to; ++k)
      at(i).covered[k / 64] |= std::uint64_t{1} << (k % 64);
  }

  // the owner's ends

  unsigned accept(unsigned of) noexcept {
    unsigned e = 0;
    while (state.of[e] != none) ++e;
    state.of[e] = static_cast<std::uint8_t>(of);
    state.owed[e] = state.newest[e] = 0;
    scrub();
    new (blank(state.ends_at[e]))
        owner_end(own(), buffers(), ignore_, setting_.datagram_bytes, std::uint64_t{++state.ends_made} << 1 | 1);
    end(e).doubt();
    return e;
  }
  void close(unsigned e) noexcept {
    scrub();
    end(e).~owner_end();
    gone(e);
  }
  void owner_starts_again() noexcept {
    for (unsigned i = 0; i < 2; ++i) {
      at(i).end = at(i).ghost = none;
      blank(at(i).ghost_up);
    }
    for (unsigned e = 0; e < most_ends; ++e)
      if (state.of[e] != none) close(e);
    state.stranger_end = none;
    start_owner();
  }
  /// Nobody hears any more from a recipient's former address.
  void end_ghost(unsigned i) noexcept {
    if (at(i).ghost != none) close(std::exchange(at(i).ghost, none));
    blank(at(i).ghost_up);
  }
  /// Takes a datagram from an address: the end that it has, or one that is made if it asks for something that is here.
  /// The answer goes to `line`, or is lost.
  template <class End>
  void to_owner(End& e, unsigned of, unsigned from, const_byte_span d, std::uint32_t* line) noexcept {
    const bool newcomer = e == none;
    if (newcomer) e = static_cast<std::uint8_t>(accept(of));
    const unsigned number = e;
    state.owed[number] += requests_in(d);
    std::memcpy(in_, d.data(), d.size());
    tp::no_transfer idle;
    const auto heard = end(number).heard();
    heard_by(number, from, [&] { (void)end(number).received(idle, {in_, d.size()}, now()); });
    look_at_looks(number, d);
    const bool progress = end(number).heard() != heard || end(number).works();
    say(number, line);
    if (newcomer && !progress && e != none) close(std::exchange(e, none));
  }
  /// One that only looked counts as one that has not asked, for the link that it was served over last.
  void look_at_looks(unsigned e, const_byte_span d) noexcept {
    each_frame(d, [&](const read_frame& f) {
      std::uint32_t& newest = state.newest[e];
      const bool late = newest != 0 && static_cast<std::int32_t>(f.m.id - newest) < 0;
      if (!late && tp::is_request(f.m.kind) && f.m.kind != kind::pull) newest = f.m.id;
      if (late || f.m.kind != kind::cancel || f.m.status != tp::status::looked) return;
      for (const tp::recipient_record& r : tables().records)
        if (counts(r) && r.who == f.m.recipient && r.ref == f.m.ref && r.nonce == f.m.nonce && r.connection != 0 &&
            r.connection == state.connection[e])
          must(r.state != recipient_state::acquired && r.state != recipient_state::provisional,
               "one that only looked counts as one that has asked (21)");
    });
  }
  /// Frames that may be answered: requests, and what cannot be read.
  static std::uint32_t requests_in(const_byte_span d) noexcept {
    std::uint32_t n = 0;
    each_frame(d, [&](const read_frame& f) { n -= !tp::is_request(f.m.kind); });
    while (!d.empty()) {
      const auto size = tp::detail::measure_frame(d, d.size(), 1);
      if (!size || !*size || **size > d.size()) break;
      d = d.subspan(**size), ++n;
    }
    return n;
  }
  /// What an owner's end has to say leaves.
  void say(unsigned e, std::uint32_t* line) noexcept {
    tp::no_transfer idle;
    for (int n = 0; n < 64; ++n) {
      scrub();
      end(e).plan_datagram(idle, plan_, scratch_, now());
      if (plan_.bytes == 0) {
        if (end(e).works()) continue;
        return;
      }
      look_at_spans(plan_);
      must(plan_.bytes <= setting_.datagram_bytes, "a datagram is longer than its link carries (40)");
      std::byte bytes[most_datagram_bytes];
      const const_byte_span d(bytes, flat(plan_, bytes));
      open_ = {&plan_, e, line == nullptr || line[on_the_way - 1] == 0};
      if (meanwhile_.what != meanwhile::step::nothing && plan_.replies > 0) {
        const auto m = std::exchange(meanwhile_, {});
        deliver();
        if (m.what == meanwhile::step::withdraws) take_away(m.reference);
        else publish_the_same(m.reference);
      }
      const bool taken = open_.taken;
      (void)finish_plan();
      if (!taken) return;
      look_at_answers(e, d);
      if (line != nullptr) put(line, d);
    }
  }
  bool finish_plan() noexcept override {
    if (open_.plan == nullptr) return false;
    tp::no_transfer idle;
    const std::uint64_t before = own().totals().bytes_sent;
    scrub();
    end(open_.end).sent(idle, *std::exchange(open_.plan, nullptr), open_.taken);
    has_sent(state.of[open_.end], before);
    return true;
  }
  void look_at_answers(unsigned e, const_byte_span d) noexcept {
    std::size_t whole = 0;
    each_frame(d, [&](const read_frame& f) {
      whole += f.bytes.size();
      if (f.m.kind == kind::piece || f.m.kind == kind::taken) return;
      must(state.owed[e] > 0, "the owner answers what nobody asked, or twice (40)");
      if (state.owed[e] > 0) --state.owed[e];
    });
    must(whole == d.size(), "a datagram is more or less than whole frames (40)");
  }

  // datagrams on their way

  std::uint32_t number_of(const_byte_span d) {
    const auto [at, is_new] = numbers_.try_emplace(byte_vector(d.begin(), d.end()),
                                                   static_cast<std::uint32_t>(datagrams_.size()));
    if (is_new) datagrams_.push_back(at->first);
    return at->second;
  }
  void put(std::uint32_t* line, const_byte_span d) { enqueue<on_the_way>(line, number_of(d)); }

  /// Both sides send what they have to say.
  void pump() noexcept {
    for (unsigned i = 0; i < 2; ++i) {
      if (at(i).end != none) say(at(i).end, at(i).down);
      if (is_here(i)) poll(i), ask(i), poll(i);
    }
  }
  void pass(std::uint64_t us) noexcept {
    state.us += us;
    const std::uint64_t ms = state.us / 1'000;
    if (ms > state.now) pass_time(static_cast<std::uint32_t>(ms - state.now));
  }
  /// How long until a timer.
  time next_time() noexcept {
    time least = time::max();
    tp::no_transfer idle;
    for (unsigned i = 0; i < 2; ++i) {
      if (is_here(i)) least = std::min(least, pulling(i, [&](auto& t) { return rend(i).next_time(t, now()); }));
      if (at(i).end != none) {
        least = std::min(least, end(at(i).end).next_time(idle, now()));
        if (end(at(i).end).awaits_time()) least = std::min(least, time(100'000));
      }
    }
    return least;
  }

  // the recipients

  /// A new process, or a new link.
  void make_end(unsigned i) noexcept {
    one_recipient& r = at(i);
    if (is_here(i)) rend(i).~recipient_end();
    ++r.lives;
    blank(r.pieces);
    new (blank(r.pool_at)) tp::buffer_pool<>(r.pieces, sizeof r.pieces / 2);
    scrub();
    // the third has chosen its ids badly
    const std::uint64_t first_id = r.lives == 3 ? 500 : 1'000 * r.lives;
    new (blank(r.end_at))
        recipient_end(nobody_, pool_of(i), ignore_, setting_.datagram_bytes, first_id << 32 | r.lives);
    rend(i).begin_pull();
  }
  void leave(unsigned i) noexcept {
    rend(i).~recipient_end();
    blank(at(i).end_at);
    blank(at(i).up), blank(at(i).down);
    at(i).lives = 0;
  }
  void start_transfer(unsigned i) noexcept {
    one_recipient& r = at(i);
    new (blank(r.landing_at)) landing_type(destinations_[2 * i + r.pulls].destination());
    if constexpr (requires { landed_in(i).only_looks; }) landed_in(i).only_looks = looks(i);
    scrub();
    new (blank(r.transfer_at)) transfer(landed_in(i), request_of(i), {}, rend(i).next_id());
    tr(i).fits(setting_.datagram_bytes);
    tr(i).hold({r.early, setting_.held_bytes});
    r.landed = r.total = r.nonce = 0, r.tries = 0;
    r.covered[0] = r.covered[1] = 0;
    r.described_by = r.last_pull = r.latest_answer = r.confirmed_by = 0,
    r.described = r.overtaken = r.confirmed = false;
    blank(r.ranges);
  }
  /// `anew`: over another link. Datagrams on their way over the old one may still arrive.
  void start_again(unsigned i, bool with_cursor, bool anew) noexcept {
    one_recipient& r = at(i);
    const tp::resume_cursor cursor = with_cursor ? tr(i).cursor() : tp::resume_cursor{};
    if (anew) change_link(i);
    else make_end(i);
    if (!with_cursor) {
      r.pulls = 0;
      blank(r.data), blank(r.done), blank(r.gave_up);
    } else if (!cursor) {
      blank(r.data[r.pulls]);
    }
    start_transfer(i);
    if (cursor) must(tr(i).resume(cursor), "a cursor is not believed (38)");
    r.landed = tr(i).landed_bytes();
    cover(i, 0, r.landed);
    if constexpr (wants_order) landed_in(i).reached = r.landed;
    if (cursor) must(r.landed + 1 >= cursor.offset, "a cursor loses bytes (38)");
  }
  void change_link(unsigned i) noexcept {
    one_recipient& r = at(i);
    end_ghost(i);
    r.ghost = std::exchange(r.end, none);
    std::copy(std::begin(r.up), std::end(r.up), r.ghost_up);
    blank(r.up), blank(r.down);
    make_end(i);
  }
  void move(unsigned i) noexcept {
    rend(i).end_pull(tr(i));
    change_link(i);
    tr(i).restart();
    given_up(i);
  }
  /// No request is on its way any more.
  void given_up(unsigned i) noexcept {
    for (auto& q : at(i).ranges) q.answered = q.over = q.length != 0;
  }

  /// After anything that may have ended its transfer.
  void poll(unsigned i) noexcept {
    one_recipient& r = at(i);
    while (r.pulls < 2 && tr(i).ended()) {
      const auto farewell = tr(i).farewell();
      scrub();
      if (!r.done[r.pulls].over) {
        note_end(i, tr(i));
        must(in_pieces() || !r.done[r.pulls].confirmed || r.confirmed, "another serve's answer confirms (11)");
        rend(i).end_pull(tr(i));
      }
      if (farewell && !rend(i).send_control(*farewell)) return;  // there is no room before another was sent
      if (++r.pulls < 2) start_transfer(i);
    }
    if (r.pulls == 2 && rend(i).output_idle()) leave(i);
  }
  /// What a recipient has to say leaves.
  void ask(unsigned i) noexcept {
    if (!is_here(i)) return;
    one_recipient& r = at(i);
    for (int n = 0; n < 32; ++n) {
      scrub();
      pulling(i, [&](auto& t) { rend(i).plan_datagram(t, plan_, scratch_, now()); });
      if (plan_.bytes == 0) return;
      must(plan_.bytes <= setting_.datagram_bytes, "a datagram is longer than its link carries (40)");
      must(plan_.pulls <= (r.lied_to ? 8 : limits::pipelined_requests),
           "more is asked in a datagram than the description allows (41)");
      std::byte bytes[most_datagram_bytes];
      const const_byte_span d(bytes, flat(plan_, bytes));
      const bool takes = r.up[on_the_way - 1] == 0;
      if (takes) {
        look_at_requests(i, d);
        hear(d, i);
        if (recording_) note_frames(d);
      }
      scrub();
      pulling(i, [&](auto& t) { rend(i).sent(t, plan_, takes); });
      if (!takes) return want(i, d);
      put(r.up, d);
    }
    must(false, "a recipient does not stop asking (43)");
  }
  /// What a full link did not take is wanted all the same, and will be asked for again.
  void want(unsigned i, const_byte_span d) noexcept {
    each_frame(d, [&](const read_frame& f) {
      if (at(i).pulls == 2 || f.m.kind != kind::pull || f.m.ref != refs[at(i).pulls]) return;
      for (auto& q : at(i).ranges) {
        if (q.length != 0 && (q.offset != f.m.offset || q.length != f.m.length)) continue;
        if (q.length == 0) q = {f.m.offset, state.us, f.m.id, f.m.length, true, true, {}};
        q.answered = q.over = true;
        return;
      }
    });
  }
  void look_at_requests(unsigned i, const_byte_span d) noexcept {
    one_recipient& r = at(i);
    each_frame(d, [&](const read_frame& f) {
      const tp::frame& m = f.m;
      if (r.pulls == 2 || m.ref != refs[r.pulls]) return;
      if (m.kind == kind::describe && r.described_by != m.id) {
        r.described_by = m.id, r.described = false;
        given_up(i);
      }
      if (m.kind != kind::pull && m.kind != kind::confirm) return;
      must(m.version == 0 || landing(i).version == 0 || m.version == landing(i).version,
           "it goes on with another version (35)");
      if (m.kind == kind::confirm) {
        r.confirmed_by = m.id;
        must(m.flag && m.digest == digest_of(r.pulls, m.version), "it confirms without the digest (10, 13)");
        must(in_pieces() || m.nonce == r.nonce, "it confirms a serve that it does not know (10)");
        return;
      }
      must(r.last_pull == 0 || static_cast<std::int32_t>(m.id - r.last_pull) > 0,
           "a repetition has not an id of its own (41)");
      r.last_pull = m.id;
      note_range(i, m);
    });
  }
  void note_range(unsigned i, const tp::frame& m) noexcept {
    one_recipient& r = at(i);
    for (auto& q : r.ranges) {
      if (q.length != 0 && (q.offset != m.offset || q.length != m.length)) continue;
      // the next that left three later was answered, or answers overtake each other, or time has passed
      const bool lost = q.length == 0 || q.answered || r.overtaken || state.us > q.asked_at ||
                        static_cast<std::int32_t>(r.latest_answer - q.id) >= 3;
      must(lost, "a request is repeated that is not lost (41)");
      q = {m.offset, state.us, m.id, m.length, false, false, {}};
      return;
    }
    must(false, "it asks for more ranges than there are (1)");
  }

  /// A datagram arrives at a recipient.
  void to_recipient(unsigned i, const_byte_span d, bool lie) noexcept {
    one_recipient& r = at(i);
    if (!is_here(i)) return;
    if (r.pulls < 2) each_frame(d, [&](const read_frame& f) { look_at_answer(i, f); });
    std::byte was[data_bytes];
    const unsigned pulls = r.pulls;
    const bool refused = pulls < 2 && refuses_nothing(i, d), stopped = refused && has_stopped(i);
    const std::uint64_t progress = pulls < 2 ? tr(i).answers() + tr(i).landed_bytes() : 0;
    if (pulls < 2) std::memcpy(was, r.data[pulls], data_bytes);
    std::memcpy(in_, d.data(), d.size());
    scrub();
    const bool good = pulling(i, [&](auto& t) { return rend(i).received(t, {in_, d.size()}, now()).has_value(); });
    must(good || lie, "an honest owner's datagram is an error");
    must(!refused || has_stopped(i) == stopped, "a refusal of what is not asked for stops it (14)");
    if (pulls < 2 && tr(i).answers() + tr(i).landed_bytes() != progress) r.silent = 0;
    for (std::size_t k = 0; pulls < 2 && k < data_bytes; ++k)
      must(was[k] == r.data[pulls][k] || is_covered(i, data_begins() + k), "bytes land that were not asked for (1)");
    poll(i);
  }
  bool has_stopped(unsigned i) noexcept { return tr(i).ended() || tr(i).pause().count() > 0; }
  /// Whether a datagram has nothing but refusals of requests that are answered, or were never made.
  bool refuses_nothing(unsigned i, const_byte_span d) noexcept {
    const one_recipient& r = at(i);
    bool all = true;
    each_frame(d, [&](const read_frame& f) {
      const tp::frame& m = f.m;
      bool asked = m.id == r.described_by || m.id == r.described_by + 1 || m.id == r.confirmed_by;
      for (const auto& q : r.ranges) asked = asked || (q.length != 0 && q.id == m.id && !q.over);
      all = all && m.kind == kind::refused && !asked;
    });
    return all && !in_pieces();
  }
  void look_at_answer(unsigned i, const read_frame& f) noexcept {
    one_recipient& r = at(i);
    const tp::frame& m = f.m;
    if (m.ref != refs[r.pulls]) return;
    if (m.kind == kind::description && m.id == r.described_by && !std::exchange(r.described, true)) r.nonce = m.nonce;
    if (m.kind == kind::located && r.described && m.id == r.described_by + 1 &&
        std::exchange(r.located_by, m.id) != m.id)
      r.nonce = m.nonce;
    if (m.kind == kind::confirmed && m.nonce == r.nonce && m.version == landing(i).version) r.confirmed = true;
    if (m.kind != kind::chunk || (!in_pieces() && m.nonce != r.nonce) || m.version != landing(i).version) return;
    for (auto& q : r.ranges) {
      if (q.length == 0 || q.offset != m.offset || q.length != m.length) continue;
      cover(i, m.offset - (header_bytes - data_begins()), m.length);
      q.answered = true, q.over = q.over || q.id == m.id;
      if (static_cast<std::int32_t>(m.id - r.latest_answer) > 0) r.latest_answer = m.id;
      else if (m.id != r.latest_answer) r.overtaken = true;
    }
  }

  struct open_plan {
    plan_type* plan = nullptr;
    unsigned end = 0;
    bool taken = false;
  };
  /// What the owner's program does while answers leave.
  struct meanwhile {
    enum class step : std::uint8_t {
      nothing,
      withdraws,
      publishes
    } what = step::nothing;
    unsigned reference = 0;
  };

  alignas(64) std::byte in_[2 * 512];
  plan_type plan_;
  open_plan open_;
  meanwhile meanwhile_;
  std::vector<std::uint32_t> recorded_down_;  // answers of a whole run
  std::vector<byte_vector> datagrams_{byte_vector()};  // 0 is none
  std::map<byte_vector, std::uint32_t> numbers_;
};

}  // namespace test::hosts
