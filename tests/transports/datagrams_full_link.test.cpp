// An owner whose link takes nothing: it waits, and goes on reading.
#include "sample_models.hpp"
#include "support/frames.hpp"

#include <tensorpull/transports/over/datagram_transport.hpp>
#include <tensorpull/transports/peers/owner.hpp>

namespace datagrams_full_link_test {

using namespace test;

/// A line whose other end writes all that it has to write before it reads, as a program with one thread does that joins
/// two ttys.
class full_link {
 public:
  using address = tp::only_peer;
  static constexpr std::size_t max_datagram_bytes = 640;
  static constexpr bool checked = true, addresses_are_proved = true;
  struct line {
    byte_vector request;
    int unread = 0, taken = 0;
    std::chrono::milliseconds waited{};
  };

  explicit full_link(line& l) noexcept : line_(&l) {}
  std::size_t datagram_bytes() const noexcept { return max_datagram_bytes; }
  tp::io_result receive(byte_span memory, address&) noexcept {
    if (line_->unread == 0) return {tp::io_status::would_block, 0, 0};
    --line_->unread;
    std::memcpy(memory.data(), line_->request.data(), line_->request.size());
    return {tp::io_status::ok, 0, line_->request.size()};
  }
  tp::io_result send(std::span<const const_byte_span>, const address&) noexcept {
    if (line_->unread > 0) return {tp::io_status::would_block, 0, 0};
    ++line_->taken;
    return {};
  }
  tp::io_ready wait(bool read, bool write, std::chrono::milliseconds most) noexcept {
    const tp::io_ready now{read && line_->unread > 0, write && line_->unread == 0};
    if (!now.read && !now.write) line_->waited += most;
    return now;
  }

 private:
  line* line_;
};
struct full : tp::datagram_transport<full, full_link> {
  static tp::result<full_link> connect(std::string_view, std::chrono::milliseconds, const tp::stop_token&) noexcept {
    return tp::failure(errc::bad_address);
  }
  static tp::result<full_link> open(std::string_view) noexcept { return tp::failure(errc::bad_address); }
};
using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<512>, full>;

// Before this each waited for the other: a transfer through socat hung for ever. And the owner, which was told that it
// could read, took a whole core.
TEST(DatagramsFullLink, An_owner_reads_on_and_does_not_spin) {
  full_link::line l;
  auto owner = net::downloader::over(full_link(l));
  ASSERT_TRUE(owner);
  const auto source = random_model<mlp>(1);
  const auto ref = *owner->add_tensors(*source);
  tp::frame ask;
  ask.kind = tp::frame_kind::describe;
  ask.id = 1;
  ask.ref = ref.id;
  const auto bytes = encode(ask);
  l.request.assign(bytes.bytes().begin(), bytes.bytes().end());
  l.unread = 500;
  int turns = 0;
  while (l.unread > 0 && turns < 1000) ++turns, owner->serve_a_while();
  EXPECT_EQ(l.unread, 0);
  EXPECT_GE(l.waited, 50ms) << "it looked " << turns << " times";
  EXPECT_LE(turns, 50);
  owner->serve_a_while();
  EXPECT_GT(l.taken, 0);
}

}  // namespace datagrams_full_link_test
