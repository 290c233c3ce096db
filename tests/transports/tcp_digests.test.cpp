// Digests of chunks and subsets over TCP, computed by several threads at once, while what is published changes.
#include "network.hpp"

#include <tensorpull/tensors/tensor_list.hpp>

#include <atomic>
#include <stop_token>

namespace tcp_digests_test {

using namespace test;
using threaded =
    tp::pipeline<tp::raw_tensors<large>, tp::fixed_bytes<1_MiB>, tp::tcp_on_threads, tp::chunk_and_image_digest>;
using part = tp::pipeline<tp::tensor_list, tp::fixed_bytes<1_MiB>, tp::tcp, tp::chunk_and_image_digest>;

TEST(TcpDigests, Threads_compute_them_while_versions_come_and_go) {
  const auto first = random_model<large>(1), second = random_model<large>(2);
  auto owner = threaded::downloader::open({});
  ASSERT_TRUE(owner);
  const tp::ref_id id{5, 6};
  ASSERT_TRUE(owner->add_tensors(*first, {.id = id}));
  serving server(*owner, 3);
  std::atomic<int> completed{0}, strange{0};
  joined_threads recipients(4, [&](std::size_t i, const std::stop_token& stop) {
    const auto mine = blank<large>();
    std::vector<float> w(3 * 1024 * 1024);
    const std::uint64_t shape[] = {3, 1024, 1024};
    const tp::mutable_tensor_view view{"w", dtype::f32, shape, reinterpret_cast<std::byte*>(w.data())};
    auto named = *tp::dynamic_image::make(std::span(&view, 1));
    const std::string_view names[] = {"w"};
    for (std::size_t round = 0; !stop.stop_requested(); ++round) {
      const bool whole = (round + i) % 3 != 0;
      const auto got = whole ? threaded::download_tensors(local(owner->port()), {id}, *mine)
                             : part::download_tensors(local(owner->port()), {id}, named, {.tensors = names});
      if (got && got->outcome == tp::outcome::completed) {
        const void* const bytes = whole ? static_cast<const void*>(mine.get()) : w.data();
        if (std::memcmp(bytes, first.get(), sizeof(large)) != 0 && std::memcmp(bytes, second.get(), sizeof(large)) != 0)
          ++strange;
        ++completed;
      } else if (got || (got.error().code != errc::stale_version && got.error().code != errc::withdrawn &&
                         got.error().code != errc::connection_lost && got.error().code != errc::unknown_reference)) {
        ++strange;
        ADD_FAILURE() << (got ? "not completed" : to_string(got.error().code));
      }
    }
  });
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE(eventually("one more pull is complete", [&, before = completed.load()] { return completed > before; }));
    EXPECT_TRUE(owner->add_tensors(i % 2 == 0 ? *second : *first, {.id = id}));
  }
  recipients.request_stop();
  recipients.join();
  EXPECT_EQ(strange, 0);
  EXPECT_TRUE(owner->withdraw({id}));
}

}  // namespace tcp_digests_test
