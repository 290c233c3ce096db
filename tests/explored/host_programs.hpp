// The programs of hosts: the owner's, the recipients', and the connections between them, over which bytes move when the
// world wants it.
#pragma once

#include "explored/host_owner.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace test::hosts {

class host_programs : public host_owner {
 public:
  using host_owner::host_owner;
  void begin() {
    begin_machines();
    for (unsigned i = 0; i < 2; ++i) {
      start_transfer(i);
      connect(i);
    }
    look();
  }

 protected:
  void look() {
    must(!told_lock::wrong, "a lock is taken twice");
    deliver();
    for (unsigned i = 0; i < 2; ++i) look_at_recipient(i, tr(i));
    look_at_owner();
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
    gone(e);
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
  /// What an owner's end has to say is taken, and nobody hears it.
  void into_nothing(unsigned e) noexcept {
    owner_end::plan_type plan;
    tp::no_transfer idle;
    scrub();
    if (end(e).plan_write(idle, plan, scratch_, plan_bytes) && plan.bytes > 0)
      (void)end(e).written(idle, plan, plan.bytes);
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
    tp::no_transfer idle;
    tp::result<std::size_t> took = 0;
    heard_by(e, from, [&] { took = give(end(e), idle, bytes); });
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
    (void)finish_plan();
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
  bool finish_plan() noexcept override {
    if (open_.plan == nullptr) return false;
    tp::no_transfer idle;
    const std::uint64_t before = own().totals().bytes_sent;
    scrub();
    (void)end(open_.end).written(idle, *std::exchange(open_.plan, nullptr), open_.bytes);
    has_sent(state.of[open_.end], before);
    return true;
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
    const tp::pull_request request = request_of(i);
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
      note_end(i, tr(i));
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

  /// Notes what a recipient asks for.
  void look_at_requests(unsigned i, const_byte_span bytes) noexcept {
    one_recipient& r = at(i);
    each_frame(bytes, [&](const read_frame& f) {
      const tp::frame& m = f.m;
      if (r.pulls == 2 || (m.kind != kind::pull && m.kind != kind::confirm) || m.ref != refs[r.pulls]) return;
      must(m.version == 0 || landing(i).version == 0 || m.version == landing(i).version,
           "it goes on with another version (35)");
      if (m.kind != kind::pull || r.asked[0].id == m.id) return;
      std::move_backward(std::begin(r.asked), std::end(r.asked) - 1, std::end(r.asked));
      r.asked[0] = {m.offset, m.id, m.length};
    });
  }
  /// Where a recipient may be once these bytes have arrived, the first of which begins a frame: behind what answers its
  /// requests.
  std::uint64_t may_land(unsigned i, const_byte_span bytes) noexcept {
    one_recipient& r = at(i);
    std::uint64_t reached = tr(i).landed_bytes(), version = landing(i).version;
    using prefix = tp::detail::payload_prefix;
    while (bytes.size() >= 24) {
      const auto size = tp::detail::measure_frame(bytes, ~std::size_t{0}, 1);
      const std::size_t whole = size && *size ? std::min(**size, bytes.size()) : bytes.size();
      const const_byte_span one = bytes.first(whole);
      bytes = bytes.subspan(whole);
      if (prefix::announces_payload(one)) {
        if (one.size() < prefix::bytes) break;
        const auto m = prefix::read(one.first<prefix::bytes>());
        if (!m || m->ref != refs[r.pulls] || m->version != version || m->nonce != r.nonce || m->offset != reached)
          continue;
        bool asked = false;
        for (const auto& q : r.asked) asked = asked || (q.id == m->id && q.offset == reached && m->length <= q.length);
        if (asked) reached += m->length;
      } else if (const read_frame f = first_frame(one); f.m.kind == kind::description && f.m.ref == refs[r.pulls]) {
        r.nonce = f.m.nonce;
        if (version == 0) version = f.m.version;
      }
    }
    return reached;
  }

  struct open_plan {
    owner_end::plan_type* plan = nullptr;
    unsigned end = 0;
    std::size_t bytes = 0;
  };

  tp::buffer_pool<> no_buffers_;
  open_plan open_;  // while bytes are being sent
};

}  // namespace test::hosts
