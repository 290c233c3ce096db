#include <tensorpull/chunking/policies.hpp>
#include <tensorpull/consumers/land.hpp>
#include <tensorpull/framing/word_framing.hpp>
#include <tensorpull/integrity/xxhash/policies.hpp>
#include <tensorpull/protocol/owner/owner.hpp>
#include <tensorpull/protocol/recipient/transfer.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/transports/session/inbox.hpp>

#include <gtest/gtest.h>

namespace roles_test {

using namespace tensorpull;

// What plays a role, and what does not.
static_assert(owner_role<owner<xxhash_digest>> && owner_role<no_owner>);
static_assert(transfer_role<transfer<land, fixed_bytes<4096>, image_digest>> && transfer_role<no_transfer>);
static_assert(message_handler<inbox<default_limits>> && message_handler<ignore_messages>);
static_assert(!owner_role<no_transfer> && !transfer_role<no_owner> && !message_handler<no_owner> && !owner_role<int> &&
              !message_handler<int>);

struct only_ready {
  bool ready() const noexcept { return true; }
};
static_assert(!message_handler<only_ready>);

struct forgetful : no_owner {
  void forget() {}  // hides the one that takes a peer
};
static_assert(!owner_role<forgetful>);

struct endless : no_transfer {
  void ended() {}
};
static_assert(!transfer_role<endless>);

TEST(Roles, An_end_that_owns_nothing_says_so_and_asks_for_nothing) {
  no_owner none;
  no_owner::peer peer;
  frame request, answer;
  request.id = 7;
  request.ref = {1, 2};
  none.locate(peer, request, {}, answer);
  EXPECT_EQ(answer.kind, frame_kind::refused);
  EXPECT_EQ(answer.status, status::unknown_reference);
  EXPECT_EQ(answer.id, 7u);
  EXPECT_EQ(answer.ref, request.ref);
  pending_reply reply;
  EXPECT_FALSE(none.handle(peer, request, reply));
  EXPECT_FALSE(no_transfer::next(request));
  EXPECT_TRUE(no_transfer::ended());
}

}  // namespace roles_test
