// The recipient and the owner of small machines as a world to explore: datagrams on their way, which may arrive in any
// order, the faults of a link and of machines, and frames that lie. What must hold is looked at after each step; a
// number in a text is that of the rule in protocol/reference.md.
#pragma once

#include "explored/exploration.hpp"
#include "explored/frames_in_words.hpp"
#include "support/words.hpp"

#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/embedded/landing.hpp>
#include <tensorpull/embedded/owner.hpp>
#include <tensorpull/embedded/recipient.hpp>

#include <array>
#include <map>
#include <new>
#include <span>

namespace test {

struct tiny_model {
  float w[20];
};

}  // namespace test

template <>
inline constexpr auto tensorpull::members_of<test::tiny_model> = tensorpull::members(
    tensorpull::member{"w", &test::tiny_model::w});

namespace test {

/// Faults, how many of each are still to come.
struct faults {
  std::uint8_t losses = 0, doubles = 0, ticks = 0, jumps = 0;
  std::uint8_t recipient_restarts = 0, owner_restarts = 0, power_cuts = 0;
  std::uint8_t other_models = 0, same_models = 0, withdrawals = 0, busy = 0;
  std::uint8_t lies = 0;
  std::uint8_t none[4] = {};
};

/// `Setting`: chunk_bytes, datagram_bytes (the longest of the owner), landing and target, pull (what is pulled),
/// perhaps used_flash.
template <class Setting>
class small_world {
  using kind = tp::frame_kind;
  using recipient_state = tp::recipient_state;
  using image = tp::embedded_image<tiny_model>;
  using landing = typename Setting::template landing<image>;
  using target = typename Setting::target;
  using recipient = tp::embedded_recipient<landing, Setting::chunk_bytes>;
  using owner = tp::embedded_owner<tiny_model, Setting::chunk_bytes, tp::detail::embedded::default_hash<image>,
                                   tp::detail::no_hash, Setting::datagram_bytes>;
  static constexpr bool in_pieces = Setting::datagram_bytes < tp::detail::short_frame_bytes;
  static constexpr bool lasts = tp::lasting_landing<landing>;
  static constexpr std::uint32_t on_the_way = 3;  // datagrams in each direction; one more is lost
  static constexpr std::uint32_t second = 1'000;
  static constexpr std::uint32_t jumps[] = {1u << 29, 5 * second, 0u - 5 * second};
  static constexpr std::uint32_t reason = 21;  // of a withdrawal
  static constexpr std::size_t most_bytes = std::max(owner::answer_bytes, recipient::max_in);
  static constexpr tp::ref_id ref{1, 2};
  static constexpr std::uint64_t who = 7, stranger = 8;

  enum class published : std::uint8_t {
    yes,
    busy,
    withdrawn
  };

 public:
  explicit small_world(const faults& f) : allowed_(f) {
    for (int v = 0; v < 2; ++v)
      for (int i = 0; i < 20; ++i) model_[v].w[i] = static_cast<float>(1 + 100 * v + i);
    for (int v = 0; v < 2; ++v) {
      image_[v].assign(image::header.begin(), image::header.end());
      const auto data = std::as_bytes(std::span(model_[v].w));
      image_[v].insert(image_[v].end(), data.begin(), data.end());
      tp::xxh3_64 h;
      h.update(std::span<const std::byte>(image_[v]));
      version_[v] = h.digest();
    }
    datagrams_.emplace_back();  // 0 is none
    record(1, ref, who);
    record(0, ref, stranger);
    record(0, {1, 3}, who);
    used_ = state.to;
    allowed_ = f;
  }

  struct machines {
    alignas(16) std::byte landing_at[(sizeof(landing) + 15) / 16 * 16];
    alignas(16) std::byte recipient_at[(sizeof(recipient) + 15) / 16 * 16];
    alignas(16) std::byte owner_at[(sizeof(owner) + 15) / 16 * 16];
    target to;
    std::uint32_t up[on_the_way], down[on_the_way];  // numbers of datagrams, 0: none
    // what the world knows of them
    std::uint64_t described;  // the nonce of the serve that the recipient was told of
    std::uint64_t pinned;  // the version that it pulls; 0: any
    std::uint64_t serve, served;  // the nonce of the owner's serve, and whose it is
    std::uint64_t kept_of;  // the version of which an earlier recipient had `kept` bytes
    std::uint32_t now;
    std::uint32_t request;  // the datagram of the recipient that is not answered
    std::uint32_t moved_at, not_before;  // when the recipient was answered, and until when it was put off
    std::uint32_t heard_at;  // when the owner answered its recipient
    std::uint32_t landed, kept;
    std::uint32_t newest;  // the id of the request that changed the owner last
    std::uint8_t recipients, owners;  // how many there were
    std::uint8_t which;  // of the models
    published is;
    std::uint8_t confirmed_with, recorded;  // bit v: a recipient confirmed while it held model v; the owner has it
    bool served_to_the_end, lied, jumped, finished, other, rotten;
    bool told;  // how it ends, by an answer with `status` and `number`
    tp::status status, farewell;  // of its farewell; busy: it has sent none
    std::uint32_t number;
    alignas(8) faults left;
  };
  static_assert(offsetof(machines, left) % 8 == 0 && sizeof(machines) % 8 == 0);
  machines& state = state_;
  const char* wrong = nullptr;

