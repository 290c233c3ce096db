// Ends with the framing for small machines, which have the kinds of their role alone, and hosts with the default
// framing: whole transfers between them.
#include "serial_network.hpp"
#include "unix_folder.hpp"

#include <tensorpull/framing/layout_framing.hpp>
#include <tensorpull/transports/host/owner.hpp>
#include <tensorpull/transports/unix_socket/unix_socket.hpp>

namespace {

using namespace test;

using recipient_framing = tp::basic_layout_framing<tp::recipient_frames>;
using owner_framing = tp::basic_layout_framing<tp::owner_frames>;
template <class Transport, class... Framing>
using net = tp::pipeline<tp::raw_tensors<small>, tp::fixed_bytes<512>, Transport, Framing...>;

/// A pull from an owner of one pipeline by a recipient of another, which completes.
template <class Host, class Device>
void expect_a_transfer(const auto& listen, const auto& address) {
  const auto source = random_model<small>(7), mine = blank<small>();
  auto owner = Host::downloader::open({.listen = listen});
  ASSERT_TRUE(owner) << tp::describe(owner.error());
  const auto ref = *owner->add_tensors(*source, {.recipients = 1});
  serving server(*owner);
  const auto done = Device::download_tensors(address, ref, *mine);
  ASSERT_TRUE(done) << tp::describe(done.error());
  EXPECT_TRUE(done->confirmed);
  EXPECT_TRUE(same(*mine, *source));
  const auto unknown = Device::download_tensors(address, tp::reference{{1, 2}, 0, 0}, *mine);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, tp::errc::unknown_reference);
  server.stop();
  EXPECT_TRUE(owner->settled(ref));
}

using serial = tp::basic_serial<640>;
TEST(LayoutTransfer, A_recipient_over_datagrams) {
  const noisy_line line;
  expect_a_transfer<net<serial>, net<serial, recipient_framing>>(line.right(), line.left());
}
TEST(LayoutTransfer, An_owner_over_datagrams) {
  const noisy_line line;
  expect_a_transfer<net<serial, owner_framing>, net<serial>>(line.right(), line.left());
}
using LayoutTransferOverAStream = unix_folder;
TEST_F(LayoutTransferOverAStream, A_recipient) {
  expect_a_transfer<net<tp::unix_socket>, net<tp::unix_socket, recipient_framing>>(path(), path());
}
TEST_F(LayoutTransferOverAStream, An_owner) {
  expect_a_transfer<net<tp::unix_socket, owner_framing>, net<tp::unix_socket>>(path(), path());
}

}  // namespace
