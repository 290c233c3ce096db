// Some tensors of a model, proved by the root of the whole, from one source and from several of which some lie.
#include "driven_pull.hpp"
#include "named_tensors.hpp"

#include "support/allocation_counter.hpp"
#include "support/random_models.hpp"

#include <tensorpull/satellites/proofs/proved_tensors.hpp>

#include <numeric>

namespace proved_subset_test {

using namespace test;
using namespace test::driven;
using namespace test::proved;

/// A header of more than two groups.
const model& many() {
  static const model one = [] {
    model m;
    for (int i = 0; i < 1600; ++i)
      m.add("a long name, for a header of more than one group " + std::to_string(1000 + i), dtype::f32, {100});
    m.ready();
    return std::move(m.fill(2));
  }();
  return one;
}
/// Counts the payload that a source gives.
tampering counted(std::uint64_t& sum) {
  return [&sum](byte_vector& f) {
    if (!f.empty() && kind_of(f) == tp::frame_kind::chunk)
      sum += tp::detail::payload_prefix::read(std::span<const std::byte, 80>(f.data(), 80))->length;
  };
}
/// Another byte at this place of the image, each time.
tampering wrong_at(std::uint64_t at) {
  return [at](byte_vector& f) {
    if (f.empty() || kind_of(f) != tp::frame_kind::chunk) return;
    const auto m = tp::detail::payload_prefix::read(std::span<const std::byte, 80>(f.data(), 80));
    if (m->offset <= at && at < m->offset + m->length) f[80 + static_cast<std::size_t>(at - m->offset)] ^= std::byte{1};
  };
}
std::uint64_t position_of(const model& of, std::string_view name) {
  const auto& s = of.schema();
  return s.header_bytes + s.tensors[tp::detail::find_tensor(s, name)].begin;
}

/// Parts of several groups.
struct long_parts : tp::short_parts {
  static constexpr std::size_t most_parts = 8;
};
template <class Chunking = tp::fixed_bytes<65'536>, class Plan = tp::short_parts>
struct pulled_names {
  model mine;
  tp::proof by;
  tp::land into;
  tp::proved_tensors<tp::land> to;
  std::optional<pulled<tp::proved_tensors<tp::land>, Chunking, Plan>> how;