  void begin() { begin(0, ref, who); }

  fingerprint print() noexcept { return fingerprint().add(&state, sizeof state); }
  fingerprint rest_print() noexcept { return fingerprint().add(&state, offsetof(machines, left)); }

  void steps(std::vector<std::uint32_t>& to) {
    const auto can = [&](step s, unsigned i = 0, unsigned how = 0) { to.push_back(s << 24 | i << 16 | how); };
    const faults& f = state.left;
    const bool over = rec().ended();
    for (const bool down : {false, true}) {
      const std::uint32_t* const line = down ? state.down : state.up;
      const unsigned d = down ? 8 : 0;
      for (unsigned i = 0; i < on_the_way && line[i] != 0; ++i) {
        can(deliver, d + i);
        if (f.losses > 0) can(lose, d + i);
        if (f.doubles > 0 && line[on_the_way - 1] == 0) can(twice, d + i);
        if (lasts && down && f.power_cuts > 0)
          for (unsigned op = 0; op < 6; ++op)
            for (unsigned how = 0; how < 4; ++how) can(cut, d + i, op << 4 | how);
      }
    }
    for (unsigned i = 0; lasts && f.power_cuts > 0 && i < 4; ++i) can(rot, i);
    if (f.ticks > 0 && !over) can(tick);
    if (f.jumps > 0 && !over)
      for (unsigned how = 0; how < std::size(jumps); ++how) can(jump, how);
    if (f.recipient_restarts > 0) can(restart_recipient);
    if (f.owner_restarts > 0) can(restart_owner);
    if (f.other_models > 0) can(publish_other);
    if (f.same_models > 0) can(publish_same);
    if (f.withdrawals > 0 && state.is == published::yes) can(withdraw);
    if (f.busy > 0 && state.is == published::yes) can(be_busy);
    if (f.lies == 0) return;
    for (const bool down : {false, true}) {
      const std::uint32_t* const line = down ? state.down : state.up;
      const unsigned d = down ? 8 : 0;
      for (unsigned i = 0; i < on_the_way && line[i] != 0; ++i) {
        can(reflect, d + i);
        const std::size_t words = datagrams_[line[i]].size() / 8;
        const bool payload = kind_of(line[i]) == kind::chunk || kind_of(line[i]) == kind::piece;
        for (unsigned w = 0; w < words && w < (payload ? 11u : 32u); ++w)
          for (unsigned how = 0; how < 16; ++how) can(lie, d + i, w << 4 | how);
        for (unsigned k = 0; k < 18; ++k) can(lie, d + i, another_kind + k);
        for (unsigned k = 0; k < 8; ++k) can(lie, d + i, another_length + k);
      }
      for (unsigned i = 0; i < (down ? told_ : asked_).size(); ++i) {
        can(strange, d, i);
        if (down && state.request != 0) can(strange, d + 1, i);
      }
    }
    for (unsigned s = 0; s < 18 && state.request != 0; ++s) can(refuse, 0, s);
  }

  bool take(std::uint32_t s) {
    const unsigned i = s >> 16 & 7, how = s & 0xffff;
    const bool down = (s >> 19 & 1) != 0;
    std::uint32_t* const line = down ? state.down : state.up;
    faults& f = state.left;
    switch (static_cast<step>(s >> 24)) {
      case deliver: pass(down, dequeue<on_the_way>(line, i)); break;
      case lose: --f.losses, (void)dequeue<on_the_way>(line, i); break;
      case twice: --f.doubles, enqueue<on_the_way>(line, line[i]); break;
      case tick: --f.ticks, pass_time(second); break;
      case jump:
        --f.jumps, state.jumped = true;
        pass_time(jumps[i]);
        break;
      case restart_recipient: --f.recipient_restarts, start_recipient(), poll(); break;
      case restart_owner: --f.owner_restarts, start_owner(); break;
      case publish_other: --f.other_models, state.which ^= 1, state.other = true, publish(); break;
      case publish_same: --f.same_models, publish(); break;
      case withdraw: --f.withdrawals, state.is = published::withdrawn, own().withdraw(reason); break;
      case be_busy: --f.busy, state.is = published::busy, own().busy(3 * second); break;
      case cut: --f.power_cuts; return cut_off(dequeue<on_the_way>(line, i), how);
      case reflect: --f.lies; return lies(!down, datagrams_[line[i]]);
      case lie: {
        --f.lies;
        byte_vector spoilt = datagrams_[line[i]];
        return spoil(spoilt, how) && lies(down, spoilt);
      }
      case strange: {
        --f.lies;
        byte_vector other = datagrams_[(down ? told_ : asked_)[how]];
        if (i == 1) std::memcpy(other.data() + 16, datagrams_[state.request].data() + 16, 4);  // its id
        return lies(down, other);
      }
      case refuse: --f.lies; return lies(true, refusal(how));
      case rot:
        --f.power_cuts;
        if constexpr (lasts) state.to.bytes[i * target::page_bytes] ^= std::byte{1};
        start_recipient(), state.kept = 0, state.rotten = true, poll();
        break;
    }
    look();
    return true;
  }

