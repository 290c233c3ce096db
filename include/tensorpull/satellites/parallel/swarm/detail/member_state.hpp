// The connections of a member of a swarm besides those that it pulls over: others' to it, and its own to the door.
#pragma once

#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/links/posix/ip_address.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/satellites/parallel/swarm/detail/arriving_owner.hpp>
#include <tensorpull/satellites/parallel/swarm/detail/part_homes.hpp>
#include <tensorpull/system/address.hpp>
#include <tensorpull/transports/host/host.hpp>
#include <tensorpull/transports/owner_parts.hpp>
#include <tensorpull/transports/publishing_owner.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tensorpull::detail {

/// Tells a pull's plan what another member has.
struct member_ear {
  part_homes* homes = nullptr;
  const reference* of = nullptr;
  std::uint8_t source = 0;

  static constexpr bool ready() noexcept { return true; }
  void on_message(const frame& m) noexcept {
    if (homes == nullptr || m.application != swarm::parts_kind || m.references.empty()) return;
    if (m.references[0].id != of->id || m.references[0].version != of->version) return;
    if (const auto told = swarm::decode_parts(m.body)) homes->heard(source, *told);
  }
};

/// The plan of a member's pull (every_source has the members). Borrows the state.
template <class State>
struct member_plan {
  static constexpr std::uint8_t most_lines = static_cast<std::uint8_t>(part_homes::seats);
  static constexpr std::size_t most_parts = part_homes::most_parts;

  std::size_t most_claimed(std::size_t, std::size_t) const noexcept { return state->homes.most_claimed(); }
  bool gives(std::uint8_t source, std::size_t part, bool freed) const noexcept {
    return state->homes.gives(source, part, freed);
  }
  static constexpr unsigned most_repeats = 2;  // the time of a part is short
  static constexpr bool goes_on = false;  // parts are short, and others have them
  static constexpr bool settles(std::uint8_t source) noexcept { return source == part_homes::owner; }
  template <class Consumer, class Right>
  void begun(Consumer& to, const description& of, std::uint8_t shift, std::uint64_t first,
             const Right& right) const noexcept {
    const source_view image = to.landed();
    const bool has_header = image.schema != nullptr && image.schema->fingerprint == of.fingerprint &&
                            image.schema->header_bytes == of.data_start && to.check(0, first);
    state->begun(image, of, shift, has_header);
    for (std::size_t i = 0; i < state->homes.parts(); ++i)
      if (right(i)) state->homes.right(0xff, i);
  }
  void right(std::uint8_t source, std::size_t part) const noexcept { state->homes.right(source, part); }
  void refused(std::uint8_t source) const noexcept { state->homes.refused(source); }
  void dropped(std::uint8_t source) const noexcept { state->lies(source); }
  member_ear handler_of(std::uint8_t source) const noexcept { return {&state->homes, &state->model(), source}; }

  State* state = nullptr;
};

/// `Parts`: of the pipeline that pulls.
template <class Parts>
class member_state {
  using transport = arriving<typename Parts::transport>;
  using clock = std::chrono::steady_clock;
  struct serving_parts : owner_parts_of<Parts> {
    using transport = member_state::transport;
  };
  /// The handler of the host: it tells others, and hears the door.
  struct handler_type {
    member_state& all;
    template <class C> void connected(C& c) noexcept { all.connected(c); }
    template <class C> void message(C& c, const tensorpull::message& m) noexcept { all.message(c, m); }
    template <class C> void pulled(C&, const result<receipt>&) noexcept {}
    template <class C> void closed(C& c, const error&) noexcept { all.closed(c); }
  };
  using host_type = host<serving_parts, handler_type, no_consumer>;
  using connection_type = typename host_type::connection;

 public:
  member_state(std::string_view owner, const host_options& options, std::chrono::milliseconds connect)
      : door_(owner), connect_(connect), handler_{*this}, connections_(io_, handler_, options) {
    addresses_[0] = door_;
  }

  result<void> open(std::string_view listen) {
    if (io_.error() != 0) return failure(errc::io, 0, {}, io_.error());
    const auto port = connections_.listen(listen);
    if (!port) return failure(port.error());
    port_ = *port;
    std::string own(listen);
    if (const auto colon = own.rfind(':'); port_ != 0 && colon != own.npos)
      own = own.substr(0, colon + 1) + std::to_string(port_);
    const auto text = swarm::address_text::of(own);
    if (!text) return failure(errc::bad_address, 0, listen);
    own_ = *text;
    return {};
  }
  std::uint16_t port() const noexcept { return port_; }
  std::span<const std::string_view> addresses() const noexcept { return addresses_; }
  std::chrono::milliseconds connect_time() const noexcept { return connect_; }
  const reference& model() const noexcept { return model_; }
  std::size_t members() const noexcept {
    std::size_t n = 0;
    for (std::uint8_t s = 1; s < part_homes::seats; ++s) n += homes.number_of(s) != 0;
    return n;
  }
  std::size_t most_members() const noexcept { return most_members_; }
  std::uint64_t bytes_sent() noexcept { return sent_before_ + sent_now(); }

