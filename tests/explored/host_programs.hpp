// The programs of hosts: the owner's, the recipients', and the connections between them, over which bytes move when the
// world wants it.
#pragma once

#include "explored/frames_in_words.hpp"
#include "explored/host_rules.hpp"

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/splitmix64.hpp>

#include <array>
#include <string>
#include <utility>

namespace test::hosts {

class host_programs : public host_rules {
 public:
  host_programs(const setting& s, const faults& f) : host_rules(s, f) {
    waited_for_ = this;
    told_lock::relaxed = [] { waited_for_->relax(); };
  }
  void begin() {
    std::memset(static_cast<void*>(&state), 0, sizeof state);
    wrong = nullptr;
    state.left = allowed_;
    state.now = 1'000;
    state.stranger_end = none;
    for (auto& of : state.of) of = none;
    new (blank(state.pool_at)) pool(state.buffer, sizeof state.buffer);
    start_owner();
    for (unsigned i = 0; i < 2; ++i) {
      at(i).end = at(i).ghost = none;
      start_transfer(i);
      connect(i);
    }
    look();
  }

 protected:
  // the owner's program

  /// Whom it waits for: those that have not completed one of these references.
  unsigned left_for(unsigned of) const noexcept {
    unsigned left = 0;
    for (unsigned i = 0; i < 2; ++i)
      for (unsigned ref = 0; ref < 2; ++ref)
        if ((of >> ref & 1) != 0 && (state_.recorded[i][ref] >> state_.content[ref] & 1) == 0) left |= 1u << i;
    return left;
  }
  /// Opens a transaction, has it filled, and knows it from then on.
  template <class Fill>
  void open(unsigned of, Fill fill) noexcept {
    tp::recipient_id left[2];
    std::size_t n = 0;
    const unsigned named = setting_.counts == counting::named ? left_for(of) : 0;
    for (unsigned i = 0; i < 2; ++i)
      if ((named >> i & 1) != 0) left[n++] = names[i];
    tp::transaction_options options;
    if (setting_.counts == counting::named) options.named = {left, n};
    if (setting_.counts == counting::by_number) options.recipients = 2;
    options.budgets = {std::chrono::milliseconds(acquire_ms), std::chrono::milliseconds(idle_ms),
                       std::chrono::milliseconds(transaction_idle_ms), 1};
    const auto id = own().open_transaction(options);
    if (!id) return;
    const bool filled = fill(*id);
    if (!filled) return own().cancel(*id);
    own().seal(*id);
    if (id->number > most_transactions) return must(false, "the world has no room for a transaction");
    one_transaction& t = state.transactions[id->number - 1];
    t.there = true;
    t.of = static_cast<std::uint8_t>(of), t.named = static_cast<std::uint8_t>(named);
    t.opened_at = t.moved_at = state.now;
  }
  void start_owner() noexcept {
    const bool first = state.owners++ == 0;
    new (blank(state.storage_at)) storage;
    tp::splitmix64 random{state.owners};
    scrub();
    new (blank(state.owner_at)) owner(tables(), [&] { return random(); });
    for (auto& t : state.transactions) t = {};
    own().advance(std::chrono::milliseconds(state.now));
    unsigned of = 0;
    for (unsigned ref = 0; ref < 2; ++ref) {
      if (!first && (!state.published[ref] || left_for(1u << ref) == 0)) continue;
      of |= 1u << ref;
    }
    for (unsigned ref = 0; ref < 2; ++ref) state.published[ref] = (of >> ref & 1) != 0;
    if (setting_.together && of != 0)
      open(of, [&](tp::transaction_id in) {
        for (unsigned ref = 0; ref < 2; ++ref)
          if ((of >> ref & 1) != 0 && !own().publish(image(ref), version(ref), true, refs[ref], in))
            must(false, "there is no room for what the program has room for (33)");
        return true;
      });
    for (unsigned ref = 0; ref < 2 && !setting_.together; ++ref)
      if ((of >> ref & 1) != 0) (void)publish(ref);
  }
  bool publish(unsigned ref) noexcept {
    bool done = false;
    open(1u << ref, [&](tp::transaction_id in) {
      return done = own().publish(image(ref), version(ref), true, refs[ref], in).has_value();
    });
    return done;
  }
  void by_hand(unsigned ref) noexcept {
    if (const tp::transaction_id id = own().transaction_of(refs[ref]); id && id.number <= most_transactions)
      state.transactions[id.number - 1].by_hand = true;
  }
  void publish_again(unsigned ref, bool other) noexcept {
    const auto content = state.content[ref], copy = state.copy[ref];
    state.copy[ref] ^= 1, state.content[ref] ^= other;
    const tp::transaction_id old = own().transaction_of(refs[ref]);
    const bool was = state.published[ref];
    scrub();
    if (!publish(ref)) {
      state.content[ref] = content, state.copy[ref] = copy;
      must(own().transaction_of(refs[ref]) == old, "an error has changed what was published (25)");
      return;
    }
    if (was && old) state.transactions[old.number - 1].by_hand = true;
    state.published[ref] = true, state.withdrawn[ref] = false;
    if (other) state.other[ref] = true;
    unread(ref);
  }
  void publish_the_same(unsigned ref) noexcept { publish_again(ref, false); }
  void take_away(unsigned ref) noexcept {
    by_hand(ref);
    scrub();
    must(own().withdraw(refs[ref], withdrawn_because).has_value(), "what is published cannot be withdrawn (28)");
    state.published[ref] = false, state.withdrawn[ref] = true;
    unread(ref);
  }
  /// Nothing reads an image that is not published any more.
  void unread(unsigned ref) noexcept {
    for (const tp::publication& p : tables().slots)
      if (p.id == refs[ref] && p.now == tp::publication::state::withdrawn)
        must(p.pins == 0, "what was withdrawn is still read (3, 28)");
  }
  void owner_ends() noexcept {
    for (unsigned ref = 0; ref < 2; ++ref) {
      by_hand(ref);
      state.published[ref] = false, state.withdrawn[ref] = true;
    }
    state.ended = true;
    scrub();
    own().withdraw_all();
    deliver();
    for (const one_transaction& t : state.transactions)
      must(!t.there || t.told, "the owner ends, and a transaction has not settled (29)");
  }
  void pass_time(std::uint32_t ms) noexcept {
    state.now += ms, state.passed = true;
    scrub();
    own().advance(std::chrono::milliseconds(state.now));
  }
  void owner_starts_again() noexcept {
    for (unsigned i = 0; i < 2; ++i) {
      if (at(i).end != none) drop(i);
      at(i).end = at(i).ghost = none, at(i).late_size = 0;
      blank(at(i).late);
    }
    for (unsigned e = 0; e < most_ends; ++e)
      if (state.of[e] != none) close(e);
    state.stranger_end = none;
    start_owner();
  }

