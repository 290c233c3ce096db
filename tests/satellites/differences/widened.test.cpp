// A narrowed difference that is applied while it arrives: into a model in place, and into an average. Against move_by,
// and against the average of the moved models.
#include "some_model.hpp"
#include "support/results.hpp"

#include <tensorpull/consumers/average/weighted_average.hpp>
#include <tensorpull/consumers/land.hpp>
#include <tensorpull/satellites/differences/difference.hpp>
#include <tensorpull/satellites/differences/widened.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/transports/over/loopback/loopback.hpp>

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace widened_test {

using namespace tensorpull;
using ::test::code_of;
using ::test::some_model;
using ::test::succeeded;

template <class Scheme>
struct Widened : testing::Test {};
using schemes = testing::Types<blocks_of_8_bits<16>, blocks_of_4_bits<16>, blocks_of_8_bits<16, all_tensors>,
                               blocks_of_4_bits<16, all_tensors>>;
TYPED_TEST_SUITE(Widened, schemes);

template <std::uint64_t Chunk>
using net = pipeline<tensor_list, fixed_bytes<Chunk>, loopback, chunk_and_image_digest>;

template <class Scheme>
result<narrowed_difference<Scheme>> narrowed(some_model& now, some_model& base) {
  return narrowed_difference<Scheme>::make(now.constant(), base.constant());
}
/// What the sender has afterwards.
template <class Scheme>
some_model advanced(some_model now, some_model base) {
  for (std::size_t i = 0; i < now.names.size(); ++i) {
    const bool narrows = Scheme::narrows(now.names[i], now.types[i], now.shapes[i]);
    const bool moves = narrows && detail::with_movable(now.types[i], false, [&](auto t) {
                         using T = decltype(t);
                         auto* const to = reinterpret_cast<T*>(base.memory[i].data());
                         const auto* const from = reinterpret_cast<const T*>(now.memory[i].data());
                         for (std::size_t at = 0; at < now.counts[i]; at += 16) {
                           const std::size_t n = std::min<std::size_t>(16,
                                                                       static_cast<std::size_t>(now.counts[i]) - at);
                           EXPECT_TRUE(Scheme::template advance<T>({from + at, n}, {to + at, n}));
                         }
                         return true;
                       });
    if (!moves) base.memory[i] = now.memory[i];
  }
  return base;
}

template <std::uint64_t Chunk, class Consumer>
result<receipt> pulled(const dynamic_image& from, Consumer& to) {
  typename net<Chunk>::downloader owner;
  const auto ref = owner.add_image(from.source());
  if (!ref) return failure(ref.error());
  return net<Chunk>::pull(owner, *ref, to);
}

template <class Scheme, std::uint64_t Chunk>
void moves_in_place() {
  for (const std::vector<dtype>& types :
       {std::vector<dtype>{dtype::f32}, {dtype::bf16}, {dtype::f64, dtype::f32, dtype::f16, dtype::i64, dtype::u8}}) {
    some_model owner(types), mine = owner;
    for (std::uint64_t round = 2; round < 5; ++round) {
      some_model now = owner.stepped(round, 1e-3);
      auto d = narrowed<Scheme>(now, owner);
      ASSERT_TRUE(d);
      auto image = mine.image();
      land to(image.destination());
      auto wide = widened<land, Scheme>::make(to, image.source(), Chunk);
      ASSERT_TRUE(wide);
      const auto done = pulled<Chunk>(d->model(), *wide);
      ASSERT_TRUE(succeeded(done));
      owner = advanced<Scheme>(now, owner);
      EXPECT_TRUE(mine == owner) << round;
    }
  }
}
TYPED_TEST(Widened, A_model_is_moved_in_place_round_after_round_in_chunks_of_any_length) {
  moves_in_place<TypeParam, 64>();
  moves_in_place<TypeParam, 1000>();
  moves_in_place<TypeParam, 64_KiB>();
}

template <class Scheme, std::uint64_t Chunk>
void averages(const std::vector<dtype>& types) {
  some_model base(types), result_model = base, expected = base;
  auto to = result_model.image(), plain_to = expected.image(), from = base.image();
  auto buffers = chunk_buffers::make(64_KiB, 2), other_buffers = chunk_buffers::make(64_KiB, 2);
  ASSERT_TRUE(buffers && other_buffers);
  auto average = weighted_average<>::make(to.destination(), *buffers, {.base = from.source()});
  auto plain = weighted_average<>::make(plain_to.destination(), *other_buffers, {.base = from.source()});
  ASSERT_TRUE(average && plain);
  for (std::uint64_t client = 1; client <= 5; ++client) {
    some_model now = base.stepped(client * 10, 1e-2), there = advanced<Scheme>(now, base);
    auto d = narrowed<Scheme>(now, base);
    ASSERT_TRUE(d);
    weighted_average<>::update update(*average, static_cast<double>(client), {recipient_id{client}, 1});
    auto wide = widened<weighted_average<>::update, Scheme>::make(update, from.source(), Chunk);
    ASSERT_TRUE(wide);
    const auto done = pulled<Chunk>(d->model(), *wide);
    ASSERT_TRUE(succeeded(done));
    // the same peer again adds nothing
    weighted_average<>::update again(*average, static_cast<double>(client), {recipient_id{client}, 1});
    auto twice = widened<weighted_average<>::update, Scheme>::make(again, from.source(), Chunk);
    ASSERT_TRUE(pulled<Chunk>(d->model(), *twice));
    auto whole = there.image();
    weighted_average<>::update one(*plain, static_cast<double>(client), {recipient_id{client}, 1});
    ASSERT_TRUE(pulled<64_KiB>(whole, one));
  }
  EXPECT_EQ(average->whole_updates(), 5u);
  ASSERT_TRUE(average->finish());
  ASSERT_TRUE(plain->finish());
  EXPECT_TRUE(result_model == expected) << "the same bits as of the moved models";
}
TYPED_TEST(Widened, An_average_is_that_of_the_moved_models_bit_by_bit) {
  averages<TypeParam, 64>({dtype::f32});
  averages<TypeParam, 1000>({dtype::f32});
  averages<TypeParam, 64_KiB>({dtype::f32});
  averages<TypeParam, 1000>({dtype::bf16});
  averages<TypeParam, 1000>({dtype::f64});
  averages<TypeParam, 72>({dtype::f32, dtype::bf16, dtype::i32, dtype::u8, dtype::i64, dtype::f64});
}

TYPED_TEST(Widened, A_difference_to_another_base_is_refused_before_a_byte_is_given) {
  some_model owner, now = owner.stepped(2, 1e-3), mine = owner;
  reinterpret_cast<std::byte*>(mine.memory.back().data())[3] ^= std::byte{1};
  const some_model held = mine;
  auto d = narrowed<TypeParam>(now, owner);
  ASSERT_TRUE(d);
  auto image = mine.image();
  land to(image.destination());
  auto wide = widened<land, TypeParam>::make(to, image.source(), 1000);
  ASSERT_TRUE(wide);
  const auto done = pulled<1000>(d->model(), *wide);
  EXPECT_EQ(code_of(done), errc::stale_version);
  EXPECT_TRUE(mine == held);
  auto other = widened<land, scaled_blocks<32, 8 / TypeParam::byte_elements>>::make(to, image.source(), 1000);
  ASSERT_TRUE(other);
  const auto none = pulled<1000>(d->model(), *other);
  EXPECT_EQ(code_of(none), errc::schema_mismatch) << "another number of scales";
}

/// What a sender that lies publishes: the tensors of a difference, with some bytes and metadata of its own.
struct lie {
  std::vector<std::vector<std::byte>> memory;
  std::vector<tensor_view> views;
  std::vector<metadata_entry> metadata;
  std::optional<dynamic_image> image;

  lie(const dynamic_image& from, std::string_view tensor, std::span<const std::byte> first, std::string_view key = {},
      std::string_view value = {}) {
    for (const tensor_entry& t : from.schema().entries()) {
      auto& bytes = memory.emplace_back(static_cast<std::size_t>(t.size_bytes()));
      EXPECT_TRUE(detail::read_range(from.source(), from.schema().header_bytes + t.begin, bytes));
      if (t.name == tensor) std::memcpy(bytes.data(), first.data(), first.size());
      views.push_back({t.name, t.type, t.extents(), bytes.data()});
    }
    for (metadata_entry pair : from.schema().pairs()) {
      if (pair.key == key) pair.value = value;
      metadata.push_back(pair);
    }
    image.emplace(*dynamic_image::make(std::span<const tensor_view>(views), metadata));
  }
};

TYPED_TEST(Widened, What_lies_is_refused_by_name) {
  some_model owner, now = owner.stepped(2, 1e-3);
  auto d = narrowed<TypeParam>(now, owner);
  ASSERT_TRUE(d);
  const auto bytes_of = [](std::uint32_t scale) {
    std::array<std::byte, 4> b;
    for (std::size_t i = 0; i < 4; ++i) b[i] = static_cast<std::byte>(scale >> 8 * i & 255);
    return b;
  };
  const auto outcome = [&](const lie& what, bool changes) {
    some_model mine = owner;
    auto image = mine.image();
    land to(image.destination());
    auto wide = widened<land, TypeParam>::make(to, image.source(), 1000);
    EXPECT_TRUE(wide);
    const auto done = pulled<1000>(*what.image, *wide);
    EXPECT_EQ(mine == owner, !changes);
    return done ? errc{} : done.error().code;
  };
  const bool before = !TypeParam::narrows("F32.17", dtype::f32, {});  // what travels whole arrives before some scales
  for (const std::uint32_t scale : {0x7fc00000u, 0x7f800000u, 0x80000000u, 0xbf800000u, 1u})
    EXPECT_EQ(outcome(lie(d->model(), "F32.100.scales", bytes_of(scale)), before), errc::value_out_of_range) << scale;
  EXPECT_EQ(outcome(lie(d->model(), "F32.100.scales", bytes_of(0x3f800000)), true), errc::digest_mismatch);
  const std::byte code{static_cast<unsigned char>(-128)};
  EXPECT_EQ(outcome(lie(d->model(), "F32.100", {&code, 1}), true), errc::digest_mismatch);
  for (const std::string_view key :
       {TypeParam::key, std::string_view("tensorpull.moved"), std::string_view("tensorpull.base")}) {
    const errc expected = key == "tensorpull.base" ? errc::stale_version : errc::missing_field;
    EXPECT_EQ(outcome(lie(d->model(), "", {}, key, "1"), false), expected) << key;
    EXPECT_EQ(outcome(lie(d->model(), "", {}, key, ""), false), expected) << key;
  }
  EXPECT_EQ(outcome(lie(d->model(), "", {}, "tensorpull.moved", "0123456789abcdef"), true), errc::digest_mismatch);
}

TYPED_TEST(Widened, What_an_average_of_first_bytes_would_get_in_another_order_is_refused_when_it_is_made) {
  using in_order = weighted_average<partial_updates::divide_by_reached>;
  for (const std::vector<dtype>& types : {std::vector<dtype>{dtype::f32, dtype::bf16}, {dtype::f32, dtype::i32}}) {
    some_model base(types), out = base;
    auto to = out.image(), from = base.image();
    auto buffers = chunk_buffers::make(64_KiB, 1);
    auto average = in_order::make(to.destination(), *buffers, {.base = from.source()});
    ASSERT_TRUE(average);
    in_order::update update(*average, 1, {recipient_id{1}, 1});
    const auto wide = widened<in_order::update, TypeParam>::make(update, from.source(), 1000);
    EXPECT_EQ(code_of(wide), errc::unsupported_layout);
  }
  if (!TypeParam::narrows("", dtype::f32, {})) return;
  some_model base({dtype::i64, dtype::f32}), out = base;  // wide integers come first in both
  auto to = out.image(), from = base.image();
  auto buffers = chunk_buffers::make(64_KiB, 1);
  auto average = in_order::make(to.destination(), *buffers, {.base = from.source()});
  in_order::update update(*average, 1, {recipient_id{1}, 1});
  EXPECT_TRUE((widened<in_order::update, TypeParam>::make(update, from.source(), 1000)));
}

TYPED_TEST(Widened, A_chunk_that_is_longer_than_said_is_moved_while_it_comes_if_that_can_be_undone) {
  for (const std::uint64_t held : {1u, 64u, 999u}) {
    some_model owner, now = owner.stepped(2, 1e-3), mine = owner, out = owner;
    auto d = narrowed<TypeParam>(now, owner);
    auto image = mine.image(), to_out = out.image();
    land to(image.destination());
    auto wide = widened<land, TypeParam>::make(to, image.source(), held);
    const auto done = pulled<1000>(d->model(), *wide);
    ASSERT_TRUE(succeeded(done));
    EXPECT_TRUE(mine == advanced<TypeParam>(now, owner));

    auto base = owner.image();
    auto buffers = chunk_buffers::make(64_KiB, 1);
    auto average = weighted_average<>::make(to_out.destination(), *buffers, {.base = base.source()});
    weighted_average<>::update update(*average, 1, {recipient_id{1}, 1});
    auto added = widened<weighted_average<>::update, TypeParam>::make(update, base.source(), held);
    const auto none = pulled<1000>(d->model(), *added);
    EXPECT_EQ(code_of(none), errc::does_not_fit);
  }
}

/// A step that freezes: only tensors of this length have moved, or none.
some_model partly_stepped(const some_model& base, std::uint64_t length, double width = 1e-3) {
  some_model now = base.stepped(2, width);
  for (std::size_t i = 0; i < now.names.size(); ++i)
    if (now.counts[i] != length) now.memory[i] = base.memory[i];
  return now;
}

template <class Scheme, std::uint64_t Chunk>
void frozen(const std::vector<dtype>& types) {
  for (const std::uint64_t length : {1u, 17u, 100u, 5000u, 3u}) {
    some_model owner(types), mine = owner, elsewhere(types), out = owner;
    some_model now = partly_stepped(owner, length);
    elsewhere.step(9, 1);
    auto d = narrowed<Scheme>(now, owner);
    ASSERT_TRUE(succeeded(d));
    EXPECT_LE(d->model().schema().tensor_count, 2 * types.size()) << length;
    auto image = mine.image(), other = elsewhere.image();
    land to(image.destination()), to_other(other.destination());
    auto wide = widened<land, Scheme>::make(to, image.source(), Chunk);
    const auto done = pulled<Chunk>(d->model(), *wide);
    ASSERT_TRUE(succeeded(done)) << length;
    const some_model after = advanced<Scheme>(now, owner);
    EXPECT_TRUE(mine == after) << length;
    // the base's, if they land elsewhere
    auto base = owner.image();
    auto copied = widened<land, Scheme>::make(to_other, base.source(), Chunk);
    const auto landed = pulled<Chunk>(d->model(), *copied);
    ASSERT_TRUE(succeeded(landed)) << length;
    EXPECT_TRUE(elsewhere == after) << length;
  }
}
TYPED_TEST(Widened, What_stands_still_does_not_travel_and_is_the_base_s) {
  frozen<TypeParam, 64>({dtype::f32});
  frozen<TypeParam, 1000>({dtype::bf16, dtype::f32, dtype::i64, dtype::u8});
  frozen<TypeParam, 64_KiB>({dtype::f64, dtype::f32, dtype::f16});
}

TYPED_TEST(Widened, An_average_of_what_stands_still_is_that_of_the_whole_models) {
  for (const dtype type : {dtype::f32, dtype::bf16}) {
    some_model base({dtype::i64, type}), result_model = base, expected = base;
    auto to = result_model.image(), plain_to = expected.image(), from = base.image();
    auto buffers = chunk_buffers::make(64_KiB, 2), other_buffers = chunk_buffers::make(64_KiB, 2);
    auto average = weighted_average<>::make(to.destination(), *buffers, {.base = from.source()});
    auto plain = weighted_average<>::make(plain_to.destination(), *other_buffers, {.base = from.source()});
    ASSERT_TRUE(average && plain);
    std::uint64_t client = 0;
    for (const std::uint64_t length : {1u, 100u, 5000u, 3u}) {
      some_model now = partly_stepped(base, length, 1e-2), there = advanced<TypeParam>(now, base);
      auto d = narrowed<TypeParam>(now, base);
      ASSERT_TRUE(d);
      ++client;
      weighted_average<>::update update(*average, 2, {recipient_id{client}, 1});
      auto wide = widened<weighted_average<>::update, TypeParam>::make(update, from.source(), 1000);
      ASSERT_TRUE(wide);
      const auto done = pulled<1000>(d->model(), *wide);
      ASSERT_TRUE(succeeded(done));
      auto whole = there.image();
      weighted_average<>::update one(*plain, 2, {recipient_id{client}, 1});
      ASSERT_TRUE(pulled<64_KiB>(whole, one));
    }
    ASSERT_TRUE(average->finish());
    ASSERT_TRUE(plain->finish());
    EXPECT_TRUE(result_model == expected);
  }
}

TYPED_TEST(Widened, A_base_whose_still_tensors_are_others_is_refused_unless_the_caller_knows_of_them) {
  some_model owner, now = partly_stepped(owner, 5000), mine = owner;
  mine.memory[5][0] ^= 1;  // F32.100, which stands still
  const some_model held = mine;
  auto d = narrowed<TypeParam>(now, owner);
  ASSERT_TRUE(d);
  auto image = mine.image();
  land to(image.destination());
  auto whole = widened<land, TypeParam>::make(to, image.source(), 1000);
  const auto refused = pulled<1000>(d->model(), *whole);
  EXPECT_EQ(code_of(refused), errc::stale_version);
  EXPECT_TRUE(mine == held);
  auto part = widened<land, TypeParam>::make(to, image.source(), 1000, step_base::part);
  const auto done = pulled<1000>(d->model(), *part);
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(mine.memory[6] == advanced<TypeParam>(now, owner).memory[6]);
  EXPECT_TRUE(mine.memory[5] == held.memory[5]);
}

/// A step whose header lists other tensors than it should.
TYPED_TEST(Widened, A_header_that_lists_what_no_step_has_is_refused_and_nothing_moves) {
  some_model owner({dtype::f32, dtype::i64}), now = partly_stepped(owner, 100);
  auto d = narrowed<TypeParam>(now, owner);
  ASSERT_TRUE(d);
  const lie good(d->model(), "", {});
  const auto outcome = [&](std::vector<tensor_view> views, std::vector<metadata_entry> metadata) {
    some_model mine = owner;
    auto published = dynamic_image::make(std::span<const tensor_view>(views), metadata);
    EXPECT_TRUE(published);
    auto image = mine.image();
    land to(image.destination());
    auto wide = widened<land, TypeParam>::make(to, image.source(), 1000);
    const auto done = pulled<1000>(*published, *wide);
    EXPECT_EQ(mine == owner, !done);
    return done ? errc{} : done.error().code;
  };
  EXPECT_EQ(outcome(good.views, good.metadata), errc{});
  std::vector<std::byte> zeros(40000);
  for (std::size_t i = 0; i < good.views.size(); ++i) {
    auto fewer = good.views;  // codes without scales, or scales without codes, or another tensor stands still
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_EQ(outcome(fewer, good.metadata),
              good.views[i].type == dtype::i64 ? errc::stale_version : errc::schema_mismatch);
    auto renamed = good.views;
    renamed[i].name = "none";
    EXPECT_EQ(outcome(renamed, good.metadata), errc::schema_mismatch);
    auto retyped = good.views;
    const std::uint64_t shape[] = {good.views[i].shape[0], 1};
    retyped[i].shape = shape;
    EXPECT_EQ(outcome(retyped, good.metadata), errc::schema_mismatch);
    retyped[i].shape = good.views[i].shape;
    retyped[i].type = good.views[i].type == dtype::i64 ? dtype::f64 : dtype::boolean;
    EXPECT_EQ(outcome(retyped, good.metadata), errc::schema_mismatch);
  }
  for (const std::string_view more : {"F32.17", "F32.17.scales", "I64.17.scales", "I64.1.scales"}) {
    auto views = good.views;
    const std::uint64_t n[] = {more == "F32.17" ? TypeParam::code_bytes(17) : 2};
    views.push_back({more, more == "F32.17" ? TypeParam::code_dtype : dtype::f32, n, zeros.data()});
    EXPECT_EQ(outcome(views, good.metadata), errc::schema_mismatch) << more;
  }
  auto said = good.metadata;
  for (metadata_entry& pair : said)
    if (pair.key == "tensorpull.still") pair.value = "0123456789abcdef";
  EXPECT_EQ(outcome(good.views, said), errc::stale_version);
  std::erase_if(said, [](const metadata_entry& pair) { return pair.key == "tensorpull.still"; });
  EXPECT_EQ(outcome(good.views, said), errc::stale_version) << "and says nothing of them";
}

/// All bytes of an image.
std::vector<std::byte> bytes_of(const source_view& image) {
  std::vector<std::byte> all(static_cast<std::size_t>(image.schema->image_bytes)), slice(4096);
  for (std::uint64_t at = 0; at < all.size();) {
    std::span<const std::byte> pieces[16];
    const gathered g = gather(image, at, all.size() - at, pieces, slice);
    EXPECT_FALSE(g.failed);
    for (std::size_t i = 0; i < g.pieces; at += pieces[i++].size())
      std::memcpy(&all[static_cast<std::size_t>(at)], pieces[i].data(), pieces[i].size());
  }
  return all;
}
/// Gives a consumer [from, to) of an image as one chunk, or a part of it that ends with the connection.
template <class Consumer>
result<void> give(Consumer& to, std::span<const std::byte> image, std::size_t from, std::size_t end,
                  bool whole = true) {
  for (std::size_t at = from; at < end;) {
    std::array<std::span<std::byte>, 1> room;
    if (to.prepare(at, end - at, room).pieces == 0) return failure(errc::busy, at);
    std::memcpy(room[0].data(), &image[at], room[0].size());
    if (const auto ok = to.commit(at, room[0]); !ok) return ok;
    at += room[0].size();
  }
  return whole ? to.chunk(from, end - from) : result<void>{};
}

TYPED_TEST(Widened, A_second_transfer_begins_anew_wherever_the_first_was_cut_off) {
  some_model owner({dtype::i64, dtype::f32}), now = owner.stepped(2, 1e-3), out = owner;
  auto d = narrowed<TypeParam>(now, owner);
  ASSERT_TRUE(d);
  const auto image = bytes_of(d->model().source());
  const image_schema& s = d->model().schema();
  const description what{{1, 2}, 3, s.fingerprint, s.image_bytes, s.header_bytes, s.tensor_count, true};
  auto base = owner.image(), to_out = out.image();
  land to(to_out.destination());  // not into the base, which is that of the second as well
  auto wide = widened<land, TypeParam>::make(to, base.source(), 1000);
  ASSERT_TRUE(wide);
  for (std::size_t cut = 0; cut < image.size(); cut += 3000) {
    ASSERT_TRUE(wide->begin(what));
    for (std::size_t at = 0; at < cut; at += 1000) ASSERT_TRUE(give(*wide, image, at, at + 1000));
    wide->abandon({errc::connection_lost, 0, 0, {}});
    const auto done = pulled<1000>(d->model(), *wide);
    ASSERT_TRUE(succeeded(done)) << " " << cut;
    ASSERT_TRUE(out == advanced<TypeParam>(now, owner)) << cut;
  }
}

// Tensors that travel whole come before the others, and what is in the sums is not added again.
TYPED_TEST(Widened, An_average_goes_on_where_an_update_stopped_and_refuses_what_is_no_number_by_its_tensor) {
  const std::vector<dtype> types{dtype::bf16, dtype::f64, dtype::f32};
  some_model base(types), now = base.stepped(2, 1e-2), once = base, twice = base;
  auto d = narrowed<TypeParam>(now, base);
  ASSERT_TRUE(d);
  const auto image = bytes_of(d->model().source());
  const image_schema& s = d->model().schema();
  const description what{{1, 2}, 3, s.fingerprint, s.image_bytes, s.header_bytes, s.tensor_count, true};
  auto from = base.image(), to_once = once.image(), to_twice = twice.image();
  auto buffers = chunk_buffers::make(64_KiB, 1);
  using average_type = weighted_average<>;
  auto plain = average_type::make(to_once.destination(), *buffers, {.base = from.source()});
  ASSERT_TRUE(plain);
  {
    average_type::update update(*plain, 3, {recipient_id{1}, 1});
    auto wide = widened<average_type::update, TypeParam>::make(update, from.source(), 1000);
    const auto done = pulled<1000>(d->model(), *wide);
    ASSERT_TRUE(succeeded(done));
  }
  ASSERT_TRUE(plain->finish());
  for (std::size_t cut = 0; cut < image.size(); cut += 1400) {
    auto average = average_type::make(to_twice.destination(), *buffers, {.base = from.source()});
    for (const bool stops : {true, false}) {
      average_type::update update(*average, 3, {recipient_id{1}, 1});
      auto wide = widened<average_type::update, TypeParam>::make(update, from.source(), 700);
      ASSERT_TRUE(wide->begin(what));
      for (std::size_t at = 0, n = 0; at < (stops ? cut : image.size()); at += n) {
        n = std::min<std::size_t>(700, image.size() - at);
        const auto ok = give(*wide, image, at, at + n);
        ASSERT_TRUE(succeeded(ok)) << " " << at;
      }
      if (stops) wide->abandon({errc::connection_lost, 0, 0, {}});
      else ASSERT_TRUE(wide->finish({}));
    }
    EXPECT_EQ(average->whole_updates(), 1u);
    ASSERT_TRUE(average->finish());
    ASSERT_TRUE(twice == once) << cut;
  }
  if (TypeParam::narrows("F32.17", dtype::f32, {})) return;  // a step has none, but what travels whole may
  const float none = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(now.memory[3 * 7 - 3].data(), &none, sizeof none);
  ASSERT_EQ(now.names[3 * 7 - 3], "F32.17");
  auto bad = narrowed<TypeParam>(now, base);
  ASSERT_TRUE(bad);
  auto average = average_type::make(to_twice.destination(), *buffers, {.base = from.source()});
  average_type::update update(*average, 3, {recipient_id{1}, 1});
  auto wide = widened<average_type::update, TypeParam>::make(update, from.source(), 1000);
  const auto refused = pulled<1000>(bad->model(), *wide);
  ASSERT_EQ(code_of(refused), errc::value_out_of_range);
  EXPECT_EQ(average->schema().tensors[average->updates()[0].refused_tensor].name, "F32.17");
}

TYPED_TEST(Widened, A_damaged_chunk_that_was_moved_in_part_passes_when_it_comes_again) {
  some_model owner, now = owner.stepped(2, 1e-3), mine = owner;
  auto d = narrowed<TypeParam>(now, owner);
  const auto image = bytes_of(d->model().source());
  const image_schema& s = d->model().schema();
  auto model = mine.image();
  land to(model.destination());
  auto wide = widened<land, TypeParam>::make(to, model.source(), 100);
  ASSERT_TRUE(wide->begin({{1, 2}, 3, s.fingerprint, s.image_bytes, s.header_bytes, s.tensor_count, true}));
  for (std::size_t at = 0, n = 1000; at < image.size(); at += n) {
    n = std::min<std::size_t>(1000, image.size() - at);
    ASSERT_TRUE(give(*wide, image, at, at + n * 7 / 8, false));
    wide->rewind(at);
    ASSERT_TRUE(give(*wide, image, at, at + n)) << at;
  }
  ASSERT_TRUE(wide->finish({}));
  EXPECT_TRUE(mine == advanced<TypeParam>(now, owner));
}

// The last tensor of the model is not the last one that comes, since types have another order there.
TYPED_TEST(Widened, A_chunk_may_end_with_any_tensor) {
  for (const std::vector<dtype>& types :
       {std::vector<dtype>{dtype::f32, dtype::f16}, {dtype::f64, dtype::i8}, {dtype::f32, dtype::u8, dtype::i8}}) {
    some_model owner(types), now = owner.stepped(2, 1e-3), mine = owner;
    auto d = narrowed<TypeParam>(now, owner);
    ASSERT_TRUE(d);
    const auto image = bytes_of(d->model().source());
    const image_schema& s = d->model().schema();
    auto model = mine.image();
    land to(model.destination());
    auto wide = widened<land, TypeParam>::make(to, model.source(), 64_KiB);
    ASSERT_TRUE(wide);
    ASSERT_TRUE(wide->begin({{1, 2}, 3, s.fingerprint, s.image_bytes, s.header_bytes, s.tensor_count, true}));
    std::size_t at = 0;
    for (const tensor_entry& t : s.entries()) {
      const auto end = static_cast<std::size_t>(s.header_bytes + t.begin + t.size_bytes());
      const auto ok = give(*wide, image, at, end);
      ASSERT_TRUE(succeeded(ok)) << " behind " << t.name;
      at = end;
    }
    ASSERT_TRUE(wide->finish({}));
    EXPECT_TRUE(mine == advanced<TypeParam>(now, owner));
  }
}

// Its text is kept while it comes, so a sender could have had any memory.
TYPED_TEST(Widened, A_header_with_more_metadata_than_a_difference_has_is_refused_before_it_comes) {
  some_model owner, now = owner.stepped(2, 1e-3), mine = owner;
  auto d = narrowed<TypeParam>(now, owner);
  for (const std::size_t much : {60'000u, 70'000u}) {
    const std::string value(much, 'x');
    lie with(d->model(), "", {}, "", {});
    with.metadata.push_back({"much", value});
    with.image.emplace(*dynamic_image::make(std::span<const tensor_view>(with.views), with.metadata));
    some_model in_place = owner;
    auto image = in_place.image();
    land to(image.destination());
    auto wide = widened<land, TypeParam>::make(to, image.source(), 1000);
    const auto done = pulled<1000>(*with.image, *wide);
    EXPECT_EQ(bool(done), much < 64 * 1024);
    if (done) continue;
    EXPECT_EQ(code_of(done), errc::too_large);
    EXPECT_EQ(done.error().at, 0u);
    EXPECT_TRUE(in_place == owner);
  }
}

}  // namespace widened_test