  /// All that is on its way arrives in order, and time passes if nothing is.
  bool rest() {
    if (rec().ended()) return false;
    if (state.is == published::busy) publish();
    else if (state.up[0] != 0) pass(false, dequeue<on_the_way>(state.up, 0));
    else if (state.down[0] != 0) pass(true, dequeue<on_the_way>(state.down, 0));
    else pass_time(second);
    look();
    return true;
  }
  void at_the_end() {
    if (state.lied || state.jumped || state.is == published::withdrawn) return;
    const auto done = rec().outcome();
    if (state.pinned != version_[state.which] && (state.pinned != 0 || state.other)) return;
    const errc why = done ? done->unconfirmed_because : done.error().code;
    if (why == errc::stale_version && state.other) return;
    // an earlier recipient of this number had confirmed, and what it held is not here
    if ((why == errc::ended || (why == errc::already_final && !(lasts && !state.rotten))) &&
        (state.recorded >> state.which & 1) != 0)
      return;
    if (!done || done->outcome != tp::outcome::completed) wrong = "without another fault it does not complete";
    else if (!done->confirmed) wrong = "without another fault it is not confirmed (30)";
    else if ((state.recorded >> state.which & 1) == 0) wrong = "confirmed, and the owner has not recorded it (11)";
  }

  std::string tell(std::uint32_t s) {
    const unsigned i = s >> 16 & 7, how = s & 0xffff;
    const bool down = (s >> 19 & 1) != 0;
    const std::uint32_t* const line = down ? state.down : state.up;
    const auto it = [&] { return tell_datagram(datagrams_[line[i]]); };
    const std::string to = down ? "to the recipient: " : "to the owner: ",
                      back = down ? "to the owner: " : "to the recipient: ";
    switch (static_cast<step>(s >> 24)) {
      case deliver: return to + it();
      case lose: return "lost: " + it();
      case twice: return "doubled: " + it();
      case tick: return "a second passes";
      case jump: return "the clock jumps by " + std::to_string(static_cast<std::int32_t>(jumps[i])) + " ms";
      case restart_recipient: return "the recipient starts again";
      case restart_owner: return "the owner starts again";
      case publish_other: return "the other model is published";
      case publish_same: return "the same model is published again";
      case withdraw: return "the owner withdraws";
      case be_busy: return "the owner is busy";
      case cut:
        return "the power goes at operation " + std::to_string(how >> 4) + ", way " + std::to_string(how & 15) + ", " +
               to + it();
      case reflect: return "reflected " + back + it();
      case lie: {
        byte_vector spoilt = datagrams_[line[i]];
        spoil(spoilt, how);
        return "spoilt (word " + std::to_string(how >> 4) + ", way " + std::to_string(how & 15) + ") " + to + it() +
               " as " + tell_datagram(spoilt);
      }
      case strange:
        return "of another transfer " + to + tell_datagram(datagrams_[(down ? told_ : asked_)[how]]) +
               (i == 1 ? " with our id" : "");
      case refuse: return "to the recipient, of nobody: " + tell_datagram(refusal(how));
      case rot: return "the power goes, and a byte of page " + std::to_string(i) + " changes";
    }
    return "?";
  }
  std::string tell_rest() {
    if (rec().ended()) {
      const auto done = rec().outcome();
      return done ? std::string("it has ended, ") + (done->confirmed ? "confirmed" : "not confirmed")
                  : "it has ended with " + std::string(code_name(done.error().code));
    }
    if (state.is == published::busy) return "the owner publishes";
    if (state.up[0] != 0) return tell(deliver << 24);
    if (state.down[0] != 0) return tell(deliver << 24 | 8u << 16);
    return "a second passes";
  }

 private:
  enum step : std::uint32_t {
    deliver,
    lose,
    twice,
    tick,
    jump,
    restart_recipient,
    restart_owner,
    publish_other,
    publish_same,
    withdraw,
    be_busy,
    cut,
    reflect,
    lie,
    strange,
    refuse,
    rot
  };
  static constexpr unsigned another_kind = 32 << 4, another_length = another_kind + 32;

  recipient& rec() noexcept { return *std::launder(reinterpret_cast<recipient*>(state.recipient_at)); }
  landing& land() noexcept { return *std::launder(reinterpret_cast<landing*>(state.landing_at)); }
  owner& own() noexcept { return *std::launder(reinterpret_cast<owner*>(state.owner_at)); }

  // beginnings