  // connections

  /// The recipient's end is driven with its transfer, or without one when it is over.
  template <class F>
  auto pulling(unsigned i, F f) noexcept {
    tp::no_transfer idle;
    return at(i).pulls < 2 ? f(tr(i)) : f(idle);
  }
  unsigned accept(unsigned of) noexcept {
    unsigned e = 0;
    while (state.of[e] != none) ++e;
    state.of[e] = static_cast<std::uint8_t>(of);
    new (blank(state.ends_at[e])) owner_end(own(), buffers(), ignore_);
    return e;
  }
  void close(unsigned e) noexcept {
    scrub();
    end(e).~owner_end();
    blank(state.ends_at[e]);
    const std::uint32_t number = std::exchange(state.connection[e], 0);
    state.of[e] = none;
    for (const tp::recipient_record& r : tables().records)
      must(!counts(r) || number == 0 || r.connection != number, "a connection is gone, and a record has it (33)");
  }
  /// The recipient's end is gone.
  void drop(unsigned i) noexcept {
    rend(i).~recipient_end();
    at(i).begun = at(i).begun_for = 0;
    blank(at(i).end_at);
  }
  /// Both ends know that the connection is over.
  void hang_up(unsigned i) noexcept {
    drop(i);
    close(std::exchange(at(i).end, none));
  }
  void connect(unsigned i) noexcept {
    at(i).end = static_cast<std::uint8_t>(accept(i));
    new (blank(at(i).end_at)) recipient_end(nobody_, no_buffers_, ignore_);
    rend(i).begin_pull();
    tr(i).restart();
  }
  void break_up(unsigned i, bool late) noexcept {
    one_recipient& r = at(i);
    if (late) {
      recipient_end::plan_type plan;
      scrub();
      if (pulling(i, [&](auto& t) { return rend(i).plan_write(t, plan, scratch_, plan_bytes).has_value(); }) &&
          plan.bytes > 0)
        r.late_size = static_cast<std::uint32_t>(flat(plan, {r.late, late_bytes}));
      hear(const_byte_span(r.late, r.late_size).subspan(std::min(r.late_size, r.begun)), i);
    }
    drop(i);
    r.ghost = std::exchange(r.end, none);
  }
  void late(unsigned i) noexcept {
    one_recipient& r = at(i);
    const std::size_t n = std::exchange(r.late_size, 0);
    const unsigned ref = confirmed_in({r.late, n}, i);
    if (!give_owner(r.ghost, {r.late, n}, i)) close(std::exchange(r.ghost, none));
    else into_nothing(r.ghost);
    blank(r.late);
    if (ref == none) return;
    scan();
    must((state.recorded[i][ref] & content_of(ref, version(ref))) != 0,
         "what is confirmed over the older connection does not count (24)");
  }
  /// The reference that a recipient confirms in these bytes, if it is served and was not published again; or none.
  unsigned confirmed_in(const_byte_span bytes, unsigned i) noexcept {
    unsigned ref = none;
    each_frame(bytes, [&](const read_frame& f) {
      if (f.m.kind == kind::confirm) ref = index_of(f.m.ref);
    });
    if (ref == none || at(i).lied || at(i).lied_to || !state.published[ref]) return none;
    if (state.owners > 1 || state.copy[ref] != 0 || state.content[ref] != 0) return none;
    const auto known = own().recipient_of(refs[ref], names[i]);
    return known && known->state != recipient_state::cancelled ? ref : none;
  }
  /// What an owner's end has to say is taken, and nobody hears it.
  void into_nothing(unsigned e) noexcept {
    owner_end::plan_type plan;
    tp::no_transfer idle;
    scrub();
    if (end(e).plan_write(idle, plan, scratch_, plan_bytes) && plan.bytes > 0)
      (void)end(e).written(idle, plan, plan.bytes);
  }

