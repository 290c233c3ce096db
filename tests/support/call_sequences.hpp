// Random sequences of everything that a program can call on an owner, beside recipients at its connections, against a
// small model of what must be true. `Api` is what is called: the owner itself, or a class on top of it.
//
// The model knows what was published in which transaction, who was told that a confirmation is recorded, and who gave
// up. The memory of an image is overwritten and freed as soon as nothing may read it any more, so that AddressSanitizer
// sees each read of it, and without it the numbers are wrong.
#pragma once

#include "models.hpp"

#include <tensorpull/chunking/policies.hpp>
#include <tensorpull/consumers/any_schema/digest.hpp>
#include <tensorpull/integrity/xxhash/policies.hpp>
#include <tensorpull/protocol/owner/owner.hpp>
#include <tensorpull/protocol/recipient/transfer.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace test::sequences {

using kind = tp::frame_kind;
using tp::status;
using tp::verdict;

/// An image of one of a few contents.
struct image {
  explicit image(std::uint64_t content) : tensors(std::move(make(content).fill(content))) {
    schema = tensors.schema();
    view = tensors.source();
    view.schema = &schema;
  }
  image(const image&) = delete;
  ~image() { schema = {}; }

  model tensors;
  tp::image_schema schema{};
  tp::source_view view{};

 private:
  static model make(std::uint64_t content) {
    model m;
    m.add("w", dtype::f32, {5 + 17 * (content % 4)}).add("b", dtype::u8, {3}).ready();
    return m;
  }
};

struct deal;
/// One publication of a reference, as a part of its transaction.
struct part {
  deal* of;
  tp::ref_id id;
  std::uint64_t content, version, bytes;
  std::unique_ptr<image> memory;  ///< none: nothing may read it any more
  bool there = true;  ///< nobody has withdrawn or replaced it
  int pins = 0;
  std::set<std::uint64_t> completed{};  ///< who has been told that its confirmation is recorded
};
/// A transaction.
struct deal {
  tp::transaction_options options{};
  std::vector<tp::recipient_id> names{};
  tp::transaction_id id{};
  std::deque<std::unique_ptr<part>> parts{};
  bool accepted = false, sealed = false, told = false, by_hand = false, unverified = false, budgets = false;
  std::set<std::uint64_t> gave_up{};
  std::function<void(const tp::settlement&)> settled{};
  std::function<void(const tp::progress_event&)> progress{};

  std::uint64_t expected() const { return names.empty() ? options.recipients : names.size(); }
  bool counts_ends() const { return expected() != 0 || options.least != 0; }
  bool counts(std::uint64_t who) const {
    if (names.empty()) return true;
    for (const auto n : names)
      if (n.value == who) return true;
    return false;
  }
  bool whole() const {
    for (const auto& p : parts)
      if (!p->there) return false;
    return !parts.empty();
  }
  /// The recipients that have completed everything, or all that is still there.
  std::set<std::uint64_t> finished(bool only_there = false) const {
    std::set<std::uint64_t> all;
    for (const auto& p : parts)
      for (const auto who : p->completed)
        if (counts(who)) all.insert(who);
    for (const auto& p : parts)
      if (p->there || !only_there) std::erase_if(all, [&](std::uint64_t who) { return !p->completed.contains(who); });
    return all;
  }
};

/// The sequence of one seed. Afterwards `failure` is empty, or says what was wrong first.
template <class Api>
class sequence {
 public:
  using owner_type = typename Api::owner_type;

  explicit sequence(std::uint64_t seed, bool trace = false) : dice_(seed), trace_(trace), api_(dice_) {
    for (auto& l : lines_) begin(l);
  }
  /// Runs it.
  void run(int steps) {
    for (int i = 0; i < steps && failure.empty(); ++i) {
      step();
      settle_down();
    }
    if (failure.empty()) finish_one();
    for (auto& l : lines_) unpin(*l);
    over_ = true;
    for (const auto& d : deals_) d->by_hand = true;
    if (failure.empty()) settle_down();
    for (auto& l : lines_) owner().forget(l->peer);
    api_.end();
    for (const auto& d : deals_)
      if (d->accepted && !d->told) fail("a transaction was never told of");
  }