  void begin(std::uint8_t which, tp::ref_id about, std::uint64_t of) {
    std::memset(static_cast<void*>(&state), 0, sizeof state);
    ref_ = about, who_ = of;
    state.left = allowed_;
    state.now = 0u - 2 * second;  // it wraps on the way
    state.which = which;
    wrong = nullptr;
    if constexpr (lasts) state.to.fill();
    if constexpr (requires { Setting::used_flash; })
      if (ref_ == ref) state.to = used_, state.kept = image::image_bytes, state.kept_of = version_[0];
    start_owner();
    start_recipient();
    poll();
  }
  /// A whole transfer without a fault, of which the frames are kept.
  void record(std::uint8_t which, tp::ref_id about, std::uint64_t of) {
    allowed_ = {};
    begin(which, about, of);
    for (bool more = true; more;) {
      for (const std::uint32_t d : state.up)
        if (d != 0 && std::find(asked_.begin(), asked_.end(), d) == asked_.end()) asked_.push_back(d);
      for (const std::uint32_t d : state.down)
        if (d != 0 && std::find(told_.begin(), told_.end(), d) == told_.end()) told_.push_back(d);
      more = rest();
    }
  }
  /// Memory that an object is about to be made in; what it leaves out is 0 in each world.
  template <class At>
  static void blank(At& at) noexcept {
    std::memset(&at, 0, sizeof at);
    asm volatile("" ::"r"(&at) : "memory");  // else the compiler takes the zeros for unused
  }
  void start_recipient() {
    if (lasts && state.pinned != 0) {
      state.kept = state.kept_of == state.pinned ? std::max(state.kept, state.landed) : state.landed;
      state.kept_of = state.pinned;
    }
    blank(state.recipient_at), blank(state.landing_at);
    if constexpr (!lasts) blank(state.to);
    ::new (state.landing_at) landing(state.to);
    tp::embedded_pull pull = Setting::pull(version_[0]);
    pull.ref = ref_;
    if (pull.recipient) pull.recipient = {who_};
    pull.timeout_ms = 8 * second, pull.retry_ms = second;
    const std::uint64_t n = ++state.recipients;
    ::new (state.recipient_at) recipient(land(), pull, (who_ << 60) + (n << 56) + n);
    state.described = state.request = state.landed = 0;
    state.pinned = pull.version;
    state.finished = state.told = false;
    state.status = {}, state.farewell = tp::status::busy, state.number = 0;
    state.moved_at = state.not_before = state.now;
  }
  void start_owner() {
    blank(state.owner_at);
    ::new (state.owner_at) owner(3 * second);
    ++state.owners;
    publish();
  }
  void publish() {
    own().publish(model_[state.which], ref_, nonce(state.owners++));
    state.is = published::yes;
    state.serve = state.served = state.newest = 0;
    state.served_to_the_end = false;
  }
  std::uint64_t nonce(unsigned n) const noexcept { return 0x10001 * (n + 1) + (who_ << 40) + (ref_.low << 50); }

  // the link

  std::uint32_t number_of(const_byte_span d) {
    const auto [at, is_new] = numbers_.try_emplace(byte_vector(d.begin(), d.end()),
                                                   static_cast<std::uint32_t>(datagrams_.size()));
    if (is_new) datagrams_.push_back(at->first);
    return at->second;
  }
  kind kind_of(std::uint32_t d) const noexcept { return tp::detail::kind_in(datagrams_[d].data()); }
  /// Any of them may be the next.
  void order() noexcept {
    for (auto* line : {state.up, state.down})
      std::sort(line, line + on_the_way, [](auto a, auto b) { return a - 1 < b - 1; });
  }
  void pass(bool down, std::uint32_t d) { down ? to_recipient(datagrams_[d]) : to_owner(datagrams_[d]); }
  void pass_time(std::uint32_t ms) {
    state.now += ms;
    poll();
  }
  /// A datagram that nobody has sent so.
  bool lies(bool down, const byte_vector& d) {
    const bool lied = std::exchange(state.lied, true);
    down ? to_recipient(d) : to_owner(d);
    state.lied = lied || changed_;
    look();
    return true;
  }
  bool cut_off(std::uint32_t d, unsigned how) {
    if constexpr (lasts) {
      state.to.cut_at(how >> 4, how & 15);
      in_a_cut_ = true;
      to_recipient(datagrams_[d]);
      in_a_cut_ = false;
      if (state.to.back_on()) {
        start_recipient();
        poll();
        look();
        return true;
      }
    }
    (void)d, (void)how;
    return false;  // it does less
  }

  // lies

