// Members that hold any number of others, or perhaps one: lists, maps, optionals, of whatever else can travel.
#include "support/allocation_counter.hpp"

#include "messages/hand_made.hpp"

#include <map>
#include <unordered_map>

namespace members_test {

using namespace test;

struct metric {
  std::string name;
  double value = 0;
  std::optional<std::int32_t> step;
};
struct everything {
  std::vector<std::string> sites;
  std::map<std::string, double> metrics;
  std::optional<double> loss;
  std::optional<std::string> none;
  std::vector<metric> rows;
  std::optional<metric> best;
  std::map<std::string, std::vector<metric>> by_site;
  std::vector<std::vector<std::string>> groups;
  std::vector<phase> phases;
  std::vector<std::array<float, 2>> pairs;
  std::unordered_map<std::string, std::vector<std::int16_t>> numbers;
};
struct updates {
  std::uint32_t round = 0;
  std::vector<tp::tensors_of<split_model>> models;
  std::map<std::string, tp::tensors_of<flags>> masks;
  std::optional<tp::locator> elsewhere;
};
struct names {
  std::vector<std::string> all;
};
struct maybe {
  std::optional<std::int8_t> value;
};
struct scores {
  std::map<std::string, std::int8_t> of;
};
struct rows {
  std::vector<metric> all;
};
struct marks {
  std::vector<std::optional<bool>> all;
};

}  // namespace members_test

BOOST_HANA_ADAPT_STRUCT(members_test::metric, name, value, step);
BOOST_HANA_ADAPT_STRUCT(members_test::everything, sites, metrics, loss, none, rows, best, by_site, groups, phases,
                        pairs, numbers);
BOOST_HANA_ADAPT_STRUCT(members_test::updates, round, models, masks, elsewhere);
BOOST_HANA_ADAPT_STRUCT(members_test::names, all);
BOOST_HANA_ADAPT_STRUCT(members_test::maybe, value);
BOOST_HANA_ADAPT_STRUCT(members_test::scores, of);
BOOST_HANA_ADAPT_STRUCT(members_test::rows, all);
BOOST_HANA_ADAPT_STRUCT(members_test::marks, all);

