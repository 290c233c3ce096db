// What attackers cost the others: the owner's own processor time for one good recipient, with and without them, in one
// interleaved run.
#include "network.hpp"
#include "support/frames.hpp"
#include "support/processor_time.hpp"
#include "support/sanitizers.hpp"

#include <algorithm>
#include <functional>
#include <map>

namespace tcp_attack_test {

using namespace test;
/// Budgets are in seconds of a clock, shares in seconds of a processor, which may have much else to do.
struct patient : tp::default_limits {
  static constexpr std::uint64_t subset_bytes_per_second = 16_MiB;
  static constexpr std::uint64_t chunk_digest_bytes_per_second = 16_MiB;
};
using net = raw_net<large, tp::tcp, patient>;

// A sanitizer, or no optimisation, slows the library and not the kernel, so shares of time mean nothing there; what is
// counted does.
#if defined(TENSORPULL_TEST_SANITIZED) || !defined(__OPTIMIZE__)
constexpr bool measures = false;
constexpr int pairs = 4;
#else
constexpr bool measures = true;
constexpr int pairs = 60;
#endif

/// Where in a transfer of 192 chunks the attacker acts: once in 4 MiB. 200 times a second stands for a recipient that
/// gets 800 MiB/s.
constexpr std::array<std::uint64_t, 3> acts_at{32, 96, 160};

/// Everything that the owner's application hears.
struct Reports {
  std::size_t connected_count = 0, others = 0;
  std::map<errc, std::size_t> closed_with;
  template <class C> void connected(C&) { ++connected_count; }
  template <class C> void message(C&, const tp::message&) { ++others; }
  template <class C> void pulled(C&, const tp::result<tp::receipt>&) { ++others; }
  template <class C> void closed(C&, const tp::error& e) { ++closed_with[e.code]; }
};

/// Pulls whenever it is told to, over one connection.
struct good_client {
  struct counting : tp::land {
    std::uint64_t* chunks;
    counting(large& m, std::uint64_t& n) noexcept : tp::land(tp::raw_tensors<large>::destination(m)), chunks(&n) {}
    tp::result<void> chunk(std::uint64_t, std::uint64_t) noexcept {
      ++*chunks;
      return tp::result<void>{};
    }
  };
  using host_type = net::host<good_client, counting>;
  host_type::connection* to_owner = nullptr;
  std::uint64_t chunks = 0;
  int completed = 0, failed = 0;
  void connected(host_type::connection& c) { to_owner = &c; }
  void message(host_type::connection&, const tp::message&) {}
  void pulled(host_type::connection&, const tp::result<tp::receipt>& r) {
    ++(r && r->outcome == tp::outcome::completed ? completed : failed);
  }
  void closed(host_type::connection&, const tp::error&) { ++failed; }
};

/// An owner, a good client and an attacker that take turns on one thread.
class arena {
 public:
  std::unique_ptr<large> source = random_model<large>(1), mine = blank<large>();
  tp::event_loop owner_io, client_io;
  Reports heard;
  good_client client;
  // so long that a peer that guesses stays
  net::host<Reports, tp::no_consumer> owner{owner_io, heard, {.budgets = {.accept = 600s}}};
  good_client::host_type clients{client_io, client};
  std::uint16_t port = *owner.listen(any_port);
  tp::reference ref = *owner.published().add_tensors(*source);

