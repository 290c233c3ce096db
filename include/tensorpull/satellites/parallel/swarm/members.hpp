// The members of swarms, as an owner's door knows them: the group of each, and where it listens. No I/O, no clock and
// no heap: the time and random numbers are handed in.
#pragma once

#include <tensorpull/core/ids.hpp>
#include <tensorpull/satellites/parallel/swarm/detail/swarm_messages.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/chrono.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// From where an address can be reached. Members of one group can all reach each other's: an address of a site means
/// another machine at another site, and that of a loopback interface means each machine itself.
enum class swarm_reach : std::uint8_t {
  machine,  ///< this machine alone: a loopback interface, a Unix socket
  site,  ///< one network: private addresses
  internet,  ///< everywhere
};

/// Where a member's connection is from, by which one party is told from another.
struct swarm_origin {
  std::uint64_t neighbourhood = 0;  ///< a number for its network, as ip_address::neighbourhood()
  swarm_reach reach = swarm_reach::machine;  ///< of its address

  friend constexpr bool operator==(const swarm_origin&, const swarm_origin&) noexcept = default;
};

/// The table of all groups, with a fixed size of about 1.6 KiB for each of `Groups`. A group is of one version of one
/// model, and has at most 16 members; the next ones are in another group.
///
/// A member may be hostile. It can list an address of its own at which nobody answers, and take part badly: the others
/// bear that. It cannot shut others out: of a group with members of several origins one origin has at most 4, and of
/// the whole table an eighth (but a group at least). So members that are all behind one address are in groups of their
/// own, and whoever has eight addresses can fill the table: then nobody else has a seat, and pulls from the owner
/// alone. A seat that nobody has asked with for `patience` is free again.
template <std::size_t Groups = 64>
class swarm_members {
  using state_type = detail::swarm::member_state;
  using address_type = detail::swarm::address_text;

 public:
  /// Members of one group.
  static constexpr std::size_t seats = detail::swarm::most_members;
  /// Members of one origin, in a group with others.
  static constexpr std::size_t seats_of_origin = 4;
  /// Members of one origin in all groups.
  static constexpr std::size_t most_of_origin = std::max(seats, Groups* seats / 8);
  /// How long a seat is kept for one that does not ask.
  static constexpr std::chrono::seconds patience{60};

  /// A member's seat, until leave() or as long as it is kept. A value of a seat that was lost means none, even when
  /// another has that seat.
  struct seat {
    std::uint32_t place = 0;  ///< 0: none
    std::uint32_t generation = 0;  ///< how often the seat was free before

    constexpr explicit operator bool() const noexcept { return place != 0; }
    friend constexpr bool operator==(const seat&, const seat&) noexcept = default;
  };

  /// `first`: a random number with which the numbers of lists begin, so that those of another table are others.
  explicit swarm_members(std::uint64_t first = 0) noexcept : lists_(static_cast<std::uint32_t>(first)) {}

  /// Takes a seat in a group of the model, or renews the one that is `held`, and notes where and how the member is. It
  /// leaves a seat that it held in a group of another model. None: there is no room, or its origin has its share.
  /// `from`: of a new seat; one that is renewed keeps its own. `random()` gives unguessable 64-bit numbers. `now`:
  /// since any epoch, and never less than before. Requires a version and an address. Cost: of a seat that is renewed,
  /// none; otherwise one pass over the table.
  template <class Random>
  seat join(seat held, const reference& model, const swarm_origin& from, const address_type& address, state_type state,
            std::chrono::milliseconds now, Random&& random) noexcept {
    if (!holds(held, model)) leave(held);
    place* p = find(held);
    if (p == nullptr) {
      group* const in = group_for(model, from, now);
      if (in == nullptr) return {};
      for (place& vacant : places(*in))
        if (vacant.number == 0) p = &vacant;
      std::uint64_t number = 0;
      while (number == 0 || has(*in, number)) number = random();
      p->number = number;
      p->from = from;
      in->model = {model.id, model.version, 0};
      ++in->members;
      renew(*in);
    } else if (!(p->address == address) || p->state != state) renew(group_of(*p));
    p->address = address;
    p->state = state;
    p->asked = now;
    return {static_cast<std::uint32_t>(p - places_.data()) + 1, p->generation};
  }
  /// Whether the seat is held, in a group of this model.
  bool holds(seat held, const reference& model) noexcept {
    const place* const p = find(held);
    return p != nullptr && group_of(*p).is_of(model);
  }
  /// Frees a seat. One that is not held is no error.
  void leave(seat held) noexcept {
    if (place* const p = find(held)) free(*p);
  }
  /// Frees the seats of all models of which `gone(reference)` is true. Cost: a call for each group in use.
  template <class Gone>
  void leave_all(Gone gone) noexcept {
    for (group& g : groups_)
      if (g.members > 0 && gone(static_cast<const reference&>(g.model))) each(g, [this](place& p) { free(p); });
  }
  /// The list for a member: the others of its group; none of them if it knows this list. Refused: the seat is not held.
  /// Cost: one pass over the group.
  void list(seat held, std::uint32_t known, std::chrono::milliseconds now, detail::swarm::list& out) noexcept {
    out.number = 0, out.self = 0, out.count = 0;
    const place* const self = find(held);
    if (self == nullptr) return;
    group& g = group_of(*self);
    expire(g, now);
    out.self = self->number;
    out.number = self->number != 0 ? g.list : 0;
    if (out.number == 0 || known == g.list) return;
    each(g, [&](const place& p) {
      if (&p != self) out.others[out.count++] = {p.number, p.state, p.address};
    });
  }