  /// An answer with a status to the request that is on its way.
  byte_vector refusal(unsigned status) const {
    tp::frame m = first_frame(datagrams_[state.request]).m;
    m.kind = m.kind == kind::confirm && status % 2 == 1 ? kind::confirmed : kind::refused;
    m.status = static_cast<tp::status>(status), m.delay_ms = 77;
    byte_vector d(80);
    (void)tp::word_framing::encode(m, d);
    return d;
  }
  bool spoil(byte_vector& d, unsigned how) const {
    const byte_vector was = d;
    if (how >= another_length) {
      const std::size_t lengths[] = {d.size() - 8, d.size() - 1, d.size() / 2, 80, 79, 8};
      if (how - another_length < std::size(lengths)) {
        if (lengths[how - another_length] >= d.size()) return false;
        d.resize(lengths[how - another_length]);
      } else if (how == another_length + 6) {
        d.insert(d.end(), was.begin(), was.end());
        return d.size() <= most_bytes;
      } else {
        d.resize(d.size() + 8);
        d[4] = static_cast<std::byte>(d.size() / 8 - 1);
      }
      return true;
    }
    if (how >= another_kind) {
      d[20] = static_cast<std::byte>(how - another_kind);
      return d != was;
    }
    std::byte* const at = d.data() + 8 * (how >> 4);
    std::uint64_t w = tp::load_le64(at);
    switch (how & 15) {
      case 0: w += 1; break;
      case 1: w -= 1; break;
      case 2: w += std::uint64_t{1} << 16; break;
      case 3: w += std::uint64_t{1} << 32; break;
      case 4: w += std::uint64_t{1} << 48; break;
      case 5: w ^= std::uint64_t{1} << 63; break;
      case 6: w = 0; break;
      case 7: w = ~std::uint64_t{0}; break;
      case 8: w = version_[0]; break;
      case 9: w = version_[1]; break;
      case 10: w = stranger; break;
      case 11: w = who_; break;
      case 12: w = how >> 4 == 9 ? w + (std::uint64_t{1} << 35) : image::image_bytes; break;  // another length
      case 13: w = how >> 4 == 9 ? w - (std::uint64_t{1} << 35) : image::header_bytes; break;
      case 14: w = nonce(1) | 1; break;
      default:
        if ((how >> 4) + 2 > d.size() / 8) return false;
        tp::store_le64(at, tp::load_le64(at + 8));
        tp::store_le64(at + 8, w);
        return d != was;
    }
    tp::store_le64(at, w);
    return d != was;
  }

  // the owner

