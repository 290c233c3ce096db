// A model made from the header that an owner sends: equal to what was published; nothing for a header that is none or
// that claims too much.
#include "../image/random_image.hpp"
#include "allocation_counter.hpp"

#include <tensorpull/consumers/any_schema/new_model.hpp>
#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/pipeline.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/transports/over/loopback/loopback.hpp>

#include <gtest/gtest.h>

#include <cstring>

namespace new_model_test {

using namespace tensorpull;
using bytes = std::vector<std::byte>;

struct heap_tensors {
  std::vector<std::unique_ptr<std::byte[]>> memory;
  std::uint64_t total = 0;
  result<std::byte*> allocate(const tensor_entry& entry) {
    total += entry.size_bytes();
    return memory.emplace_back(new std::byte[entry.size_bytes() + 1]).get();
  }
  void clear() noexcept { memory.clear(), total = 0; }
};
static_assert(tensor_allocator<heap_tensors>);
using consumer_type = new_model<heap_tensors>;
constexpr new_model_limits roomy{.max_bytes = 16u << 20};

description describe(const image_schema& s) {
  return {{1, 2}, 3, s.fingerprint, s.image_bytes, s.header_bytes, s.tensor_count, true};
}

/// Bytes [from, to) of an image, in pieces of at most `piece` bytes.
result<void> feed(consumer_type& to, const bytes& image, std::uint64_t from, std::uint64_t end, std::uint64_t piece) {
  while (from < end) {
    std::span<std::byte> out[3];
    const prepared p = to.prepare(from, std::min(piece, end - from), out);
    if (p.bytes == 0) return failure(errc::busy, from);
    for (std::size_t i = 0; i < p.pieces; ++i) {
      std::memcpy(out[i].data(), image.data() + from, out[i].size());
      if (const auto ok = to.commit(from, out[i]); !ok) return ok;
      from += out[i].size();
    }
  }
  return {};
}
result<void> take(consumer_type& to, const description& d, const bytes& image, std::uint64_t piece) {
  if (const auto ok = to.begin(d); !ok) return ok;
  auto ok = feed(to, image, 0, image.size(), piece);
  if (ok) ok = to.chunk(0, image.size());
  if (!ok) {
    to.abandon(ok.error());
    return ok;
  }
  return to.finish({});
}

/// What was made, as an image.
bytes image_of(consumer_type& made) {
  std::vector<tensor_view> views;
  for (std::size_t i = 0; i < made.made().tensor_count; ++i) {
    const tensor_entry& t = made.made().tensors[i];
    views.push_back({t.name, t.type, t.extents(), made.allocator().memory[i].get()});
  }
  const auto image = dynamic_image::make(views, made.made().pairs());
  EXPECT_TRUE(image);
  bytes all, slice(4096);
  std::span<const std::byte> out[4];
  while (image && all.size() < image->schema().image_bytes) {
    const auto got = gather(image->source(), all.size(), image->schema().image_bytes - all.size(), out, slice);
    for (std::size_t i = 0; i < got.pieces; ++i) all.insert(all.end(), out[i].begin(), out[i].end());
  }
  return all;
}

struct published {
  tensorpull::test::random_tensors tensors;
  bytes image;
  dynamic_image made;
  explicit published(unsigned seed, std::vector<metadata_entry> metadata = {})
      : tensors(seed, 1 + seed % 30, false), image(tensors.expected_image(metadata)),
        made(*dynamic_image::make(tensors.views(), metadata)) {}
};

TEST(NewModel, Is_what_was_published_however_its_bytes_are_cut) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::vector<metadata_entry> metadata;
    if (seed % 3 > 0) metadata.push_back({"format", "pt"});
    if (seed % 3 > 1) metadata.push_back({"quote\" \x01 \n", "\\"});
    const published from(seed, metadata);
    ASSERT_EQ(from.image.size(), from.made.schema().image_bytes);
    for (const std::uint64_t piece : {1u, 7u, 100000u}) {
      consumer_type to({}, roomy);
      const auto ok = take(to, describe(from.made.schema()), from.image, piece);
      ASSERT_TRUE(ok) << "seed " << seed << ": " << to_string(ok.error().code) << " at " << ok.error().at;
      EXPECT_EQ(to.made().fingerprint, from.made.schema().fingerprint);
      EXPECT_EQ(image_of(to), from.image) << "seed " << seed;
    }
  }
}

TEST(NewModel, A_transfer_makes_it) {
  using net = pipeline<tensor_list, fixed_bytes<104>, loopback, chunk_and_image_digest>;
  const auto owner = std::make_unique<net::downloader>();
  const published from(29);
  const auto ref = owner->add_tensors(from.made);
  ASSERT_TRUE(ref);
  consumer_type to({}, roomy);
  ASSERT_TRUE(net::pull(*owner, *ref, to));
  EXPECT_EQ(image_of(to), from.image);

  // The header of a subset does not travel.
  const std::string_view names[] = {from.made.schema().tensors[0].name};
  EXPECT_EQ(net::pull(*owner, *ref, to, {.tensors = names}).error(), errc::schema_mismatch);
}

