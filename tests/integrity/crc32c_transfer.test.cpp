// Chunks with a CRC32C, over a whole pipeline; an owner that was not given CRC32C says so.
#include "../transports/network.hpp"

#include <tensorpull/integrity/xxhash/chunk_crc32c.hpp>

namespace crc32c_transfer_test {

using namespace test;
template <class Integrity>
using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<16_KiB>, tp::loopback, Integrity>;

template <class Integrity>
tp::result<tp::receipt> move_one() {
  const auto source = random_model<mlp>(6);
  const auto mine = blank<mlp>();
  typename net<Integrity>::downloader owner;
  const auto ref = owner.add_tensors(*source);
  const auto done = net<Integrity>::download_tensors(owner, *ref, *mine);
  EXPECT_TRUE(!done || same(*mine, *source));
  return done;
}

TEST(Crc32cTransfer, Chunks_with_the_digest_of_the_whole) {
  EXPECT_EQ(move_one<tp::chunk_crc32c_and_image_digest>()->outcome, tp::outcome::completed);
}

TEST(Crc32cTransfer, An_owner_without_it_refuses_and_one_with_it_still_serves_xxh3) {
  const auto source = random_model<mlp>(6);
  const auto mine = blank<mlp>();
  net<tp::image_digest>::downloader plain;
  const auto ref = *plain.add_tensors(*source);
  EXPECT_EQ(net<tp::chunk_crc32c_and_image_digest>::download_tensors(plain, ref, *mine).error(),
            tp::errc::unsupported_request);
  EXPECT_TRUE(same(*mine, *blank<mlp>()));
  net<tp::chunk_crc32c_and_image_digest>::downloader both;
  const auto other = *both.add_tensors(*source);
  EXPECT_TRUE(net<tp::chunk_and_image_digest>::download_tensors(both, other, *mine));
  EXPECT_TRUE(same(*mine, *source));
}

}  // namespace crc32c_transfer_test
