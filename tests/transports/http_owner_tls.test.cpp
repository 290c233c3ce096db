// HTTPS with the library's TLS: beside frames on one port, and on a door of its own; the certificate says who asks.
#include "certificates.hpp"
#include "http_client.hpp"

#include <tensorpull/transports/tls/tls.hpp>

namespace {

using namespace test;
using net = tp::pipeline<tp::raw_tensors<large>, tp::fixed_bytes<64_KiB>, tp::with_http<tp::tls>>;
using plain = tp::pipeline<tp::raw_tensors<large>, tp::fixed_bytes<64_KiB>, tp::tls>;

/// Says a request over TLS and gives what is answered until `most` bytes came behind the head, or the other side closed.
std::string asked(const tp::tls_address& where, const std::string& request, std::size_t most) {
  auto s = where.connect(10s);
  EXPECT_TRUE(s) << to_string(s.error().code);
  if (!s) return {};
  const std::array<std::span<const std::byte>, 1> out{std::as_bytes(std::span(request))};
  EXPECT_EQ(s->write_some(out).bytes, request.size());
  std::string text;
  std::vector<std::byte> room(65536);
  const std::array<std::span<std::byte>, 1> in{std::span(room)};
  for (const auto end = std::chrono::steady_clock::now() + 20s; std::chrono::steady_clock::now() < end;) {
    const auto io = s->read_some(in);
    text.append(reinterpret_cast<const char*>(room.data()), io.bytes);
    const std::size_t head = text.find("\r\n\r\n");
    if (tp::is_end(io.status) || (head != text.npos && text.size() >= head + 4 + most)) break;
    if (io.bytes == 0) s->wait(true, false, 20ms);
  }
  return text;
}

TEST(HttpOwnerTls, the_image_comes_whole_on_the_port_of_frames_and_through_a_door) {
  const pki p;
  const auto source = random_model<large>(1);
  const std::string image = image_of(*source);
  const auto server = context_of(&p.server, p.authority), client = context_of(nullptr, p.authority);
  auto owner = net::downloader::open(tp::tls_address{"127.0.0.1:0", server});
  ASSERT_TRUE(owner);
  auto door = tp::open_http_door<tp::tls>(*owner, tp::tls_address{"127.0.0.1:0", server});
  ASSERT_TRUE(door);
  const auto ref = *owner->add_tensors(*source);
  serving thread(*owner);
  const auto mine = blank<large>();
  const std::string where = local(owner->port()), beside = local(door->port());
  EXPECT_TRUE(plain::download_tensors(tp::tls_address{where, client}, ref, *mine));
  EXPECT_TRUE(same(*mine, *source));
  const std::string request = http_client::request("GET", path_of(ref), ref);
  for (const auto& address : {where, beside}) {
    const std::string text = asked(tp::tls_address{address, client}, request, image.size());
    ASSERT_EQ(text.substr(0, 17), "HTTP/1.1 200 OK\r\n");
    EXPECT_TRUE(text.substr(text.find("\r\n\r\n") + 4) == image);
  }
  const std::string refused = asked(tp::tls_address{where, client}, "GET / HTTP/1.1\nHost: a\n\n", 100);
  EXPECT_EQ(refused.substr(0, 26), "HTTP/1.1 400 Bad Request\r\n");
}

TEST(HttpOwnerTls, who_may_is_decided_by_the_certificate_as_for_frames) {
  const pki p;
  const auto source = random_model<large>(1);
  const auto may = [](const tp::access_request& r) { return r.peer.kind == tp::identity_kind::certificate && r.recipient == tp::recipient_named(r.peer.name); };
  auto owner = net::downloader::open(tp::tls_address{"127.0.0.1:0", context_of(&p.server, p.authority, {.clients_have_certificates = true})}, {.authorise = may});
  ASSERT_TRUE(owner);
  const auto ref = *owner->add_tensors(*source);
  serving thread(*owner);
  const std::string where = local(owner->port());
  const identity site({.common_name = "site-7"}, &p.authority);
  const auto head = [&](const char* name) {
    return asked(tp::tls_address{where, context_of(&site, p.authority)}, http_client::request("HEAD", path_of(ref), ref, "Tensorpull-Recipient: " + std::string(name) + "\r\n"), 0).substr(9, 3);
  };
  EXPECT_EQ(head("site-7"), "200");
  EXPECT_EQ(head("site-8"), "404");
}

}  // namespace