  /// How many members there are. Cost: one pass over the groups.
  std::size_t members() const noexcept {
    std::size_t n = 0;
    for (const group& g : groups_) n += g.members;
    return n;
  }
  /// Whether no group is empty. Cost: the same.
  bool full() const noexcept { return groups() == Groups; }
  /// How many groups have members. Cost: the same.
  std::size_t groups() const noexcept {
    std::size_t n = 0;
    for (const group& g : groups_) n += g.members > 0;
    return n;
  }

 private:
  struct place {
    std::uint64_t number = 0;  // 0: nobody is here
    swarm_origin from{};
    std::chrono::milliseconds asked{};
    std::uint32_t generation = 0;
    state_type state{};
    address_type address{};
  };
  struct group {
    reference model{};
    std::uint32_t list = 0, members = 0;

    bool is_of(const reference& other) const noexcept {
      return members > 0 && model.id == other.id && model.version == other.version;
    }
  };

  place* find(seat held) noexcept {
    if (held.place == 0 || held.place > places_.size()) return nullptr;
    place& p = places_[held.place - 1];
    return p.number != 0 && p.generation == held.generation ? &p : nullptr;
  }
  group& group_of(const place& p) noexcept { return groups_[static_cast<std::size_t>(&p - places_.data()) / seats]; }
  std::span<place> places(const group& g) noexcept {
    return std::span(places_).subspan(static_cast<std::size_t>(&g - groups_.data()) * seats, seats);
  }
  template <class See>
  void each(const group& g, See see) noexcept {
    if (g.members == 0) return;
    for (place& p : places(g))
      if (p.number != 0) see(p);
  }
  bool has(const group& g, std::uint64_t number) noexcept {
    bool found = false;
    each(g, [&](const place& p) { found = found || p.number == number; });
    return found;
  }
  std::size_t count(const group& g, const swarm_origin& from) noexcept {
    std::size_t n = 0;
    each(g, [&](const place& p) { n += p.from == from; });
    return n;
  }
  /// Whether one more of this origin may be in a group: with others, none has more than its share.
  bool takes(const group& g, const swarm_origin& from) noexcept {
    const std::size_t same = count(g, from);
    if (g.members == seats || same == g.members) return g.members < seats;
    bool mixes = same < seats_of_origin;
    each(g, [&](const place& p) {
      mixes = mixes && p.from.reach == from.reach && (p.from == from || count(g, p.from) <= seats_of_origin);
    });
    return mixes;
  }
  /// The group in which there is a seat for one of this origin: one of the model's, or an empty one.
  group* group_for(const reference& model, const swarm_origin& from, std::chrono::milliseconds now) noexcept {
    group *in = nullptr, *empty = nullptr;
    std::size_t same = 0;
    for (group& g : groups_) {
      expire(g, now);
      same += count(g, from);
      if (g.members == 0 && empty == nullptr) empty = &g;
      if (in == nullptr && g.is_of(model) && takes(g, from)) in = &g;
    }
    if (same >= most_of_origin) return nullptr;
    return in != nullptr ? in : empty;
  }
  /// Frees the seats of those that have not asked for too long.
  void expire(const group& g, std::chrono::milliseconds now) noexcept {
    each(g, [&](place& p) {
      if (now - p.asked > patience) free(p);
    });
  }
  void free(place& p) noexcept {
    group& g = group_of(p);
    p.number = 0;
    ++p.generation;
    --g.members;
    renew(g);
  }
  /// The group's list is another from now on.
  void renew(group& g) noexcept {
    if (++lists_ == 0) lists_ = 1;
    g.list = lists_;
  }

  std::array<place, Groups * seats> places_{};
  std::array<group, Groups> groups_{};
  std::uint32_t lists_;  // the number of the last list
};

}  // namespace tensorpull
