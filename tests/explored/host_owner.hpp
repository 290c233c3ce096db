// The owner's program of hosts, whatever carries its frames, and the lies that peers may tell.
#pragma once

#include "explored/frames_in_words.hpp"
#include "explored/host_rules.hpp"

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/splitmix64.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace test::hosts {

class host_owner : public host_rules {
 public:
  host_owner(const setting& s, const faults& f) : host_rules(s, f) {
    waited_for_ = this;
    told_lock::relaxed = [] { waited_for_->relax(); };
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
    if (setting_.joins) options.named = std::span(names).first(2);  // as long as it is open
    if (setting_.counts == counting::by_number) options.recipients = 2;
    options.budgets = {std::chrono::milliseconds(acquire_ms), std::chrono::milliseconds(idle_ms),
                       std::chrono::milliseconds(transaction_idle_ms), 1};
    const auto id = own().open_transaction(options);
    if (!id) return;
    const bool filled = fill(*id);
    if (!filled) return own().cancel(*id);
    if (!setting_.joins) own().seal(*id);
    if (id->number > most_transactions) return must(false, "the world has no room for a transaction");
    one_transaction& t = state.transactions[id->number - 1];
    t.there = true, t.open = setting_.joins;
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
    if (setting_.joins) of = 1;
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
  /// The second reference joins the first, and no other will.
  void join() noexcept {
    const tp::transaction_id in = own().transaction_of(refs[0]);
    if (!in || in.number > most_transactions) return;
    one_transaction& t = state.transactions[in.number - 1];
    scrub();
    state.published[1] = own().publish(image(1), version(1), true, refs[1], in).has_value();
    must(state.published[1], "a reference cannot join (26)");
    own().seal(in);
    t.open = false, t.of |= 2, t.moved_at = state.now;
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
  template <class Plan>
  static std::size_t flat(const Plan& plan, byte_span to) noexcept {
    std::size_t n = 0;
    for (std::size_t i = 0; i < plan.span_count; n += plan.spans[i++].size())
      std::memcpy(to.data() + n, plan.spans[i].data(), plan.spans[i].size());
    return n;
  }

  // its connections

  /// Has an owner's end hear something of `from`. Whose connection it is shows, and that it changes nothing for others.
  template <class Hear>
  void heard_by(unsigned e, unsigned from, Hear hear) noexcept {
    std::array<tp::recipient_record, most_records> was;
    const auto records = tables().records;
    std::copy(records.begin(), records.end(), was.begin());
    scrub();
    hear();
    for (const tp::recipient_record& r : records) {
      if (!counts(r) || r.connection == 0 || state.connection[e] == r.connection) continue;
      bool known = false;
      for (const std::uint32_t number : state.connection) known = known || number == r.connection;
      if (known) continue;
      must(state.connection[e] == 0, "a connection has two numbers");
      state.connection[e] = r.connection;
    }
    if (setting_.counts != counting::named) return;
    for (std::size_t k = 0; k < was.size(); ++k) {
      const unsigned x = index_of(was[k].who);
      if (x >= 2 || x == from || at(x).lied) continue;
      const tp::recipient_record &a = was[k], &b = records[k];
      if (!is_final(a.state) && is_final(b.state) && is_not_awaited(b, x)) continue;
      must(a.who == b.who && a.ref == b.ref && a.version == b.version && a.generation == b.generation &&
               a.state == b.state && a.nonce == b.nonce && a.serving == b.serving && a.at_end == b.at_end &&
               a.bytes == b.bytes && a.connection == b.connection && a.expected == b.expected && a.subset == b.subset &&
               a.reason == b.reason && a.marked_at == b.marked_at,
           "what one peer sends changes what is known of another (17, 24, 33)");
    }
  }
  /// An owner's end is gone.
  void gone(unsigned e) noexcept {
    blank(state.ends_at[e]);
    const std::uint32_t number = std::exchange(state.connection[e], 0);
    state.of[e] = none;
    for (const tp::recipient_record& r : tables().records)
      must(!counts(r) || number == 0 || r.connection != number, "a connection is gone, and a record has it (33)");
  }
  /// An owner's end has sent what it had, before which the owner had sent `before` bytes.
  void has_sent(unsigned of, std::uint64_t before) noexcept {
    if (of >= 2 || own().totals().bytes_sent < before + 2 * idle_ms / 1000) return;
    state.payload_at[of] = state.now;
    for (auto& t : state.transactions)
      if (t.there && at(of).pulls < 2 && (t.of >> at(of).pulls & 1) != 0 && !t.by_hand && !t.told)
        t.moved_at = state.now;
  }
  /// Ends the plan with what is being sent; false: there is none.
  virtual bool finish_plan() noexcept = 0;
  /// Somebody waits until nothing reads an image; other threads look what has settled, and have sent it.
  void relax() noexcept {
    deliver();
    if (finish_plan()) return;
    must(false, "somebody waits for bytes that nobody sends (3)");
    for (tp::publication& p : tables().slots) p.pins = 0;
  }

  // its recipients

  void begin_machines() {
    std::memset(static_cast<void*>(&state), 0, sizeof state);
    wrong = nullptr;
    state.left = allowed_;
    state.now = 1'000;
    state.stranger_end = none;
    for (auto& of : state.of) of = none;
    for (unsigned i = 0; i < 2; ++i) at(i).end = at(i).ghost = none;
    new (blank(state.pool_at)) pool({state.buffer, 640 * setting_.buffers}, 640);
    start_owner();
  }
  tp::pull_request request_of(unsigned i) const noexcept {
    const unsigned ref = state_.recipients[i].pulls;
    tp::pull_request request;
    request.ref = refs[ref];
    if (setting_.pinned) request.version = version_[ref][0];
    request.recipient = names[i];
    if (setting_.by_name) request.subset = tensor_name;
    return request;
  }
  /// How a transfer has ended.
  template <class Transfer>
  void note_end(unsigned i, const Transfer& t) noexcept {
    const auto outcome = t.outcome();
    how_it_ended& d = at(i).done[at(i).pulls];
    blank(d);
    d.over = true;
    d.completed = outcome && outcome->outcome == tp::outcome::completed;
    d.confirmed = outcome && outcome->confirmed;
    d.version = outcome ? outcome->version : 0;
    d.code = outcome ? outcome->unconfirmed_because : outcome.error().code;
    d.system = outcome ? 0 : outcome.error().system;
    look_at_the_end(i, at(i).pulls, d);
  }
  std::string tell_end() {
    std::string text = "the end:";
    for (unsigned i = 0; i < 2; ++i)
      for (const how_it_ended& d : at(i).done)
        text += std::string(d.completed ? " completed" : " not completed") + (d.confirmed ? ", confirmed" : "") + " (" +
                std::string(code_name(d.code)) + ");";
    return text;
  }

  // lies

  /// A request of a whole run as a stranger says it: in the same name, in its own, or in none.
  byte_vector strange_frame(unsigned k, unsigned how) const {
    if (how == 0) return asked_[k];
    tp::frame m = first_frame(asked_[k]).m;
    m.recipient = how == 1 ? names[2] : tp::recipient_id{};
    byte_vector d(256);
    d.resize(*framing::encode(m, d));
    return d;
  }
  /// Adds what else could be said instead of a confirmation.
  void add_other_confirmations() {
    for (std::size_t k = 0, n = asked_.size(); k < n; ++k) {
      tp::frame m = first_frame(asked_[k]).m;
      if (m.kind != kind::confirm) continue;
      const auto also = [&] {
        byte_vector d(256);
        d.resize(*framing::encode(m, d));
        asked_.push_back(std::move(d));
      };
      m.flag = false, also();
      m.kind = kind::cancel;
      for (const tp::status s :
           {tp::status::ok, tp::status::digest_mismatch, tp::status::looked, tp::status::unsupported})
        m.status = s, also();
    }
  }

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
      if (f.m.kind != kind::confirm || !f.m.flag || who == none || ref > 1 ||
          f.m.digest != digest_of(ref, version(ref)))
        return;
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

  alignas(64) std::byte scratch_[8'192];
  std::vector<byte_vector> asked_;  // requests of a whole run
  tp::ignore_messages ignore_;
  tp::no_owner nobody_;
  static inline host_owner* waited_for_ = nullptr;
  std::string said_;
  bool recording_ = false, telling_ = false;
};

}  // namespace test::hosts
