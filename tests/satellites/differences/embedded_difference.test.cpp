// A difference in 8 bits on a small machine: the bytes and the digest of narrowed_difference; pulled by unmodified
// hosts, which move a model or average it; and bases, models and devices that are not as they should be.
#include "embedded/simulated_flash.hpp"
#include "embedded/small_pair.hpp"
#include "support/embedded_link.hpp"

#include <tensorpull/consumers/average/weighted_average.hpp>
#include <tensorpull/consumers/tee.hpp>
#include <tensorpull/embedded/flash_landing.hpp>
#include <tensorpull/satellites/differences/difference.hpp>
#include <tensorpull/satellites/differences/embedded_difference.hpp>
#include <tensorpull/satellites/differences/widened.hpp>

#include <cmath>
#include <limits>
#include <random>

namespace embedded_difference_test {

using namespace test;

constexpr tp::ref_id id{2, 1};

/// Every type that is narrowed, with 0, 1, N - 1, N and N + 1 elements of a block and several blocks.
struct all_types {
  tp::float16 half[2][300];
  float floats[3][255], one_block[256], more[257];
  std::array<float, 0> none;
  double doubles[17];
  tp::bfloat16 brain;
  std::int32_t steps[5];
  std::uint8_t bytes[3];
};
/// As the example's model: floats alone, and biases that are short inputs of a hash.
struct floats {
  float weight[39][50], bias[39];
};
/// No tensor is short.
struct long_floats {
  float weight[100], bias[60];
};
struct one_block {
  float weight[70];
};

}  // namespace embedded_difference_test

template <>
inline constexpr auto tensorpull::members_of<embedded_difference_test::all_types> = tensorpull::members(
    tensorpull::member{"half", &embedded_difference_test::all_types::half},
    tensorpull::member{"floats", &embedded_difference_test::all_types::floats},
    tensorpull::member{"one \"block\"", &embedded_difference_test::all_types::one_block},
    tensorpull::member{"more", &embedded_difference_test::all_types::more},
    tensorpull::member{"none", &embedded_difference_test::all_types::none},
    tensorpull::member{"doubles", &embedded_difference_test::all_types::doubles},
    tensorpull::member{"brain", &embedded_difference_test::all_types::brain},
    tensorpull::member{"steps", &embedded_difference_test::all_types::steps},
    tensorpull::member{"bytes", &embedded_difference_test::all_types::bytes});
template <>
inline constexpr auto tensorpull::members_of<embedded_difference_test::floats> = tensorpull::members(
    tensorpull::member{"weight", &embedded_difference_test::floats::weight},
    tensorpull::member{"bias", &embedded_difference_test::floats::bias});
template <>
inline constexpr auto tensorpull::members_of<embedded_difference_test::one_block> = tensorpull::members(
    tensorpull::member{"weight", &embedded_difference_test::one_block::weight});
template <>
inline constexpr auto tensorpull::members_of<embedded_difference_test::long_floats> = tensorpull::members(
    tensorpull::member{"weight", &embedded_difference_test::long_floats::weight},
    tensorpull::member{"bias", &embedded_difference_test::long_floats::bias});