  void to_owner(const byte_vector& d) {
    alignas(16) std::byte in[most_bytes * 2], out[most_bytes] = {};
    std::memcpy(in, d.data(), d.size());
    const_byte_span asked(in, d.size());
    const recipient_state before = own().state();
    const std::uint64_t serve = state.serve;
    serves_ = before == recipient_state::acquired || before == recipient_state::provisional ? own().recipient()
                                                                                            : tp::recipient_id{};
    const std::size_t n = own().answer(asked, out, state.now);
    if (n > owner::answer_bytes) wrong = "an answer is too long (40)";
    const_byte_span said(out, n);
    std::size_t read = 0;
    each_frame(said, [&](const read_frame& a) {
      read += a.bytes.size();
      bool asked_for = false;
      each_frame(asked, [&](const read_frame& r) { asked_for = asked_for || answers_to(a, r.m); });
      if (!asked_for) wrong = "the owner says what was not asked for (28, 32, 40)";
    });
    if (read != n) wrong = "an answer is not whole frames (40)";
    const recipient_state after = own().state();
    changed_ = n != 0 || after != before;
    if (after != before || state.serve != serve) {
      bool may = false;
      each_frame(asked, [&](const read_frame& r) { may = may || may_make(r.m, before, after); });
      if (!may && after != before) wrong = "the owner believes what nobody told it (10, 19, 39)";
      if (after == recipient_state::acquired) state.served_to_the_end = false;
      const read_frame r = first_frame(asked);
      if (r.m.kind != kind::pull) {
        if (!state.lied && state.newest != 0 && state.newest >> 24 == r.m.id >> 24 && r.m.id < state.newest)
          wrong = "a late request changes the owner";
        state.newest = r.m.id;
      }
    }
    if (after == recipient_state::completed) {
      state.recorded |= static_cast<std::uint8_t>(1u << state.which);
      if ((state.confirmed_with >> state.which & 1) == 0)
        wrong = "the owner counts a recipient that never held the bytes (10)";
    }
    const kind said_first = first_frame(said).m.kind;
    if (said_first == kind::description || said_first == kind::chunk || said_first == kind::confirmed)
      state.heard_at = state.now;
    if (n != 0) {
      if (first_frame(asked).m.kind == kind::confirm && said_first == kind::confirmed) repeat(asked, said);
      enqueue<on_the_way>(state.down, number_of(said));
    }
  }
  /// A repeated confirmation gets the same answer and changes nothing.
  void repeat(const_byte_span asked, const_byte_span said) {
    alignas(16) std::byte copy[sizeof state.owner_at], out[most_bytes] = {};
    std::memcpy(copy, state.owner_at, sizeof copy);
    const std::size_t n = own().answer(asked, out, state.now);
    if (n != said.size() || std::memcmp(out, said.data(), n) != 0 ||
        std::memcmp(copy, state.owner_at, sizeof copy) != 0)
      wrong = "a repeated confirmation has another answer (10)";
  }
  bool of_the_recipient(std::uint64_t of) noexcept { return of == 0 || of == own().recipient().value; }
  bool answers_to(const read_frame& a, const tp::frame& r) {
    const tp::frame& m = a.m;
    if (m.kind == kind::piece) return r.kind == kind::taken || r.kind == kind::describe;
    if (m.id != r.id || m.ref != r.ref) return false;
    const bool completed = own().state() == recipient_state::completed ||
                           own().state() == recipient_state::completed_unverified;
    switch (m.kind) {
      case kind::description:
        if (m.nonce == state.serve && state.served != 0 && r.recipient.value != state.served) return false;
        state.serve = m.nonce, state.served = r.recipient.value;
        if (serves_ && r.recipient != serves_ && state.now - state.heard_at < 3 * second) return false;
        return r.kind == kind::describe && state.is == published::yes && !completed &&
               m.version == version_[state.which] && m.nonce % 2 == 1 && m.image_bytes == image::image_bytes &&
               m.data_start == image::header_bytes && m.flag && m.fingerprint == image::fingerprint &&
               m.length == Setting::chunk_bytes;
      case kind::chunk: {
        if (state.serve != m.nonce) state.served_to_the_end = false;
        state.serve = m.nonce;
        if (m.offset + m.length == image::image_bytes) state.served_to_the_end = true;
        const auto& bytes = image_[state.which];
        return r.kind == kind::pull && state.is == published::yes && !completed && m.version == version_[state.which] &&
               (r.version == 0 || r.version == m.version) && m.offset == r.offset && m.length <= r.length &&
               m.length > 0 && (r.fingerprint == 0 || r.fingerprint == image::fingerprint) &&
               (own().state() == recipient_state::acquired || own().state() == recipient_state::provisional) &&
               m.offset + m.length <= bytes.size() &&
               std::equal(a.payload.begin(), a.payload.end(), bytes.begin() + static_cast<std::ptrdiff_t>(m.offset));
      }
      case kind::end: return r.kind == kind::pull && r.offset == image::image_bytes;
      case kind::confirmed:
        return r.kind == kind::confirm && m.nonce == r.nonce && (m.status != tp::status::ok || completed);
      case kind::refused:
        if (m.status == tp::status::withdrawn) return state.is == published::withdrawn && m.delay_ms == reason;
        if (m.status == tp::status::already_final)
          return r.kind == kind::describe && completed && r.recipient == own().recipient();
        if (m.status == tp::status::ended)
          return completed && !(r.kind == kind::describe && r.recipient == own().recipient());
        return true;
      default: return false;
    }
  }
  /// Whether a request may have made the owner believe this of its recipient.
  bool may_make(const tp::frame& r, recipient_state from, recipient_state to) {
    const std::uint64_t version = version_[state.which];
    if (r.ref != ref_ || from == recipient_state::completed) return false;
    // pieces of a description are not put together here
    const bool serve = r.nonce == state.serve || (in_pieces && state.serve == 0);
    const bool settles = serve && of_the_recipient(r.recipient.value);
    const bool confirms = r.kind == kind::confirm && settles && r.version == version && state.served_to_the_end &&
                          from == recipient_state::provisional;
    const bool gives_up = r.kind == kind::cancel && settles;
    switch (to) {
      case recipient_state::completed: return confirms && r.flag && r.digest == version;
      case recipient_state::completed_unverified: return confirms && !r.flag;
      case recipient_state::failed:
        return (confirms && r.flag && r.digest != version) || (gives_up && r.status == tp::status::digest_mismatch);
      case recipient_state::cancelled: return gives_up && r.status != tp::status::digest_mismatch;
      case recipient_state::acquired:
        if (from == recipient_state::provisional && r.recipient == serves_) return false;
        return r.kind == kind::describe || (r.kind == kind::pull && (r.version == 0 || r.version == version));
      case recipient_state::provisional: return r.kind == kind::pull && state.served_to_the_end;
      default: return false;
    }
  }

  // the recipient