  std::string failure;
  std::uint64_t completed = 0, republished = 0, replaced = 0, refused = 0, busy = 0, called_back = 0;

 private:
  using transfer = tp::transfer<tp::basic_digest<tp::xxhash_digest, 64>, tp::fixed_bytes<64>, tp::image_digest>;

  struct pull {
    explicit pull(const tp::pull_request& r, std::uint32_t first) : t(to, r, {}, first) {}
    tp::basic_digest<tp::xxhash_digest, 64> to{};
    transfer t;
    std::deque<tp::pending_reply> answers;
    std::uint64_t others = 0;  ///< how often another content had been published when it began
  };
  /// A connection.
  struct line {
    typename owner_type::peer peer{};
    tp::recipient_id who{};
    std::uint64_t key = 0;
    std::uint32_t next_id = 1;
    std::unique_ptr<pull> pulls;
    std::map<std::uint64_t, std::uint64_t> nonces;  ///< the last one that was heard, by reference
    std::optional<tp::pending_reply> held;  ///< its image is being read
  };

  owner_type& owner() { return api_.machine(); }
  bool chance(std::uint64_t one_in) { return dice_.below(one_in) == 0; }
  /// `what`: as printf takes it.
  template <class... Args>
  void say(const char* what, Args... args) {
    if (!trace_) return;
    if constexpr (sizeof...(args) == 0) std::fputs(what, stdout);
    else std::printf(what, args...);
    std::printf("\n");
  }
  void fail(std::string why) {
    if (!failure.empty()) return;
    failure = std::move(why);
    say("failed: %s", failure.c_str());
  }
  void check(bool holds, const char* why) {
    if (!holds) fail(why);
  }

  // The program that publishes.

