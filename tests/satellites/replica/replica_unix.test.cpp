// Replicas over Unix sockets, whose coordinator is a path, too.
#include "transports/network.hpp"
#include "transports/unix_folder.hpp"

#include <tensorpull/core/describe.hpp>
#include <tensorpull/satellites/replica/replica_owner.hpp>
#include <tensorpull/transports/over/unix_socket/unix_socket.hpp>

namespace replica_unix_test {

using namespace test;

constexpr tp::ref_id shared{41, 42};
using net = tp::pipeline<tp::raw_tensors<large>, tp::fixed_bytes<256_KiB>, tp::unix_socket>;
using UnixReplica = unix_folder;

TEST_F(UnixReplica, Gives_chunks_the_coordinator_settles_and_nothing_is_left) {
  const std::size_t before = descriptors();
  const auto model = random_model<large>(1);
  {
    const auto mine = blank<large>();
    auto coordinator = net::downloader::open({.listen = path()});
    ASSERT_TRUE(succeeded(coordinator));
    const auto ref = *coordinator->add_tensors(*model, {.recipients = 1, .id = shared});
    auto replica = tp::replica_of<net>::open(folder() + "/replica", path());
    ASSERT_TRUE(succeeded(replica));
    EXPECT_EQ(replica->port(), 0u);
    ASSERT_TRUE(replica->add_tensors(*model, {.id = shared}));
    serving first(*coordinator), second(*replica);
    const auto done = net::download_tensors(folder() + "/replica", ref, *mine);
    ASSERT_TRUE(confirmed(done));
    EXPECT_TRUE(same(*mine, *model));
    first.stop(), second.stop();
    EXPECT_EQ(coordinator->settlement_of(ref)->verdict, tp::verdict::completed);
    EXPECT_LE(coordinator->settlement_of(ref)->counts.bytes_sent, 256_KiB);
    EXPECT_EQ(replica->counts().own, sizeof(large) / 256_KiB);
  }
  EXPECT_EQ(descriptors(), before);
  EXPECT_EQ(files(), 0u);
}

TEST_F(UnixReplica, Whose_coordinator_was_never_there_refuses_as_owner_lost) {
  const auto model = random_model<large>(2), mine = blank<large>();
  auto replica = tp::replica_of<net>::open(folder() + "/replica", path(), {.gone = 300ms});
  ASSERT_TRUE(replica);
  ASSERT_TRUE(replica->add_tensors(*model, {.id = shared}));
  serving on(*replica);
  const auto done = net::download_tensors(folder() + "/replica", tp::reference{shared, 0, 0}, *mine);
  EXPECT_EQ(code_of(done), errc::owner_lost);
}

}  // namespace replica_unix_test
