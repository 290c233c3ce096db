// Replicas among hostile recipients, coordinators that lie, and connections that are cut at any byte.
#include "transports/network.hpp"

#include "support/frames.hpp"

#include <tensorpull/core/describe.hpp>
#include <tensorpull/satellites/replica/replica_owner.hpp>

#include <fcntl.h>
#include <poll.h>

#include <atomic>
#include <functional>
#include <optional>
#include <stop_token>

namespace replica_attack_test {

using namespace test;

constexpr tp::ref_id shared{51, 52}, stranger{53, 54};
using net = raw_net<mlp, tp::tcp>;
constexpr tp::retry_policy patient{.retries = 20, .first_delay = 1ms, .longest_delay = 50ms};

struct coordinator_and_replica {
  std::unique_ptr<mlp> model = random_model<mlp>(1);
  own_port place;
  net::downloader coordinator = opened();
  tp::reference ref;
  std::optional<tp::replica_of<net>> replica;
  std::optional<serving> first, second;

  explicit coordinator_and_replica(std::uint32_t recipients = 1)
      : ref(*coordinator.add_tensors(*model, {.recipients = recipients, .id = shared})) {
    first.emplace(coordinator);
  }
  /// `at`: where the replica finds the coordinator; 0: at its port.
  void begin_replica(std::uint16_t at = 0, const tp::replica_options& options = {}) {
    auto r = tp::replica_of<net>::open(any_port, local(at != 0 ? at : coordinator.port()), options);
    ASSERT_TRUE(r);
    replica.emplace(std::move(*r));
    ASSERT_TRUE(replica->add_tensors(*model, {.id = shared}));
    second.emplace(*replica);
  }
  void stop() { second.reset(), first.reset(); }
  net::downloader opened() const {
    auto o = net::downloader::open({.listen = local(place)});
    EXPECT_TRUE(o);
    return std::move(*o);
  }
};

/// Carries what is said in both directions between the peers that connect and an owner, and cuts every connection when
/// `most` bytes have passed. Later ones go through.
class cutting_relay {
 public:
  cutting_relay(std::uint16_t to, std::size_t most) : to_(to), left_(most) {}
  std::uint16_t port() const { return listener_.port(); }
  std::size_t carried() const { return carried_; }

 private:
  struct line {
    tp::posix_stream ends[2];
    byte_vector waiting[2]{};  // from the end of that number
    bool over = false;
  };
  void run(const std::stop_token& stop) {
    std::vector<line> lines;
    byte_vector piece(8192);
    while (!stop.stop_requested()) {
      std::vector<pollfd> fds{{listener_.native_handle(), POLLIN, 0}};
      for (const line& l : lines)
        for (const auto& e : l.ends) fds.push_back({e.native_handle(), POLLIN, 0});
      ::poll(fds.data(), fds.size(), 5);
      while (auto from = listener_.next(0ms)) {
        auto there = tp::tcp_connect(local(to_), steady_clock::now() + 10s);
        if (there) lines.push_back({{std::move(from->stream()), std::move(*there)}});
      }
      for (line& l : lines)
        for (int i = 0; i < 2; ++i) l.over = !carry(l, i, piece) || l.over;
      if (left_ == 0 && !cut_) cut_ = true, lines.clear();
      std::erase_if(lines, [](const line& l) { return l.over; });
    }
  }
  bool carry(line& l, int from, byte_vector& piece) {
    auto& waiting = l.waiting[from];
    bool ended = false;
    if (waiting.empty()) {
      const std::array<byte_span, 1> in{std::span(piece).first(cut_ ? piece.size() : std::min(piece.size(), left_))};
      if (in[0].empty()) return true;
      const auto io = l.ends[from].read_some(in);
      waiting.assign(piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(io.bytes));
      ended = io.bytes == 0 && tp::is_end(io.status);
      carried_ += io.bytes;
      if (!cut_) left_ -= io.bytes;
    }
    if (waiting.empty()) return !ended;
    const std::array<const_byte_span, 1> out{waiting};
    const auto io = l.ends[1 - from].write_some(out);
    waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(io.bytes));
    return !tp::is_end(io.status);
  }

  std::uint16_t to_;
  std::size_t left_;
  std::atomic<std::size_t> carried_{0};
  bool cut_ = false;
  raw_listener listener_;
  joined_thread thread_{[this](const std::stop_token& stop) { run(stop); }};
};

/// Where the tests cut: each of the first and last bytes of what passes, and points between.
std::vector<std::size_t> cuts(std::size_t total) {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < 400; i += 37) all.push_back(i), all.push_back(total - std::min(total, i + 1));
  for (std::size_t i = 400; i < total; i += 17'011) all.push_back(i);
  return all;
}

