// One pull over several connections, over each transport with streams.
#include "transports/tcp_room.hpp"
#include "transports/tls_room.hpp"
#include "transports/unix_room.hpp"

#include <tensorpull/satellites/parallel/parallel_pull.hpp>

namespace laws_parallel_test {

using namespace test;

// the rooms are held to these beside their transports
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Laws);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TwoWayLaws);

template <class Room>
class Parallel : public Laws<Room> {};
using rooms = testing::Types<tcp_room, unix_room, tls_room>;
TYPED_TEST_SUITE(Parallel, rooms);

TYPED_TEST(Parallel, Several_connections_bring_one_model_to_one_recipient) {
  for (const std::size_t connections : {1u, 2u, 5u, 8u}) {
    const auto ref = this->add({.recipients = 1});
    this->serve();
    const auto& where = this->at(ref);
    using place = std::remove_cvref_t<decltype(where)>;
    using address = std::conditional_t<std::is_same_v<place, std::string>, std::string_view, place>;
    const address all[]{where};
    const tp::parallel_addresses<typename TypeParam::transport, address> from(all, connections);
    *this->mine = {};
    this->expect_arrived(TestFixture::net::download_tensors(from, ref, *this->mine));
    ASSERT_TRUE(this->hears([&] { return this->owner->settled(ref); }));
    EXPECT_EQ(this->owner->settlement_of(ref)->verdict, tp::verdict::completed);
    EXPECT_EQ(this->owner->status_of(ref)->acquired, 1u);
    EXPECT_EQ(this->owner->status_of(ref)->completed, 1u);
    this->stop();
  }
}

/// A pull from an owner and from a stranger, who is asked first.
struct misled_room : tcp_room {
  static constexpr std::uint64_t read_besides = 1024;  // the header, to compare it
  tp::parallel_addresses<tp::tcp> at(const tp::reference&, const tp::pull_options&) {
    texts = {local(stranger_.port()), local(port)};
    views = {texts[0], texts[1]};
    return tp::parallel_addresses<tp::tcp>(views);
  }
  auto third_parties() { return strangers_that_are_called(stranger_, 8); }

  raw_listener stranger_;
  std::array<std::string, 2> texts;
  std::array<std::string_view, 2> views;
};
INSTANTIATE_TYPED_TEST_SUITE_P(ParallelPull, ThirdParties, misled_room);

}  // namespace laws_parallel_test
