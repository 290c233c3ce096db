// What a pull, a session and an owner's connection take, against what pipeline<...>::memory says: state, stack, buffers, heap.
// The figures of the stack hold for the preset dev of g++ (-O1); that of -O3 is larger, and a sanitizer's is another one.
#include "support/allocation_counter.hpp"
#include "support/painted_stack.hpp"
#include "support/random.hpp"
#include "support/safetensors_text.hpp"

#include <tensorpull/consumers/any_schema/new_model.hpp>
#include <tensorpull/framing/capnp/capnp_framing.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/numpy/numpy.hpp>
#include <tensorpull/tensors/safetensors/safetensors_image.hpp>
#include <tensorpull/transports/host/owner.hpp>

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
using namespace std::chrono_literals;
using tests::layers;

/// Connects to a socket that is there already: a name is resolved by the system, which is no part of the bound.
template <class Transport>
struct ready : stream_transport<ready<Transport>, posix_stream> {
  static inline int descriptor = -1;
  static result<posix_stream> connect(std::string_view, std::chrono::milliseconds, const stop_token&) noexcept { return posix_stream(std::exchange(descriptor, -1)); }
};
using ready_stream = ready<void>;

struct smallest : default_limits {
  static constexpr std::size_t control_frame_bytes = 512, page_bytes = 256, control_frame_segments = 1, application_body_bytes = 64, application_references = 1;
  static constexpr std::size_t references = 1, recipients = 1, transfers_per_connection = 1, pipelined_requests = 1, window = 1;
  static constexpr std::size_t digest_jobs = 1;
  static constexpr std::uint64_t chunk_digest_bytes_per_second = 0;
};

using usual = pipeline<raw_tensors<layers>, fixed_bytes<64_KiB>, ready_stream>;
using least = pipeline<raw_tensors<layers>, fixed_bytes<1_KiB>, ready_stream, smallest, unverified>;
using near = pipeline<raw_tensors<layers>, fixed_bytes<64_KiB>, loopback>;
using nearest = pipeline<raw_tensors<layers>, fixed_bytes<1_KiB>, loopback, smallest, unverified>;

// The aims of the project, and where they are not reached, what is. Each is a part of one digest of XXH3, 576 bytes, more than the smallest it could be.
static_assert(usual::memory.recipient <= 4096 && usual::memory.recipient_stack <= 4096);
static_assert(usual::memory.session <= 16 * 1024);
static_assert(least::memory.recipient <= 2624 && least::memory.session <= 4224 && least::memory.session_buffers <= 4096);
static_assert(near::memory.recipient <= 14 * 1024, "both ends, with a buffer of a control frame for each");

#if defined(TENSORPULL_TEST_SANITIZED)
constexpr bool measures = false;
#else
constexpr bool measures = true;
#endif

/// Bytes of the stack that a pull takes, state and all. The second of two is measured: the first binds the functions of other libraries.
template <class Net, class Source, class Model>
std::size_t stack_of_pull(const Source& source, Model& mine) {
  std::size_t used = 0;
  for (int i = 0; i < 2; ++i) {
    int fd[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, fd) != 0) return 0;
    auto owner = Net::session::over(posix_stream(fd[0]));
    const auto ref = owner->add_image(source, {.recipients = 1});
    if (!ref) return 0;
    std::jthread serving([&] { EXPECT_TRUE(owner->serve(until_settled(*ref), 60s)); });
    Net::parts::transport::descriptor = fd[1];
    bool done = false;
    used = test::stack_of([&] { done = Net::download_tensors("there", *ref, mine).has_value(); });
    EXPECT_TRUE(done);
  }
  return used;
}
template <class Net>
std::size_t stack_of_near_pull() {
  static layers source{}, mine{};
  std::size_t used = 0;
  for (int i = 0; i < 2; ++i) {
    const auto owner = std::make_unique<typename Net::downloader>();
    const auto ref = owner->add_tensors(source, {.recipients = 1});
    bool done = false;
    used = test::stack_of([&] { done = Net::download_tensors(*owner, *ref, mine).has_value(); });
    EXPECT_TRUE(done);
  }
  return used;
}
template <class Net>
void compare(const char* what, std::size_t used) {
  constexpr std::size_t state = Net::memory.recipient, stack = Net::memory.recipient_stack;
  std::printf("%s: a pull used %zu bytes of stack: %zu of state, %zu of calls (stated: %zu)\n", what, used, state, used - state, stack);
  EXPECT_GT(used, state / 2) << what << ": nothing was measured";
  EXPECT_LE(used, state + stack) << what;
}

static layers source, mine;
source_view raw_source() { return raw_tensors<layers>::source(source); }

