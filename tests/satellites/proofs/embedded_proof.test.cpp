// A small machine proves what lands by a root, against the endpoint of hosts: in memory and in flash, in one group and
// in several.
#include <tensorpull/satellites/proofs/embedded_proof.hpp>

#include "embedded/simulated_flash.hpp"
#include "embedded/small_pair.hpp"

#include <tensorpull/embedded/flash_landing.hpp>

namespace embedded_proof_test {

struct planes {
  float w[40][64];
  std::int8_t table[777];
};
/// A header of more than a group, and little behind it.
struct part {
  float t[2];
};
struct many {
  part parts[18];
};

}  // namespace embedded_proof_test

template <>
inline constexpr auto tensorpull::members_of<embedded_proof_test::planes> = tensorpull::members(
    tensorpull::member{"w", &embedded_proof_test::planes::w},
    tensorpull::member{"table", &embedded_proof_test::planes::table});

template <>
inline constexpr auto tensorpull::members_of<embedded_proof_test::part> = tensorpull::members(
    tensorpull::member{"t", &embedded_proof_test::part::t});
template <>
inline constexpr auto tensorpull::members_of<embedded_proof_test::many> = tensorpull::members(
    tensorpull::member{"parts", &embedded_proof_test::many::parts});

namespace embedded_proof_test {

using namespace test;

using image = tp::embedded_image<planes>;
constexpr std::uint32_t header = image::header_bytes, image_bytes = image::image_bytes;
static_assert(image_bytes > 10 * 1024 && image_bytes % 1024 != 0);

template <class Proved>
using values_of = std::array<tp::blake3_value, Proved::groups>;

/// The values of the groups of a model, and its root.
template <class Proved>
values_of<Proved> prove(const model& m, unsigned level) {
  const byte_vector bytes = m.image_bytes();
  values_of<Proved> out;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t at = std::uint64_t{i} << level;
    tp::blake3_hash h(at / 1024);
    h.update(const_byte_span(bytes).subspan(at, std::min<std::uint64_t>(std::uint64_t{1} << level, bytes.size() - at)));
    out[i] = out.size() == 1 ? h.value() : h.chaining_value();
  }
  return out;
}
tp::blake3_value root_of(const model& m) {
  tp::blake3_hash h;
  h.update(m.image_bytes());
  return h.value();
}
model some_model(std::uint64_t seed = 1) { return fill(list_of<planes>(), seed); }
/// The same with another byte there.
model changed_at(std::uint32_t at) {
  model m = some_model();
  for (std::size_t i = 0; i < m.schema().tensor_count; ++i)
    if (const auto& t = m.schema().tensors[i]; at >= t.begin && at < t.end)
      m.destination().address(i)[at - t.begin] ^= std::byte{1};
  return m;
}

/// Writes through, and counts.
struct counted_landing {
  using image = embedded_proof_test::image;
  tp::result<void> write(std::uint32_t at, std::span<const std::byte> bytes) noexcept {
    EXPECT_EQ(at, at == 0 ? 0 : written);
    written = at + static_cast<std::uint32_t>(bytes.size());
    return to.write(at, bytes);
  }
  tp::result<void> read(std::uint32_t at, std::span<std::byte> out) noexcept { return to.read(at, out); }

  planes memory{};
  tp::model_landing<planes> to{memory};
  std::uint32_t written = 0;
};
template <unsigned Level>
using in_memory = tp::proved_landing<counted_landing, Level>;

