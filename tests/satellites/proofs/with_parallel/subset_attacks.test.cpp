// Some tensors of a model, proved by the root of the whole: headers that lie although they are proved, and errors that
// a liar or a lost source must not hide.
#include "driven_pull.hpp"
#include "named_tensors.hpp"

#include <tensorpull/satellites/proofs/proved_tensors.hpp>

namespace subset_attacks_test {

using namespace test;
using namespace test::driven;
using namespace test::proved;

model three() {
  model m;
  m.add("a", dtype::u8, {16}).add("b", dtype::u8, {16}).add("c", dtype::u8, {16}).ready();
  return std::move(m.fill(5));
}
/// An image of one group, given as a line would: its header, and then all again.
tp::result<void> give_one_group(tp::proved_tensors<tp::land>& to, const byte_vector& image, std::uint64_t header) {
  tp::description d;
  d.image_bytes = image.size();
  d.data_start = header;
  if (const auto ok = to.begin(d); !ok) return ok;
  for (const bool shares : {false, true}) {
    for (std::uint64_t at = 0; at < image.size();) {
      std::array<byte_span, 4> spans;
      const auto p = to.prepare(at, image.size() - at, spans);
      if (p.bytes == 0) return tp::failure(errc::io, at);
      for (std::size_t i = 0; i < p.pieces; at += spans[i++].size()) {
        std::memcpy(spans[i].data(), image.data() + at, spans[i].size());
        if (const auto ok = to.commit(at, spans[i]); !ok) return ok;
      }
    }
    if (!shares) to.in_any_order(image.size());
  }
  if (const auto ok = to.chunk(0, image.size()); !ok) return ok;
  return to.finish({});
}
TEST(SubsetAttacks, A_proved_header_with_other_offsets_is_refused) {
  const model of = three();
  const byte_vector image = of.image_bytes();
  const std::string right(reinterpret_cast<const char*>(image.data()), of.schema().header_bytes);
  // overlapping, too short, backwards, beside its place, too long
  const std::pair<std::string, std::string> lies[]{{"", ""},
                                                   {"[16,32]", "[32,48]"},
                                                   {"[16,32]", "[16,31]"},
                                                   {"[16,32]", "[32,16]"},
                                                   {"[0,16]", "[9,16]"},
                                                   {"[32,48]", "[16,48]"}};
  for (const auto& [from, lie] : lies) {
    SCOPED_TRACE(lie);
    std::string text = right;
    ASSERT_NE(right.find(from), std::string::npos);
    text.replace(right.find(from), from.size(), lie);
    byte_vector other = image;
    std::memcpy(other.data(), text.data(), text.size());
    const auto by = tp::proof::make(blake3_of(other), other.size(), tp::least_group_level, {});
    ASSERT_TRUE(succeeded(by));
    model mine = blank_subset(of, {"b"});
    tp::land into(mine.destination());
    tp::proved_tensors to(into, *by, {});
    const auto done = give_one_group(to, other, of.schema().header_bytes);
    EXPECT_EQ(code_of(done), lie.empty() ? errc{} : errc::bad_frame);
    EXPECT_TRUE(lie.empty() || mine.untouched());
  }
}
TEST(SubsetAttacks, Without_a_header_nothing_is_all_there) {
  const model of = three();
  const byte_vector image = of.image_bytes();
  const auto by = tp::proof::make(blake3_of(image), image.size(), tp::least_group_level, {});
  for (const std::uint64_t header : {std::uint64_t{0}, std::uint64_t{7}, std::uint64_t{image.size()} + 1}) {
    model mine = blank_subset(of, {"b"});
    tp::land into(mine.destination());
    tp::proved_tensors to(into, *by, {});
    EXPECT_EQ(code_of(give_one_group(to, image, header)), errc::bad_frame);
  }
}
/// The names are looked for in a header that is proved, so no other source could do better.
TEST(SubsetAttacks, A_missing_name_is_told_whoever_lies_or_is_lost) {
  const names_list names{"missing"};
  const tampering wrong = [](byte_vector& f) {
    if (!f.empty() && kind_of(f) == tp::frame_kind::chunk) f[100] ^= std::byte{1};
  };
  const tampering silent = [](byte_vector& f) { f.clear(); };
  const std::vector<tampering> lists[]{{{}, wrong}, {wrong, {}}, {{}, silent}, {silent, {}}, {{}, {}, silent}};
  for (std::size_t i = 0; i < std::size(lists); ++i) {
    SCOPED_TRACE(i);
    model mine;
    mine.add("missing", dtype::u8, {3}).ready();
    const tp::proof by = proof_of(whole(), tp::least_group_level);
    tp::land into(mine.destination());
    tp::proved_tensors to(into, by, names);
    const pulled<tp::proved_tensors<tp::land>, tp::fixed_bytes<65'536>, tp::short_parts> p(
        to, whole(), lists[i], {.count = lists[i].size()}, 1);
    ASSERT_TRUE(p.done);
    ASSERT_EQ(code_of(*p.done), errc::bad_request);
    EXPECT_EQ(p.done->error().name.view(), "missing");
    EXPECT_TRUE(mine.untouched());
  }
}
/// A consumer that looks at what it is told.
struct counts_tensors : tp::land {
  std::uint64_t told = 0;
  using tp::land::land;
  tp::result<void> begin(const tp::description& d) noexcept {
    told = d.tensors;
    return tp::land::begin(d);
  }
};
TEST(SubsetAttacks, The_consumer_hears_of_no_number_that_nobody_has_proved) {
  const names_list names{"tail", "small 20"};
  model mine = blank_subset(whole(), names);
  const tp::proof by = proof_of(whole(), tp::least_group_level);
  counts_tensors into(mine.destination());
  tp::proved_tensors to(into, by, names);
  const pulled<tp::proved_tensors<counts_tensors>, tp::fixed_bytes<65'536>, tp::short_parts> p(
      to, whole(), {describes([](tp::frame& m) { m.tensors = 77; })}, {.count = 1}, 1);
  ASSERT_TRUE(p.done && *p.done);
  EXPECT_EQ(into.told, 2u);
}
/// A model whose header has so many bytes.
model with_header(std::uint64_t header) {
  std::string pad;
  for (;;) {
    const tp::metadata_entry pairs[]{{"k", pad}};
    model m;
    m.add("a", dtype::f32, {20'000}).add("b", dtype::u8, {3}).add("c", dtype::u8, {100'000}).ready(pairs);
    if (m.schema().header_bytes >= header) return std::move(m.fill(9));
    pad.append(static_cast<std::size_t>(header - m.schema().header_bytes), 'x');
  }
}
TEST(SubsetAttacks, A_header_ends_where_a_group_does) {
  for (const std::uint64_t header : {group - 8, group, group + 8, 2 * group}) {
    SCOPED_TRACE(header);
    const model m = with_header(header);
    ASSERT_EQ(m.schema().header_bytes, header);
    for (const names_list& names : {names_list{"a"}, names_list{"c", "a", "b"}, names_list{"b"}})
      for (const std::size_t sources : {1u, 2u}) {
        model mine = blank_subset(m, names);
        const tp::proof by = proof_of(m, tp::least_group_level);
        tp::land into(mine.destination());
        tp::proved_tensors to(into, by, names);
        const pulled<tp::proved_tensors<tp::land>, tp::fixed_bytes<24'576>, tp::short_parts> p(
            to, m, std::vector<tampering>(sources), {.count = sources}, 1);
        ASSERT_TRUE(p.done);
        EXPECT_EQ(code_of(*p.done), errc{});
        EXPECT_TRUE(has_right_bytes(mine, m));
      }
  }
}

}  // namespace subset_attacks_test
