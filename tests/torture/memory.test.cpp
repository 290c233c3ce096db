// What a pull, a session and an owner's connection take: state, stack, buffers, heap, against what pipeline<...>::memory says.
#include "support/allocation_counter.hpp"
#include "support/painted_stack.hpp"
#include "support/random.hpp"

#include <tensorpull/tensorpull.hpp>

#include <gtest/gtest.h>

#include <sys/socket.h>

#include <cstdio>
#include <memory>
#include <thread>

namespace tests {
struct layers {
  float w[128][784], b[128], v[10][128], c[10];
};
}  // namespace tests
BOOST_HANA_ADAPT_STRUCT(tests::layers, w, b, v, c);

namespace {

using namespace tensorpull;
using tests::layers;

/// Connects to a socket that is there already: a name is resolved by the system, which is no part of the bound.
struct ready_stream : stream_transport<ready_stream, posix_stream> {
  static inline int descriptor = -1;
  static result<posix_stream> connect(std::string_view, std::chrono::milliseconds, const stop_token&) noexcept { return posix_stream(std::exchange(descriptor, -1)); }
};

struct smallest : default_limits {
  static constexpr std::size_t control_frame_bytes = 512, page_bytes = 256, control_frame_segments = 1, application_body_bytes = 64, application_references = 1;
  static constexpr std::size_t references = 1, recipients = 1, transfers_per_connection = 1, pipelined_requests = 1, window = 1;
};

using usual = pipeline<raw_tensors<layers>, fixed_bytes<64_KiB>, ready_stream>;
using least = pipeline<raw_tensors<layers>, fixed_bytes<1_KiB>, ready_stream, smallest, unverified>;

template <class Net>
std::size_t stack_of_pull() {
  static layers source{}, mine{};
  int fd[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, fd) != 0) return 0;
  auto owner = Net::session::over(posix_stream(fd[0]));
  const auto ref = owner->add_tensors(source, {.recipients = 1});
  std::jthread serving([&] { (void)owner->serve(until_settled(*ref), std::chrono::seconds(20)); });
  ready_stream::descriptor = fd[1];
  bool done = false;
  const auto used = test::stack_of([&] { done = Net::download_tensors("there", *ref, mine).has_value(); });
  EXPECT_TRUE(done);
  return used;
}
template <class Net>
std::size_t heap_of_session() {
  const auto before = test::heap_now();
  auto s = Net::session::over(posix_stream());
  return static_cast<std::size_t>(test::heap_now().bytes - before.bytes);
}
template <class Net>
void show(const char* what) {
  std::printf("%s: pull stack %zu (state %zu), session heap %zu\n", what, stack_of_pull<Net>(), Net::memory.recipient, heap_of_session<Net>());
}

TEST(Memory, Show) {
  show<usual>("default limits");
  show<least>("smallest limits");
  using near = pipeline<raw_tensors<layers>, fixed_bytes<64_KiB>, loopback>;
  static layers source{}, mine{};
  const auto owner = std::make_unique<near::downloader>();
  const auto ref = owner->add_tensors(source, {.recipients = 1});
  std::printf("loopback %zu\n", test::stack_of([&] { EXPECT_TRUE(near::download_tensors(*owner, *ref, mine)); }));
}

}  // namespace
