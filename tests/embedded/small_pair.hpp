// An embedded recipient and an unmodified endpoint of hosts in one process and in virtual time, with a link between
// them that loses, doubles and re-orders; and models for both: the same tensors as a struct and as a list.
#pragma once

#include "support/lossy_pair.hpp"

#include <tensorpull/embedded/landing.hpp>
#include <tensorpull/embedded/recipient.hpp>

#include <array>
#include <functional>
#include <memory>
#include <vector>

namespace test {

/// Every kind of member: nested arrays of either kind, a scalar, structs in structs, an array of structs, a member that
/// is not a tensor, and padding.
struct block {
  std::array<std::array<float, 3>, 5> weight;
  float bias[5];
};
struct net {
  std::uint64_t guard_before;
  float w[4][9][3];
  char padded;
  std::array<double, 7> d;
  std::int8_t table[33];
  block blocks[3];
  std::uint16_t scalar;
  bool mask[11];
  block last;
  tp::bfloat16 half[2];
  std::uint64_t guard_after;
};
inline constexpr std::uint64_t net_guard = 0xa5a5'5a5a'a5a5'5a5a;

/// The same tensors as a struct has, in memory of their own.
template <class Model>
model list_of() {
  model m;
  for (const auto& t : tp::embedded_image<Model>::schema.entries())
    m.add(std::string(t.name), t.type, {t.shape, t.shape + t.rank});
  return std::move(m.ready());
}
/// Fills it; a BOOL element is 0 or 1.
inline model&& fill(model&& m, std::uint64_t seed) {
  m.fill(seed);
  tp::mend_booleans(m.destination(), 0);
  for (std::size_t i = 0; i < m.schema().tensor_count; ++i)
    if (m.schema().tensors[i].type == dtype::boolean)
      for (std::uint64_t k = 0; k < m.schema().tensors[i].size_bytes(); ++k)
        m.destination().address(i)[k] &= std::byte{1};
  return std::move(m);
}
/// The data section of a struct.
template <class Model>
byte_vector data_of(const Model& m) {
  byte_vector bytes(tp::embedded_image<Model>::data_bytes);
  tp::embedded_image<Model>::read(m, 0, bytes);
  return bytes;
}
inline byte_vector data_of(const model& m) {
  auto all = m.image_bytes();
  all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(m.schema().header_bytes));
  return all;
}

/// What a link does to datagrams. Times in milliseconds.
struct small_link {
  std::size_t datagram_bytes = 640;
  double loss = 0, doubled = 0;
  std::uint32_t delay = 1, jitter = 0;
};

/// The host's end, which owns, and the link. A recipient is given to run().
struct small_pair {
  explicit small_pair(const small_link& c = {}, std::uint64_t seed = 1)
      : link(c), left(std::make_unique<datagram_party<>>(seed, c.datagram_bytes)), dice(seed + 2) {}

  using bytes = std::vector<std::uint64_t>;  // aligned
  struct flying {
    bytes memory;
    std::size_t size;
    bool down;
  };
  byte_span bytes_of(flying& f) { return {reinterpret_cast<std::byte*>(f.memory.data()), f.size}; }