  void step() {
    switch (dice_.below(20)) {
      case 0: return publish_alone();
      case 1: return publish_alone();
      case 2: return open_one();
      case 3: return join();
      case 4: return join();
      case 5: return publish_several();
      case 6: return seal();
      case 7: return chance(2) ? withdraw() : seal();
      case 8: return chance(3) ? advance() : again();
      default: return act(*lines_[dice_.below(lines_.size())]);
    }
  }
  static tp::ref_id id_of(std::uint64_t n) { return {1 + n, 2}; }
  tp::ref_id some_id() { return id_of(dice_.below(references)); }
  part* there(tp::ref_id id) const {
    const auto p = now_.find(id.high);
    return p != now_.end() && p->second != nullptr && p->second->there ? p->second : nullptr;
  }
  deal& new_deal() {
    deals_.push_back(std::make_unique<deal>());
    deal& d = *deals_.back();
    const std::uint64_t how = dice_.below(5);
    if (how == 0)
      for (std::uint64_t i = 0, n = 1 + dice_.below(3); i < n; ++i) d.names.push_back({11 + i});
    else if (how < 4)
      d.options.recipients = 1 +
                             static_cast<std::uint32_t>(chance(6) ? dice_.below(api_.records() + 3) : dice_.below(3));
    if (chance(4)) d.options.least = 1;
    d.options.named = d.names;
    d.options.budgets = {};
    d.options.budgets.recipient_idle = d.options.budgets.transaction_idle = {};
    d.budgets = Api::has_clock && chance(3);
    if (d.budgets) d.options.budgets = {300ms, 500ms, 3000ms, 1};
    d.options.progress_interval = 50ms;
    d.settled = [this, &d](const tp::settlement& s) { told(d, s); };
    d.progress = [this, &d](const tp::progress_event& e) { event(d, e); };
    d.options.settled = d.settled;
    d.options.progress = d.progress;
    return d;
  }
  std::unique_ptr<part> new_part(deal& d, tp::ref_id id) {
    const part* const old = there(id);
    const std::uint64_t content = old != nullptr && chance(2) ? old->content : dice_.below(6);
    auto p = std::make_unique<part>(part{&d, id, content, 0, 0, std::make_unique<image>(content), true, 0, {}});
    p->version = version_of(p->memory->tensors);
    p->bytes = p->memory->schema.image_bytes;
    return p;
  }
  /// What a publication replaces, until it is known whether it does.
  struct place {
    part* now;
    part* old;
    bool by_hand;
  };
  using places = std::vector<place>;
  /// Puts a part in its place before the owner is asked to, since callbacks may come before that returns.
  void put(deal& d, std::unique_ptr<part> p, places& all) {
    ++placing_;
    part* const old = there(p->id);
    all.push_back({p.get(), old, old != nullptr && old->of->by_hand});
    if (old != nullptr) old->there = false, old->of->by_hand = true;
    now_[p->id.high] = p.get();
    others_[p->id.high] += std::exchange(last_[p->id.high], p->version) != p->version;
    d.parts.push_back(std::move(p));
  }
  /// Whether the owner has done it.
  void is_done(deal& d, places& all, bool done) {
    for (const place& x : all) {
      --placing_;
      if (!done) {
        if (x.old != nullptr) x.old->there = true, x.old->of->by_hand = x.by_hand;
        now_[x.now->id.high] = x.old;
        last_[x.now->id.high] = 0;
      } else if (x.old != nullptr) {
        ++(x.old->version == x.now->version ? republished : replaced);
        check(x.old->pins == 0, "what was being read was replaced");
        x.old->memory.reset();
      }
    }
    if (done) return;
    ++refused;
    for (std::size_t i = 0; i < all.size(); ++i) d.parts.pop_back();
  }
  void publish_alone() {
    deal& d = new_deal();
    const tp::ref_id id = some_id();
    auto one = new_part(d, id);
    const part& p = *one;
    const part* const old = there(id);
    const bool was_read = old != nullptr && old->pins > 0;
    places all;
    put(d, std::move(one), all);
    d.accepted = d.sealed = true;
    const auto done = api_.publish(p.memory->view, p.version, id, d.options);
    say("publish %d for %d%s: %s", int(id.high), int(d.expected()), d.names.empty() ? "" : " names",
        done ? "done" : to_string(done.error().code).data());
    if (!done) {
      d.accepted = false;
      is_done(d, all, false);
      check(!d.told, "a transaction that was refused was told of");
      check(done.error().code == errc::table_full || done.error().code == errc::busy ||
                done.error().code == errc::invalid_argument,
            "a publication was refused for another reason");
      check(done.error().code != errc::busy || was_read, "nothing reads what is replaced, and it is busy");
      return;
    }
    is_done(d, all, true);
  }
  void open_one() {
    deal& d = new_deal();
    const auto id = api_.open(d.options);
    say("open for %d: %s", int(d.expected()), id ? "done" : to_string(id.error().code).data());
    if (!id) return;
    d.id = *id;
    d.accepted = true;
    open_.push_back(&d);
  }
  deal* some_open() { return open_.empty() ? nullptr : open_[dice_.below(open_.size())]; }
  void join() {
    deal* const d = some_open();
    if (d == nullptr) return open_one();
    const tp::ref_id id = some_id();
    places all;
    put(*d, new_part(*d, id), all);
    const part& p = *all[0].now;
    const auto done = api_.join(p.memory->view, p.version, id, d->id);
    say("join %d: %s", int(id.high), done ? "done" : to_string(done.error().code).data());
    is_done(*d, all, done.has_value());
  }
  void publish_several() {
    deal& d = new_deal();
    places all;
    std::vector<tp::transaction_image> images;
    for (std::uint64_t i = 0, n = 1 + dice_.below(references); i < n; ++i) {
      put(d, new_part(d, id_of((i + d.options.recipients) % references)), all);
      const part& p = *all.back().now;
      images.push_back({p.memory->view, {p.id, p.version, 0}});
    }
    d.accepted = d.sealed = true;
    const auto done = api_.publish_all(images, d.options);
    say("publish %d together for %d%s: %s", int(images.size()), int(d.expected()), d.names.empty() ? "" : " names",
        done ? "done" : to_string(done.error().code).data());
    if (!done) d.accepted = false;
    is_done(d, all, done.has_value());
  }
  void seal() {
    deal* const d = some_open();
    if (d == nullptr) return;
    std::erase(open_, d);
    d->sealed = true;
    say("seal");
    api_.seal(d->id);
  }
  void withdraw() {
    const tp::ref_id id = some_id();
    const auto done = withdraw(id);
    say("withdraw %d: %s", int(id.high), done ? "done" : to_string(done.error().code).data());
  }
  tp::result<void> withdraw(tp::ref_id id) {
    part* const p = there(id);
    const bool was_read = p != nullptr && p->pins > 0;
    if (p != nullptr && !was_read) p->there = false, p->of->by_hand = true;  // its end may be told before this returns
    const bool done = chance(4) ? api_.lose(id).has_value() : api_.withdraw(id).has_value();
    if (p == nullptr) return {};
    check(done != was_read, "what is there and not read cannot be withdrawn, or what is read can");
    if (!done) return tp::failure(errc::busy);
    check(p->pins == 0, "what was being read was taken away");
    p->memory.reset();
    return {};
  }
  void advance() {
    clock_ += std::chrono::milliseconds(chance(4) ? 400 + dice_.below(4000) : dice_.below(200));
    say("advance");
    api_.advance(clock_);
  }
  /// The same content under the same ID, for whoever asks.
  void again() {
    part* const old = there(some_id());
    if (old == nullptr || old->pins > 0) return;
    deal& d = new_deal();
    auto p = std::make_unique<part>(
        part{&d, old->id, old->content, old->version, old->bytes, std::make_unique<image>(old->content), true, 0, {}});
    const part& now = *p;
    places all;
    put(d, std::move(p), all);
    d.accepted = d.sealed = true;
    const auto done = api_.publish(now.memory->view, now.version, now.id, d.options);
    say("publish %d again: %s", int(now.id.high), done ? "done" : to_string(done.error().code).data());
    if (!done) d.accepted = false;
    is_done(d, all, done.has_value());
  }