template <unsigned Level, std::size_t Chunk>
void lies_at_any_byte() {
  using proved = in_memory<Level>;
  const model right = some_model();
  const auto values = prove<proved>(right, Level);
  ASSERT_TRUE(proved::is_proof(values, root_of(right)));
  generator random(Level);
  constexpr std::uint32_t group = std::uint32_t{1} << Level;
  std::vector<std::uint32_t> places{0, image_bytes - header - 1};
  for (std::uint32_t end = group; Level < 31 && end < image_bytes; end += group)
    for (const std::uint32_t at : {end - 1, end}) places.push_back(at - header);
  for (int i = 0; i < 20; ++i) places.push_back(static_cast<std::uint32_t>(random.below(image_bytes - header)));
  for (const std::uint32_t at : places) {
    const bool lossy = random.chance(0.5);
    small_pair pair(lossy ? small_link{640, 0.05, 0.05, 3, 20} : small_link{640}, at);
    const model lie = changed_at(at);
    ASSERT_TRUE(pair.left->references.publish(lie.source(), version_of(right), true, {1, 2}, 1));
    counted_landing to;
    proved checked(to, values);
    tp::embedded_pull of = net_pull;
    of.version = version_of(right);
    of.timeout_ms = 60'000;
    tp::embedded_recipient<proved, Chunk> recipient(checked, of, 77);
    const auto done = pair.pull(recipient);
    ASSERT_EQ(code_of(done), errc::digest_mismatch) << at;
    const std::uint32_t begins = (header + at) / group * group, ends = std::min(image_bytes, begins + group);
    EXPECT_LT(header + to.written, ends) << "what ends a wrong group is not written";
    EXPECT_GE(header + to.written, begins == 0 ? 0 : begins - Chunk);
    EXPECT_TRUE(lossy || pair.status().failed == 1u) << "the owner is told";
    byte_vector landed(to.written);
    ASSERT_TRUE(to.read(0, landed));
    const byte_vector data = data_of(right);
    const std::uint32_t good = std::min(at, to.written);
    EXPECT_TRUE(std::equal(data.begin(), data.begin() + good, landed.begin()));

    // the next owner is right
    small_pair honest;
    honest.left->publish(right, {1, 2}, 1);
    tp::embedded_recipient<proved, Chunk> next(checked, of, 78);
    ASSERT_TRUE(confirmed(honest.pull(next)));
    EXPECT_EQ(data_of(to.memory), data);
  }
}
TEST(EmbeddedProof, A_lie_at_any_byte_is_found_where_its_group_ends) {
  lies_at_any_byte<31, 512>();
  lies_at_any_byte<10, 512>();
  lies_at_any_byte<11, 40>();
  lies_at_any_byte<12, 2048>();
  lies_at_any_byte<13, 8>();
}
TEST(EmbeddedProof, Nothing_else_is_a_proof) {
  using proved = in_memory<10>;
  const model right = some_model(), other = some_model(2);
  const auto values = prove<proved>(right, 10);
  generator random(3);
  for (int i = 0; i < 40; ++i) {
    auto changed = values;
    changed[random.below(changed.size())][random.below(32)] ^= static_cast<std::byte>(1u << random.below(8));
    EXPECT_FALSE(proved::is_proof(changed, root_of(right)));
  }
  auto swapped = values;
  std::swap(swapped[0], swapped[1]);
  EXPECT_FALSE(proved::is_proof(swapped, root_of(right)));
  EXPECT_FALSE(proved::is_proof(values, root_of(other)));
  EXPECT_TRUE(proved::is_proof(values, root_of(right)));
  EXPECT_TRUE(in_memory<13>::is_proof(prove<in_memory<13>>(right, 13), root_of(right)));
  EXPECT_TRUE(in_memory<31>::is_proof({root_of(right)}, root_of(right)));
}
TEST(EmbeddedProof, An_owner_whose_header_has_metadata_has_another_root) {
  const model right = some_model();
  std::vector<tp::mutable_tensor_view> views;
  for (std::size_t i = 0; i < right.schema().tensor_count; ++i) {
    const auto& t = right.schema().tensors[i];
    views.push_back({t.name, t.type, {t.shape, t.rank}, const_cast<std::byte*>(right.source().address(i))});
  }
  const tp::metadata_entry metadata[] = {{"format", "pt"}};
  const auto published = tp::dynamic_image::make(std::span<const tp::mutable_tensor_view>(views), metadata);
  ASSERT_TRUE(published);
  tp::blake3_hash h;
  ASSERT_TRUE(tp::hash_range(h, published->source(), 0, published->schema().image_bytes));
  small_pair pair;
  ASSERT_TRUE(pair.left->references.publish(
      published->source(), *tp::image_version<tp::xxhash_digest>(published->source()), true, {1, 2}, 0));
  counted_landing to;
  const std::array<tp::blake3_value, 1> root{h.value()};
  tp::proved_landing checked(to, root);
  static_assert(!std::is_constructible_v<in_memory<31>, counted_landing&, std::array<tp::blake3_value, 1>>);
  tp::embedded_recipient<in_memory<31>, 512> recipient(checked, net_pull, 77);
  EXPECT_EQ(code_of(pair.pull(recipient)), errc::digest_mismatch);
}

TEST(EmbeddedProof, A_header_of_several_groups_is_proved_as_well) {
  using landing = tp::model_landing<many>;
  using proved = tp::proved_landing<landing, 10>;
  static_assert(landing::image::header_bytes > 1024 && proved::groups == 2);
  const model right = fill(list_of<many>(), 1);
  for (const int wrong : {-1, 0, 1}) {
    auto values = prove<proved>(right, 10);
    if (wrong >= 0) values[static_cast<std::size_t>(wrong)][7] ^= std::byte{1};
    small_pair pair;
    pair.left->publish(right);
    many into{};
    landing to(into);
    proved checked(to, values);
    tp::embedded_recipient<proved, 512> recipient(checked, net_pull, 77);
    EXPECT_EQ(code_of(pair.pull(recipient)), wrong < 0 ? errc{} : errc::digest_mismatch) << wrong;

    using flash_type = simulated_flash<256, 4>;
    using inner = tp::flash_landing<landing::image, flash_type>;
    flash_type flash(inner::pages, 1);
    inner there(flash);
    small_pair again;
    again.left->publish(right);
    tp::embedded_recipient<inner, 512> unproved(there, net_pull, 78);
    ASSERT_TRUE(confirmed(again.pull(unproved)));
    const auto known = values;
    EXPECT_EQ((tp::proved_landing<inner, 10>(there, known).valid()), wrong < 0) << wrong;
  }
}