  void put(const_byte_span what, bool down) {
    flying f{bytes(what.size() / 8 + 1), what.size(), down};
    std::memcpy(f.memory.data(), what.data(), what.size());
    if (meddle && !meddle(bytes_of(f), down)) return;
    for (int copies = dice.chance(link.doubled) ? 2 : 1; copies > 0; --copies)
      if (!dice.chance(link.loss))
        on_its_way.emplace(now + link.delay + (link.jitter > 0 ? static_cast<std::uint32_t>(dice() % link.jitter) : 0),
                           f);
  }
  /// One millisecond.
  template <class Recipient>
  void tick(Recipient& r) {
    tp::no_transfer idle;
    const auto time = [this] { return std::chrono::milliseconds(now - began + 1'000); };  // the host's clock is another
    std::array<std::byte, 80> out;
    while (const std::size_t n = r.next(out, now)) {
      EXPECT_EQ(n, 80u);
      ++asked;
      put(out, false);
    }
    while (left) {
      tp::datagram_plan plan;
      left->end->plan_datagram(idle, plan, left->room(), time());
      if (plan.bytes == 0) break;
      EXPECT_LE(plan.bytes, link.datagram_bytes);
      const byte_vector d = test::bytes_of(plan);
      left->end->sent(idle, plan, true);
      put(d, true);
    }
    ++now;
    if (left) left->references.advance(time());
    while (!on_its_way.empty() && on_its_way.begin()->first <= now) {
      flying f = std::move(on_its_way.begin()->second);
      on_its_way.erase(on_its_way.begin());
      if (f.down) r.received(bytes_of(f), now);
      else if (left) (void)left->end->received(idle, bytes_of(f), time());
    }
  }
  /// Until it has ended, `done()`, or `limit` milliseconds are over. True: it has ended.
  template <class Recipient>
  bool run(Recipient& r, std::uint32_t limit = 2'000'000) {
    run_until(r, [] { return false; }, limit);
    return r.ended();
  }
  template <class Recipient, class Done>
  bool run_until(Recipient& r, Done done, std::uint32_t limit = 2'000'000) {
    for (std::uint32_t n = 0; n < limit && !r.ended() && !done(); ++n) tick(r);
    return done();
  }
  /// Runs it to its end.
  template <class Recipient>
  tp::result<tp::receipt> pull(Recipient& r) {
    if (run(r)) return r.outcome();
    ADD_FAILURE() << "it has not ended";
    return tp::failure(errc::timed_out);
  }
  /// Of the reference that is published mostly.
  tp::publication_status status() const { return *left->references.status_of({1, 2}); }
  /// The owner's process is started again; nothing is published in it.
  void start_again() { left = std::make_unique<datagram_party<>>(dice(), link.datagram_bytes); }

  small_link link;
  std::unique_ptr<datagram_party<>> left;
  generator dice;
  std::multimap<std::uint32_t, flying> on_its_way;
  static constexpr std::uint32_t began = 0xffff'f000;  // it wraps on the way
  std::uint32_t now = began;
  std::uint64_t asked = 0;
  std::function<bool(byte_span, bool)> meddle;  // false: the datagram is lost
};

inline constexpr tp::embedded_pull net_pull{
    .ref = {1, 2}, .version = 0, .recipient = {9}, .timeout_ms = 5'000, .retry_ms = 100, .unverified = false};

/// A net with guards, its landing and a recipient of it.
template <std::size_t ChunkBytes = 512, class Model = net>
struct landed_net {
  explicit landed_net(const tp::embedded_pull& pull = net_pull, std::uint64_t random = 0x1234'5678'9abc'def0)
      : recipient(landing, pull, random) {
    std::memset(static_cast<void*>(memory.data()), 0x5a, sizeof memory);
    if constexpr (requires { target.guard_before; }) target.guard_before = target.guard_after = net_guard;
  }
  bool guards_intact() const {
    bool good = true;
    for (const auto* m : {&memory.front(), &memory.back()})
      for (std::size_t i = 0; i < sizeof(Model); ++i)
        good = good && reinterpret_cast<const unsigned char*>(m)[i] == 0x5a;
    if constexpr (requires { target.guard_before; })
      good = good && target.guard_before == net_guard && target.guard_after == net_guard && target.padded == 0x5a;
    return good;
  }
  std::array<Model, 3> memory;
  Model& target = memory[1];
  tp::model_landing<Model> landing{target};
  tp::embedded_recipient<tp::model_landing<Model>, ChunkBytes> recipient;
};

}  // namespace test

template <>
inline constexpr auto tensorpull::members_of<test::block> = tensorpull::members(
    tensorpull::member{"weight", &test::block::weight}, tensorpull::member{"bias", &test::block::bias});
template <>
inline constexpr auto tensorpull::members_of<test::net> = tensorpull::members(
    tensorpull::member{"w", &test::net::w}, tensorpull::member{"d", &test::net::d},
    tensorpull::member{"table", &test::net::table}, tensorpull::member{"blocks", &test::net::blocks},
    tensorpull::member{"scalar", &test::net::scalar}, tensorpull::member{"mask", &test::net::mask},
    tensorpull::member{"last", &test::net::last}, tensorpull::member{"half", &test::net::half});
