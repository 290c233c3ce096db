// The seeds of this folder's targets.
#include "fuzz/seeds.hpp"

namespace test::fuzz {
namespace {

void make_inboxes() {
  write("inboxes", "valid-inbox", "_INBOX.0123456789abcdef0123456789abcdef");
  write("inboxes", "valid-inbox-of-a-user", "_INBOX_alice.0123456789abcdef0123456789abcdef");
  write("inboxes", "inbox-wildcard", "_INBOX.*.0123456789abcdef0123456789abcdef");
  write("inboxes", "inbox-other-subject", "tensorpull.0123456789abcdef0123456789abcdef");
}
const seeds mine{make_inboxes};

}  // namespace
}  // namespace test::fuzz