  template <class Plan>
  static std::size_t flat(const Plan& plan, byte_span to) noexcept {
    std::size_t n = 0;
    for (std::size_t i = 0; i < plan.span_count; n += plan.spans[i++].size())
      std::memcpy(to.data() + n, plan.spans[i].data(), plan.spans[i].size());
    return n;
  }
  template <class End, class Transfer>
  static tp::result<std::size_t> give(End& to, Transfer& t, const_byte_span bytes) noexcept {
    std::size_t done = 0;
    while (done < bytes.size()) {
      std::span<std::byte> room[8];
      const std::size_t n = to.plan_read(t, room, plan_bytes);
      std::size_t moved = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const std::size_t here = std::min(room[i].size(), bytes.size() - done - moved);
        std::memcpy(room[i].data(), bytes.data() + done + moved, here);
        moved += here;
      }
      if (moved == 0) break;
      done += moved;
      if (const auto ok = to.received(t, {room, n}, moved); !ok) return tp::failure(ok.error());
    }
    return done;
  }
  /// False: the owner's end is at an error.
  bool give_owner(unsigned e, const_byte_span bytes, unsigned from) noexcept {
    std::array<tp::recipient_record, most_records> was;
    const auto records = tables().records;
    std::copy(records.begin(), records.end(), was.begin());
    tp::no_transfer idle;
    scrub();
    const auto took = give(end(e), idle, bytes);
    for (const tp::recipient_record& r : records) {
      if (!counts(r) || r.connection == 0 || state.connection[e] == r.connection) continue;
      bool known = false;
      for (const std::uint32_t number : state.connection) known = known || number == r.connection;
      if (known) continue;
      must(state.connection[e] == 0, "a connection has two numbers");
      state.connection[e] = r.connection;
    }
    if (setting_.counts == counting::named)
      for (std::size_t k = 0; k < was.size(); ++k) {
        const unsigned x = index_of(was[k].who);
        if (x >= 2 || x == from || at(x).lied) continue;
        const tp::recipient_record &a = was[k], &b = records[k];
        if (!is_final(a.state) && is_final(b.state) && is_not_awaited(b, x)) continue;
        must(a.who == b.who && a.ref == b.ref && a.version == b.version && a.generation == b.generation &&
                 a.state == b.state && a.nonce == b.nonce && a.serving == b.serving && a.at_end == b.at_end &&
                 a.bytes == b.bytes && a.connection == b.connection && a.expected == b.expected &&
                 a.subset == b.subset && a.reason == b.reason && a.marked_at == b.marked_at,
             "what one peer sends changes what is known of another (17, 24, 33)");
      }
    return took.has_value() && (*took == bytes.size() || from == stranger);
  }

