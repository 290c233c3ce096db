// Recipients that ask for an owner's memory again and again, and read no answer.
#include "shm.hpp"

#include "support/child_process.hpp"
#include "support/frames.hpp"

#include <sys/resource.h>

namespace shm_strangers_test {

using namespace test;
using net = shared_net<>;

/// Runs it in a process of its own, whose user may have 64 descriptors under way. Root, which may have any number,
/// becomes nobody there.
void expect_as_a_user(bool (*holds)()) {
  EXPECT_EQ(in_a_process([=] {
              rlimit few{};
              ::getrlimit(RLIMIT_NOFILE, &few);
              few.rlim_cur = 64;
              ::setrlimit(RLIMIT_NOFILE, &few);
              if (::geteuid() == 0 && ::setuid(65534) != 0) return 2;
              return holds() ? 0 : 1;
            }),
            0);
}

/// Connections that have asked so often, and read nothing.
std::vector<tp::unix_stream> unread(const std::string& at, const tp::reference& ref, unsigned connections,
                                    unsigned requests) {
  std::vector<tp::unix_stream> out;
  for (unsigned i = 0; i < connections; ++i) {
    auto s = tp::unix_connect(at, 10s);
    if (!s) break;
    for (unsigned k = 1; k <= requests; ++k) {
      tp::frame m;
      m.kind = tp::frame_kind::describe, m.id = k, m.ref = ref.id, m.recipient = {77 + i}, m.memory = true;
      const frame f = encode(m, 4096);
      if (write_some(*s, f.bytes()).bytes == 0) break;  // the owner takes no more
      be_slow(1ms);                               // one answer for each
    }
    out.push_back(std::move(*s));
  }
  return out;
}

TEST(SharedStrangers, Two_recipients_that_read_nothing_keep_no_other_from_the_memory) {
  expect_as_a_user([] {
    shared_owner<net> at;
    const auto source = random_model<mlp>(1);
    const auto ref = at.add(*source, {});
    at.serve();
    const auto strangers = unread(at.address, ref, 2, 300);
    bool seen = true;
    for (int i = 0; i < 20; ++i) {  // the owner has answered them by now
      const auto view = net::view(at.address, ref);
      seen = seen && view;
    }
    return seen && strangers.size() == 2;
  });
}

TEST(SharedStrangers, As_many_as_there_are_descriptors_under_way_keep_no_other_from_the_bytes) {
  expect_as_a_user([] {
    shared_owner<net> at;
    const auto source = random_model<mlp>(2), mine = blank<mlp>();
    const auto ref = at.add(*source, {});
    at.serve();
    const auto strangers = unread(at.address, ref, 20, 300);
    bool arrived = strangers.size() == 20;
    for (int i = 0; i < 5; ++i) {
      *mine = {};
      const auto done = net::download_tensors(at.address, ref, *mine,
                                              {.per_request_timeout = 20s, .retry = {.retries = 0}});
      arrived = arrived && done && done->confirmed && same(*mine, *source);
    }
    return arrived;
  });
}

}  // namespace shm_strangers_test
