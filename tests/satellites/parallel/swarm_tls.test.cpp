// The door of a swarm over TLS, and members that are sessions of the library.
#include "swarm_in_hand.hpp"
#include "transports/certificates.hpp"

#include <tensorpull/transports/over/tls/tls.hpp>
#include <tensorpull/transports/session/stream_session.hpp>

namespace swarm_tls_test {

using namespace test;
using net = raw_net<tiny, tp::tls>;

/// The answer to a join over a session.
std::optional<swarm::list> ask(net::session& s, const tp::reference& ref, std::string_view address) {
  const auto said = s.send(swarm::join_kind, {&ref, 1}, join_body(address));
  EXPECT_TRUE(said);
  const auto got = s.receive(60s);
  EXPECT_TRUE(succeeded(got));
  if (!said || !got) return std::nullopt;
  EXPECT_EQ(got->kind, swarm::list_kind);
  const auto list = swarm::decode_list(got->body);
  EXPECT_TRUE(list);
  return list ? std::optional(*list) : std::nullopt;
}

TEST(SwarmDoorOverTls, Members_are_told_of_each_other_and_the_program_knows_their_certificates) {
  const pki p;
  const auto source = random_model<tiny>(1);
  const auto server = context_of(&p.server, p.authority, {.clients_have_certificates = true});
  const auto client = context_of(&p.client, p.authority);
  auto owner = net::downloader::open(tp::tls_address{"127.0.0.1:0", server});
  ASSERT_TRUE(owner);
  const auto ref = *owner->add_tensors(*source), other = *owner->add_tensors(*source);
  owner->publications().authorise([&](const tp::access_request& r) {
    return r.peer.kind == tp::identity_kind::certificate && r.peer.name == "site-1" && r.ref == ref.id;
  });
  auto door = tp::open_swarm_door<tp::tls>(*owner, tp::tls_address{"127.0.0.1:0", server});
  ASSERT_TRUE(succeeded(door));
  serving runs(*owner);
  const std::string where = local(door->port());
  auto one = net::session::connect(tp::tls_address{where, client}),
       two = net::session::connect(tp::tls_address{where, client});
  ASSERT_TRUE(one && two);
  EXPECT_EQ(ask(*one, ref, "1")->count, 0u);
  const auto list = ask(*two, ref, "[::]:2");
  ASSERT_EQ(list->count, 1u);
  EXPECT_EQ(list->others[0].address.view(), "127.0.0.1:" + std::to_string(1));
  ASSERT_TRUE(one->send(swarm::join_kind, {&other, 1}, join_body("1")));
  EXPECT_EQ(ask(*one, ref, "1")->count, 1u) << "what it may not have is not answered";
  EXPECT_TRUE(arrives<net>(tp::tls_address{where, client}, ref, *source));
}

}  // namespace swarm_tls_test