  // What it is told.

  void event(deal& d, const tp::progress_event& e) {
    check(d.accepted && !d.told, "progress of a transaction whose end has been told");
    bool known = false;
    for (const auto& p : d.parts) known = known || (p->id == e.ref && p->bytes == e.bytes_total);
    check(known, "progress of another image");
    check(e.bytes_done <= e.bytes_total && e.tensors_total == 2 && e.tensors_done <= 2, "progress beyond the image");
    // a publication may have this told before it takes its place, and this model knows only what is so afterwards
    if (placing_ == 0) call_back();
  }
  void told(deal& d, const tp::settlement& s) {
    say("told: %s, %d references, completed %d+%d of %d", to_string(s.verdict).data(), int(s.references),
        int(s.counts.completed), int(s.counts.completed_unverified), int(s.expected));
    check(d.accepted && !d.told, "the end of a transaction was told twice");
    d.told = true;
    std::uint64_t still_there = 0;
    for (const auto& p : d.parts) {
      check(p->pins == 0, "the end was told while an image was read");
      still_there += p->there;
    }
    const std::uint64_t confirmed = s.counts.completed + s.counts.completed_unverified;
    check(s.references == d.parts.size(), "other references have settled");
    check(s.expected == d.expected(), "others were expected");
    check(s.counts.final() < 1000 && s.counts.acquired < 1000 && s.counts.unlisted < 1000, "a counter fell below 0");
    if (d.counts_ends()) check(confirmed == d.finished().size(), "other recipients have completed than were told so");
    if (!d.names.empty()) check(s.counts.final() == d.names.size(), "a recipient has not ended, or twice");
    check(d.unverified || s.counts.completed_unverified == 0, "completed without a digest, and all had one");
    const bool all = d.expected() != 0 && confirmed >= d.expected();
    check(all == (s.verdict == verdict::completed || s.verdict == verdict::completed_unverified),
          "the verdict is wrong");
    if (!all && d.options.least != 0)
      check((confirmed >= d.options.least) == (s.verdict == verdict::quorum), "no quorum");
    if (!d.by_hand) check(s.verdict != verdict::withdrawn && s.verdict != verdict::owner_lost, "nobody withdrew it");
    if (still_there > 0 && !over_ && !d.budgets) {
      std::set<std::uint64_t> ended = d.finished(true);
      for (const auto who : d.gave_up)
        if (d.counts(who)) ended.insert(who);
      check(d.expected() != 0 && ended.size() >= d.expected(), "it ended although recipients had more to do");
    }
    for (const auto& p : d.parts) p->there = false, p->memory.reset();
    call_back();
  }
  void call_back() {
    if (depth_ > 1 || over_ || !chance(3)) return;
    ++depth_;
    ++called_back;
    say("from a callback:");
    switch (dice_.below(4)) {
      case 0: withdraw(); break;
      case 1: seal(); break;
      case 2: publish_alone(); break;
      default: again();
    }
    --depth_;
  }