namespace embedded_difference_test {

/// Moves every floating element by a random step, and changes the others. Bytes of BOOL stay 0 or 1.
template <class Model>
void step(Model& m, std::uint64_t seed, double width) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, width);
  using image = tp::embedded_image<Model>;
  auto data = data_of(m);
  for (const auto& t : image::schema.entries())
    for (std::uint64_t at = t.begin; at < t.end; at += tp::bits(t.type) / 8) {
      const bool moves = tp::detail::with_movable(t.type, false, [&](auto e) {
        std::memcpy(&e, data.data() + at, sizeof e);
        e = tp::moved(e, normal(random));
        std::memcpy(data.data() + at, &e, sizeof e);
        return true;
      });
      if (!moves) data[at] = static_cast<std::byte>(random() & 1);
    }
  EXPECT_TRUE(image::write(m, 0, data));
}
std::unique_ptr<floats> stepped(const floats& base) {
  auto now = std::make_unique<floats>(base);
  step(*now, 2, 1e-2);
  return now;
}
template <class Model>
std::unique_ptr<Model> zero() {
  auto m = std::make_unique<Model>();
  std::memset(static_cast<void*>(m.get()), 0, sizeof(Model));
  return m;
}
template <class Model>
std::unique_ptr<Model> some(std::uint64_t seed) {
  auto m = zero<Model>();
  step(*m, seed, 1);
  return m;
}
/// The same on a host.
template <class Model>
model on_a_host(const Model& from) {
  model m = list_of<Model>();
  const auto data = data_of(from);
  const auto to = m.destination();
  for (std::size_t i = 0; i < to.schema->tensor_count; ++i)
    if (const auto& t = to.schema->tensors[i]; t.size_bytes() != 0)
      std::memcpy(to.address(i), data.data() + t.begin, static_cast<std::size_t>(t.size_bytes()));
  return m;
}
std::vector<tp::tensor_view> views(const model& m) {
  std::vector<tp::tensor_view> all;
  const auto from = m.source();
  for (std::size_t i = 0; i < from.schema->tensor_count; ++i) {
    const auto& t = from.schema->tensors[i];
    all.push_back({t.name, t.type, t.extents(), from.address(i)});
  }
  return all;
}
byte_vector bytes_of(const tp::dynamic_image& image) {
  byte_vector all(static_cast<std::size_t>(image.schema().image_bytes));
  EXPECT_TRUE(tp::detail::read_range(image.source(), 0, all));
  return all;
}
/// The image of a difference, read in pieces.
template <class D>
byte_vector read_all(const D& from, std::size_t piece) {
  using image = tp::embedded_image<D>;
  byte_vector all;
  for (std::uint32_t at = 0; at < image::header_bytes; at = static_cast<std::uint32_t>(all.size())) {
    byte_vector part(std::min<std::size_t>(piece, image::header_bytes - at));
    image::read_header(from, at, part);
    all.insert(all.end(), part.begin(), part.end());
  }
  while (all.size() < image::image_bytes) {
    byte_vector part(std::min<std::size_t>(piece, image::image_bytes - all.size()));
    EXPECT_TRUE(image::read(from, static_cast<std::uint32_t>(all.size()) - image::header_bytes, part));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

using all_in_8_bits = tp::blocks_of_8_bits<256, tp::all_tensors>;
template <class Model>
using in_memory = tp::model_landing<Model>;
template <class Model, std::size_t N = 256, class Which = tp::all_tensors>
using difference = tp::embedded_difference<Model, in_memory<Model>, N, Which>;

/// The number of 16 digits behind a key in a header; 0: there is none.
std::uint64_t digits_behind(std::string_view header, std::string_view key) {
  const std::size_t at = header.find(key);
  return at == std::string_view::npos ? 0 : *tp::detail::hex_number(header.substr(at + key.size() + 3, 16));
}
/// A device sends what stands still, too: the tensors that a host sends have its bytes, and the others move by nothing.
template <class Image, class Scheme>
void has_the_bytes_of(const byte_vector& mine, const tp::dynamic_image& theirs, const model& base) {
  const byte_vector all = bytes_of(theirs);
  const tp::image_schema& some = theirs.schema();
  if (some.tensor_count == Image::tensor_count) {
    EXPECT_EQ(Image::fingerprint, some.fingerprint);
    EXPECT_TRUE(mine == all);
    return;
  }
  const auto text = [](const byte_vector& from, std::size_t n) {
    return std::string_view(reinterpret_cast<const char*>(from.data()), n);
  };
  const auto header = text(mine, Image::header_bytes), host_header = text(all, some.header_bytes);
  const std::uint64_t still = digits_behind(host_header, "tensorpull.still");
  for (const std::string_view key : {"tensorpull.base", "tensorpull.moved"})
    EXPECT_EQ(digits_behind(header, key), digits_behind(host_header, key) + still) << key;
  for (const tp::tensor_entry& t : Image::schema.entries()) {
    const std::span<const std::byte> here(mine.data() + Image::header_bytes + t.begin,
                                          static_cast<std::size_t>(t.size_bytes()));
    const auto same_name = [&](const tp::tensor_entry& other) { return other.name == t.name; };
    const auto entries = some.entries();
    const auto there = std::ranges::find_if(entries, same_name);
    if (there != entries.end()) {
      ASSERT_EQ(there->size_bytes(), here.size());
      EXPECT_TRUE(std::ranges::equal(here, std::span(all).subspan(some.header_bytes + there->begin, here.size())));
      continue;
    }
    const auto of_model = base.source().schema->entries();
    const auto was = std::ranges::find_if(of_model, same_name);
    if (was != of_model.end() && !Scheme::narrows(was->name, was->type, was->extents())) {
      const auto* const bytes = base.source().address(static_cast<std::size_t>(was - of_model.begin()));
      EXPECT_TRUE(here.empty() || std::memcmp(here.data(), bytes, here.size()) == 0) << t.name;
    } else {
      EXPECT_TRUE(t.type != tp::dtype::f32 || std::ranges::all_of(here, [](std::byte b) { return b == std::byte{}; }));
    }
  }
}

template <class Model, std::size_t N, class Which = tp::all_tensors>
void compare(double width) {
  auto base = some<Model>(1);
  for (std::uint64_t round = 2; round < 4; ++round) {
    auto now = zero<Model>();
    std::memcpy(static_cast<void*>(now.get()), base.get(), sizeof(Model));
    step(*now, round, width);
    in_memory<Model> landed(*base);
    difference<Model, N, Which> mine(*now, landed);
    ASSERT_TRUE(mine.prepare());
    const model host_now = on_a_host(*now), host_base = on_a_host(*base);
    const auto theirs = tp::narrowed_difference<tp::blocks_of_8_bits<N, Which>>::make(views(host_now),
                                                                                      views(host_base));
    ASSERT_TRUE(succeeded(theirs));
    using image = tp::embedded_image<difference<Model, N, Which>>;
    const byte_vector expected = read_all(mine, image::image_bytes);
    has_the_bytes_of<image, tp::blocks_of_8_bits<N, Which>>(expected, theirs->model(), host_base);
    for (const std::size_t piece : {1u, 7u, 48u, 64u, 512u, 1000u, 1u << 20})
      ASSERT_TRUE(read_all(mine, piece) == expected) << piece << ' ' << round;
    // what a block's scale was before does not matter
    generator dice(round);
    for (int i = 0; i < 200; ++i) {
      const auto at = static_cast<std::uint32_t>(dice.below(image::data_bytes));
      byte_vector part(1 + dice.below(std::min<std::uint64_t>(image::data_bytes - at, 700)));
      ASSERT_TRUE(mine.read(at, part));
      ASSERT_EQ(std::memcmp(part.data(), expected.data() + image::header_bytes + at, part.size()), 0) << at;
    }
    tp::embedded_owner<difference<Model, N, Which>, 512> owner;
    owner.publish(mine, id, 7);
    tp::xxh3_64 hash;
    hash.update(expected);
    EXPECT_EQ(owner.reference().version, hash.digest());
    base = std::move(now);
  }
}
TEST(EmbeddedDifference, Has_the_bytes_and_the_digest_of_a_host_for_every_type_block_and_step) {
  for (const double width : {0.0, 1e-40, 1e-6, 1e-3, 10.0}) {
    compare<all_types, 256>(width);
    compare<all_types, 256, tp::matrices>(width);
    compare<all_types, 7, tp::tensors_named<"more", "brain", "steps">>(width);
    compare<all_types, 16>(width);
    compare<all_types, 7>(width);
    compare<floats, 256>(width);
    compare<long_floats, 64>(width);
    compare<device_model, 256>(width);
    compare<net, 5>(width);
  }
}

TEST(EmbeddedDifference, The_next_one_from_the_same_place_is_of_the_model_as_it_is_then) {
  const auto base = some<one_block>(1);
  const auto now = std::make_unique<one_block>(*base);
  in_memory<one_block> landed(*base);
  difference<one_block> d(*now, landed);
  for (std::uint64_t round = 2; round < 5; ++round) {
    step(*now, round, 1e-2);
    ASSERT_TRUE(d.prepare());
    const model host_now = on_a_host(*now), host_base = on_a_host(*base);
    const auto theirs = tp::narrowed_difference<all_in_8_bits>::make(views(host_now), views(host_base));
    ASSERT_TRUE(theirs);
    EXPECT_TRUE(read_all(d, 512) == bytes_of(theirs->model())) << round;
  }
}

// What a server does: the update lands beside the average that it is added to, and neither sees a difference.
using average = tp::weighted_average<tp::partial_updates::staged>;
using both = tp::tee<tp::land, average::update>;
using wide_pull = tp::datagram_transfer<tp::widened<both, all_in_8_bits>, tp::bytes_up_to<512>, tp::image_digest>;

tp::pull_request request() {
  tp::pull_request r;
  r.ref = id;
  r.recipient = {9};
  return r;
}

/// A server with a model, and a device that has pulled it.
template <class Published>
struct round_of {
  model base, landed = list_of<floats>();
  average sums;
  explicit round_of(const floats& of) : base(on_a_host(of)), sums(*average::make(base.destination())) {}

  tp::result<tp::receipt> pull(pulled_by_a_host<tp::embedded_owner<Published, 512>>& from) {
    average::update update(sums, 3, {tp::recipient_id{1}, 1});
    tp::land landing(landed.destination());
    both two(landing, update);
    auto wide = tp::widened<both, all_in_8_bits>::make(two, base.source(), 512);
    if (!wide) return tp::failure(wide.error());
    wide_pull t(*wide, request(), {}, from.right.end->next_id());
    return from.pull(t);
  }
  bool counts() const {
    const auto* const found = sums.find(tp::recipient_id{1});
    return found != nullptr && found->counts();
  }
};
constexpr link_conditions clean{600, 0, 0, 500us, 0us}, bad{600, 0.1, 0.1, 1000us, 900us};
using floats_difference = difference<floats>;

/// What a server has that gets the whole.
byte_vector averaged(const floats& base, const model& whole) {
  auto source = zero<floats>();
  EXPECT_TRUE(tp::embedded_image<floats>::write(*source, 0, data_of(whole)));
  pulled_by_a_host<tp::embedded_owner<floats, 512>> pair(clean);
  pair.owner.publish(*source, id, 3);
  model to = on_a_host(base);
  average sums = *average::make(to.destination());
  average::update update(sums, 3, {tp::recipient_id{1}, 1});
  tp::datagram_transfer<average::update, tp::bytes_up_to<512>, tp::image_digest> t(update, request(), {},
                                                                                   pair.right.end->next_id());
  EXPECT_TRUE(pair.pull(t));
  EXPECT_TRUE(sums.finish());
  return to.image_bytes();
}
TEST(EmbeddedDifference, A_server_averages_what_it_moves_while_it_comes_and_the_next_round_begins_from_there) {
  for (const auto& link : {clean, bad}) {
    auto device = some<floats>(1);
    for (std::uint64_t round = 2; round < 5; ++round) {
      const auto base = std::make_unique<floats>(*device);
      step(*device, round, 1e-2);
      in_memory<floats> landed(*base);
      floats_difference d(*device, landed);
      ASSERT_TRUE(d.prepare());
      pulled_by_a_host<tp::embedded_owner<floats_difference, 512>> pair(link, round);
      pair.image = read_all(d, 512);
      EXPECT_LT(pair.image.size(), 0.254 * sizeof(floats) + 500);
      pair.owner.publish(d, id, round);
      round_of<floats_difference> server(*base);
      const auto done = server.pull(pair);
      ASSERT_TRUE(completed(done));
      EXPECT_EQ(pair.owner.state(), tp::recipient_state::completed);
      EXPECT_TRUE(server.counts());
      // what it should have become
      const model base_host = on_a_host(*base), device_host = on_a_host(*device);
      model expected = on_a_host(*base);
      const auto theirs = tp::narrowed_difference<all_in_8_bits>::make(views(device_host), views(base_host));
      ASSERT_TRUE(theirs);
      for (std::size_t i = 0; i < expected.schema().tensor_count; ++i) {
        const auto n = static_cast<std::size_t>(expected.schema().tensors[i].size_bytes() / 4);
        auto* const to = reinterpret_cast<float*>(expected.destination().address(i));
        const auto* const from = reinterpret_cast<const float*>(device_host.source().address(i));
        for (std::size_t at = 0; at < n; at += 256)
          ASSERT_TRUE(all_in_8_bits::advance<float>({from + at, std::min<std::size_t>(256, n - at)},
                                                    {to + at, std::min<std::size_t>(256, n - at)}));
      }
      EXPECT_TRUE(server.landed.image_bytes() == expected.image_bytes());
      ASSERT_TRUE(server.sums.finish());
      EXPECT_TRUE(server.base.image_bytes() == averaged(*base, expected)) << "as if the whole had come";
      ASSERT_TRUE(tp::embedded_image<floats>::write(*device, 0, data_of(server.base)));
    }
  }
}

TEST(EmbeddedDifference, Is_made_from_a_base_that_lies_in_flash) {
  using image = tp::embedded_image<floats>;
  using flash_type = simulated_flash<1024, 8>;
  using landing_type = tp::flash_landing<image, flash_type>;
  const auto base = some<floats>(1);
  const auto now = stepped(*base);
  flash_type flash(landing_type::pages, 1);
  landing_type landing(flash);
  const auto data = data_of(*base);
  for (std::uint32_t at = 0; at < data.size(); at += 500)
    ASSERT_TRUE(landing.write(at, std::span(data).subspan(at, std::min<std::size_t>(500, data.size() - at))));
  tp::embedded_difference<floats, landing_type, 256, tp::all_tensors> in_flash(*now, landing);
  in_memory<floats> copy(*base);
  floats_difference in_ram(*now, copy);
  ASSERT_TRUE(in_flash.prepare());
  ASSERT_TRUE(in_ram.prepare());
  EXPECT_TRUE(read_all(in_flash, 512) == read_all(in_ram, 512));
  // when the next model begins to land, the base is gone
  ASSERT_TRUE(landing.write(0, std::span(data).first(500)));
  const auto none = in_flash.prepare();
  EXPECT_EQ(code_of(none), errc::out_of_range);
}

/// What comes of one publication of a difference.
tp::result<tp::receipt> pulled(floats_difference& d, const floats& base_of_the_server) {
  pulled_by_a_host<tp::embedded_owner<floats_difference, 512>> pair(clean);
  pair.owner.publish(d, id, 5);
  round_of<floats_difference> server(base_of_the_server);
  const auto held = server.base.image_bytes();
  const auto done = server.pull(pair);
  EXPECT_EQ(server.counts(), done.has_value());
  EXPECT_TRUE(server.base.image_bytes() == held);
  return done;
}

TEST(EmbeddedDifference, A_server_refuses_one_to_another_base_by_name) {
  const auto base = some<floats>(1);
  const auto now = std::make_unique<floats>(*base), other = std::make_unique<floats>(*base);
  step(*now, 2, 1e-2);
  other->bias[38] += 1;
  in_memory<floats> landed(*base), landed_other(*other);
  floats_difference d(*now, landed), wrong(*now, landed_other), unprepared(*now, landed);
  ASSERT_TRUE(d.prepare());
  ASSERT_TRUE(wrong.prepare());
  EXPECT_TRUE(pulled(d, *base));
  const auto refused = pulled(wrong, *base);
  EXPECT_EQ(code_of(refused), errc::stale_version);
  const auto never = pulled(unprepared, *base);
  EXPECT_EQ(code_of(never), errc::stale_version);
  EXPECT_TRUE(pulled(d, *base)) << "again";
}

TEST(EmbeddedDifference, A_model_or_a_base_that_changes_meanwhile_is_never_completed) {
  const auto base = some<floats>(1);
  const auto now = stepped(*base);
  in_memory<floats> landed(*base);
  floats_difference d(*now, landed);
  for (const bool of_base : {false, true}) {
    ASSERT_TRUE(d.prepare());
    pulled_by_a_host<tp::embedded_owner<floats_difference, 512>> pair(clean);
    pair.owner.publish(d, id, 5);
    round_of<floats_difference> server(*base);
    int left = 3;
    pair.after_answer = [&] {
      if (--left == 0) (of_base ? *base : *now).weight[38][49] += 1;
    };
    const auto done = server.pull(pair);
    EXPECT_EQ(code_of(done), errc::digest_mismatch) << of_base;
    EXPECT_FALSE(server.counts());
    EXPECT_EQ(pair.owner.state(), tp::recipient_state::failed);
  }
}

TEST(EmbeddedDifference, What_is_no_number_is_refused_with_the_index_of_its_tensor) {
  const auto base = some<floats>(1);
  const auto now = stepped(*base);
  in_memory<floats> landed(*base);
  floats_difference d(*now, landed);
  // in the order of the image: bias, weight
  const auto refused = [&](float& at, float value, std::uint64_t index) {
    const float held = at;
    at = value;
    const auto r = d.prepare();
    ASSERT_EQ(code_of(r), errc::invalid_argument);
    EXPECT_EQ(r.error().at, index);
    at = held;
    EXPECT_TRUE(d.prepare());
  };
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();
  refused(now->bias[38], nan, 0);
  refused(now->weight[38][49], infinite, 1);
  refused(base->weight[0][0], nan, 1);
  EXPECT_TRUE(pulled(d, *base));
}

/// A base that can be read so many times.
struct failing_base {
  in_memory<floats>& of;
  int left;
  tp::result<void> read(std::uint32_t at, byte_span out) noexcept {
    if (left == 0) return tp::failure(errc::io, at);
    --left;
    return of.read(at, out);
  }
};
TEST(EmbeddedDifference, A_base_that_cannot_be_read_ends_the_publication_and_recipients_hear_it) {
  const auto base = some<floats>(1);
  const auto now = stepped(*base);
  in_memory<floats> landed(*base);
  failing_base failing{landed, -1};
  using type = tp::embedded_difference<floats, failing_base, 256, tp::all_tensors>;
  type d(*now, failing);
  failing.left = 0;
  const auto first = d.prepare();
  EXPECT_EQ(code_of(first), errc::io);
  failing.left = 60;
  const auto later = d.prepare();
  ASSERT_EQ(code_of(later), errc::io);
  EXPECT_EQ(later.error().at, 1u);
  for (const bool at_once : {true, false}) {
    failing.left = -1;
    ASSERT_TRUE(d.prepare());
    pulled_by_a_host<tp::embedded_owner<type, 512>> pair(clean);
    if (at_once) failing.left = 3;
    pair.owner.publish(d, id, 5);
    failing.left = -1;  // too late: its version is of other bytes
    round_of<type> server(*base);
    int answers = at_once ? -1 : 3;
    pair.after_answer = [&] {
      if (--answers == 0) failing.left = 0;
    };
    const auto done = server.pull(pair);
    EXPECT_EQ(code_of(done), errc::unreadable) << at_once;
    EXPECT_FALSE(server.counts());
    // it has ended, even if the base can be read again
    pair.after_answer = {};
    failing.left = -1;
    const auto again = server.pull(pair);
    EXPECT_EQ(code_of(again), errc::unreadable) << at_once;
    // the next publication is as good as any
    ASSERT_TRUE(d.prepare());
    pair.owner.publish(d, id, 6);
    EXPECT_TRUE(server.pull(pair)) << at_once;
    EXPECT_TRUE(server.counts());
  }
}

/// A device that lies: some bytes of what it publishes are others.
struct lie {
  const floats_difference& of;
  std::uint32_t at;
  byte_vector bytes;
  bool in_header = false;
  void put(std::uint32_t from, byte_span out) const {
    for (std::uint32_t i = 0; i < bytes.size(); ++i)
      if (at + i >= from && at + i - from < out.size()) out[at + i - from] = bytes[i];
  }
};

}  // namespace embedded_difference_test

template <>
struct tensorpull::embedded_image<embedded_difference_test::lie>
    : tensorpull::detail::embedded::narrowed_image<embedded_difference_test::floats,
                                                   tensorpull::blocks_of_8_bits<256, tensorpull::all_tensors>> {
  using lie = embedded_difference_test::lie;
  using model_type = lie;
  static bool read(const lie& from, std::uint32_t at, std::span<std::byte> out) noexcept {
    const bool good = from.of.read(at, out);
    if (!from.in_header) from.put(at, out);
    return good;
  }
  static void read_header(const lie& from, std::uint32_t at, std::span<std::byte> out) noexcept {
    from.of.read_header(at, out);
    if (from.in_header) from.put(at, out);
  }
};

namespace embedded_difference_test {

TEST(EmbeddedDifference, A_server_refuses_a_device_that_lies_by_name) {
  const auto base = some<floats>(1);
  const auto now = stepped(*base);
  in_memory<floats> landed(*base);
  floats_difference d(*now, landed);
  ASSERT_TRUE(d.prepare());
  const auto outcome = [&](const lie& what) {
    pulled_by_a_host<tp::embedded_owner<lie, 512>> pair(clean);
    pair.owner.publish(what, id, 5);
    round_of<lie> server(*base);
    const auto held = server.base.image_bytes();
    const auto done = server.pull(pair);
    EXPECT_EQ(server.counts(), done.has_value());
    EXPECT_TRUE(server.base.image_bytes() == held);
    return done ? errc{} : done.error().code;
  };
  const auto number = [](std::uint32_t n) {
    byte_vector b(4);
    for (std::size_t i = 0; i < 4; ++i) b[i] = static_cast<std::byte>(n >> 8 * i & 255);
    return b;
  };
  const auto text = [](std::string_view t) {
    const auto b = std::as_bytes(std::span(t));
    return byte_vector(b.begin(), b.end());
  };
  using image = tp::embedded_image<floats_difference>;
  const auto place = [&](std::string_view key) {
    const auto all = read_all(d, 512);
    const std::string_view header(reinterpret_cast<const char*>(all.data()), image::header_bytes);
    return static_cast<std::uint32_t>(header.find(key) + key.size());
  };
  EXPECT_EQ(outcome({d, 0, {}}), errc{});
  // scales come first: NaN, infinity, -0.0, negative, subnormal; in the first block and in another
  for (const std::uint32_t scale : {0x7fc00000u, 0x7f800000u, 0x80000000u, 0xbf800000u, 1u})
    for (const std::uint32_t block : {0u, 5u})
      EXPECT_EQ(outcome({d, 4 * block, number(scale)}), errc::value_out_of_range) << scale;
  EXPECT_EQ(outcome({d, 0, number(0x3f800000)}), errc::digest_mismatch) << "a scale that could be one";
  EXPECT_EQ(outcome({d, place(R"("tensorpull.base":")"), text("0123456789abcdef"), true}), errc::stale_version);
  EXPECT_EQ(outcome({d, place(R"("tensorpull.moved":")"), text("0123456789abcdef"), true}), errc::digest_mismatch);
  EXPECT_EQ(outcome({d, place(R"("tensorpull.blocks_of_8_bits":")"), text("128"), true}), errc::missing_field);
  EXPECT_EQ(outcome({d, 8, text("[[[["), true}), errc::bad_frame);
}

TEST(EmbeddedDifference, A_server_refuses_one_that_is_longer_or_of_other_blocks_before_a_byte_comes) {
  const auto base = some<floats>(1);
  const auto longer = some<long_floats>(1), longer_base = some<long_floats>(2);
  const auto now = stepped(*base);
  const auto refused = [&]<class D>(D& d) {
    ASSERT_TRUE(d.prepare());
    pulled_by_a_host<tp::embedded_owner<D, 512>> pair(clean);
    pair.owner.publish(d, id, 5);
    round_of<D> server(*base);
    const auto done = server.pull(pair);
    EXPECT_EQ(code_of(done), errc::schema_mismatch);
    EXPECT_EQ(pair.owner.bytes_served(), 0u);
    EXPECT_FALSE(server.counts());
  };
  in_memory<long_floats> other(*longer_base);
  difference<long_floats> of_another(*longer, other);
  refused(of_another);
  in_memory<floats> landed(*base);
  difference<floats, 64> of_other_blocks(*now, landed);
  refused(of_other_blocks);
}

}  // namespace embedded_difference_test
