// The parts of the HTTP owner alone, and with several threads: which bytes count as sent, and what its text looks like.
#include "http_client.hpp"

namespace http_owner_parts_test {

using namespace test;

TEST(HttpSentRanges, All_is_sent_when_no_byte_is_missing_in_whatever_order) {
  generator random(1);
  for (int round = 0; round < 200; ++round) {
    constexpr std::uint64_t whole = 64;
    tp::detail::sent_ranges sent;
    bool has[whole] = {};
    for (int i = 0; i < 60; ++i) {
      const std::uint64_t begin = random() % whole, end = begin + 1 + random() % (whole - begin);
      for (std::uint64_t b = begin; b < end; ++b) has[b] = true;
      const bool all = std::all_of(has, has + whole, [](bool b) { return b; });
      const bool said = sent.add(begin, end, whole);
      EXPECT_TRUE(all || !said) << "it claims a byte that was not sent";
    }
  }
}
TEST(HttpSentRanges, Eight_streams_at_a_time_are_followed_byte_by_byte_and_what_is_forgotten_is_never_claimed) {
  constexpr std::uint64_t streams = 8, each = 100, whole = streams * each;
  tp::detail::sent_ranges sent;
  bool said = false;
  for (std::uint64_t b = 0; b < each; ++b)
    for (std::uint64_t s = 0; s < streams; ++s) {
      EXPECT_FALSE(said);
      said = sent.add(s * each + b, s * each + b + 1, whole);
    }
  EXPECT_TRUE(said);
  tp::detail::sent_ranges scattered;
  for (std::uint64_t b = 0; b < 40; b += 2) EXPECT_FALSE(scattered.add(b, b + 1, 40));
  bool filled = false;
  for (std::uint64_t b = 1; b < 40; b += 2) filled = scattered.add(b, b + 1, 40);
  EXPECT_FALSE(filled);
  EXPECT_TRUE(scattered.add(0, 40, 40));
}
TEST(HttpSentRanges, A_recipient_that_comes_back_goes_on_and_another_begins_with_nothing) {
  tp::detail::owner_coverage<tp::no_lock> of(2);
  const tp::detail::sent_to named{{1, 2}, 3, {4}}, first{{1, 2}, 3, {}, 7}, second{{1, 2}, 3, {}, 8};
  EXPECT_FALSE(of.add(1, first, 0, 5, 10));
  EXPECT_FALSE(of.add(1, second, 5, 10, 10));  // nobody knows whether it is the same
  EXPECT_TRUE(of.add(1, second, 0, 5, 10));
  EXPECT_FALSE(of.add(1, named, 0, 5, 10));
  EXPECT_TRUE(of.add(1, named, 5, 10, 10));
  tp::detail::sent_to others[] = {named, named, named};
  ++others[0].ref.low, ++others[1].version, ++others[2].who.value;
  for (const auto& other : others) {
    EXPECT_FALSE(of.add(1, other, 1, 10, 10));
    EXPECT_FALSE(of.add(1, named, 0, 1, 10)) << "what another was sent";
    of.ended(1, other);  // which is not there any more
    EXPECT_TRUE(of.add(1, named, 1, 10, 10));
  }
  of.ended(1, named);  // it has completed, and pulls once more
  EXPECT_FALSE(of.add(1, named, 0, 1, 10));
  EXPECT_FALSE(of.add(2, named, 0, 10, 10));  // there is no such record
}

TEST(HttpOwnerText, Numbers_dates_and_digests_are_written_as_the_standards_say) {
  std::array<char, 128> room;
  const auto text = [&](auto write) {
    tp::detail::text_writer t(room);
    write(t);
    return std::string(t.text());
  };
  EXPECT_EQ(text([](auto& t) { t.date(784111777); }), "Sun, 06 Nov 1994 08:49:37 GMT");  // the example of RFC 9110
  EXPECT_EQ(text([](auto& t) { t << std::uint64_t{0} << " " << ~std::uint64_t{0}; }), "0 18446744073709551615");
  EXPECT_EQ(text([](auto& t) { t.base64(0x0123456789abcdef); }), "ASNFZ4mrze8=");
  for (const std::uint64_t n :
       {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}, std::uint64_t{0x0123456789abcdef}})
    EXPECT_EQ(tp::detail::parse_xxh3(":" + text([&](auto& t) { t.base64(n); }) + ":").value_or(n + 1), n);
  for (const char* wrong : {"", "::", ":ASNFZ4mrze8=", "ASNFZ4mrze8=:", ":ASNFZ4mrze9=:", ":ASNFZ4mrze8:",
                            ":ASNFZ4mrze-=:", ":ASNFZ4mrze8==:"})
    EXPECT_FALSE(tp::detail::parse_xxh3(wrong)) << wrong;
  tp::detail::text_writer small(std::span<char>(room).first(3));
  small << "abcd";
  EXPECT_FALSE(small.whole());
}

TEST(HttpOwnerThreads, Several_threads_may_answer) {
  using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>, tp::http_only<tp::tcp_on_threads>>;
  auto owner = net::downloader::open();
  const auto source = random_model<mlp>(1);
  const std::string image = image_of(*source);
  const auto ref = *owner->add_tensors(*source, {.recipients = 8});
  auto door = tp::open_http_door<tp::tcp_on_threads>(*owner, std::string_view("127.0.0.1:0"),
                                                     {.http = {.metrics = true}});
  ASSERT_TRUE(door);
  serving threads(*owner, 3);
  std::atomic<int> well{0};
  on_threads(8, [&](std::size_t i) {
    http_client c(i % 2 != 0 ? owner->port() : door->port());
    const std::string name = "Tensorpull-Recipient: site-" + std::to_string(i) + "\r\n",
                      digest = "digest=" + hex(ref.version);
    for (int n = 0; n < 3; ++n) well += c.ask("GET", ref, name).body == image;
    c.say(http_client::request("POST", path_of(ref) + "/confirm", ref,
                               name + "Content-Length: " + std::to_string(digest.size()) + "\r\n") +
          digest);
    well += c.hear().body == "completed\n";
  });
  EXPECT_EQ(well, 32);
  threads.stop();
  EXPECT_EQ(owner->settlement_of(ref)->verdict, tp::verdict::completed);
}

}  // namespace http_owner_parts_test