  arena() {
    EXPECT_TRUE(clients.connect(local(port)));
    while (client.to_owner == nullptr && client.failed == 0) turn();
  }
  /// The owner's processor time for one turn of everybody.
  double turn() {
    const double before = processor_seconds();
    owner_io.poll();
    const double spent = processor_seconds() - before;
    client_io.poll();
    return spent;
  }
  /// The owner's processor time for one transfer and what the attacker does meanwhile.
  template <class Attack>
  double transfer(Attack attack) {
    const int before = client.completed;
    client.chunks = 0;
    EXPECT_TRUE(client.to_owner->pull(ref, {}, *mine, client.chunks));
    double spent = 0;
    for (bool busy = true; (client.completed == before || busy) && client.failed == 0;) {
      spent += turn();
      busy = attack(client.chunks);
    }
    return spent;
  }
  /// Transfers without and with the attacker in turn: the share of its rate that the good client keeps.
  template <class Attack>
  double kept_share(Attack attack) {
    std::vector<double> quiet, attacked;
    for (int i = 0; i < pairs && client.failed == 0; ++i) {
      quiet.push_back(transfer([](std::uint64_t) { return false; }));
      std::size_t acted = 0;
      attacked.push_back(transfer([&](std::uint64_t chunks) {
        const bool now = acted < acts_at.size() && chunks >= acts_at[acted];
        acted += now ? 1 : 0;
        return attack(now) || acted < acts_at.size();
      }));
    }
    EXPECT_EQ(client.completed, 2 * pairs);
    EXPECT_EQ(client.failed, 0);
    EXPECT_TRUE(same(*source, *mine));
    const auto counts = *owner.published().status_of(ref);
    EXPECT_EQ(std::tuple(counts.acquired, counts.completed, counts.failed, counts.cancelled, counts.lost),
              std::tuple(1u, 1u, 0u, 0u, 0u));
    return median(quiet) / median(attacked);
  }
};

TEST(TcpAttack, F18_FrameErrorsOfOneClientLeaveAGoodOneItsRateAndCostOneReportEach) {
  arena a;
  const std::array<std::string, 4> bad{std::string("GET / HTTP/1.1\r\n\r\n"), std::string(16, '\0'),
                                       std::string(8, '\xff'), std::string("SSH-2.0-OpenSSH_9.2\r\n")};
  std::optional<raw_peer> attacker;
  std::size_t errors = 0;
  const std::size_t files = descriptors();
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const double share = a.kept_share([&](bool now) {
    if (now) {
      attacker.emplace(a.port);
      EXPECT_TRUE(attacker->say(bad[errors++ % bad.size()]));
    } else if (attacker) {
      std::byte b;
      const byte_span one(&b, 1);
      if (attacker->stream().read_some({&one, 1}).status == tp::io_status::closed) attacker.reset();
    }
    return attacker.has_value();
  });
  EXPECT_EQ(testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr(), "")
      << "the library prints nothing";
  EXPECT_EQ(errors, acts_at.size() * pairs);
  EXPECT_EQ(a.heard.connected_count, errors + 1);
  EXPECT_EQ(a.heard.closed_with[errc::bad_frame] + a.heard.closed_with[errc::too_large], errors)
      << "one report for each bad client";
  EXPECT_EQ(a.heard.closed_with.size(), 2u);
  EXPECT_EQ(a.heard.others, 0u);
  EXPECT_EQ(a.owner.connections(), 1u);
  EXPECT_EQ(descriptors(), files);
  RecordProperty("kept_percent", static_cast<int>(100 * share));
  EXPECT_TRUE(!measures || share >= 0.8) << share;
}

TEST(TcpAttack, R7_TenThousandGuessedReferencesFindNothingAndLeaveAGoodRecipientItsRate) {
  arena a;
  raw_peer guesser(a.port);
  constexpr std::size_t burst = 56;  // 10,000 a second at the same 800 MiB/s
  generator random(7);
  std::uint32_t asked = 0, refused = 0;
  byte_vector heard, piece(64 * 1024);
  const double share = a.kept_share([&](bool now) {
    if (now) {
      byte_vector all;
      for (std::size_t i = 0; i < burst; ++i) {
        const auto kind = i % 2 == 0 ? tp::frame_kind::describe : tp::frame_kind::pull;
        const auto ref = i % 8 == 0 ? tp::ref_id{a.ref.id.high ^ (1ull << random.below(64)), a.ref.id.low}
                                    : tp::ref_id{random(), random()};  // near misses, too
        const auto guess = request(kind, asked++, ref, 0, 64 * 1024);
        all.insert(all.end(), guess.begin(), guess.end());
      }
      EXPECT_TRUE(guesser.say(all));
    }
    const auto n = read_some(guesser.stream(), piece).bytes;
    heard.insert(heard.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(n));
    std::size_t at = 0;
    for (;;) {
      const const_byte_span rest = std::span(heard).subspan(at);
      const auto size = tp::detail::measure_frame(rest, 4096, 16);
      if (!size || !*size || rest.size() < **size) break;
      const decoded d{frame(rest.first(**size))};
      EXPECT_TRUE(d.outcome && d.m.kind == tp::frame_kind::refused && d.m.status == tp::status::unknown_reference &&
                  d.m.id == refused);
      ++refused;
      at += **size;
    }
    heard.erase(heard.begin(), heard.begin() + static_cast<std::ptrdiff_t>(at));
    return refused < asked;
  });
  EXPECT_EQ(refused, burst * acts_at.size() * pairs) << "no hit";
  EXPECT_TRUE(a.heard.closed_with.empty()) << "a guess is no reason to close";
  for (std::size_t i = 1; i < patient::references; ++i)
    EXPECT_TRUE(a.owner.published().add_tensors(*a.source)) << "a guess took a slot: " << i;
  EXPECT_EQ(code_of(a.owner.published().add_tensors(*a.source)), errc::table_full);
  RecordProperty("kept_percent", static_cast<int>(100 * share));
  EXPECT_TRUE(!measures || share >= 0.8) << share;
}

/// An image of 20,000 tensors of 64 KiB, which all lie in the same memory.
struct wide_image {
  static constexpr std::size_t count = 20'000, bytes = 64 * 1024;
  byte_vector memory = byte_vector(bytes, std::byte{7});
  std::vector<std::string> names;
  std::optional<tp::dynamic_image> image;
  wide_image() {
    const std::uint64_t shape[] = {bytes};
    std::vector<tp::tensor_view> views;
    for (std::size_t i = 0; i < count; ++i) names.push_back("layers." + std::to_string(i) + ".weight");
    for (const auto& name : names) views.push_back({name, dtype::u8, shape, memory.data()});
    image.emplace(std::move(*tp::dynamic_image::make(views)));
  }
};

/// Asks in bursts, over a new connection each time or over the same, and reads all answers or none.
struct storm {
  std::function<void(byte_vector& all, std::uint32_t number)> ask;
  std::size_t requests;
  bool hangs_up;
};

TEST(TcpAttack, Requests_that_cost_the_owner_more_than_they_send_leave_a_good_recipient_its_rate) {
  const wide_image wide;
  const tp::ref_id id{77, 78};
  const auto put = [](byte_vector& all, const tp::frame& m) {
    const auto f = encode(m, 4096);
    all.insert(all.end(), f.bytes().begin(), f.bytes().end());
  };
  const auto about = [&](tp::frame_kind kind, std::uint32_t number) {
    tp::frame m;
    m.kind = kind, m.id = number, m.ref = id;
    return m;
  };
  const std::map<std::string, storm> storms{
      {"digests_of_chunks",
       {[&](auto& all, std::uint32_t n) {
          tp::frame m = about(tp::frame_kind::pull, n);
          m.offset = std::uint64_t{n} * 4099, m.length = 64 << 20, m.chunk_digest = tp::digest_kind::xxh3_64;
          put(all, m);
        },
        8, true}},
      {"digests_of_subsets",
       {[&](auto& all, std::uint32_t n) {
          std::vector<std::string_view> names;
          for (std::size_t i = 0; i < 100; ++i) names.push_back(wide.names[(n * 31 + i * 197) % wide_image::count]);
          tp::frame m = about(tp::frame_kind::locate, n);
          m.names = names;
          put(all, m);
        },
        2, false}},
      {"new_recipients",
       {[&](auto& all, std::uint32_t n) {
          tp::frame m = about(tp::frame_kind::describe, n);
          m.recipient = {std::uint64_t{n} * 7919 + 1};
          put(all, m);
        },
        28, false}},
      {"single_bytes_of_the_header",
       {[&](auto& all, std::uint32_t n) {
          tp::frame m = about(tp::frame_kind::pull, n);
          m.offset = wide.image->schema().header_bytes - 20, m.length = 1;
          put(all, m);
        },
        28, false}},
  };
  for (const auto& storm_of_name : storms) {
    const auto& name = storm_of_name.first;
    const auto& s = storm_of_name.second;
    SCOPED_TRACE(name);
    arena a;
    ASSERT_TRUE(a.owner.published().add_image(wide.image->source(), {.id = id}));
    std::optional<raw_peer> attacker;
    std::uint32_t number = 0;
    byte_vector piece(256 * 1024);
    const double share = a.kept_share([&](bool now) {
      if (now) {
        byte_vector all;
        if (s.hangs_up || !attacker) {
          attacker.emplace(a.port);
          // a peer that has asked for something that is there has buffers for long frames
          put(all, about(tp::frame_kind::describe, ++number));
        }
        for (std::size_t i = 0; i < s.requests; ++i) s.ask(all, ++number);
        EXPECT_TRUE(attacker->say(all));
      } else if (attacker && !s.hangs_up) {
        (void)read_some(attacker->stream(), piece);
      }
      return false;
    });
    RecordProperty("kept_percent_with_" + name, static_cast<int>(100 * share));
    EXPECT_TRUE(!measures || share >= 0.8) << share;
  }
}

TEST(TcpAttack, F7_TwoRequestsInOneSegmentAndAHundredAtOnceAreAnsweredInOrder) {
  owner_at_work<net, large> o;
  raw_peer peer(o.owner->port());
  std::uint32_t id = 0;
  for (const std::size_t n : {2u, 100u}) {
    byte_vector all;
    for (std::size_t i = 0; i < n; ++i) {
      const auto one = request(tp::frame_kind::describe, id + static_cast<std::uint32_t>(i), o.ref.id, 0, 0);
      all.insert(all.end(), one.begin(), one.end());
    }
    ASSERT_TRUE(peer.say(all));
    for (std::size_t i = 0; i < n; ++i, ++id) {
      auto answer = peer.hear(8);
      const auto size = tp::detail::measure_frame(answer, 4096, 16);
      ASSERT_TRUE(size && *size);
      const auto rest = peer.hear(**size - 8);
      answer.insert(answer.end(), rest.begin(), rest.end());
      const decoded d{frame(answer)};
      ASSERT_TRUE(d.outcome);
      EXPECT_EQ(d.m.kind, tp::frame_kind::description);
      EXPECT_EQ(d.m.id, id);
    }
  }
}

}  // namespace tcp_attack_test