namespace members_test {

bool operator==(const metric& a, const metric& b) { return a.name == b.name && a.value == b.value && a.step == b.step; }

everything some() {
  everything e;
  e.sites = {"a", "", "h\xc3\xb4pital 3"};
  e.metrics = {{"loss", 0.25}, {"", -1}, {"accuracy", 0.9}};
  e.loss = -0.5;
  e.rows = {{"a", 1, 7}, {"b", 2, {}}};
  e.best = metric{"c", 3, -4};
  e.by_site = {{"x", {{"d", 4, {}}}}, {"y", {}}};
  e.groups = {{"one", "two"}, {}, {""}};
  e.phases = {phase::train, phase::evaluate};
  e.pairs = {{1, 2}, {3, -4}};
  e.numbers = {{"seven", {7, -7}}, {"none", {}}};
  return e;
}

TEST(Members, Lists_maps_and_optionals_arrive_as_they_were_sent) {
  publisher_of<net> owner;
  const auto sent = some();
  const auto apart = messages::decompose(owner, sent);
  ASSERT_TRUE(succeeded(apart)) << apart.error().name.view();
  EXPECT_TRUE(apart->references().empty());
  for (const bool full : {false, true}) {
    everything got;
    if (full) {  // what was there before is gone
      got = some();
      got.none = "something";
      got.metrics["more"] = 1;
      got.sites.resize(10, "more");
      got.loss.reset();
    }
    const auto read = messages::recompose(apart->references(), apart->body(), got);
    ASSERT_TRUE(succeeded(read)) << read.error().name.view();
    EXPECT_EQ(got.sites, sent.sites);
    EXPECT_EQ(got.metrics, sent.metrics);
    EXPECT_EQ(got.loss, sent.loss);
    EXPECT_EQ(got.none, sent.none);
    EXPECT_EQ(got.rows, sent.rows);
    EXPECT_EQ(got.best, sent.best);
    EXPECT_EQ(got.by_site, sent.by_site);
    EXPECT_EQ(got.groups, sent.groups);
    EXPECT_EQ(got.phases, sent.phases);
    EXPECT_EQ(got.pairs, sent.pairs);
    EXPECT_EQ(got.numbers, sent.numbers);
  }
}

TEST(Members, Lists_and_maps_of_sets_are_pulled_where_there_is_a_destination) {
  connected_sessions<net> both;
  std::vector<std::unique_ptr<split_model>> theirs;
  for (unsigned i = 0; i < 3; ++i) theirs.push_back(random_model<split_model>(20 + i));
  flags mask{};
  mask.on[3] = true;
  joined_thread left([&] {
    updates u;
    u.round = 5;
    for (const auto& m : theirs) u.models.emplace_back(*m);
    u.masks.emplace("site-1", mask);
    u.elsewhere = tp::locator({{3, 4}, 5, 6});
    const auto sent = messages::send(both.left(), 9, u);
    ASSERT_TRUE(succeeded(sent)) << sent.error().name.view();
    EXPECT_EQ(sent->references().size(), 4u);
    EXPECT_TRUE(both.left().serve(tp::until_settled(*sent), 30s));
  });
  std::vector<std::unique_ptr<split_model>> mine;
  updates got;
  for (unsigned i = 0; i < 2; ++i) {  // the third is a handle
    mine.push_back(std::make_unique<split_model>());
    got.models.push_back(tp::tensors_of<split_model>::into(*mine[i]));
  }
  flags landed{}, other{};
  got.masks.emplace("site-1", tp::tensors_of<flags>::into(landed));
  got.masks.emplace("site-2", tp::tensors_of<flags>::into(other));
  const auto kind = messages::receive(both.right(), got);
  ASSERT_TRUE(succeeded(kind)) << kind.error().name.view();
  ASSERT_EQ(got.models.size(), 3u);
  mine.push_back(std::make_unique<split_model>());
  ASSERT_TRUE(got.models[2].download_tensors(both.right(), *mine[2]));
  for (unsigned i = 0; i < 3; ++i) EXPECT_TRUE(same(*mine[i], *theirs[i])) << i;
  EXPECT_EQ(got.masks.size(), 1u) << "no set came for the other site";
  EXPECT_TRUE(landed.on[3]);
  ASSERT_TRUE(got.elsewhere);
  EXPECT_EQ(got.elsewhere->reference, (tp::reference{{3, 4}, 5, 6}));
}

TEST(Members, An_error_has_the_path_to_what_it_is_about) {
  publisher_of<net> owner;
  const auto model = random_model<split_model>(1);
  updates u;
  u.models.emplace_back(*model);
  u.models.emplace_back();
  auto refused = messages::decompose(owner, u);
  ASSERT_EQ(code_of(refused), errc::invalid_argument) << "a set to send that holds nothing";
  EXPECT_EQ(refused.error().name.view(), "models.1");

  everything e;
  e.by_site["x"].push_back({std::string(70'000, 'a'), 0, {}});
  refused = messages::decompose(owner, e);
  ASSERT_EQ(code_of(refused), errc::does_not_fit);
  EXPECT_EQ(refused.error().name.view(), "by_site.x.0.name");
}

struct two_slots : tp::default_limits {
  static constexpr std::size_t references = 2;
};

TEST(Members, After_an_error_in_the_third_set_nothing_stays_published) {
  using small_net = raw_net<split_model, tp::tcp, two_slots>;
  publisher_of<small_net> owner;
  const auto model = random_model<split_model>(1);
  updates u;
  for (int i = 0; i < 3; ++i) u.models.emplace_back(*model);
  const auto refused = tp::tensor_decomposer<small_net>::decompose(owner, u);
  ASSERT_EQ(code_of(refused), errc::table_full);
  EXPECT_EQ(refused.error().name.view(), "models.2");
  EXPECT_TRUE(owner.add_tensors(*model) && owner.add_tensors(*model)) << "the slots of the first two are free again";
}

/// How one field that was written by hand is refused.
template <class Message, class Fill>
tp::error refusal(const char* name, Fill fill, std::size_t* most = nullptr) {
  body b = one_field(name, fill);
  const allocation_watch watch;
  Message out;
  const auto read = messages::recompose({}, b.bytes(), out);
  if (most != nullptr) *most = watch.largest();
  return read ? tp::error{} : read.error();
}
using F = tp::wire::Field::Builder;

TEST(Members, A_body_that_no_honest_sender_makes_is_refused_with_its_path) {
  EXPECT_REFUSED(refusal<names>("all", [](F f) { f.setText("a"); }), wrong_kind, "all");
  EXPECT_REFUSED(refusal<names>("all", [](F f) { f.initEntries(1); }), wrong_kind, "all");
  EXPECT_REFUSED(refusal<names>("all", [](F f) { f.setNothing(); }), wrong_kind, "all");
  EXPECT_REFUSED(refusal<names>("all", [](F f) { f.initItems(2)[0].setText("a"); }), wrong_kind, "all.1");
  EXPECT_REFUSED(refusal<names>("all",
                                [](F f) {
                                  auto list = f.initItems(1);
                                  list[0].setName("x");
                                  list[0].setText("a");
                                }),
                 unknown_field, "all.0");
  EXPECT_EQ(refusal<maybe>("value", [](F f) { f.setNothing(); }).code, errc{});
  EXPECT_EQ(refusal<maybe>("value", [](F f) { f.setSigned(-128); }).code, errc{});
  EXPECT_REFUSED(refusal<maybe>("value", [](F f) { f.setSigned(-129); }), value_out_of_range, "value");
  EXPECT_REFUSED(refusal<maybe>("value", [](F f) { f.initItems(1)[0].setSigned(1); }), wrong_kind, "value");
  EXPECT_REFUSED(refusal<two_models>("first", [](F f) { f.setNothing(); }), wrong_kind, "first");

  const auto entries = [](std::initializer_list<std::string> keys) {
    return [keys = std::vector<std::string>(keys)](F f) {
      auto list = f.initEntries(static_cast<unsigned>(keys.size()));
      for (unsigned i = 0; i < list.size(); ++i) {
        list[i].setName(keys[i]);
        list[i].setSigned(i == 2 ? 200 : 1);
      }
    };
  };
  EXPECT_EQ(refusal<scores>("of", entries({"a", ""})).code, errc{});
  EXPECT_REFUSED(refusal<scores>("of", entries({"a", "b", "c"})), value_out_of_range, "of.c");
  EXPECT_REFUSED(refusal<scores>("of", entries({"a", "a"})), duplicate_name, "of.a");
  EXPECT_REFUSED(refusal<scores>("of", entries({"\xff"})), value_out_of_range, "of");
  EXPECT_REFUSED(refusal<scores>("of", [](F f) { f.initItems(1)[0].setSigned(1); }), wrong_kind, "of");

  const auto row = [](unsigned members) {
    return [members](F f) {
      auto list = f.initItems(1)[0].initEntries(members);
      const char* const called[] = {"name", "value", "step", "more"};
      for (unsigned i = 0; i < members; ++i) {
        list[i].setName(called[i]);
        if (i == 0) list[i].setText("a");
        else if (i == 1) list[i].setFloating(1);
        else list[i].setNothing();
      }
    };
  };
  EXPECT_EQ(refusal<rows>("all", row(3)).code, errc{});
  EXPECT_REFUSED(refusal<rows>("all", row(2)), missing_field, "all.0.step");
  EXPECT_REFUSED(refusal<rows>("all", row(4)), unknown_field, "all.0.more");
}

TEST(Members, A_count_makes_no_elements) {
  // a list of elements of no words: a tag that says how many there are, and nothing behind it
  const auto claimed = [](std::uint64_t elements, auto message) {
    using message_type = decltype(message);
    std::uint64_t words[12]{};
    capnp::FlatMessageBuilder builder(kj::arrayPtr(reinterpret_cast<capnp::word*>(words + 1), 11));
    auto f = builder.initRoot<tp::wire::Decomposed>().initFields(1)[0];
    f.setName("all");
    f.initItems(0);
    words[0] = 11ull << 32;
    // the list's pointer is the last word of the one field, and its tag is behind the name
    EXPECT_EQ(words[7] & 3, 1u);
    words[9] = elements << 2;
    const allocation_watch watch;
    message_type out;
    const auto read = messages::recompose({}, std::as_bytes(std::span(words)), out);
    return std::pair(read ? errc{} : read.error().code, watch.largest());
  };
  EXPECT_EQ(claimed(1, names{}).first, errc::wrong_kind) << "an element of no words is a boolean, false";
  for (const std::uint64_t elements : {60ull, 1ull << 28, (1ull << 29) - 1}) {
    const auto [why, most] = claimed(elements, rows{});
    EXPECT_NE(why, errc{});
    EXPECT_LE(most, 1024u) << elements << ": the error, the reader, and one element";
    const auto [other, also] = claimed(elements, marks{});
    EXPECT_LE(also, 1024u) << elements << ": no more than twice what arrived, and the slack of a small message";
    if (elements > 1000) {
      EXPECT_NE(other, errc{});
    }
  }
}

TEST(Members, Changed_bytes_never_crash_and_make_no_more_than_what_arrived) {
  publisher_of<net> owner;
  const auto honest = messages::decompose(owner, some());
  ASSERT_TRUE(honest);
  const std::size_t size = honest->body().size();
  std::vector<std::uint64_t> words(size / 8);
  generator random(7);
  std::size_t accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::memcpy(words.data(), honest->body().data(), size);
    const auto bytes = std::as_writable_bytes(std::span(words));
    for (std::uint64_t k = random() % 3 + 1; k > 0; --k) bytes[random() % size] = static_cast<std::byte>(random());
    const allocation_watch watch;
    {
      everything got;
      accepted += messages::recompose({}, bytes, got) ? 1 : 0;
    }
    ASSERT_LE(watch.largest(), 4 * size) << "i = " << i;
  }
  EXPECT_GT(accepted, 0u);
}

}  // namespace members_test
