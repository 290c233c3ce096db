// The laws of all transports over NATS.
#include "nats_network.hpp"
#include "support/frames.hpp"
#include "transports/laws.hpp"
#include "transports/third_parties.hpp"
#include "transports/two_way_laws.hpp"

namespace laws_nats_test {

using namespace test;

struct nats_room : usual_room {
  using transport = tp::nats;
  template <class Model>
  using net = nats_net<Model>;
  // the server says that nobody listens for a reference
  static constexpr auto unknown = tp::errc::connection_failed;
  static constexpr bool waits_for_owners = false;
  static bool available() { return !nats_program().empty(); }

  template <class Model>
  auto open(const tp::authorise_callback& may) {
    return net<Model>::downloader::open(
        {.server = {.url = url, .timeout = std::chrono::minutes(1)}, .serving = {.authorise = may}});
  }
  const std::string& where() const { return url; }

  nats_process server;
  std::string url = server.url();
};
INSTANTIATE_TYPED_TEST_SUITE_P(Nats, Laws, nats_room);

/// Others whom the server lets in say anything on the subjects of a reference, and to inboxes that they guess.
struct noisy_nats_room : nats_room {
  void published(const mlp&, const tp::reference& r) { ref = r; }
  auto third_parties() {
    const auto that_says = [this](bool frames) {
      return [this, frames](const std::stop_token& stop, std::atomic<bool>& acts) {
        natsConnection* c = nullptr;
        ASSERT_EQ(natsConnection_ConnectTo(&c, url.c_str()), NATS_OK);
        generator random(3);
        const std::string to[] = {std::string(tp::nats_subject::any(ref.id).view()),
                                  std::string(tp::nats_subject::coordinator(ref.id).view()),
                                  "_INBOX.00000000000000000000000000000001"};
        for (std::uint32_t i = 0; !stop.stop_requested(); ++i) {
          constexpr tp::frame_kind kinds[] = {tp::frame_kind::description, tp::frame_kind::refused,
                                              tp::frame_kind::chunk};  // what an owner does not ask
          tp::frame m;
          m.kind = kinds[i % 3], m.id = i % 64, m.ref = ref.id, m.version = 5, m.nonce = 7, m.length = 64;
          m.image_bytes = 1000, m.data_start = 100, m.status = tp::status::withdrawn;
          std::vector<std::byte> bytes(random() % 1000 + 1, std::byte{0xee});
          if (!frames) random.fill(bytes);
          frame f{std::span<const std::byte>(bytes)};
          if (frames) f = m.kind == tp::frame_kind::chunk ? chunk_frame(m, bytes) : encode(m, 4096);
          EXPECT_EQ(natsConnection_PublishRequest(c, to[i / 3 % 3].c_str(), to[2].c_str(), f.bytes().data(),
                                                  static_cast<int>(f.size())),
                    NATS_OK);
          if (i % 64 == 63) {
            (void)natsConnection_Flush(c);
            acts = true;
            look_again_soon();
          }
        }
        natsConnection_Destroy(c);
      };
    };
    return std::vector<third_party>{{"one that says anything", that_says(false)},
                                    {"one that says what owners say", that_says(true)}};
  }
  tp::reference ref{};
  slow_clock slow{20};  // nothing is asked for again because the machine is slow
};
INSTANTIATE_TYPED_TEST_SUITE_P(Nats, ThirdParties, noisy_nats_room);

struct nats_pair : usual_pair {
  using net = nats_net<mlp>;
  static bool available() { return nats_room::available(); }
  auto ends() {
    const std::string name = "room." + std::to_string(++rooms);
    auto far = net::session::open(room.url + "#" + name);
    return std::pair(net::session::connect(tp::nats_meeting{{.url = room.url}, name}), std::move(far));
  }
  nats_room room;
  int rooms = 0;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Nats, TwoWayLaws, nats_pair);

}  // namespace laws_nats_test