constexpr std::uint32_t first_page = 2;
template <unsigned Level>
struct flash_device {
  using flash_type = simulated_flash<256, 4>;
  using inner = tp::flash_landing<image, flash_type>;
  using proved = tp::proved_landing<inner, Level>;
  static_assert(tp::lasting_landing<proved>);

  explicit flash_device(const model& right, std::uint64_t seed = 1)
      : values(prove<proved>(right, Level)), version(version_of(right)), flash(first_page + inner::pages, seed) {}

  /// One program: it pulls until it has ended, the power goes, or so many bytes are there.
  tp::result<tp::receipt> start(small_pair& pair, std::uint32_t until = image_bytes) {
    inner to(flash, first_page);
    proved checked(to, values);
    tp::embedded_pull of = net_pull;
    of.version = version;
    tp::embedded_recipient<proved, 512> program(checked, of, pair.dice());
    pair.run_until(program, [&] { return !flash.on() || (until < image_bytes && program.landed_bytes() >= until); });
    pair.on_its_way.clear();
    return program.ended() ? program.outcome() : tp::result<tp::receipt>(tp::failure(errc::cancelled));
  }
  bool valid() {
    inner to(flash, first_page);
    return proved(to, values).valid();
  }
  std::uint64_t there() { return inner(flash, first_page).cursor().offset; }

  values_of<proved> values;
  std::uint64_t version;
  flash_type flash;
};
template <unsigned Level>
void in_flash() {
  const model right = some_model(), lie = changed_at(3000);
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    generator random(seed);
    flash_device<Level> d(right, seed);
    EXPECT_FALSE(d.valid());
    // a pull that ends somewhere, from an owner that may lie, whether the power goes or not
    const bool lies = random.chance(0.5);
    small_pair first({}, seed);
    ASSERT_TRUE(first.left->references.publish((lies ? lie : right).source(), d.version, true, {1, 2}, 1));
    if (random.chance(0.5)) d.flash.cut_after(random.below(60), static_cast<power_cut>(random.below(3)));
    const auto begun = d.start(first, static_cast<std::uint32_t>(1 + random.below(2 * image_bytes)));
    EXPECT_FALSE(begun && lies);
    d.flash.restart();
    if (!begun && begun.error().code == errc::digest_mismatch) {
      EXPECT_TRUE(lies);
      EXPECT_EQ(d.there(), 0u) << "its cursor is thrown away";
    }
    EXPECT_TRUE(!begun || d.valid());
    EXPECT_FALSE(lies && d.valid());
    // the next one is honest; what the liar has left takes it two pulls at most
    small_pair honest({}, seed + 1);
    honest.left->publish(right);
    auto done = d.start(honest);
    if (!done) {
      EXPECT_TRUE(lies) << describe(done.error());
      EXPECT_EQ(code_of(done), errc::digest_mismatch);
      done = d.start(honest);
    }
    ASSERT_TRUE(confirmed(done));
    EXPECT_TRUE(d.valid());
    EXPECT_EQ(d.flash.complaint(), "");
    // it is there, and is not fetched again
    const std::uint64_t sent = honest.status().bytes_sent;
    ASSERT_TRUE(d.start(honest));
    EXPECT_LE(honest.status().bytes_sent - sent, 1u);
  }
}
TEST(EmbeddedProof, In_flash_it_goes_on_behind_what_is_right_and_keeps_no_lie) {
  in_flash<31>();
  in_flash<10>();
  in_flash<12>();
}
/// All of another image, whose own digest is right.
TEST(EmbeddedProof, A_whole_image_of_another_root_is_not_valid) {
  const model right = some_model(), other = some_model(2);
  flash_device<31> d(other);
  small_pair pair;
  pair.left->publish(other);
  ASSERT_TRUE(d.start(pair));
  ASSERT_TRUE(d.valid());
  d.values[0] = root_of(right);
  EXPECT_FALSE(d.valid());
  EXPECT_EQ(code_of(d.start(pair)), errc::digest_mismatch) << "it is fetched anew, and not proved by its digest";
  EXPECT_EQ(d.there(), 0u);
}

}  // namespace embedded_proof_test