  /// How many bytes are left of the frame that is begun if the first n bytes of these were sent.
  static std::size_t rest_of_frame(const_byte_span frames, std::size_t n) noexcept {
    std::size_t end = 0;
    each_frame(frames, [&](const read_frame& f) {
      if (end < n) end += f.bytes.size();
    });
    return end - std::min(end, n);
  }
  /// What the recipient has to say, or the first part of it, is heard.
  bool up(unsigned i, unsigned how, const unsigned* lie = nullptr) noexcept {
    recipient_end::plan_type plan;
    scrub();
    if (!pulling(i, [&](auto& t) { return rend(i).plan_write(t, plan, scratch_, plan_bytes).has_value(); })) {
      must(false, "a recipient's end fails to write");
      return true;
    }
    const std::size_t most = cut(plan, how);
    if (plan.bytes == 0 || most == 0) return false;
    std::byte bytes[plan_bytes + 64];
    flat(plan, bytes);
    std::uint32_t& begun = at(i).begun;
    const const_byte_span frames = const_byte_span(bytes, plan.bytes).subspan(begun);
    look_at_requests(i, frames);
    if (lie == nullptr) hear(frames, i);
    begun = static_cast<std::uint32_t>(most < begun ? begun - most : rest_of_frame(frames, most - begun));
    std::size_t n = most;
    scrub();
    if (!pulling(i, [&](auto& t) { return rend(i).written(t, plan, n).has_value(); }))
      must(false, "a recipient's end fails after it has written");
    if (lie != nullptr) {
      if (!spoil(bytes, n, *lie)) return false;
      lies_as({bytes, n}, i), at(i).lied = true;
    }
    said_ += tell_frames({bytes, n});
    if (recording_) note_frames({bytes, n});
    if (!give_owner(at(i).end, {bytes, n}, i)) hang_up(i);
    else poll(i);
    return true;
  }
  /// What the owner's program does while bytes are being sent.
  struct meanwhile {
    void (host_programs::*what)(unsigned) noexcept;
    unsigned reference;
  };
  /// What the owner's end has to say to the recipient, or the first part of it.
  bool down(unsigned i, unsigned how, const unsigned* lie = nullptr, const meanwhile& m = meanwhile()) noexcept {
    const unsigned e = at(i).end;
    owner_end::plan_type plan;
    tp::no_transfer idle;
    scrub();
    if (!end(e).plan_write(idle, plan, scratch_, plan_bytes)) {
      hang_up(i);
      return true;
    }
    const std::size_t most = cut(plan, how);
    if (plan.bytes == 0 || most == 0) return false;
    bool pinned = false;
    for (std::size_t k = 0; k < plan.item_count; ++k) pinned = pinned || plan.items[k].pinned;
    if (m.what != nullptr && !pinned) return false;
    look_at_spans(plan);
    std::byte bytes[plan_bytes + 64];
    std::size_t n = std::min(flat(plan, bytes), most);
    const std::size_t all_bytes = n;
    if (lie != nullptr) {
      if (!spoil(bytes, n, *lie)) return false;
      at(i).lied_to = true;
    }
    open_ = {&plan, e, all_bytes};
    said_ += tell_frames({bytes, n});
    const std::size_t begun = at(i).begun_for;
    const const_byte_span all_frames = const_byte_span(bytes, lie != nullptr ? n : plan.bytes);
    const const_byte_span frames = all_frames.subspan(std::min(begun, all_frames.size()));
    const bool whole = at(i).pulls < 2 && begun == 0;
    const std::uint64_t most_landed = at(i).pulls < 2 ? may_land(i, frames) : 0;
    at(i).begun_for = static_cast<std::uint32_t>(n < begun ? begun - n : rest_of_frame(frames, n - begun));
    if (lie != nullptr) at(i).begun_for = ~std::uint32_t{0};  // nobody knows where frames begin from now on;
    scrub();
    const auto took = pulling(i, [&](auto& t) { return give(rend(i), t, {bytes, n}); });
    if (whole) must(tr(i).landed_bytes() <= most_landed, "bytes land that do not answer a request (1)");
    const bool all = took && *took == n;
    if (took && lie == nullptr) open_.bytes = *took;
    deliver();
    if (m.what != nullptr) (this->*m.what)(m.reference);
    finish_plan();
    if (!took) {
      if (at(i).pulls < 2) tr(i).fail(took.error());
      must(at(i).lied_to, "an honest owner's bytes are an error");
      hang_up(i);
    } else if (lie != nullptr && !all) {
      hang_up(i);
    }
    poll(i);
    return true;
  }
  bool while_sent(unsigned i, unsigned ref, void (host_programs::*what)(unsigned) noexcept) noexcept {
    if (!down(i, 0, nullptr, {what, ref})) return false;
    look();
    return true;
  }
  /// Somebody waits until nothing reads an image; other threads look what has settled, and have sent it.
  void relax() noexcept {
    deliver();
    if (open_.plan != nullptr) return finish_plan();
    must(false, "somebody waits for bytes that nobody sends (3)");
    for (tp::publication& p : tables().slots) p.pins = 0;
  }
  void finish_plan() noexcept {
    if (open_.plan == nullptr) return;
    tp::no_transfer idle;
    const std::uint64_t before = own().totals().bytes_sent;
    scrub();
    (void)end(open_.end).written(idle, *std::exchange(open_.plan, nullptr), open_.bytes);
    const unsigned of = state.of[open_.end];
    if (of >= 2 || own().totals().bytes_sent < before + 2 * idle_ms / 1000) return;
    state.payload_at[of] = state.now;
    for (auto& t : state.transactions)
      if (t.there && at(of).pulls < 2 && (t.of >> at(of).pulls & 1) != 0 && !t.by_hand && !t.told)
        t.moved_at = state.now;
  }
  /// Bytes that are moved: all, or up to a place within the first item, or that alone; 0: that is no part.
  template <class Plan>
  static std::size_t cut(const Plan& plan, unsigned how) noexcept {
    if (how == 0) return plan.bytes;
    const std::size_t first = plan.item_count > 0 ? plan.items[0].bytes : 0;
    std::size_t n = 0;
    if (how == 1) n = first - std::min<std::size_t>(first, 1);
    if (how == 2) n = first / 2;
    if (how == 3) n = first > 96 ? 96 : 8;
    if (how == 4) n = first;
    return n < plan.bytes ? n : 0;
  }