  /// Bytes of the image that have landed, as far as the data section goes.
  const std::byte* data() noexcept {
    if constexpr (lasts) return state.to.bytes + 2 * target::page_bytes;
    else return reinterpret_cast<const std::byte*>(&state.to);
  }
  bool holds(std::uint64_t version) noexcept {
    tp::xxh3_64 h;
    h.update(std::span<const std::byte>(image::header));
    h.update(const_byte_span(data(), image::data_bytes));
    return h.digest() == version;
  }
  /// Whether a frame answers the request that is on its way.
  bool is_answer(const tp::frame& a) {
    if (in_pieces && a.kind == kind::piece) return true;
    if (state.request == 0) return false;
    const tp::frame r = first_frame(datagrams_[state.request]).m;
    if (a.id != r.id || a.ref != r.ref) return false;
    switch (a.kind) {
      case kind::description: return r.kind == kind::describe;
      case kind::chunk:
        return r.kind == kind::pull && a.version == r.version && a.offset == r.offset && a.length == r.length;
      case kind::confirmed: return r.kind == kind::confirm && a.version == r.version && a.nonce == r.nonce;
      case kind::refused: return r.kind != kind::cancel;
      default: return false;
    }
  }
  void to_recipient(const byte_vector& d) {
    alignas(16) std::byte in[most_bytes * 2], was[sizeof state.recipient_at], data_was[image::data_bytes];
    std::memcpy(in, d.data(), d.size());
    const const_byte_span heard(in, d.size());
    std::memcpy(was, state.recipient_at, sizeof was);
    std::memcpy(data_was, data(), sizeof data_was);
    const std::uint32_t landed = rec().landed_bytes(), total = rec().total_bytes();
    rec().received(heard, state.now);
    changed_ = differs_from(was);
    read_frame answer;
    each_frame(heard, [&](const read_frame& a) {
      if (answer.m.kind == kind::nothing && is_answer(a.m)) answer = a;
    });
    if (changed_ && answer.m.kind == kind::nothing) wrong = "the recipient takes what does not answer its request (14)";
    const std::uint32_t now_landed = rec().landed_bytes();
    if (changed_ && !in_a_cut_) {
      bool moved = false;
      if (answer.m.kind == kind::description) state.described = answer.m.nonce, moved = total == 0;
      if (in_pieces && total == 0 && rec().total_bytes() != 0) moved = true;
      if (answer.m.kind == kind::chunk && (in_pieces || answer.m.nonce == state.described)) moved = true;
      if (now_landed < landed) wrong = "bytes that have landed are fetched again (27)";
      if (now_landed > landed && !(lasts && answer.m.kind != kind::chunk)) {  // else it was in flash
        const std::size_t n = now_landed - landed;
        if (answer.m.kind != kind::chunk || n != answer.m.length || answer.m.offset != landed)
          wrong = "bytes land that were not asked for (1)";
        else if (!in_pieces && answer.m.nonce != state.described) wrong = "bytes of another serve land (1)";
        else if (landed >= image::header_bytes)
          std::copy(answer.payload.begin(), answer.payload.end(), data_was + landed - image::header_bytes);
      }
      if (moved) state.moved_at = state.now;
      if (answer.m.kind == kind::refused && answer.m.status == tp::status::busy)
        state.not_before = state.now + answer.m.delay_ms;
      other_size_ = answer.m.kind == kind::description && answer.m.image_bytes != rec().total_bytes();
      if (answer.m.kind != kind::piece) tells(answer.m);
      if (answer.m.kind != kind::piece || total != rec().total_bytes()) state.request = 0;
    }
    if constexpr (!lasts)
      if (std::memcmp(data_was, data(), sizeof data_was) != 0) wrong = "other bytes land than those of the answer (1)";
    state.landed = now_landed;
    if (!in_a_cut_) poll();
    other_size_ = false;
  }
  /// The recipient has heard how it ends, or does not end.
  void tells(const tp::frame& a) {
    const kind asked = state.request == 0 ? kind::nothing : first_frame(datagrams_[state.request]).m.kind;
    using tp::status;
    const bool waits = a.status == status::busy && a.delay_ms < state.moved_at + 8 * second - state.now,
               asks_again = a.status == status::bad_request && asked == kind::confirm,
               is_here = a.status == status::already_final && asked == kind::describe && (lasts || state.finished);
    state.told = a.kind == kind::confirmed || (a.kind == kind::refused && !waits && !asks_again && !is_here);
    state.status = state.told ? a.status : status::ok;
    if (state.told && a.kind == kind::refused && a.status == status::ok) state.status = status::bad_request;
    state.number = state.told ? a.delay_ms : 0;
  }
  /// Whether the recipient differs from `was` in more than the time and that it was sent something unintelligible.
  bool differs_from(const std::byte* was) {
    alignas(16) std::byte as[sizeof state.recipient_at];
    static constexpr std::byte nothing[16] = {};
    for (const std::size_t n : {std::size_t{0}, sizeof nothing}) {
      std::memcpy(as, was, sizeof as);
      std::launder(reinterpret_cast<recipient*>(as))->received(const_byte_span(nothing, n), state.now);
      if (std::memcmp(as, state.recipient_at, sizeof as) == 0) return false;
    }
    return true;
  }
  void poll() {
    alignas(16) std::byte out[recipient::max_out];
    for (int i = 0; i < 4; ++i) {
      const bool over = rec().ended();
      const std::size_t n = rec().next(out, state.now);
      if (n == 0) break;
      if (n != recipient::max_out || (over && tp::detail::kind_in(out) != kind::taken))
        wrong = "the recipient sends what it should not (40)";
      const std::uint32_t number = number_of({out, n});
      sends(first_frame(datagrams_[number]).m, number);
      enqueue<on_the_way>(state.up, number);
    }
  }
  bool is_late() const noexcept {
    return static_cast<std::int32_t>(state.now - state.moved_at) >= static_cast<std::int32_t>(8 * second);
  }
  void sends(const tp::frame& m, std::uint32_t number) {
    if (m.kind == kind::taken) return;
    if (m.kind != kind::describe && m.kind != kind::pull && m.kind != kind::confirm && m.kind != kind::cancel)
      wrong = "the recipient sends no request (40)";
    if (m.ref != ref_) wrong = "the recipient asks for another reference";
    if (m.kind == kind::cancel) {
      if (m.nonce != state.described && !in_pieces && !state.lied) wrong = "it gives up a serve that it does not know";
      if (state.finished) wrong = "everything is here, and it gives up (12)";
      state.farewell = m.status;
      return;
    }
    if (is_late()) wrong = "nothing is progress, and it goes on (14)";
    if (!state.jumped && static_cast<std::int32_t>(state.now - state.not_before) < 0)
      wrong = "it asks before a busy owner said (37)";
    if (state.request != 0 && state.request != number && !(in_pieces && kind_of(state.request) == kind::describe))
      wrong = "a repeated request is another one (40)";
    state.request = number;
    if (m.kind == kind::describe) return;
    if (other_size_) wrong = "it pulls an image of another size than it was told (1)";
    if (state.pinned != 0 && m.version != state.pinned) wrong = "it pulls another version than it began with (35)";
    state.pinned = m.version;
    if (lasts && state.kept_of == m.version && !state.lied) {
      std::uint32_t costs = Setting::chunk_bytes;
      if constexpr (lasts) costs = std::max<std::uint32_t>(costs, landing::cursor_step);
      if (m.kind == kind::pull && m.offset + costs < state.kept) wrong = "a power cut costs more than a chunk (38)";
    }
    state.kept_of = state.kept = 0;
    if (m.kind != kind::confirm) return;
    state.finished = true;
    if (m.nonce != state.described && !in_pieces) wrong = "it confirms a serve that it does not know (10)";
    if (!m.flag) wrong = "it confirms without a digest (13)";
    if (m.digest != m.version || !holds(m.version)) wrong = "it confirms before all is there, or other bytes (12)";
    for (unsigned v = 0; v < 2; ++v)
      if (m.version == version_[v]) state.confirmed_with |= static_cast<std::uint8_t>(1u << v);
  }

