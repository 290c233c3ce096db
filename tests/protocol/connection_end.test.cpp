// What a host asks of one end of a connection: the smallest end that has it, and what is missed without a member.
#include <tensorpull/core/buffer_pool.hpp>
#include <tensorpull/framing/word_framing.hpp>
#include <tensorpull/links/pump.hpp>
#include <tensorpull/protocol/connection/connection_end.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace connection_end_test {

using namespace tensorpull;

/// Says one line, and takes nothing.
struct one_line {
  using pool_type = buffer_pool<>;
  using plan_type = short_write_plan;

  template <class Transfer>
  result<void> plan_write(Transfer&, plan_type& plan, std::span<std::byte>, std::size_t) noexcept {
    plan.span_count = output_ready() ? 1 : 0;
    plan.spans[0] = std::as_bytes(std::span(line)).subspan(said);
    plan.bytes = line.size() - said;
    return {};
  }
  template <class Transfer>
  result<void> written(Transfer&, const plan_type&, std::size_t n) noexcept {
    said += n;
    return {};
  }
  template <class Transfer>
  std::size_t plan_read(Transfer&, std::span<std::span<std::byte>>, std::size_t) noexcept {
    return 0;
  }
  template <class Transfer>
  void arrived(Transfer&, std::span<const std::span<std::byte>>, std::size_t) noexcept {}
  template <class Transfer>
  result<void> parse(Transfer&) noexcept {
    return {};
  }
  void begin_pull() noexcept {}
  template <class Transfer>
  void end_pull(const Transfer&) noexcept {}
  std::uint32_t next_id() const noexcept { return 1; }
  result<void> send_message(std::uint32_t, std::span<const reference>, std::span<const std::byte>) noexcept {
    return failure(errc::unsupported_request);
  }
  bool send_control(const frame&) noexcept { return true; }
  bool output_ready() const noexcept { return said < line.size(); }
  bool output_idle() const noexcept { return !output_ready(); }
  bool works() const noexcept { return false; }
  bool awaits_time() const noexcept { return false; }
  bool stalled() const noexcept { return false; }
  std::uint32_t heard() const noexcept { return 0; }
  bool mid_frame() const noexcept { return false; }
  std::uint32_t long_frame() const noexcept { return 0; }
  void doubt() noexcept {}
  void trust() noexcept {}
  void closed() noexcept {}

  std::array<char, 6> line{'h', 'e', 'l', 'l', 'o', '\n'};
  std::size_t said = 0;
};
/// Whether E misses requirement N, and none before it.
template <class E, int N>
constexpr bool misses = [] {
  using list = detail::connection_end_requirements<E>;
  constexpr bool met[] = {true,        list::met_1, list::met_2, list::met_3, list::met_4,
                          list::met_5, list::met_6, list::met_7, list::met_8, list::met_9};
  return met[N - 1] && !met[N];
}();

static_assert(connection_end<one_line> && sizeof(detail::connection_end_requirements<one_line, false>) != 0);
static_assert(connection_end<endpoint<word_framing, default_limits, no_owner, ignore_messages>>);
static_assert(!connection_end<int>);

// A member that is gone, or says something else, is missed by its number.
struct without_a_result : one_line {
  template <class Transfer>
  void written(Transfer&, const plan_type&, std::size_t) noexcept {}
};
struct without_parse : one_line {
  void parse() {}
};
struct with_signed_ids : one_line {
  int next_id() const noexcept { return 1; }
};
struct without_messages : one_line {
  void send_message() {}
};
struct that_changes_when_asked : one_line {
  bool works() noexcept { return false; }
};
struct that_hears_or_not : one_line {
  bool heard() const noexcept { return true; }
};
struct that_trusts_somebody : one_line {
  void trust(int) noexcept {}
};
struct that_is_closed_for_a_reason : one_line {
  void closed(int) noexcept {}
};

/// A stream that takes two bytes at a time.
struct narrow_stream {
  std::string taken;

  io_result read_some(std::span<const std::span<std::byte>>) noexcept { return {io_status::would_block, 0, 0}; }
  io_result write_some(std::span<const std::span<const std::byte>> out) noexcept {
    const std::size_t n = std::min<std::size_t>(out[0].size(), 2);
    taken.append(reinterpret_cast<const char*>(out[0].data()), n);
    return {io_status::ok, 0, n};
  }
  io_ready wait(bool, bool, std::chrono::milliseconds) noexcept { return {}; }
};

TEST(ConnectionEnd, A_missed_requirement_has_its_number) {
  EXPECT_TRUE((misses<no_owner, 1>));
  EXPECT_TRUE((misses<without_a_result, 2>));
  EXPECT_TRUE((misses<without_parse, 3>));
  EXPECT_TRUE((misses<with_signed_ids, 4>));
  EXPECT_TRUE((misses<without_messages, 5>));
  EXPECT_TRUE((misses<that_changes_when_asked, 6>));
  EXPECT_TRUE((misses<that_hears_or_not, 7>));
  EXPECT_TRUE((misses<that_trusts_somebody, 8>));
  EXPECT_TRUE((misses<that_is_closed_for_a_reason, 9>));
  EXPECT_FALSE((misses<one_line, 9>));
}

TEST(ConnectionEnd, The_smallest_one_is_driven_as_an_endpoint_is) {
  one_line end;
  no_transfer none;
  narrow_stream stream;
  for (const std::string_view said : {"he", "hell", "hello\n"}) {
    EXPECT_FALSE(end.output_idle());
    const auto did = pump_once(end, none, stream, {});
    ASSERT_TRUE(did);
    EXPECT_EQ(did->sent, 2u);
    EXPECT_FALSE(did->wants_read);
    EXPECT_EQ(did->wants_write, said.size() < end.line.size());
    EXPECT_EQ(stream.taken, said);
  }
  EXPECT_TRUE(end.output_idle());
}

}  // namespace connection_end_test