  /// A pull of this reference begins; whatever was served before is not any more.
  void begin(const reference& ref) noexcept {
    withdraw();
    model_ = ref;
    homes.begin(clock::now());
    list_ = {};
    for (auto& a : addresses_)
      if (&a != &addresses_[0]) a = {};
    used_ = 1;
    wrong = spoilt_ = 0;
    has_list_ = fresh_ = asked_ = false;
  }
  /// The image's header is right, and its parts arrive. `has_header`: the image has this header, too, and not another
  /// one, or none, as a file that is read back has.
  void begun(const source_view& image, const description& of, std::uint8_t shift, bool has_header) noexcept {
    homes.cut(of.image_bytes == 0 ? 0 : static_cast<std::size_t>(((of.image_bytes - 1) >> shift) + 1), shift,
              clock::now());
    if (image.schema == nullptr || published_) return;
    // of another length, its bytes lie elsewhere
    if (image.schema->image_bytes != of.image_bytes || image.schema->header_bytes != of.data_start) return;
    model_.version = of.version;
    model_.fingerprint = of.fingerprint;
    schema_ = *image.schema;
    schema_.fingerprint = of.fingerprint;  // that of a file's view is none
    machine().arrives(model_.id, &homes.own(), has_header ? 0 : of.data_start);
    publish_options as;
    as.id = model_.id;
    as.version = of.version;
    if (const auto ok = connections_.published().add_image({&schema_, image.base, image.where, image.reader},
                                                           expecting_nobody(as)))
      published_ = true;
  }
  /// A source has lied. Its seat is nobody else's in this pull, so that its bit names it alone.
  void lies(std::uint8_t source) noexcept {
    homes.drop(source);
    spoilt_ |= 1U << source;
  }
  /// The pull is over.
  void end(bool complete) noexcept {
    if (!complete) return withdraw();
    if (published_) machine().arrived();
  }

  /// One step beside a step of the pull. `Lines`: of that.
  template <class Lines>
  void step(Lines& lines) noexcept {
    const auto now = clock::now();
    homes.tick(now);
    (void)io_.poll(64);
    seat(lines);
    look_after(now);
    lines.wait_for(io_.native_handle());
  }
  void serve_for(std::chrono::milliseconds time) noexcept {
    const auto end = clock::now() + time;
    do {
      (void)io_.run_one_for(std::min<std::chrono::nanoseconds>(wait_step, end - clock::now()));
      look_after(clock::now());
    } while (clock::now() < end);
  }
  bool serve(std::chrono::milliseconds time, const stop_token& stop) noexcept {
    const auto end = deadline_after(time);
    auto needed = clock::now();
    while (published_ && !stop.stop_requested()) {
      (void)io_.run_one_for(wait_step);
      const auto now = clock::now();
      homes.tick(now);
      look_after(now);
      if (is_needed()) needed = now;
      if (now - needed >= std::chrono::seconds(1)) return true;
      if (now >= end) return false;
    }
    return !published_;
  }

  part_homes homes;
  std::uint32_t wrong = 0;

 private:
  static constexpr std::uint64_t door_tag = 1;
  static constexpr std::chrono::milliseconds poll_interval{100}, tell_interval{20};

  auto& machine() noexcept { return connections_.published().machine(); }
  std::uint64_t sent_now() noexcept {
    const auto now = connections_.published().status_of(model_);
    return published_ && now ? now->bytes_sent : 0;
  }
  void withdraw() noexcept {
    if (!published_) return;
    sent_before_ += sent_now();
    published_ = false;
    (void)connections_.published().withdraw({model_.id, model_.version, 0});
    machine().arrives({}, nullptr, 0);
  }

  // The handler's calls.
  void connected(connection_type& c) noexcept {
    if (c.tag == door_tag) {
      to_door_ = &c;
      polled_ = {};
      return;
    }
    for (auto& t : told_)
      if (t.to == nullptr) {
        t = {&c, true};
        return;
      }
  }
  void closed(connection_type& c) noexcept {
    if (c.tag == door_tag) {
      to_door_ = nullptr;
      calls_ = false;
      called_ = clock::now();
    }
    for (auto& t : told_)
      if (t.to == &c) t = {};
  }
  void message(connection_type& c, const tensorpull::message& m) noexcept {
    if (&c != to_door_ || m.kind != swarm::list_kind || m.references.empty() || m.references[0].id != model_.id) return;
    asked_ = false;
    const auto list = swarm::decode_list(m.body);
    if (!list) return;
    has_list_ = true;
    if (list->number == list_.number) return;
    list_ = *list;
    most_members_ = std::max(most_members_, list_.members().size());
    fresh_ = true;
  }

