// What an owner's HTTP connections cost: nothing for each chunk, and a constant for each connection.
#include "http_client.hpp"
#include "support/allocation_counter.hpp"

namespace http_owner_flat_test {

using namespace test;

template <class Model>
using net_of = tp::pipeline<tp::raw_tensors<Model>, tp::fixed_bytes<64_KiB>, tp::http_only<tp::tcp>>;

/// Allocations of the whole process while one GET is answered, over a connection that has been used before.
template <class Model>
std::uint64_t allocations_of_a_get() {
  auto owner = net_of<Model>::downloader::open();
  const auto source = random_model<Model>(1);
  const auto ref = *owner->add_tensors(*source);
  serving thread(*owner);
  http_client c(owner->port());
  const std::string image = image_of(*source), request = http_client::request("GET", path_of(ref), ref);
  std::vector<std::byte> heard(image.size() + 4096);
  std::uint64_t count = 0;
  for (int i = 0; i < 3; ++i) {
    const std::size_t all = [&] {
      c.ask("HEAD", ref);
      return image.size();
    }();
    const allocation_watch watch;
    c.say(request);
    std::size_t got = 0;
    std::size_t wanted = ~std::size_t{0};
    for (const auto limit = within(ample_time); got < wanted && !limit.stop_requested();) {
      const std::array<std::span<std::byte>, 1> room{std::span(heard).subspan(got)};
      const auto io = c.peer().stream().read_some(room);
      if (io.bytes == 0) {
        if (tp::is_end(io.status)) break;
        c.peer().stream().wait(true, false, 20ms);
      }
      got += io.bytes;
      const std::string_view text(reinterpret_cast<const char*>(heard.data()), std::min<std::size_t>(got, 2048));
      if (const auto end = text.find("\r\n\r\n"); end != text.npos) wanted = end + 4 + all;
    }
    count = watch.count();
    EXPECT_EQ(got, wanted);
    EXPECT_EQ(std::memcmp(heard.data() + got - all, image.data(), all), 0);
  }
  return count;
}

TEST(HttpOwnerFlat, L12_a_request_allocates_nothing_however_long_the_image_is) {
  EXPECT_EQ(allocations_of_a_get<tiny>(), 0u);
  EXPECT_EQ(allocations_of_a_get<large>(), 0u);
}

TEST(HttpOwnerFlat, A_connection_keeps_under_8_KiB_and_each_thousand_of_them_the_same) {
  using net = net_of<large>;
  auto owner = net::downloader::open({.host = {.reserved_connections = 1100}});
  const auto source = random_model<large>(1);
  const auto ref = *owner->add_tensors(*source);
  serving thread(*owner);
  const std::string request = http_client::request("GET", path_of(ref), ref, "Range: bytes=0-99\r\n");
  std::size_t files = 0, memory = 0;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<http_client>> crowd;
    for (int i = 0; i < 1000; ++i) crowd.push_back(std::make_unique<http_client>(owner->port()));
    for (auto& c : crowd) c->say(request);
    for (auto& c : crowd) EXPECT_EQ(c->hear().body.size(), 100u);
    const std::size_t open = owner->shared().counts.open();
    EXPECT_EQ(open, 1000u);
    crowd.clear();
    EXPECT_TRUE(eventually("all have left", [&] { return owner->shared().counts.open() == 0; }));
    if (round == 1) files = descriptors(), memory = resident_bytes();
  }
  EXPECT_EQ(descriptors(), files);
#if !defined(TENSORPULL_TEST_SANITIZED)  // which keeps freed memory
  EXPECT_LT(resident_bytes(), memory + memory / 20);
#endif
  using plain = tp::pipeline<tp::raw_tensors<large>, tp::fixed_bytes<64_KiB>, tp::tcp>;
  constexpr std::size_t with = sizeof(tp::connection<net::host<tp::detail::silent_handler, tp::no_consumer>>);
  constexpr std::size_t without = sizeof(tp::connection<plain::host<tp::detail::silent_handler, tp::no_consumer>>);
  EXPECT_LE(with, without + tp::http_only<tp::tcp>::connection_bytes - tp::tcp::connection_bytes);
  EXPECT_LE(with, 8192u);
  RecordProperty("bytes", std::to_string(with) + " instead of " + std::to_string(without));
}

}  // namespace http_owner_flat_test