  // The connections.

  void begin(std::unique_ptr<line>& l) {
    l = std::make_unique<line>();
    l->who = chance(5) ? tp::recipient_id{} : tp::recipient_id{11 + dice_.below(5)};
    l->key = l->who ? l->who.value : 1'000'000 + ++strangers_;
  }
  void act(line& l) {
    if (l.held) return unpin(l);
    switch (dice_.below(l.pulls ? 24 : 10)) {
      case 0: return ask_for(l, kind::describe, some_id());
      case 1:
      case 2: return ask_for(l, kind::pull, some_id());
      case 3:
      case 4: return end(l, kind::confirm);
      case 5: return chance(4) ? end(l, kind::cancel) : ask_for(l, kind::schema, some_id());
      case 6:
        if (chance(3)) return hang_up(l);
        [[fallthrough]];
      default: return go_on(l);
    }
  }
  void hang_up(line& l) {
    for (auto& one : lines_)
      if (one.get() == &l) {
        say("hang up %d", int(l.key));
        owner().forget(l.peer);
        begin(one);
        return;
      }
  }
  /// Says something and looks at the answer as far as the model goes.
  tp::pending_reply ask(line& l, const tp::frame& m) {
    part* const about = there(m.ref);
    tp::pending_reply r;
    r.kind = kind::nothing;
    owner().handle(l.peer, m, r);
    if (r.kind == kind::refused && r.status == status::busy) ++busy;
    if ((r.kind == kind::description || r.kind == kind::chunk || r.kind == kind::schema_page) && r.nonce != 0) {
      if (about == nullptr) {
        fail("an answer about what is not published");
        return r;
      }
      serves_[r.nonce] = {about, l.key};
      l.nonces[m.ref.high] = r.nonce;
    }
    const auto serve = serves_.find(m.nonce);
    if (m.kind == kind::cancel && serve != serves_.end()) serve->second.first->of->gave_up.insert(serve->second.second);
    if (m.kind == kind::confirm) {
      say("%d confirms %d: %d", int(l.key), int(m.ref.high), int(r.status));
      if (r.kind == kind::confirmed && r.status == status::ok) {
        if (serve == serves_.end()) fail("a confirmation of what nobody was served");
        else {
          part& p = *serve->second.first;
          completed += p.completed.insert(serve->second.second).second;
          if (!m.flag) p.of->unverified = true;
          check(!m.flag || m.digest == p.version || p.of->unverified, "another digest is no completion");
        }
      } else if (serve != serves_.end() && r.status == status::digest_mismatch) {
        serve->second.first->of->gave_up.insert(serve->second.second);
      }
    }
    return r;
  }
  void ask_for(line& l, kind k, tp::ref_id id) {
    tp::frame m;
    m.kind = k, m.ref = id, m.id = l.next_id++, m.recipient = l.who;
    if (k == kind::pull) m.offset = chance(2) ? 0 : dice_.below(300), m.length = chance(2) ? 1u << 20 : 64;
    if (k == kind::schema) m.offset = dice_.below(3);
    const auto r = ask(l, m);
    say("%d asks for %d (%d): %d/%d", int(l.key), int(id.high), int(k), int(r.kind), int(r.status));
    const bool keeps = chance(4);
    (void)look_at(l, r, keeps ? &l.held : nullptr, [](const tp::frame&, const tp::source_view&) {});
  }
  /// Reads what an answer is about, as a transport does that sends it. `keep`: goes on reading. False: it is gone.
  template <class Read>
  bool look_at(line& l, const tp::pending_reply& r, std::optional<tp::pending_reply>* keep, Read read) {
    if (r.kind != kind::description && r.kind != kind::schema_page && r.kind != kind::chunk) return true;
    const tp::source_view* const image = owner().pin(r);
    if (image == nullptr) return false;
    part& p = *serves_.at(r.nonce).first;
    if (p.memory == nullptr || image->schema != &p.memory->schema) {
      fail("another image, or one that is not there any more, is read");
      return true;
    }
    ++p.pins;
    read(owner().expand(r), *image);
    if (keep != nullptr) {
      *keep = r;
      return true;
    }
    --p.pins;
    owner().unpin(r, r.kind == kind::chunk ? r.length : 0);
    (void)l;
    return true;
  }
  void unpin(line& l) {
    if (!l.held) return;
    --serves_.at(l.held->nonce).first->pins;
    owner().unpin(*l.held, l.held->kind == kind::chunk ? l.held->length : 0);
    l.held.reset();
  }
  /// A confirmation or a cancellation of a serve that this connection, or another of the same recipient, has heard of.
  void end(line& l, kind k) {
    const line& heard = *lines_[dice_.below(lines_.size())];
    const auto& from = heard.who == l.who && l.who ? heard.nonces : l.nonces;
    if (from.empty()) return;
    auto which = from.begin();
    std::advance(which, dice_.below(from.size()));
    tp::frame m;
    m.kind = k, m.ref = {which->first, 2}, m.id = l.next_id++, m.recipient = l.who, m.nonce = which->second;
    m.flag = !chance(4);
    m.digest = serves_.at(m.nonce).first->version ^ (chance(8) ? 1 : 0);
    (void)ask(l, m);
  }
  /// A recipient that keeps to the rules pulls a little further.
  void go_on(line& l) {
    if (!l.pulls) {
      tp::pull_request r;
      r.ref = some_id();
      r.window = 1 + static_cast<std::uint32_t>(dice_.below(3));
      r.recipient = l.who;
      l.pulls = std::make_unique<pull>(r, l.next_id);
      l.pulls->others = others_[r.ref.high];
    }
    pull& p = *l.pulls;
    for (std::uint64_t n = 1 + dice_.below(12); n > 0 && !p.t.ended(); --n) {
      tp::frame m;
      if (!p.answers.empty() && (p.answers.size() > 3 || chance(2))) {
        answer(l, p);
      } else if (p.t.next(m)) {
        p.answers.push_back(ask(l, m));
      } else if (!p.answers.empty()) {
        answer(l, p);
      } else if (p.t.pause().count() > 0) {
        p.t.restart();
        break;
      } else {
        return fail("a pull that waits for nothing");
      }
    }
    if (!p.t.ended()) return;
    l.next_id = p.t.next_id();
    const auto done = p.t.outcome();
    const char* how = "completed";
    if (!done) how = to_string(done.error().code).data();
    else if (done->confirmed) how = "confirmed";
    say("%d pulled %d: %s", int(l.key), int(p.t.request().ref.high), how);
    if (done) {
      check(p.to.value() == done->version, "completed, and other bytes");
    } else {
      const errc why = done.error().code;
      check(why == errc::stale_version || why == errc::withdrawn || why == errc::ended ||
                why == errc::unknown_reference || why == errc::already_final,
            to_string(why).data());
      check(why != errc::stale_version || p.others != others_[p.t.request().ref.high],
            "stale, and the content is the same");
      if (const auto bye = p.t.farewell()) (void)ask(l, *bye);
    }
    l.pulls.reset();
  }
  void answer(line& l, pull& p) {
    tp::pending_reply r = p.answers.front();
    p.answers.pop_front();
    const bool there = look_at(l, r, nullptr, [&](const tp::frame& m, const tp::source_view& image) {
      if (m.kind != kind::chunk) return p.t.on(m);
      if (!p.t.on_chunk(m)) return;
      for (std::uint64_t left = m.length; left > 0 && !p.t.ended();) {
        std::array<byte_span, 4> room;
        const tp::prepared space = p.t.prepare(room, left);
        for (std::size_t i = 0; i < space.pieces; ++i) {
          read(image, m.offset + m.length - left, room[i]);
          p.t.landed(room[i]);
          left -= room[i].size();
        }
      }
    });
    if (there && (r.kind == kind::description || r.kind == kind::schema_page || r.kind == kind::chunk)) return;
    if (!there) owner().refuse_gone(r);
    p.t.on(owner().expand(r));
  }
  static void read(const tp::source_view& image, std::uint64_t at, byte_span out) {
    std::array<std::byte, 256> slice;
    while (!out.empty()) {
      std::array<const_byte_span, 8> pieces;
      const auto g = tp::gather(image, at, out.size(), pieces, slice);
      for (std::size_t i = 0; i < g.pieces; ++i) {
        std::memcpy(out.data(), pieces[i].data(), pieces[i].size());
        at += pieces[i].size();
        out = out.subspan(pieces[i].size());
      }
    }
  }