  pulled_names(const model& of, model into_it, const names_list& names, std::vector<tampering> lies,
               const lines_of& lines, std::uint64_t seed = 1, tp::new_model_limits limits = {})
      : mine(std::move(into_it)), by(proof_of(of, tp::least_group_level)), into(mine.destination()),
        to(into, by, names, limits) {
    how.emplace(to, of, std::move(lies), lines, seed);
  }
  /// Completes with the right bytes, and whoever is in `honest` is not named.
  void expect_right(const model& of, std::uint8_t honest) {
    EXPECT_EQ(how->wrong & honest, 0) << "names an honest one";
    ASSERT_TRUE(how->done) << "never ends";
    ASSERT_TRUE(*how->done) << to_string(how->done->error().code);
    EXPECT_TRUE(has_right_bytes(mine, of));
    const tp::receipt r = to.receipt_of(**how->done);
    EXPECT_EQ(r.bytes, mine.schema().data_bytes());
    EXPECT_EQ(r.fingerprint, mine.schema().fingerprint);
  }
};

TEST(ProvedSubset, Names_in_any_order_cost_their_parts) {
  const names_list lists[] = {{"tail", "small 30", "scalar"},
                              {"small 11", "small 10"},
                              {"long"},
                              {"other", "long", "empty"},
                              {"small 49", "other", "small 10", "tail"},
                              {"empty", "tail"}};
  for (const auto& names : lists)
    for (const std::size_t sources : {1u, 3u}) {
      SCOPED_TRACE(std::string(names[0]) + " from " + std::to_string(sources));
      std::uint64_t sum = 0;
      pulled_names<> p(whole(), blank_subset(whole(), names), names, std::vector<tampering>(sources, counted(sum)),
                       {.count = sources});
      p.expect_right(whole(), 0xff);
      EXPECT_TRUE((*p.how->done)->confirmed);
      EXPECT_LE(sum, most_bytes(whole(), p.mine));
    }
}
TEST(ProvedSubset, Without_names_they_are_those_of_the_consumer) {
  pulled_names<> p(whole(), blank_subset(whole(), {"scalar", "other"}), {}, {{}}, {.count = 1});
  p.expect_right(whole(), 1);
}
TEST(ProvedSubset, Tensors_without_elements_cost_the_header_alone) {
  std::uint64_t sum = 0;
  pulled_names<> p(whole(), blank_subset(whole(), {"empty"}), {"empty"}, {counted(sum)}, {.count = 1});
  p.expect_right(whole(), 1);
  EXPECT_TRUE((*p.how->done)->confirmed);
  EXPECT_LE(sum, group + 1);
}
TEST(ProvedSubset, The_header_may_have_several_parts) {
  ASSERT_GT(many().schema().header_bytes, 2 * group);
  const std::string first(many().schema().tensors[0].name), last(many().schema().tensors[1599].name);
  for (const std::size_t sources : {1u, 2u}) {
    std::uint64_t sum = 0;
    const names_list names{last, first};
    pulled_names<> p(many(), blank_subset(many(), names), names, std::vector<tampering>(sources, counted(sum)),
                     {.count = sources});
    p.expect_right(many(), 0xff);
    EXPECT_LE(sum, most_bytes(many(), p.mine));
  }
}
TEST(ProvedSubset, Other_names_and_other_tensors_are_refused_by_their_names_before_anything_lands) {
  const auto code_and_name = [](model mine, const names_list& names) {
    pulled_names<> p(whole(), std::move(mine), names, {{}, {}}, {.count = 2});
    EXPECT_TRUE(p.how->done);
    EXPECT_EQ(p.how->wrong, 0);
    EXPECT_TRUE(p.mine.untouched());
    if (!p.how->done || *p.how->done) return std::pair(errc{}, std::string("completed"));
    return std::pair(p.how->done->error().code, std::string(p.how->done->error().name.view()));
  };
  const auto is = [](errc code, const char* name) { return std::pair(code, std::string(name)); };
  const auto two = [] { return blank_subset(whole(), {"scalar", "tail"}); };
  EXPECT_EQ(code_and_name(two(), {"scalar", "missing"}), is(errc::bad_request, "missing"));
  EXPECT_EQ(code_and_name(two(), {"tail", "tail"}), is(errc::bad_request, "tail"));
  EXPECT_EQ(code_and_name(two(), {"scalar"}), is(errc::schema_mismatch, "tail"));
  EXPECT_EQ(code_and_name(two(), {"scalar", "tail", "other"}), is(errc::schema_mismatch, "other"));
  EXPECT_EQ(code_and_name(two(), {"scalar", "other"}), is(errc::schema_mismatch, "other"));
  model another;
  another.add("scalar", dtype::i64, {}).ready();
  EXPECT_EQ(code_and_name(std::move(another), {"scalar"}), is(errc::schema_mismatch, "scalar"));
  model shaped;
  shaped.add("long", dtype::f32, {100'000, 4}).ready();
  EXPECT_EQ(code_and_name(std::move(shaped), {"long"}), is(errc::schema_mismatch, "long"));
  model unknown;
  unknown.add("missing", dtype::u8, {3}).ready();
  EXPECT_EQ(code_and_name(std::move(unknown), {}), is(errc::bad_request, "missing"));
}
TEST(ProvedSubset, A_longer_header_than_the_limit_is_refused) {
  const std::uint64_t header = many().schema().header_bytes;
  const names_list names{many().schema().tensors[5].name};
  for (const std::uint64_t most : {header - 1, header}) {
    pulled_names<> p(many(), blank_subset(many(), names), names, {{}}, {.count = 1}, 1, {.max_header_bytes = most});
    ASSERT_TRUE(p.how->done);
    EXPECT_EQ(code_of(*p.how->done), most < header ? errc::too_large : errc{});
  }
}
TEST(ProvedSubset, Whoever_lies_is_named_and_nobody_else) {
  const names_list names{"small 30", "tail", "long"};
  struct {
    const char* about;
    bool of_the_first;
    tampering how;
  } const lies[]{{"the header's length", true, wrong_at(0)},
                 {"the header's text", true, wrong_at(20)},
                 {"bytes behind the header", true, wrong_at(whole().schema().header_bytes + 1)},
                 {"a wanted byte", false, wrong_at(position_of(whole(), "small 30"))},
                 {"the last wanted byte", false, wrong_at(whole().schema().image_bytes - 1)},
                 {"a byte that is thrown away", false, wrong_at(position_of(whole(), "small 29"))},
                 {"a longer image", false, describes([](tp::frame& m) { m.image_bytes += 8; })},
                 {"a longer header", false, describes([](tp::frame& m) { m.data_start += 8; })}};
  for (const auto& one : lies)
    for (std::size_t n = 2; n <= 3; ++n)
      for (std::size_t liar = 0; liar < (one.of_the_first ? 1 : n); ++liar) {
        SCOPED_TRACE(std::string(one.about) + ", source " + std::to_string(liar) + " of " + std::to_string(n));
        std::vector<tampering> each(n);
        each[liar] = one.how;
        pulled_names<> p(whole(), blank_subset(whole(), names), names, each, {.count = n});
        p.expect_right(whole(), static_cast<std::uint8_t>(~(1u << liar)));
        // who did not give the part with that byte has told no lie
        EXPECT_TRUE(!one.of_the_first || p.how->wrong == 1u << liar);
      }
}
TEST(ProvedSubset, All_lie_and_none_is_believed) {
  for (const std::uint64_t at :
       {std::uint64_t{20}, position_of(whole(), "long") + 4, position_of(whole(), "tail") - 1}) {
    const names_list names{"long", "tail"};
    pulled_names<> p(whole(), blank_subset(whole(), names), names, {wrong_at(at), wrong_at(at)}, {.count = 2});
    ASSERT_TRUE(p.how->done);
    EXPECT_EQ(code_of(*p.how->done), errc::digest_mismatch);
    EXPECT_EQ(p.how->wrong, 3u);
  }
}
TEST(ProvedSubset, A_source_that_is_lost_or_silent_costs_its_parts) {
  const names_list names{"long", "other", "small 20"};
  for (std::size_t lost = 0; lost < 2; ++lost)
    for (std::uint64_t behind = 1; behind < 24; ++behind) {
      SCOPED_TRACE(std::to_string(lost) + " behind " + std::to_string(behind));
      std::vector<tampering> each(2);
      each[lost] = [behind, n = std::uint64_t{0}](byte_vector& f) mutable {
        if (n++ >= behind) f.clear();
      };
      pulled_names<> p(whole(), blank_subset(whole(), names), names, each, {.count = 2});
      p.expect_right(whole(), 3);
      EXPECT_LT(p.how->turns, 2'000u);
    }
}

/// Some names of a model, in any order.
template <class Chunking, class Plan = tp::short_parts>
bool pull_at_random(std::uint64_t seed) {
  generator r(seed);
  drawn_model drawn(r, {.most_tensors = r.below(2) == 0 ? 20u : 200u, .most_bytes = 1'500'000, .threshold = 200'000});
  const model& of = drawn.get();
  names_list names;
  const std::uint64_t rate = 1 + r.below(6);
  for (const tp::tensor_entry& t : of.schema().entries())
    if (r.below(rate) == 0) names.push_back(t.name);
  if (names.empty()) names.push_back(of.schema().tensors[r.below(of.schema().tensor_count)].name);
  for (std::size_t i = names.size(); i > 1; --i) std::swap(names[i - 1], names[r.below(i)]);
  const std::uint64_t sources = 1 + r.below(4), honest_one = r.below(sources);
  const bool all_honest = r.below(3) == 0;
  // what a connection carries before it is lost is a group now and then, or nothing would ever be proved
  const std::uint64_t piece = std::uint64_t{1} << (8 + r.below(9));
  const lines_of lines{.count = std::min<std::uint64_t>(8, sources + r.below(4)),
                       .piece = piece,
                       .losses = !all_honest && piece >= 4096 && r.below(2) == 0 ? 30 + r.below(300) : 0};
  std::uint8_t honest = 0;
  std::uint64_t sum = 0;
  std::vector<tampering> lies(sources);
  for (std::uint64_t s = 0; s < sources; ++s)
    if (all_honest) lies[s] = counted(sum), honest |= static_cast<std::uint8_t>(1u << s);
    else if (s != honest_one && r.below(4) != 0) lies[s] = a_liar(r(), true);
    else honest |= static_cast<std::uint8_t>(1u << s);
  pulled_names<Chunking, Plan> p(of, blank_subset(of, names), names, lies, lines, seed);
  p.expect_right(of, honest);
  EXPECT_TRUE(!all_honest || lines.count > 1 || sum <= most_bytes(of, p.mine, Plan::most_parts));
  return p.how->wrong != 0;
}
TEST(ProvedSubset, Any_names_of_any_model_arrive_from_whoever_is_honest) {
  int named = 0;
  const model_seeds seeds(200);
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    if (seed % 4 == 0) named += pull_at_random<tp::fixed_bytes<65'536>>(seed);
    if (seed % 4 == 1) named += pull_at_random<tp::per_tensor<1 << 20>>(seed);
    if (seed % 4 == 2) named += pull_at_random<tp::adaptive_bytes<4096, 65'536>>(seed);
    if (seed % 4 == 3) named += pull_at_random<tp::fixed_bytes<65'536>, long_parts>(seed);
  }
  EXPECT_GT(named, static_cast<int>(seeds.count / 20)) << "many pulls have met a liar";
}

/// Gives the consumer all bytes of a range, as a line would.
tp::result<void> give(tp::proved_tensors<tp::land>& to, const byte_vector& image, std::uint64_t from,
                      std::uint64_t end) {
  while (from < end) {
    std::array<byte_span, 4> spans;
    const auto p = to.prepare(from, end - from, spans);
    if (p.bytes == 0) return tp::failure(errc::io, from);
    for (std::size_t i = 0; i < p.pieces; from += spans[i++].size()) {
      std::memcpy(spans[i].data(), image.data() + from, spans[i].size());
      if (const auto ok = to.commit(from, spans[i]); !ok) return ok;
    }
  }
  return {};
}
/// A filter for some tensors of a model, in the hands of a test, which has begun.
struct in_hand {
  byte_vector image;
  model mine;
  tp::proof by;
  tp::land into;
  tp::proved_tensors<tp::land> to;

  in_hand(const model& of, const names_list& names)
      : image(of.image_bytes()), mine(blank_subset(of, names)), by(proof_of(of, tp::least_group_level)),
        into(mine.destination()), to(into, by, {}) {
    tp::description d;
    d.image_bytes = image.size();
    d.data_start = of.schema().header_bytes;
    EXPECT_TRUE(succeeded(to.begin(d)));
  }
};
TEST(ProvedSubset, Nothing_is_allocated_for_a_part) {
  in_hand h(whole(), {"small 20", "tail"});
  auto& [image, mine, by, into, to] = h;
  ASSERT_TRUE(succeeded(give(to, image, 0, group)));
  to.in_any_order(group);
  EXPECT_FALSE(to.wants(2 * group, group));
  const allocation_watch watch;
  for (std::uint64_t at = 0; at < image.size(); at += group) {
    const std::uint64_t length = std::min<std::uint64_t>(group, image.size() - at);
    ASSERT_TRUE(!to.wants(at, length) || succeeded(give(to, image, at, at + length)));
    ASSERT_TRUE(succeeded(to.chunk(at, length)));
  }
  EXPECT_EQ(watch.count(), 0u);
  EXPECT_TRUE(succeeded(to.finish({})));
  EXPECT_TRUE(has_right_bytes(mine, whole()));
}
TEST(ProvedSubset, A_group_of_the_header_arrives_anew_if_its_line_is_lost) {
  const std::string name(many().schema().tensors[0].name);
  in_hand h(many(), {name});
  auto& [image, mine, by, into, to] = h;
  byte_vector other = image;
  other[group + 100] = std::byte{0};
  ASSERT_TRUE(succeeded(give(to, image, 0, 1000)));
  ASSERT_TRUE(succeeded(give(to, image, 0, group)));
  ASSERT_TRUE(succeeded(give(to, other, group, 2 * group - 1)));  // no header, and nobody knows yet
  to.brought_by(7);
  ASSERT_TRUE(succeeded(give(to, image, group, 2 * group)));
  ASSERT_TRUE(succeeded(give(to, image, 0, 4 * group)));
  to.in_any_order(4 * group);
  std::uint64_t wanted = 0;
  for (std::uint64_t at = 0; at < image.size(); at += group) wanted += to.wants(at, group);
  EXPECT_EQ(wanted, 1u);
}
TEST(ProvedSubset, It_has_finished_only_if_all_are_there) {
  in_hand h(whole(), {"small 20", "tail"});
  auto& [image, mine, by, into, to] = h;
  EXPECT_EQ(code_of(to.finish({})), errc::not_verifiable);
  ASSERT_TRUE(succeeded(give(to, image, 0, group)));
  to.in_any_order(group);
  EXPECT_EQ(code_of(to.finish({})), errc::not_verifiable);
  // begins within a group
  EXPECT_EQ(code_of(to.commit(3 * group + 1, std::span(image).first(9))), errc::not_verifiable);
}

}  // namespace proved_subset_test