  // the recipients' programs

  void start_transfer(unsigned i) noexcept {
    one_recipient& r = at(i);
    const std::uint32_t first_id = r.end != none ? rend(i).next_id() : 1;
    new (blank(r.landing_at)) noted(destinations_[2 * i + r.pulls].destination());
    tp::pull_request request;
    request.ref = refs[r.pulls];
    if (setting_.pinned) request.version = version_[r.pulls][0];
    request.recipient = names[i];
    scrub();
    new (blank(r.transfer_at)) transfer(landing(i), request, {}, first_id);
    r.landed = r.total = r.nonce = 0, r.tries = 0;
    blank(r.asked);
  }
  void start_again(unsigned i, bool with_cursor) noexcept {
    one_recipient& r = at(i);
    const tp::resume_cursor cursor = with_cursor ? tr(i).cursor() : tp::resume_cursor{};
    if (r.end != none) break_up(i, false);
    if (!with_cursor) {
      r.pulls = 0;
      blank(r.data), blank(r.done), blank(r.gave_up);
    } else if (!cursor) {
      blank(r.data[r.pulls]);
    }
    start_transfer(i);
    if (cursor) must(tr(i).resume(cursor), "a cursor is not believed (38)");
    r.landed = tr(i).landed_bytes();
    if (cursor) must(r.landed + 1 >= cursor.offset, "a cursor loses bytes (38)");
  }
  /// After anything that may have ended its transfer.
  void poll(unsigned i) noexcept {
    one_recipient& r = at(i);
    for (; r.pulls < 2 && tr(i).ended();) {
      const auto outcome = tr(i).outcome();
      how_it_ended& d = r.done[r.pulls];
      blank(d);
      d.over = true;
      d.completed = outcome && outcome->outcome == tp::outcome::completed;
      d.confirmed = outcome && outcome->confirmed;
      d.version = outcome ? outcome->version : 0;
      d.code = outcome ? outcome->unconfirmed_because : outcome.error().code;
      d.system = outcome ? 0 : outcome.error().system;
      look_at_the_end(i, r.pulls, d);
      const auto farewell = tr(i).farewell();
      if (r.end != none) {
        scrub();
        if (farewell && !rend(i).send_control(*farewell)) return;  // there is no room before more was sent
        rend(i).end_pull(tr(i));
      }
      if (++r.pulls < 2) start_transfer(i);
    }
    if (r.pulls == 2 && r.end != none && rend(i).output_idle()) hang_up(i);
  }