  // What must be true between the calls.

  void settle_down() {
    api_.deliver();
    for (std::uint64_t n = 0; n < references && failure.empty(); ++n) {
      part* const p = there(id_of(n));
      if (p == nullptr || p->of->told) continue;
      const auto so_far = owner().settlement_of(p->id);
      if (so_far && so_far->verdict != verdict::open) {  // its end is told when nothing reads its images any more
        bool read = false;
        for (const auto& x : p->of->parts) read = read || x->pins > 0;
        check(read, "it has settled, and is not told of");
        continue;
      }
      typename owner_type::peer stranger{};
      tp::frame m;
      m.ref = p->id;
      tp::publication_facts facts;
      check(owner().look(stranger, m, facts) == status::ok && facts.version == p->version, "what is published is gone");
      if (!p->of->counts_ends()) continue;
      for (const auto who : p->completed)
        if (p->of->counts(who) && who < 1'000'000) {
          const auto r = owner().recipient_of(p->id, {who});
          check(r && tp::has_completed(r->state), "a recipient that has completed has not");
        }
    }
  }
  /// Whatever has happened: a transaction that is left alone, and of which everything is there, can be completed.
  void finish_one() {
    for (auto& l : lines_) unpin(*l), hang_up(*l);
    while (!open_.empty()) seal();
    settle_down();
    deal* chosen = nullptr;
    for (const auto& d : deals_)
      if (d->accepted && !d->told && d->expected() != 0 && d->whole() && d->gave_up.empty() && !d->budgets)
        chosen = d.get();
    if (chosen == nullptr || !failure.empty()) return;
    deal& d = *chosen;
    say("finish one for %d", int(d.expected()));
    std::vector<tp::recipient_id> who = d.names;
    if (who.empty()) {
      std::set<std::uint64_t> begun;
      for (const auto& p : d.parts) begun.insert(p->completed.begin(), p->completed.end());
      for (const auto one : begun) {
        if (one >= 1'000'000) return;  // nobody else can go on for it
        who.push_back({one});
      }
      while (who.size() < d.expected()) who.push_back({100 + who.size()});
      // the table has room for as many as are expected; what others have completed is remembered beside them
      std::uint64_t remembered = d.expected() * d.parts.size();
      for (auto other = who.begin() + std::ptrdiff_t(d.expected()); other != who.end(); ++other)
        for (const auto& p : d.parts) remembered += p->completed.contains(other->value);
      if (remembered > api_.records()) return;
    }
    over_ = true;  // no more callbacks that call
    for (std::uint64_t n = 0; n < references; ++n)
      if (part* const p = there(id_of(n)); p != nullptr && p->of != &d) (void)withdraw(p->id);
    settle_down();
    for (const auto one : who) {
      line l;
      l.who = one;
      l.key = one.value;
      for (std::size_t i = 0; i < d.parts.size() && !d.told; ++i) {
        if (d.parts[i]->completed.contains(l.key)) continue;
        tp::frame m;
        m.kind = kind::describe, m.ref = d.parts[i]->id, m.recipient = one, m.id = l.next_id++;
        check(ask(l, m).kind == kind::description, "a recipient that is expected is refused");
        m.kind = kind::pull, m.length = 1u << 20;
        const auto r = ask(l, m);
        m.kind = kind::confirm, m.nonce = r.nonce, m.digest = d.parts[i]->version, m.flag = true;
        check(ask(l, m).status == status::ok, "the confirmation of a recipient that is expected is refused");
        settle_down();
      }
      owner().forget(l.peer);
    }
    check(d.told, "all have completed, and it has not ended");
  }