TEST(Memory, AsStatedForAPull) {
  if (!measures) GTEST_SKIP() << "a sanitizer has a stack of its own";
  compare<usual>("tcp", stack_of_pull<usual>(raw_source(), mine));
  compare<least>("tcp, smallest limits", stack_of_pull<least>(raw_source(), mine));
  using digests = pipeline<raw_tensors<layers>, fixed_bytes<64_KiB>, ready_stream, chunk_and_image_digest>;
  compare<digests>("tcp, digests of chunks", stack_of_pull<digests>(raw_source(), mine));
  using library = pipeline<raw_tensors<layers>, fixed_bytes<64_KiB>, ready_stream, capnp_framing>;
  compare<library>("tcp, Cap'n Proto's library", stack_of_pull<library>(raw_source(), mine));
}
TEST(Memory, AsStatedForAPullInOneProcess) {
  if (!measures) GTEST_SKIP() << "a sanitizer has a stack of its own";
  compare<near>("loopback", stack_of_near_pull<near>());
  compare<nearest>("loopback, smallest limits", stack_of_near_pull<nearest>());
}
class MemoryOfPolicies : public test::folder_test {};
TEST_F(MemoryOfPolicies, AsStatedForEveryTensorPolicy) {
  if (!measures) GTEST_SKIP() << "a sanitizer has a stack of its own";
  using arrays = pipeline<numpy_tensors, fixed_bytes<64_KiB>, ready_stream>;
  const std::uint64_t shape[] = {128, 784};
  const numpy_array out[] = {{"w", "<f4", shape, std::as_bytes(std::span(source.w)).data()}};
  const mutable_numpy_array in[] = {{"w", "<f4", shape, std::as_writable_bytes(std::span(mine.w)).data()}};
  const auto from = numpy_tensors::make(out);
  auto to = numpy_tensors::make(in);
  ASSERT_TRUE(from && to);
  compare<arrays>("arrays", stack_of_pull<arrays>(from->source(), *to));

  using files = pipeline<tensor_list, fixed_bytes<64_KiB>, ready_stream>;
  put(test::safetensors_file_of("{" + test::entry("w", "F32", "128,784", 0, sizeof source.w) + "}", std::string(sizeof source.w, 'x')));
  const auto opened = safetensors_image::open(path);
  ASSERT_TRUE(opened);
  compare<files>("a safetensors file", stack_of_pull<files>(opened->source(), *to));
}

/// What is asked for is measured, not what the allocator sets aside: it rounds a block up, a large one to whole pages if it is mapped by itself.
template <class Net>
void compare_session(const char* what) {
  const test::allocation_watch watch;
  const auto s = Net::session::over(posix_stream());
  const auto blocks = watch.count(), bytes = watch.largest();
  ASSERT_TRUE(s);
  std::printf("%s: a session allocated %llu bytes: %zu of state, %zu of buffers\n", what, static_cast<unsigned long long>(bytes), Net::memory.session, Net::memory.session_buffers);
  EXPECT_EQ(blocks, 1u) << what;
  EXPECT_LE(bytes, Net::memory.session + Net::memory.session_buffers) << what;
}
TEST(Memory, AsStatedForASession) {
  compare_session<usual>("default limits");
  compare_session<least>("smallest limits");
}