void pull_through_a_cut(bool before_the_replica) {
  std::size_t total = 0;
  {
    coordinator_and_replica c;
    std::optional<cutting_relay> relay;
    if (!before_the_replica) relay.emplace(c.coordinator.port(), ~std::size_t{0});
    c.begin_replica(relay ? relay->port() : std::uint16_t{0});
    if (before_the_replica) relay.emplace(c.replica->port(), ~std::size_t{0});
    const auto mine = blank<mlp>();
    ASSERT_TRUE(net::download_tensors(local(before_the_replica ? relay->port() : c.replica->port()), c.ref, *mine));
    total = relay->carried();
    ASSERT_GT(total, 300u);
  }
  for (const std::size_t most : cuts(total)) {
    coordinator_and_replica c;
    std::optional<cutting_relay> relay;
    if (!before_the_replica) relay.emplace(c.coordinator.port(), most);
    c.begin_replica(relay ? relay->port() : std::uint16_t{0});
    if (before_the_replica) relay.emplace(c.replica->port(), most);
    const auto mine = blank<mlp>();
    const auto done = net::download_tensors(local(before_the_replica ? relay->port() : c.replica->port()), c.ref, *mine,
                                            {.retry = patient});
    ASSERT_TRUE(done) << most << ": " << describe(done.error());
    EXPECT_EQ(done->outcome, tp::outcome::completed) << most;
    EXPECT_TRUE(same(*mine, *c.model)) << most;
    c.stop();
    const auto how = c.coordinator.settlement_of(c.ref);
    ASSERT_TRUE(how);
    EXPECT_LE(how->counts.completed, 1u) << most;
    EXPECT_EQ(how->counts.completed == 1, done->confirmed || how->verdict == tp::verdict::completed) << most;
    EXPECT_EQ(c.replica->counts().broken, 0u) << most;
  }
}

TEST(ReplicaAttack, A_connection_to_it_that_is_cut_at_any_byte_costs_a_connection) { pull_through_a_cut(true); }
TEST(ReplicaAttack, A_line_to_the_coordinator_that_is_cut_at_any_byte_costs_a_connection) { pull_through_a_cut(false); }

void add(byte_vector& to, const byte_vector& more) { to.insert(to.end(), more.begin(), more.end()); }

