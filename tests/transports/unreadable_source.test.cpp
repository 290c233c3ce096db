// A published image whose bytes cannot be read any more: a named error for recipients, never other bytes, and the
// others go on.
#include "network.hpp"

#include <cstring>

namespace unreadable_source_test {

using namespace test;

/// One tensor that lies behind a reader, which fails once it has been called `calls` times.
struct far_tensor {
  byte_vector bytes;
  mutable std::atomic<int> calls{-1};  // -1: never
  explicit far_tensor(std::size_t n) : bytes(n) {
    for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 1000);
  }
  static tp::result<void> read(const void* context, std::uintptr_t, std::uint64_t offset, byte_span out) noexcept {
    const auto& self = *static_cast<const far_tensor*>(context);
    const int left = self.calls.load();
    if (left == 0) return tp::failure(errc::io);
    if (left > 0) --self.calls;
    std::memcpy(out.data(), self.bytes.data() + offset, out.size());
    return {};
  }
  tp::dynamic_image image() const {
    const std::uint64_t shape[] = {bytes.size()};
    const tp::tensor_view view{"far", dtype::u8, shape, nullptr, {}, 0, true};
    return std::move(*tp::dynamic_image::make(std::span(&view, 1), {}, {&far_tensor::read, this}));
  }
};
struct near_tensor {
  byte_vector bytes;
  explicit near_tensor(std::size_t n) : bytes(n) {}
  tp::dynamic_image image() {
    const std::uint64_t shape[] = {bytes.size()};
    const tp::mutable_tensor_view view{"far", dtype::u8, shape, bytes.data()};
    return std::move(*tp::dynamic_image::make(std::span(&view, 1)));
  }
};

constexpr std::size_t size = 1'000'000;

template <class Net, class Owner, class Where>
void expect_withdrawal(Owner& owner, Where&& where, bool reconnects) {
  far_tensor source(size);
  const auto published = source.image();
  near_tensor target(size);
  auto mine = target.image();
  const auto whole = owner.add_tensors(published);
  ASSERT_TRUE(whole);
  ASSERT_TRUE(Net::download_tensors(where(), *whole, mine));
  EXPECT_EQ(target.bytes, source.bytes);

  for (const int calls : {0, 1, 2, 7, 20}) {
    source.calls = -1;
    const auto ref = *owner.add_tensors(published);
    source.calls = calls;
    const auto failed = Net::download_tensors(where(), ref, mine);
    ASSERT_FALSE(failed) << calls << " reads";
    // a frame that had begun cannot be ended; a recipient that comes back is told why
    if (reconnects || failed.error().code != errc::connection_lost) {
      EXPECT_EQ(code_of(failed), errc::unreadable) << calls << " reads";
    }
    source.calls = -1;
    EXPECT_EQ(code_of(Net::download_tensors(where(), ref, mine)), errc::unreadable)
        << "it does not come back by itself";
  }
  source.calls = 0;
  EXPECT_EQ(code_of(owner.add_tensors(published)), errc::io) << "nothing is published that cannot be read";
  source.calls = -1;
  EXPECT_TRUE(Net::download_tensors(where(), *whole, mine)) << "other references of the same memory are as they were";
}

template <class Integrity>
void over_loopback() {
  using net = tp::pipeline<tp::loopback, tp::tensor_list, tp::fixed_bytes<64_KiB>, Integrity>;
  const auto owner = std::make_unique<typename net::downloader>();
  expect_withdrawal<net>(*owner, [&]() -> auto& { return *owner; }, false);
}
TEST(UnreadableSource, Over_loopback) {
  over_loopback<tp::image_digest>();
  over_loopback<tp::chunk_and_image_digest>();
}

template <class Integrity>
void over_tcp() {
  // published while another thread serves
  using net = tp::pipeline<tp::tcp_on_threads, tp::tensor_list, tp::fixed_bytes<64_KiB>, Integrity>;
  auto owner = *net::downloader::open();
  const serving run(owner);
  const auto where = local(owner.port());
  expect_withdrawal<net>(owner, [&]() -> const auto& { return where; }, true);
}
TEST(UnreadableSource, Over_tcp) {
  over_tcp<tp::image_digest>();
  over_tcp<tp::chunk_and_image_digest>();
}

}  // namespace unreadable_source_test