/// All that a session does, one call after the other, each with the stack that it takes.
template <class Net>
void use_session(const char* what) {
  int fd[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
  auto here = Net::session::over(posix_stream(fd[0])), there = Net::session::over(posix_stream(fd[1]));
  ASSERT_TRUE(here && there);
  const auto theirs = there->add_tensors(source, {.recipients = 1});
  ASSERT_TRUE(theirs);
  std::jthread other([&] {
    EXPECT_TRUE(there->send(1, {&*theirs, 1}, {}));
    EXPECT_TRUE(there->serve(until_settled(*theirs), 60s));
    const auto m = there->receive(60s);
    if (!m || m->references.size() != 1) return void(ADD_FAILURE());
    static layers again;
    EXPECT_TRUE(there->download_tensors(reference(m->references[0]), again));
  });
  const auto before = test::heap_now();
  reference task{}, up{};
  struct {
    const char* name;
    std::size_t bytes;
  } const calls[] = {
      {"receive", test::stack_of([&] { task = here->receive(60s)->references[0]; })},
      {"download_tensors", test::stack_of([&] { EXPECT_TRUE(here->download_tensors(task, mine)); })},
      {"add_tensors", test::stack_of([&] { up = *here->add_tensors(mine, {.recipients = 1}); })},
      {"send", test::stack_of([&] { EXPECT_TRUE(here->send(2, {&up, 1}, {})); })},
      {"serve", test::stack_of([&] { EXPECT_TRUE(here->serve(until_settled(up), 60s)); })},
  };
  other.join();
  EXPECT_EQ(test::heap_now(), before) << what << ": nothing is allocated after the start";
  for (const auto& c : calls) {
    std::printf("%s: %s used %zu bytes of stack\n", what, c.name, c.bytes);
    EXPECT_LE(c.bytes, Net::memory.serving_stack) << what << ", " << c.name;
  }
}
TEST(Memory, AsStatedForTheCallsOfASession) {
  if (!measures) GTEST_SKIP() << "a sanitizer has a stack of its own";
  use_session<usual>("default limits");
  use_session<usual>("default limits, again");
  use_session<least>("smallest limits");
}

TEST(Memory, AsStatedForAnOwnersConnection) {
  using net = pipeline<raw_tensors<layers>, fixed_bytes<64_KiB>, tcp>;
  constexpr int many = 64;
  auto owner = net::downloader::open({.listen = "127.0.0.1:0"});
  ASSERT_TRUE(owner);
  const std::string where = "127.0.0.1:" + std::to_string(owner->port());
  const auto ref = owner->add_tensors(source, {.recipients = 0});
  ASSERT_TRUE(ref);
  std::vector<posix_stream> connections;
  const auto connect = [&] {
    auto s = tcp_connect(where, std::chrono::steady_clock::now() + 10s);
    ASSERT_TRUE(s);
    connections.push_back(std::move(*s));
  };
  const auto turn = [&] {
    int steps = 0;
    EXPECT_TRUE(owner->run([&](const auto&) { return ++steps > 2 * many; }));
  };
  connections.reserve(2 * many);
  connect(), turn();  // the loop's own tables grow with the first
  const auto before = test::heap_now();
  for (int i = 0; i < many; ++i) connect();
  turn();
  const auto each = (test::heap_now().bytes - before.bytes) / many;
  std::printf("a connection of an owner allocated %lld bytes (stated: %zu)\n", static_cast<long long>(each), net::memory.owner_per_recipient);
  EXPECT_GT(each, 1024) << "nothing was measured";
  EXPECT_LE(each, static_cast<std::int64_t>(net::memory.owner_per_recipient + 64)) << "the allocator rounds up";
}

struct no_memory {
  static result<std::byte*> allocate(const tensor_entry&) noexcept { return failure(errc::out_of_memory); }
  static void clear() noexcept {}
};
/// The heap that a new_model has taken at most, in bytes, after any piece of a header of `limit` bytes that begins with `text` and is padded.
std::int64_t heap_of_header(const std::string& text, std::uint64_t limit, errc expected) {
  new_model<no_memory> m({}, {.max_bytes = 1 << 20, .max_header_bytes = limit});
  description d;
  d.version = d.fingerprint = 1;
  d.data_start = d.image_bytes = limit;
  d.tensors = 1'000'000;
  EXPECT_TRUE(m.begin(d));
  const std::int64_t before = test::heap_now().bytes;
  std::int64_t most = 0;
  errc ended{};
  for (std::uint64_t at = 0; at < limit && ended == errc{};) {
    std::span<std::byte> out[1];
    const auto p = m.prepare(at, 4096, out);
    for (std::size_t i = 0; i < p.bytes; ++i) {
      const std::uint64_t k = at + i;
      out[0][i] = k < 8 ? static_cast<std::byte>((limit - 8) >> (8 * k)) : static_cast<std::byte>(k - 8 < text.size() ? text[static_cast<std::size_t>(k - 8)] : ' ');
    }
    EXPECT_TRUE(m.commit(at, out[0].first(p.bytes)));
    if (const auto ok = m.chunk(at, p.bytes); !ok) ended = ok.error().code;
    at += p.bytes;
    most = std::max(most, test::heap_now().bytes - before);
  }
  EXPECT_EQ(ended, expected);
  m.abandon(error{});
  EXPECT_LT(test::heap_now().bytes - before, 1024) << "nothing is kept of it after the end";
  return most;
}
TEST(Memory, OfAHeaderIsBoundedWhateverItHolds) {
  constexpr std::uint64_t limit = 4_MiB;
  const auto filled = [](std::string begin, std::string_view first, std::string_view piece, std::string_view end) {
    begin += first;
    while (begin.size() + piece.size() + end.size() + 8 < limit) begin += piece;
    return begin.append(end);
  };
  std::string shapes = "{";
  for (int t = 0; shapes.size() + 140'000 < limit; ++t)
    shapes += (t > 0 ? ",\"" : "\"") + std::to_string(t) + "\":{\"dtype\":\"U8\",\"shape\":[0" + test::repeated(",0", 65'534) + "],\"data_offsets\":[0,0]}";
  const std::pair<const char*, std::pair<std::string, errc>> headers[] = {
      {"extents", {shapes + "}", errc::too_large}},
      {"pairs", {filled("{\"__metadata__\":{", "\"\":\"\"", ",\"\":\"\"", "}}"), errc::too_large}},
      {"a long name", {filled("{\"", "", "n", "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}"), errc::schema_mismatch}},
  };
  for (const auto& [what, header] : headers) {
    const auto most = heap_of_header(header.first, limit, header.second);
    std::printf("a header of %s took %.2f times its limit\n", what, static_cast<double>(most) / static_cast<double>(limit));
    EXPECT_LE(most, static_cast<std::int64_t>(4 * limit)) << what;
  }
}

}  // namespace
