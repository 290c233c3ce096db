// What every session does, whatever its wire: over a stream and over datagrams, both in memory, so that a test chooses
// what the other end says.
#include "sample_models.hpp"
#include "support/frames.hpp"
#include "support/pair.hpp"

#include <tensorpull/transports/over/tcp/tcp.hpp>
#include <tensorpull/transports/over/udp/udp.hpp>
#include <tensorpull/transports/session/datagram_session.hpp>
#include <tensorpull/transports/session/stream_session.hpp>

#include <stop_token>

namespace session_laws_test {

using namespace test;

enum class mood {
  silent,
  talks_without_pause,
  closes
};

/// What the other end says, and what it is told.
struct script {
  mood then = mood::silent;  ///< what it does when it has said all; without pause: it says all again
  std::vector<byte_vector> says{};  ///< a piece for each read
  std::vector<byte_vector> told{};
  std::size_t at = 0;
  std::size_t pieces = 0;  ///< pieces that were read
  std::stop_source waited{};  ///< requested by the first wait that only this end could end
  std::size_t told_before = 0;  ///< what it was told until then

  /// The next piece, or nothing.
  const byte_vector* next() noexcept {
    if (at == says.size() && then == mood::talks_without_pause) at = 0;
    if (at == says.size()) return nullptr;
    ++pieces;
    return &says[at++];
  }
  tp::io_result nothing() const noexcept {
    return {then == mood::closes ? tp::io_status::closed : tp::io_status::would_block, 0, 0};
  }
  tp::io_result hear(std::span<const const_byte_span> spans) {
    byte_vector all;
    for (const auto& s : spans) all.insert(all.end(), s.begin(), s.end());
    if (then != mood::talks_without_pause) told.push_back(all);
    return {tp::io_status::ok, 0, all.size()};
  }
  void waited_for(bool write, std::chrono::milliseconds time) {
    if (!write && time > 0ms && waited.request_stop()) told_before = told.size();
  }
};

tp::frame describe_of_nothing(std::uint32_t id) {
  tp::frame m;
  m.kind = tp::frame_kind::describe, m.id = id, m.ref = {1, 2}, m.recipient = {77};
  return m;
}
tp::frame locate_one(std::uint32_t id, tp::ref_id ref, std::span<const std::string_view> names) {
  tp::frame m;
  m.kind = tp::frame_kind::locate, m.id = id, m.ref = ref, m.names = names;
  return m;
}
byte_vector bytes_of(const test::frame& f) { return {f.bytes().begin(), f.bytes().end()}; }

struct stream_of_script {
  script* of;
  byte_vector left{};
  tp::io_result read_some(std::span<const byte_span> spans) noexcept {
    if (left.empty())
      if (const auto* const piece = of->next()) left = *piece;
    if (left.empty()) return of->nothing();
    std::size_t n = 0;
    for (const auto& s : spans) {
      const std::size_t k = std::min(s.size(), left.size() - n);
      if (k > 0) std::memcpy(s.data(), left.data() + n, k);
      n += k;
    }
    left.erase(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(n));
    return {n > 0 ? tp::io_status::ok : tp::io_status::would_block, 0, n};
  }
  tp::io_result write_some(std::span<const const_byte_span> spans) noexcept { return of->hear(spans); }
  tp::io_ready wait(bool read, bool write, std::chrono::milliseconds time) noexcept {
    of->waited_for(write, time);
    return {read, write};
  }
};
struct link_of_script {
  using address = tp::only_peer;
  static constexpr std::size_t max_datagram_bytes = 1192;
  static constexpr bool checked = true, addresses_are_proved = true;
  script* of;
  std::size_t datagram_bytes() const noexcept { return max_datagram_bytes; }
  tp::io_result receive(byte_span memory, address&) noexcept {
    const auto* const piece = of->next();
    if (piece == nullptr) return of->nothing();
    std::memcpy(memory.data(), piece->data(), piece->size());
    return {tp::io_status::ok, 0, piece->size()};
  }
  tp::io_result send(std::span<const const_byte_span> spans, const address&) noexcept { return of->hear(spans); }
  tp::io_ready wait(bool read, bool write, std::chrono::milliseconds time) noexcept {
    of->waited_for(write, time);
    return {read, write};
  }
};

struct over_stream {
  static constexpr std::size_t message_bytes = 60'000;  ///< takes several steps
  using link = stream_of_script;
  using session = tp::stream_session<raw_net<mlp, tp::tcp>::parts, link>;
};
struct over_datagrams {
  static constexpr std::size_t message_bytes = 1'000;  ///< goes without an answer
  using link = link_of_script;
  using session = tp::datagram_session<tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<1112>, tp::udp>::parts, link>;
};

template <class Over>
struct SessionLaws : testing::Test {
  struct address {
    script* of;
    tp::result<typename Over::link> connect(std::chrono::milliseconds, const tp::stop_token&) const noexcept {
      typename Over::link link{};
      link.of = of;
      return link;
    }
  };
  static auto with(script& s) {
    typename Over::link link{};
    link.of = &s;
    return std::move(*Over::session::over(std::move(link)));
  }
};
using wires = testing::Types<over_stream, over_datagrams>;
TYPED_TEST_SUITE(SessionLaws, wires);

TYPED_TEST(SessionLaws, A_peer_that_talks_without_pause_does_not_stop_the_time) {
  script peer{.then = mood::talks_without_pause};
  for (std::uint32_t id = 1; id <= 64; ++id) peer.says.push_back(bytes_of(encode(describe_of_nothing(id))));
  auto session = TestFixture::with(peer);
  EXPECT_EQ(code_of(session.receive(50ms, within(10s))), errc::timed_out);
  EXPECT_EQ(code_of(session.serve([](const auto&) { return false; }, 50ms, within(10s))), errc::timed_out);
}

TYPED_TEST(SessionLaws, What_a_peer_asks_after_the_end_of_serve_is_for_the_next_call) {
  script peer{.then = mood::talks_without_pause};
  for (std::uint32_t id = 1; id <= 64; ++id) peer.says.push_back(bytes_of(encode(describe_of_nothing(id))));
  auto session = TestFixture::with(peer);
  std::size_t before = 0;
  EXPECT_TRUE(session.serve([&](const auto&) { return (before = peer.pieces) > 0; }, 2s));
  EXPECT_EQ(peer.pieces, before);
}

TYPED_TEST(SessionLaws, Messages_that_came_before_the_end_are_received_before_the_error) {
  script listener{};
  {
    auto session = TestFixture::with(listener);
    (void)session.send(5, {}, {}, 20ms);  // over datagrams nobody says that it has come
  }
  script peer{.then = mood::closes, .says = listener.told};
  auto session = TestFixture::with(peer);
  EXPECT_EQ(code_of(session.serve([](const auto&) { return false; }, 30s)), errc::connection_lost);
  const auto got = session.receive(30s);
  ASSERT_TRUE(succeeded(got));
  EXPECT_EQ(got->kind, 5u);
  EXPECT_EQ(code_of(session.receive(30s)), errc::connection_lost);
}

TYPED_TEST(SessionLaws, What_was_waited_for_may_come_with_the_last_bytes) {
  script listener{};
  {
    auto session = TestFixture::with(listener);
    (void)session.send(6, {}, {}, 20ms);
  }
  script peer{.then = mood::closes, .says = listener.told};
  auto session = TestFixture::with(peer);
  const auto got = session.receive(30s);
  ASSERT_TRUE(succeeded(got));
  EXPECT_EQ(got->kind, 6u);
}

TYPED_TEST(SessionLaws, A_message_that_is_there_is_received_without_waiting) {
  script listener{};
  {
    auto session = TestFixture::with(listener);
    (void)session.send(7, {}, byte_vector(TypeParam::message_bytes), 20ms);
  }
  script peer{.says = listener.told};
  auto session = TestFixture::with(peer);
  const auto got = session.receive(0ms);
  ASSERT_TRUE(succeeded(got));
  EXPECT_EQ(got->kind, 7u);
  EXPECT_EQ(got->body.size(), TypeParam::message_bytes);
}

TYPED_TEST(SessionLaws, An_address_may_be_an_object_that_connects) {
  script peer{.then = mood::closes};
  auto session = TypeParam::session::connect(typename TestFixture::address{&peer});
  ASSERT_TRUE(session);
  EXPECT_EQ(code_of(session->receive(30s)), errc::connection_lost);
}

TYPED_TEST(SessionLaws, Publishes_references_that_settle_together) {
  script peer{};
  auto session = TestFixture::with(peer);
  const auto model = random_model<mlp>(1);
  const auto together = session.open_transaction({.recipients = 1});
  ASSERT_TRUE(together);
  const auto first = session.add_tensors(*model, {.transaction = *together}),
             second = session.add_tensors(*model, {.transaction = *together});
  ASSERT_TRUE(first && second);
  session.seal(*together);
  EXPECT_EQ(session.settlement_of(*second)->verdict, tp::verdict::open);
  ASSERT_TRUE(session.withdraw(*first));
  EXPECT_FALSE(session.settled(*first)) << "the other one is open";
  ASSERT_TRUE(session.withdraw(*second));
  EXPECT_TRUE(session.settled(*first));
}

TYPED_TEST(SessionLaws, Authorise_is_asked_before_anything_is_said) {
  script peer{.says = {bytes_of(encode(describe_of_nothing(1)))}};
  auto session = TestFixture::with(peer);
  int asked = 0;
  session.authorise([&](const tp::access_request& r) { return ++asked > 0 && r.recipient.value != 77; });
  (void)session.serve([&](const auto&) { return !peer.told.empty(); }, 30s);
  EXPECT_EQ(asked, 1);
}

/// Whether the answer to its question is among the first `n` pieces that the other end was told.
bool located(const script& s, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i)
    for (const_byte_span left = s.told[i]; left.size() >= 24;) {
      if (kind_of(left) == tp::frame_kind::located) return true;
      const auto size = tp::detail::measure_frame(left, left.size(), 16);
      if (!size || !*size) break;
      left = left.subspan(**size);
    }
  return false;
}
/// Tensors whose digests take 1 to 12 slices: a digest is ready in a write, or in a read in which nothing comes.
model several_slices() {
  model m;
  for (std::uint64_t i = 0; i < 12; ++i) m.add(std::to_string(i), dtype::u8, {(i + 1) * 64 * 1024});
  return std::move(m.ready().fill(1));
}

TYPED_TEST(SessionLaws, An_answer_leaves_as_soon_as_its_digest_is_ready_whatever_comes_meanwhile) {
  const model source = several_slices();
  for (std::size_t i = 0; i < source.size(); ++i)
    for (const bool pulls : {false, true}) {
      script peer{};
      auto session = TestFixture::with(peer);
      const auto ref = session.add_image(source.source());
      ASSERT_TRUE(ref);
      const std::string_view name = source.schema().tensors[i].name;
      peer.says = {bytes_of(encode(locate_one(7, ref->id, {&name, 1})))};
      if (pulls) {
        const auto mine = blank<mlp>();
        (void)session.download_tensors(tp::ref_id{3, 4}, *mine, {.believe = true, .stop = peer.waited.get_token()});
      } else {
        (void)session.serve([](const auto&) { return false; }, 60s, peer.waited.get_token());
      }
      EXPECT_TRUE(located(peer, peer.told_before)) << name << (pulls ? ": while it pulls" : "");
    }
}

}  // namespace session_laws_test