TEST(ReplicaAttack, Recipients_that_ask_for_everything_hurt_nobody_else) {
  using kind = tp::frame_kind;
  coordinator_and_replica c;
  c.begin_replica();
  std::vector<std::unique_ptr<raw_peer>> hostile;
  const auto begin = [&]() -> raw_peer& {
    return *hostile.emplace_back(std::make_unique<raw_peer>(c.replica->port()));
  };
  const auto full = [&](raw_peer& p, const byte_vector& frames) {
    // until neither the peer nor the replica takes more
    for (int i = 0; i < 200; ++i) {
      const auto io = write_some(p.stream(), frames);
      if (io.bytes != frames.size()) break;  // a frame that is cut off follows
    }
  };
  byte_vector storm, overlapping, several;
  for (std::uint32_t i = 0; i < 200; ++i) add(storm, request(kind::describe, i, shared, 0, 0));
  add(overlapping, request(kind::describe, 1, shared, 0, 0));
  for (std::uint32_t i = 2; i < 200; ++i) add(overlapping, request(kind::pull, i, shared, i * 100, 50'000));
  for (std::uint32_t i = 0; i < 100; ++i) {
    add(several, request(kind::describe, 3 * i, i % 3 == 0 ? shared : tp::ref_id{i, i}, 0, 0));
    add(several, request(kind::pull, 3 * i + 1, stranger, ~std::uint64_t{0} - i, ~0u));
    add(several, request(kind::cancel, 3 * i + 2, shared, 0, 0));
  }
  full(begin(), storm);
  full(begin(), overlapping);
  full(begin(), several);
  full(begin(), request(kind::pull, 0xffffffff, shared, 0, 4096));  // the number of a sign of life
  const auto mine = blank<mlp>();
  const auto done = net::download_tensors(local(c.replica->port()), c.ref, *mine, {.per_request_timeout = 60s});
  ASSERT_TRUE(confirmed(done));
  EXPECT_TRUE(same(*mine, *c.model));
  EXPECT_FALSE(hostile[1]->hear(100'000).empty()) << "those who take what they have asked for get it";
  hostile.clear();
  c.stop();
  EXPECT_EQ(c.coordinator.settlement_of(c.ref)->verdict, tp::verdict::completed);
}

/// A coordinator that says to each connection what it likes, once it has been asked.
void coordinator_that_says(
    const std::function<byte_vector(const net::downloader&)>& lie,
    const std::function<void(const tp::result<tp::receipt>&, const tp::replica_counts&)>& check) {
  coordinator_and_replica c;
  raw_listener liar;
  const joined_thread lying([&](const std::stop_token& stop) {
    std::vector<raw_peer> peers;
    while (!stop.stop_requested()) {
      auto p = liar.next(10ms);
      if (p && !p->hear(1).empty()) p->say(lie(c.coordinator)), peers.push_back(std::move(*p));
    }
  });
  c.begin_replica(liar.port(), {.gone = 60s});
  const auto mine = blank<mlp>();
  const auto done = net::download_tensors(local(c.replica->port()), c.ref, *mine,
                                          {.per_request_timeout = 3s, .retry = {.retries = 0}});
  EXPECT_FALSE(done && done->confirmed);
  c.second.reset();
  check(done, c.replica->counts());
}
tp::frame described(const mlp& model) {
  tp::frame m;
  m.kind = tp::frame_kind::description;
  m.id = 1;
  m.ref = shared;
  const auto image = tp::raw_tensors<mlp>::source(model);
  m.version = *tp::image_version<tp::xxhash_digest>(image);
  m.fingerprint = image.schema->fingerprint;
  m.image_bytes = image.schema->image_bytes;
  m.data_start = image.schema->header_bytes;
  m.tensors = image.schema->tensor_count;
  m.nonce = 99;
  m.length = 1 << 20;
  m.flag = true;
  return m;
}
byte_vector bytes_of(const tp::frame& m) {
  const frame f = encode(m);
  return {f.bytes().begin(), f.bytes().end()};
}

TEST(ReplicaAttack, A_coordinator_that_lies_about_the_version_gets_no_chunk_of_the_replicas) {
  const auto model = random_model<mlp>(1);
  coordinator_that_says(
      [&](const auto&) {
        auto m = described(*model);
        ++m.version;
        return bytes_of(m);
      },
      [](const auto& done, const auto& counts) {
        EXPECT_FALSE(done);
        EXPECT_EQ(counts.own, 0u);
      });
}
TEST(ReplicaAttack, A_coordinator_that_lies_about_the_size_allocates_nothing_and_completes_nothing) {
  const auto model = random_model<mlp>(1);
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1} << 60, ~std::uint64_t{0}})
    coordinator_that_says(
        [&](const auto&) {
          auto m = described(*model);
          m.image_bytes = size;
          return bytes_of(m);
        },
        [](const auto& done, const auto&) { EXPECT_FALSE(done); });
}
TEST(ReplicaAttack, A_coordinator_whose_nonce_is_not_its_own_confirms_nothing) {
  const auto model = random_model<mlp>(1);
  coordinator_that_says([&](const auto&) { return bytes_of(described(*model)); },
                        [](const auto& done, const auto& counts) {
                          EXPECT_FALSE(done) << "the last chunk is the coordinator's, and it gives none";
                          EXPECT_GT(counts.own, 0u);
                        });
}
TEST(ReplicaAttack, Answers_that_nobody_asked_for_end_the_line) {
  const auto model = random_model<mlp>(1);
  coordinator_that_says(
      [&](const auto&) {
        auto all = bytes_of(described(*model));
        for (int i = 0; i < 3; ++i) add(all, bytes_of(described(*model)));
        return all;
      },
      [](const auto& done, const auto& counts) {
        EXPECT_FALSE(done);
        EXPECT_GT(counts.broken, 0u);
      });
}
TEST(ReplicaAttack, A_coordinator_that_speaks_another_protocol_ends_the_line) {
  coordinator_that_says([](const auto&) { return byte_vector(4096, std::byte{0xff}); },
                        [](const auto& done, const auto& counts) {
                          EXPECT_FALSE(done);
                          EXPECT_GT(counts.broken, 0u);
                        });
  coordinator_that_says([](const auto&) { return request(tp::frame_kind::describe, 1, shared, 0, 0); },
                        [](const auto& done, const auto& counts) {
                          EXPECT_FALSE(done);
                          EXPECT_GT(counts.broken, 0u) << "a coordinator asks for nothing";
                        });
}

TEST(ReplicaAttack, A_coordinator_that_comes_back_with_other_content_is_not_mixed_with_the_old) {
  const auto other = random_model<mlp>(2);
  coordinator_and_replica c;
  c.begin_replica(0, {.gone = 60s});
  const auto mine = blank<mlp>();
  bool again = false;
  const auto restart = [&](const tp::progress_event& e) {
    if (e.bytes_done < sizeof(mlp) / 2 || std::exchange(again, true)) return;
    c.first.reset();
    {
      const net::downloader gone = std::move(c.coordinator);
    }
    c.coordinator = c.opened();
    ASSERT_TRUE(c.coordinator.add_tensors(*other, {.recipients = 1, .id = shared}));
    c.first.emplace(c.coordinator);
  };
  const auto done = net::download_tensors(
      local(c.replica->port()), tp::reference{shared, 0, 0}, *mine,
      {.window = 1, .retry = patient, .progress = restart, .progress_interval = 0ms});
  EXPECT_TRUE(again);
  EXPECT_EQ(code_of(done), errc::stale_version) << "the last chunk of the old content is nowhere";
  // recipients that come now get the new content, all of it from the coordinator
  const auto before = [&] {
    c.second.reset();
    return c.replica->counts().own;
  }();
  c.second.emplace(*c.replica);
  const auto fresh = net::download_tensors(local(c.replica->port()), tp::reference{shared, 0, 0}, *mine,
                                           {.retry = patient});
  ASSERT_TRUE(succeeded(fresh));
  EXPECT_TRUE(same(*mine, *other));
  c.second.reset();
  EXPECT_EQ(c.replica->counts().own, before);
}

}  // namespace replica_attack_test