  /// What holds in each state.
  void look() {
    order();
    if constexpr (lasts)
      if (std::exchange(state.to.misused, false) && !state.lied) wrong = "the flash is used against its rules";
    if (!rec().ended()) return;
    const auto done = rec().outcome();
    const errc because = done ? done->unconfirmed_because : done.error().code;
    const bool good = state.told && done && state.status == tp::status::ok;
    if (state.told && because != (good ? errc{} : to_errc(state.status)))
      wrong = "it ends for another reason than it was told (12)";
    if (done && state.told && done->confirmed != good) wrong = "it does not tell whether it was confirmed (11)";
    if (!done) {
      const errc why = done.error().code;
      if (state.told && done.error().at != (why == errc::schema_mismatch ? image::tensor_count : state.landed))
        wrong = "the error does not tell how far it was";
      const bool known = why == errc::withdrawn || why == errc::unreadable || why == errc::stale_version ||
                         why == errc::bad_frame || why == errc::too_large;  // the last two: a nonce that was not taken
      if (rec().total_bytes() != 0 && (in_pieces || state.described != 0) && !known &&
          state.farewell == tp::status::busy)
        wrong = "it gives up and tells nobody (19)";
      if (state.farewell != tp::status::busy &&
          (why == errc::digest_mismatch) != (state.farewell == tp::status::digest_mismatch))
        wrong = "the owner is not told whether the bytes were wrong (19)";
      if (state.finished) wrong = "everything is here, and it is an error (12)";
      if ((why == errc::timed_out || why == errc::unsupported_layout) && !is_late())
        wrong = "it gives up too early (14)";
      if (why == errc::withdrawn && done.error().system != static_cast<int>(state.number))
        wrong = "the reason is lost (28)";
      return;
    }
    if (done->outcome != tp::outcome::completed) wrong = "an image without a digest is taken (13)";
    if (done->digest != done->version || !holds(done->version)) wrong = "completed with wrong bytes (11)";
    if (done->believed != !Setting::pull(1).version) wrong = "it does not tell what it believed (11)";
    if (Setting::pull(1).version != 0 && done->version != version_[0])
      wrong = "it is another version than that which was asked for (35)";
    if (!state.lied && done->version != version_[0] && done->version != version_[1])
      wrong = "nobody published that (11)";
    if (!state.lied && done->confirmed)
      if (const unsigned v = done->version == version_[1]; (state.recorded >> v & 1) == 0)
        wrong = "confirmed, and the owner has not recorded it (11)";
  }

  machines state_;
  faults allowed_;
  tiny_model model_[2];
  byte_vector image_[2];
  std::uint64_t version_[2];
  tp::ref_id ref_;
  target used_{};  // by a transfer of another reference
  std::uint64_t who_;
  std::vector<byte_vector> datagrams_;
  std::map<byte_vector, std::uint32_t> numbers_;
  tp::recipient_id serves_;  // whom the owner served before it heard the last datagram
  std::vector<std::uint32_t> asked_, told_;  // of other transfers
  bool in_a_cut_ = false, changed_ = false, other_size_ = false;  // of the last datagram
};

}  // namespace test