  /// Gives a seat, and a line, to each member that is listed, and takes those from others.
  template <class Lines>
  void seat(Lines& lines) noexcept {
    for (std::uint8_t s = 1; s < part_homes::seats; ++s)
      if (homes.number_of(s) != 0 && lines.is_over(s)) homes.drop(s);
    if (has_list_ && homes.parts() > 0) homes.numbered(list_.self);
    if (!fresh_) return;
    fresh_ = false;
    for (std::uint8_t s = 1; s < part_homes::seats; ++s)
      if (homes.number_of(s) != 0 && entry_of(homes.number_of(s)) == nullptr) homes.leave(s);
    for (const swarm::member_entry& m : list_.members()) {
      if (seat_of(m.number) != 0 || !is_place(m.address.view())) continue;
      // one that is listed no longer has a seat as long as it has a line: it may give what it has
      for (std::uint8_t s = 1; s < part_homes::seats; ++s) {
        if (homes.number_of(s) != 0 || (spoilt_ >> s & 1) != 0) continue;
        texts_[s] = m.address;
        addresses_[s] = texts_[s].view();
        used_ = std::max<std::size_t>(used_, std::size_t{s} + 1);
        homes.seat(s, m.number);
        lines.connect_anew(std::span<const std::string_view>(addresses_).first(used_), s);
        break;
      }
    }
  }
  /// Whether an address can be connected to without a question to anybody: digits and a port, or a path.
  static bool is_place(std::string_view address) noexcept {
    if (address.starts_with('/')) return true;
    const auto at = parse_address(address);
    const auto host = at ? ip_address::of_digits(at->host.data()) : ip_address();
    return host && host != ip_address::of_digits("0.0.0.0") && at->number != 0;
  }
  const swarm::member_entry* entry_of(std::uint64_t number) const noexcept {
    for (const swarm::member_entry& m : list_.members())
      if (m.number == number) return &m;
    return nullptr;
  }
  std::uint8_t seat_of(std::uint64_t number) const noexcept {
    for (std::uint8_t s = 1; s < part_homes::seats; ++s)
      if (homes.number_of(s) == number) return s;
    return 0;
  }
  /// Whether a member still pulls. Without the owner's word: whether somebody has taken something since the last time.
  bool is_needed() noexcept {
    if (to_door_ == nullptr) {
      const std::uint64_t sent = sent_now();
      return std::exchange(seen_sent_, sent) != sent;
    }
    for (const swarm::member_entry& m : list_.members())
      if (m.state == swarm::member_state::pulls) return true;
    return false;
  }

  /// Talks to the door, and tells others what is new.
  void look_after(clock::time_point now) noexcept {
    if (!published_) return;
    if (!calls_ && now - called_ >= std::chrono::seconds(1)) {
      called_ = now;
      calls_ = connections_.connect(std::string_view(door_), door_tag).has_value();
    }
    const auto state = homes.has_all() ? swarm::member_state::has_all : swarm::member_state::pulls;
    // the door answers one that asks when it has memory; it may not have had some
    if (to_door_ != nullptr && now - polled_ >= (asked_ ? 3 : 1) * poll_interval) {
      std::byte body[swarm::join::most_bytes];
      const std::size_t size = swarm::encode(swarm::join{list_.number, state, own_}, body);
      if (to_door_->send(swarm::join_kind, {&model_, 1}, {body, size})) {
        polled_ = now;
        asked_ = true;
      }
    }
    if (now - told_at_ < tell_interval) return;
    told_at_ = now;
    const bool news = std::exchange(told_parts_, homes.own()) != homes.own();
    std::byte body[swarm::parts::bytes];
    const std::size_t size = swarm::encode(homes.own(), body);
    for (auto& t : told_) {
      t.news = t.news || news;
      // the reference is a secret of those who ask for it
      if (t.to != nullptr && t.to->has_asked() && t.news)
        t.news = !t.to->send(swarm::parts_kind, {&model_, 1}, {body, size});
    }
  }

  struct told {
    connection_type* to = nullptr;
    bool news = false;
  };

  std::string door_;
  swarm::address_text own_{};
  std::chrono::milliseconds connect_;
  std::array<swarm::address_text, part_homes::seats> texts_{};
  std::array<std::string_view, part_homes::seats> addresses_{};
  std::size_t used_ = 1, most_members_ = 0;
  std::array<told, 64> told_{};  // those beyond are not told, and pull from others
  reference model_{};
  image_schema schema_{};
  swarm::list list_{};
  swarm::parts told_parts_{};
  clock::time_point polled_{}, told_at_{}, called_{};
  std::uint64_t sent_before_ = 0, seen_sent_ = 0;
  std::uint32_t spoilt_ = 0;  // seats, a bit each
  connection_type* to_door_ = nullptr;
  std::uint16_t port_ = 0;
  bool published_ = false, calls_ = false, asked_ = false, has_list_ = false, fresh_ = false;
  event_loop io_;
  handler_type handler_;
  host_type connections_;
};

}  // namespace tensorpull::detail