  // lies

  static constexpr unsigned another_kind = 48 << 4;

  bool spoil(std::byte* d, std::size_t& n, unsigned how) const noexcept {
    if (how >= another_kind) {
      const unsigned k = how - another_kind;
      if (n < 24) return false;
      if (k < 19) return d[20] != std::byte(k) && (d[20] = std::byte(k), true);
      if (2 * n > plan_bytes) return false;
      std::memcpy(d + n, d, n);  // all of it twice
      n *= 2;
      return true;
    }
    const unsigned w = how >> 4;
    if (8 * w + 8 > n) return false;
    std::byte* const at = d + 8 * w;
    const std::uint64_t was = tp::load_le64(at);
    std::uint64_t now = was;
    switch (how & 15) {
      case 0: now += 1; break;
      case 1: now -= 1; break;
      case 2: now += std::uint64_t{1} << 32; break;
      case 3: now ^= std::uint64_t{1} << 63; break;
      case 4: now = 0; break;
      case 5: now = ~std::uint64_t{0}; break;
      case 6: now = version_[0][1]; break;
      case 7: now = names[1].value; break;
      case 8:
        if (8 * w + 16 > n) return false;
        now = tp::load_le64(at + 8);
        tp::store_le64(at + 8, was);
        break;
      default: n = 8 * w + 4; return true;  // the rest is missing
    }
    tp::store_le64(at, now);
    return now != was;
  }
  /// Takes note of what is confirmed in these bytes, which `from` sends.
  void hear(const_byte_span bytes, unsigned from) noexcept {
    each_frame(bytes, [&](const read_frame& f) {
      const unsigned who = f.m.recipient ? index_of(f.m.recipient) : from, ref = index_of(f.m.ref);
      if (f.m.kind != kind::confirm || !f.m.flag || who == none || f.m.digest != version(ref)) return;
      auto& said = state.said[who][ref];
      if (std::find(std::begin(said), std::end(said), f.m.nonce) != std::end(said)) return;
      std::move_backward(std::begin(said), std::end(said) - 1, std::end(said));
      said[0] = f.m.nonce;
    });
  }
  /// The same for a lie, and in whose names it is.
  void lies_as(const_byte_span bytes, unsigned from) noexcept {
    hear(bytes, from);
    each_frame(bytes, [&](const read_frame& f) {
      if (const unsigned x = index_of(f.m.recipient); x < 2) at(x).lied = true;
    });
  }
  std::string tell_frames(const_byte_span bytes) const { return telling_ ? tell_datagram(bytes) : std::string(); }
  void note_frames(const_byte_span bytes) {
    each_frame(bytes, [&](const read_frame& f) { asked_.emplace_back(f.bytes.begin(), f.bytes.end()); });
  }

  struct open_plan {
    owner_end::plan_type* plan = nullptr;
    unsigned end = 0;
    std::size_t bytes = 0;
  };

  alignas(64) std::byte scratch_[8'192];
  std::vector<byte_vector> asked_;  // requests of a whole run
  tp::ignore_messages ignore_;
  tp::no_owner nobody_;
  tp::buffer_pool<> no_buffers_;
  open_plan open_;  // while bytes are being sent
  static inline host_programs* waited_for_ = nullptr;
  std::string said_;
  bool recording_ = false, telling_ = false;
};

}  // namespace test::hosts