  static constexpr std::uint64_t references = 3;
  generator dice_;
  bool trace_;
  std::vector<std::unique_ptr<deal>> deals_;  // before the owner, which calls back to its end
  std::vector<deal*> open_;
  std::map<std::uint64_t, part*> now_;  // by reference
  std::map<std::uint64_t, std::uint64_t> others_, last_;  // how often another content was published, and which last
  std::map<std::uint64_t, std::pair<part*, std::uint64_t>> serves_;  // by nonce: of what, for whom
  std::array<std::unique_ptr<line>, 5> lines_;
  std::chrono::milliseconds clock_{1000};
  std::uint64_t strangers_ = 0;
  int depth_ = 0, placing_ = 0;  // publications that have not returned
  bool over_ = false;
  Api api_;
};

/// Runs as many seeds as the environment asks for, of `count` usually. The report of the first that fails is printed.
template <class Api>
bool run(std::uint64_t first, std::uint64_t count, bool trace, bool fills_tables = true) {
  std::uint64_t completed = 0, republished = 0, replaced = 0, refused = 0, busy = 0, called_back = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const auto one = std::make_unique<sequence<Api>>(seed, trace);
    one->run(120);
    if (!one->failure.empty()) {
      ADD_FAILURE() << "seed " << seed << ": " << one->failure << " (TENSORPULL_SIM_FIRST=" << seed
                    << " TENSORPULL_SIM_SEEDS=1 prints its steps)";
      return false;
    }
    completed += one->completed, republished += one->republished, replaced += one->replaced;
    refused += one->refused, busy += one->busy, called_back += one->called_back;
  }
  if (count < 100) return true;
  EXPECT_GT(completed, count);
  EXPECT_GT(republished, count);
  EXPECT_GT(replaced, count);
  EXPECT_GT(refused, count);
  EXPECT_EQ(busy > count / 10, fills_tables);
  EXPECT_GT(called_back, count / 10);
  return true;
}

}  // namespace test::sequences