TEST(NewModel, Every_changed_byte_of_a_header_is_refused_or_changes_nothing) {
  const published from(7, {{"format", "pt"}});
  const description d = describe(from.made.schema());
  std::size_t harmless = 0;
  for (std::size_t i = 0; i < d.data_start; ++i)
    for (const int change : {1, 2, 0x10, 0x80}) {
      bytes image = from.image;
      image[i] ^= static_cast<std::byte>(change);
      consumer_type to({}, roomy);
      if (const auto ok = take(to, d, image, 13); !ok) {
        EXPECT_TRUE(ok.error() == errc::bad_frame || ok.error() == errc::schema_mismatch ||
                    ok.error() == errc::unsupported_dtype || ok.error() == errc::invalid_argument ||
                    ok.error() == errc::size_overflow || ok.error() == errc::duplicate_name)
            << to_string(ok.error().code);
        EXPECT_TRUE(to.allocator().memory.empty());
      } else {
        ++harmless;  // places and metadata, which no tensor depends on: the digest of the whole finds those
        EXPECT_EQ(to.made().fingerprint, d.fingerprint);
        EXPECT_EQ(to.allocator().total, from.made.schema().data_bytes());
      }
    }
  EXPECT_LT(harmless, d.data_start * 2);
}

TEST(NewModel, L5_ClaimsAboveTheLimitsAllocateNothing) {
  const auto refusal = [](const std::string& text, description d) {
    while (d.data_start == 0) d.data_start = 8 + text.size();
    bytes image(8 + text.size());
    std::memcpy(image.data() + 8, text.data(), text.size());
    const ::test::allocation_watch watch;
    consumer_type to({}, {.max_bytes = 1u << 20, .max_header_bytes = 4096, .max_tensors = 100});
    const auto ok = take(to, d, image, 4096);
    EXPECT_FALSE(ok);
    EXPECT_LT(watch.largest(), 16u << 10) << text.substr(0, 50);
    return ok ? errc{} : ok.error().code;
  };
  const auto claims = [](std::uint64_t data) { return description{{1, 2}, 3, 4, data, 0, 1, true}; };
  const auto shaped = [](const std::string& shape) {
    return R"({"w":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,0]}})";
  };
  description d = claims(2u << 20);
  d.data_start = 64;
  EXPECT_EQ(refusal("{}", d), errc::too_large);
  d.data_start = 1u << 20;
  EXPECT_EQ(refusal("{}", d), errc::too_large);
  d = claims(100), d.tensors = 101;
  d.data_start = 64;
  EXPECT_EQ(refusal("{}", d), errc::too_large);
  EXPECT_EQ(refusal(shaped("[4294967296,4294967296]"), claims(1000)), errc::size_overflow);
  EXPECT_EQ(refusal(shaped("[9223372036854775808,2]"), claims(1000)), errc::size_overflow);
  EXPECT_EQ(refusal(shaped("[18446744073709551616]"), claims(1000)), errc::bad_frame);
  EXPECT_EQ(refusal(shaped("[1000000]"), claims(1000)), errc::schema_mismatch);
  EXPECT_EQ(refusal(shaped("[-1]"), claims(1000)), errc::bad_frame);
  EXPECT_EQ(refusal(shaped("[[[[[[[["), claims(1000)), errc::bad_frame);
  EXPECT_EQ(refusal(R"({"w":{"dtype":"F128","shape":[],"data_offsets":[0,0]}})", claims(1000)),
            errc::unsupported_dtype);
  EXPECT_EQ(refusal(R"({"__metadata__":{"a":"b"})", claims(1000)), errc::bad_frame);
  EXPECT_EQ(refusal(R"({"a\u0041":{)", claims(1000)), errc::bad_frame);
  std::string many = "{";
  for (int i = 0; i < 101; ++i)
    many += (i == 0 ? "\"" : ",\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  description large = claims(9000);
  consumer_type to({}, {.max_bytes = 1u << 20, .max_tensors = 100});
  large.data_start = 8 + many.size();
  bytes image(8 + many.size());
  std::memcpy(image.data() + 8, many.data(), many.size());
  EXPECT_EQ(take(to, large, image, 4096).error(), errc::too_large);
}

TEST(NewModel, A_damaged_chunk_of_the_header_comes_again) {
  const published from(23, {{"format", "pt"}});
  const description d = describe(from.made.schema());
  for (const std::uint64_t chunk : {16u, 100u, 5000u}) {
    consumer_type to({}, roomy);
    ASSERT_TRUE(to.begin(d));
    for (std::uint64_t at = 0; at < from.image.size(); at += chunk) {
      const std::uint64_t end = std::min<std::uint64_t>(at + chunk, from.image.size());
      // what of it arrives is right, the digest is not
      const auto half = feed(to, from.image, at, at + (end - at) / 2 + 1, 7);
      ASSERT_TRUE(half);
      to.rewind(at);
      ASSERT_TRUE(feed(to, from.image, at, end, 7)) << at;
      ASSERT_TRUE(to.chunk(at, end - at));
    }
    ASSERT_TRUE(to.finish({}));
    EXPECT_EQ(image_of(to), from.image);
  }
}

TEST(NewModel, Allocates_nothing_after_the_header) {
  const published from(11);
  const description d = describe(from.made.schema());
  consumer_type to({}, roomy);
  ASSERT_TRUE(to.begin(d));
  ASSERT_TRUE(feed(to, from.image, 0, d.data_start, 4096));
  const ::test::allocation_watch watch;
  ASSERT_TRUE(feed(to, from.image, d.data_start, from.image.size(), 5));
  EXPECT_EQ(watch.count(), 0u);
}

}  // namespace new_model_test
