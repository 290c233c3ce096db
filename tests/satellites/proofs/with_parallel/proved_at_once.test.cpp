// Several sources at once of which some lie in any byte, at any time, about anything, over lines that are lost and come
// back, by random schedules: a pull that is proved completes if one of them is honest, and names no honest one.
#include "driven_pull.hpp"

#include "support/own_folder.hpp"

#include <tensorpull/consumers/any_schema/new_model.hpp>
#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/satellites/parallel/parallel_transfer.hpp>
#include <tensorpull/satellites/proofs/proved.hpp>

#include <deque>
#include <filesystem>
#include <numeric>

namespace proved_at_once_test {

using namespace test;
using namespace test::driven;

constexpr std::uint64_t group = 64 * 1024;

/// Images of one group and of many, with headers of one and of several.
model blank_model(std::uint64_t kind) {
  model m;
  if (kind == 0) m.add("a", tp::dtype::f32, {60 * 1024}).add("b", tp::dtype::f32, {70 * 1024});
  else if (kind == 1) m.add("a", tp::dtype::u8, {3});
  else if (kind == 2) m.add("a", tp::dtype::f32, {300 * 1024}).add("z", tp::dtype::f32, {0});
  else
    for (int i = 0; i < 800; ++i)
      m.add("a long name, for a header of more than one group " + std::to_string(i), tp::dtype::f32, {100});
  m.ready();
  return m;
}
template <class Pulled>
void expect_it_completes(const Pulled& p, std::uint8_t honest) {
  EXPECT_EQ(p.wrong & honest, 0) << "names an honest one";
  ASSERT_TRUE(p.done) << "never ends";
  ASSERT_TRUE(*p.done) << to_string(p.done->error().code);
  EXPECT_EQ((*p.done)->outcome, tp::outcome::completed);
}

template <class Chunking>
std::uint8_t pull_at_random(std::uint64_t seed) {
  generator r(seed);
  const std::uint64_t kind = r.below(4), sources = 1 + r.below(5), honest_one = r.below(sources);
  const unsigned level = tp::least_group_level + static_cast<unsigned>(r.below(3));
  const lines_of how{.count = std::min<std::uint64_t>(8, sources + r.below(4)),
                     .piece = std::uint64_t{1} << (8 + r.below(9)),
                     .losses = r.below(3) == 0 ? 30 + r.below(300) : 0};
  const model published = std::move(blank_model(kind).fill(1));
  model mine = blank_model(kind);
  std::uint8_t honest = 0;
  std::vector<tampering> lies(sources);
  for (std::uint64_t s = 0; s < sources; ++s)
    if (s != honest_one && r.below(4) != 0) lies[s] = a_liar(r(), true);
    else honest |= static_cast<std::uint8_t>(1u << s);
  const tp::proof by = proof_of(published, level);
  tp::land into(mine.destination());
  tp::proved to(into, by);
  const pulled<decltype(to), Chunking> p(to, published, lies, how, seed);
  expect_it_completes(p, honest);
  EXPECT_TRUE(mine.same_tensors(published) && mine.guards_intact());
  return p.wrong;
}
TEST(ProvedAtOnce, An_honest_source_is_found_and_never_named) {
  int named = 0;
  std::vector<std::uint64_t> seeds(200);
  std::iota(seeds.begin(), seeds.end(), 0);
  seeds.push_back(2718);  // a longer run has found it: the header's parts out of order
  for (const std::uint64_t seed : seeds) {
    if (HasFailure()) break;
    SCOPED_TRACE(seed);
    if (seed % 3 == 0) named += pull_at_random<tp::fixed_bytes<65'536>>(seed) != 0;
    if (seed % 3 == 1) named += pull_at_random<tp::per_tensor<1 << 20>>(seed) != 0;
    if (seed % 3 == 2) named += pull_at_random<tp::adaptive_bytes<4096, 65'536>>(seed) != 0;
  }
  EXPECT_GT(named, 50) << "many pulls have met a liar";
}

/// A lie of one kind in each answer.
struct lie {
  const char* about;
  bool of_the_first;  ///< it is noticed in the source of the beginning alone
  tampering how;
};
/// Another byte in the chunks that begin in [from, to): the one at `at`, or the last one.
tampering wrong_bytes(std::uint64_t from, std::uint64_t to, std::optional<std::size_t> at) {
  return [=](byte_vector& f) {
    if (!is_chunk(f) || offset_of(f) < from || offset_of(f) >= to) return;
    const auto m = tp::detail::payload_prefix::read(std::span<const std::byte, 80>(f.data(), 80));
    f[80 + at.value_or(m->length - 1)] ^= std::byte{1};
  };
}
constexpr std::uint64_t everywhere = ~std::uint64_t{0};
TEST(ProvedAtOnce, Whoever_lies_is_named_and_nobody_else) {
  const lie lies[]{{"a longer image", false, describes([](tp::frame& m) { m.image_bytes += 8; })},
                   {"a longer header", false, describes([](tp::frame& m) { m.data_start += 8; })},
                   {"both", false, describes([](tp::frame& m) { m.image_bytes += 8, m.data_start += 8; })},
                   {"an endless image", false, describes([](tp::frame& m) { m.image_bytes = ~std::uint64_t{0} / 2; })},
                   {"the header's length", true, wrong_bytes(0, 1, 0)},
                   {"the header's text", true, wrong_bytes(0, 1, 20)},
                   {"the first group", true, wrong_bytes(0, 1, 40'000)},
                   {"first bytes", false, wrong_bytes(0, everywhere, 0)},
                   {"last bytes", false, wrong_bytes(0, everywhere, {})}};
  const model published = std::move(blank_model(2).fill(1));
  const tp::proof by = proof_of(published, tp::least_group_level);
  for (const lie& one : lies)
    for (std::size_t n = 2; n <= 4; ++n)
      for (std::size_t liar = 0; liar < (one.of_the_first ? 1 : n); ++liar) {
        SCOPED_TRACE(std::string(one.about) + ", source " + std::to_string(liar) + " of " + std::to_string(n));
        std::vector<tampering> each(n);
        each[liar] = one.how;
        model mine = blank_model(2);
        tp::land into(mine.destination());
        tp::proved to(into, by);
        const pulled<decltype(to)> p(to, published, each, {.count = n}, 1);
        expect_it_completes(p, static_cast<std::uint8_t>(~(1u << liar)));
        EXPECT_EQ(p.wrong, 1u << liar);
        EXPECT_TRUE(mine.same_tensors(published));
        // no more than what was asked of the liar ahead is fetched twice
        EXPECT_LT(std::accumulate(p.carried.begin(), p.carried.end(), std::uint64_t{0}),
                  published.schema().image_bytes + 12 * group);
      }
}
TEST(ProvedAtOnce, All_lie_and_none_is_believed) {
  const model published = std::move(blank_model(2).fill(1));
  const tp::proof by = proof_of(published, tp::least_group_level);
  model mine = blank_model(2);
  tp::land into(mine.destination());
  tp::proved to(into, by);
  const tampering liar = wrong_bytes(0, everywhere, 0);
  const pulled<decltype(to)> p(to, published, {liar, liar, liar}, {.count = 3}, 1);
  ASSERT_TRUE(p.done);
  EXPECT_EQ(code_of(*p.done), tp::errc::digest_mismatch);
  EXPECT_EQ(p.wrong, 7u);
}

struct own_memory {
  std::deque<byte_vector> memory;
  tp::result<std::byte*> allocate(const tp::tensor_entry& entry) {
    return memory.emplace_back(static_cast<std::size_t>(entry.size_bytes())).data();
  }
  void clear() noexcept { memory.clear(); }
};
TEST(ProvedAtOnce, A_header_that_cannot_be_read_names_its_source) {
  const model published = std::move(blank_model(3).fill(1));
  const tp::proof by = proof_of(published, tp::least_group_level);
  for (const std::uint64_t chunk : {0u, 65'536u}) {  // the header is longer than a group
    tp::new_model<own_memory> into{{}, {.max_bytes = 4 << 20}};
    tp::proved to(into, by);
    const pulled<decltype(to)> p(to, published, {wrong_bytes(chunk, chunk + 1, 9), {}}, {.count = 2}, 1);
    expect_it_completes(p, 2);
    EXPECT_EQ(p.wrong, 1u);
    EXPECT_EQ(into.made().tensor_count, 800u);
  }
}
TEST(ProvedAtOnce, The_image_itself_has_the_length_of_its_header) {
  own_folder folder;
  const std::string path = folder.path() / "m.safetensors";
  const model published = std::move(blank_model(2).fill(1));
  const tp::proof by = proof_of(published, tp::least_group_level);
  for (const std::uint64_t wrong_by : {8u, 3u * 65'536}) {
    auto into = tp::safetensors_file::create(path, {.overwrite = true, .fsync = false});
    ASSERT_TRUE(succeeded(into));
    tp::proved to(*into, by);
    const tampering liar = describes([wrong_by](tp::frame& m) { m.data_start += wrong_by; });
    const pulled<decltype(to)> p(to, published, {liar, {}}, {.count = 2}, 1);
    expect_it_completes(p, 2);
    EXPECT_EQ(p.wrong, 1u);
    EXPECT_EQ(std::filesystem::file_size(path), published.schema().image_bytes);
  }
}
/// Takes any description, and has the right bytes already.
struct has_it_all {
  static constexpr bool irrevocable = false, any_order = true;
  tp::source_view all;
  std::array<std::byte, 4096> scratch{};
  std::uint64_t fingerprint() const noexcept { return all.schema->fingerprint; }
  const tp::image_schema* schema() const noexcept { return nullptr; }
  tp::result<void> begin(const tp::description&) noexcept { return {}; }
  tp::prepared prepare(std::uint64_t, std::uint64_t length, std::span<byte_span> out) noexcept {
    return tp::detail::prepare_in(scratch, length, out);
  }
  tp::result<void> commit(std::uint64_t, const_byte_span) noexcept { return {}; }
  tp::result<void> chunk(std::uint64_t, std::uint64_t) noexcept { return {}; }
  tp::result<void> finish(const tp::receipt&) noexcept { return {}; }
  void abandon(const tp::error&) noexcept {}
  tp::source_view read_back() const noexcept { return all; }
};
TEST(ProvedAtOnce, The_image_itself_has_the_length_of_its_header_if_a_part_is_there) {
  const model published = std::move(blank_model(2).fill(1));
  const tp::proof by = proof_of(published, tp::least_group_level);
  has_it_all into{published.source()};
  tp::proved to(into, by, 5 * group);
  const tampering liar = describes([](tp::frame& m) { m.data_start += 8; });
  const pulled<decltype(to)> p(to, published, {liar, {}, {}}, {.count = 3}, 1);
  expect_it_completes(p, 6);
  EXPECT_EQ(p.wrong, 1u);
}
TEST(ProvedAtOnce, What_is_proved_already_is_not_fetched) {
  const model published = std::move(blank_model(2).fill(1));
  const tp::proof by = proof_of(published, tp::least_group_level);
  for (const std::uint64_t there : {group, 7 * group, 18 * group}) {
    model mine = std::move(blank_model(2).fill(1));
    tp::land into(mine.destination());
    tp::proved to(into, by, there);
    const pulled<decltype(to)> p(to, published, {tampering(), wrong_bytes(0, everywhere, 0)}, {.count = 2}, 1);
    expect_it_completes(p, 1);
    EXPECT_TRUE(mine.same_tensors(published));
    EXPECT_LT(p.carried[0], published.schema().image_bytes - there + group);
  }
}
TEST(ProvedAtOnce, A_silent_source_keeps_nothing_for_itself) {
  const model published = std::move(blank_model(2).fill(1));
  const tp::proof by = proof_of(published, tp::least_group_level);
  for (std::size_t silent = 0; silent < 2; ++silent)
    for (std::uint64_t behind = 1; behind < 20; ++behind) {
      model mine = blank_model(2);
      tp::land into(mine.destination());
      tp::proved to(into, by);
      std::vector<tampering> each(2);
      each[silent] = [behind, n = std::uint64_t{0}](byte_vector& f) mutable {
        if (n++ >= behind) f.clear();
      };
      const pulled<decltype(to)> p(to, published, each, {.count = 2}, 1);
      expect_it_completes(p, 3);
      EXPECT_TRUE(mine.same_tensors(published));
      EXPECT_LT(p.turns, 2'000u);
    }
}
TEST(ProvedAtOnce, It_takes_4_KiB_more_at_most) {
  using plain = tp::parallel_transfer<tp::land, tp::fixed_bytes<65'536>, tp::image_digest>;
  using to = tp::proved<tp::land>;
  constexpr std::size_t values = 2048;
  EXPECT_LE(sizeof(tp::checked_transfer<to, tp::fixed_bytes<65'536>>) + sizeof(to) + sizeof(tp::proof) + values,
            sizeof(plain) + 4096);
}

}  // namespace proved_at_once_test
