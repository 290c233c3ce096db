// Bodies that no honest sender makes. Each is refused with a code and, if a field is to blame, its name; nothing is
// allocated by a claim.
#include "support/allocation_counter.hpp"

#include "messages/hand_made.hpp"
#include "support/own_folder.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace hostile_bodies_test {

using namespace test;

struct two_fields {
  std::int8_t small = 0;
  std::string name;
};
struct lists {
  float fixed[3] = {};
  std::vector<std::uint16_t> any;
  char text[4] = {};
};
struct narrow {
  float value = 0;
};
struct where_to {
  tp::locator at;
};
struct six_texts {
  std::string a, b, c, d, e, f;
};
struct only_set {
  tp::tensors_of<split_model> model;
};

}  // namespace hostile_bodies_test

BOOST_HANA_ADAPT_STRUCT(hostile_bodies_test::two_fields, small, name);
BOOST_HANA_ADAPT_STRUCT(hostile_bodies_test::lists, fixed, any, text);
BOOST_HANA_ADAPT_STRUCT(hostile_bodies_test::narrow, value);
BOOST_HANA_ADAPT_STRUCT(hostile_bodies_test::where_to, at);
BOOST_HANA_ADAPT_STRUCT(hostile_bodies_test::six_texts, a, b, c, d, e, f);
BOOST_HANA_ADAPT_STRUCT(hostile_bodies_test::only_set, model);

namespace hostile_bodies_test {

template <class Message>
tp::error refusal(const_byte_span bytes, std::span<const tp::reference> references = {}) {
  Message out;
  const auto r = messages::recompose(references, bytes, out);
  return r ? tp::error{} : r.error();
}

/// Of one field, filled by hand.
template <class Message, class Fill>
tp::error one(const char* name, Fill fill, std::span<const tp::reference> references = {}) {
  return refusal<Message>(one_field(name, fill).bytes(), references);
}

TEST(HostileBodies, Fields_that_are_not_the_structs) {
  const auto fields = [](std::initializer_list<const char*> names) {
    return body([&](tp::wire::Decomposed::Builder d) {
      auto list = d.initFields(static_cast<unsigned>(names.size()));
      unsigned i = 0;
      for (const char* n : names) {
        list[i].setName(n);
        if (std::string_view(n) == "name") list[i].setText("x");
        else list[i].setSigned(1);
        ++i;
      }
    });
  };
  EXPECT_EQ(refusal<two_fields>(fields({"small", "name"}).bytes()).code, errc{});
  EXPECT_REFUSED(refusal<two_fields>(fields({}).bytes()), missing_field, "small");
  EXPECT_REFUSED(refusal<two_fields>(fields({"small"}).bytes()), missing_field, "name");
  EXPECT_REFUSED(refusal<two_fields>(fields({"name", "small"}).bytes()), unknown_field, "small");
  EXPECT_REFUSED(refusal<two_fields>(fields({"small", "small"}).bytes()), unknown_field, "name");
  EXPECT_REFUSED(refusal<two_fields>(fields({"small", "name", "more"}).bytes()), unknown_field, "more");
}

TEST(HostileBodies, Values_of_another_kind_or_out_of_range) {
  using F = tp::wire::Field::Builder;
  EXPECT_REFUSED(one<two_fields>("small", [](F f) { f.setText("1"); }), wrong_kind, "small");
  EXPECT_REFUSED(one<two_fields>("small", [](F f) { f.setBoolean(true); }), wrong_kind, "small");
  EXPECT_REFUSED(one<two_fields>("small", [](F f) { f.setSigned(128); }), value_out_of_range, "small");
  EXPECT_REFUSED(one<two_fields>("small", [](F f) { f.setSigned(-129); }), value_out_of_range, "small");
  EXPECT_REFUSED(one<two_fields>("small", [](F f) { f.setUnsigned(~0ull); }), value_out_of_range, "small");
  EXPECT_REFUSED(one<narrow>("value", [](F f) { f.setFloating(0.1); }), value_out_of_range, "value");
  EXPECT_EQ(one<narrow>("value", [](F f) { f.setFloating(0.5); }).code, errc{});
  EXPECT_REFUSED(one<narrow>("value", [](F f) { f.setSigned(1); }), wrong_kind, "value");
  const auto numbers = [](const char* dtype, std::size_t bytes) {
    return [=](F f) {
      auto n = f.initNumbers();
      n.setDtype(dtype);
      n.initElements(static_cast<unsigned>(bytes));
    };
  };
  EXPECT_REFUSED(one<lists>("fixed", numbers("F32", 8)), value_out_of_range, "fixed");
  EXPECT_REFUSED(one<lists>("fixed", numbers("F32", 16)), value_out_of_range, "fixed");
  EXPECT_REFUSED(one<lists>("fixed", numbers("I32", 12)), wrong_kind, "fixed");
  const auto third = [&](auto fill) {
    body b([&](tp::wire::Decomposed::Builder d) {
      auto list = d.initFields(3);
      list[0].setName("fixed"), list[1].setName("any"), list[2].setName("text");
      numbers("F32", 12)(list[0]);
      fill(list);
    });
    return refusal<lists>(b.bytes());
  };
  EXPECT_REFUSED(third([&](auto list) { numbers("U16", 3)(list[1]); }), value_out_of_range, "any");
  EXPECT_REFUSED(third([&](auto list) { numbers("U16", 2)(list[1]), list[2].setText("12345"); }), value_out_of_range,
                 "text");
  EXPECT_REFUSED(third([&](auto list) { numbers("U16", 2)(list[1]), list[2].setText("\xff"); }), value_out_of_range,
                 "text");
  EXPECT_EQ(third([&](auto list) { numbers("U16", 0)(list[1]), list[2].setText("1234"); }).code, errc{});
}

TEST(HostileBodies, Locators_that_lead_nowhere) {
  using F = tp::wire::Field::Builder;
  const std::array refs{tp::reference{{1, 2}, 3, 4}, tp::reference{}};
  const auto at = [](std::uint16_t index, std::initializer_list<const char*> addresses) {
    return [=](F f) {
      auto l = f.initLocator();
      l.setReference(index);
      auto list = l.initAddresses(static_cast<unsigned>(addresses.size()));
      unsigned i = 0;
      for (const char* a : addresses) list.set(i++, a);
    };
  };
  EXPECT_EQ(one<where_to>("at", at(0, {"a:1"}), refs).code, errc{});
  EXPECT_EQ(one<where_to>("at", at(0xffff, {}), refs).code, errc{});
  EXPECT_REFUSED(one<where_to>("at", at(2, {}), refs), bad_frame, "at");
  EXPECT_REFUSED(one<where_to>("at", at(1, {}), refs), bad_frame, "at");
  EXPECT_REFUSED(one<where_to>("at", at(0xffff, {"a:1"}), refs), bad_frame, "at");
  EXPECT_REFUSED(one<where_to>("at", at(0, {"a"}), refs), bad_address, "at");
  EXPECT_REFUSED(one<where_to>("at", at(0, {"a:1", "a:2", "a:3", "a:4", "a:5"}), refs), table_full, "at");
}

TEST(HostileBodies, Sets_of_another_model) {
  publisher_of<net> owner;
  const auto model = random_model<split_model>(1);
  only_set s{tp::tensors_of<split_model>(*model)};
  const auto honest = messages::decompose(owner, s);
  ASSERT_TRUE(honest);
  const auto changed = [&](auto change) {
    capnp::MallocMessageBuilder copy;
    {
      const auto words = honest->body().subspan(8);
      const kj::ArrayPtr<const capnp::word> segment(reinterpret_cast<const capnp::word*>(words.data()),
                                                    words.size() / 8);
      capnp::SegmentArrayMessageReader reader(kj::arrayPtr(&segment, 1));
      copy.setRoot(reader.getRoot<tp::wire::Decomposed>());
    }
    body b([&](tp::wire::Decomposed::Builder d) {
      auto from = copy.getRoot<tp::wire::Decomposed>().getFields()[0];
      auto f = d.initFields(1)[0];
      f.setName(from.getName().asReader());
      f.setTensors(from.getTensors().asReader());
      change(f.getTensors());
    });
    return refusal<only_set>(b.bytes(), honest->references());
  };
  using T = tp::wire::Tensors::Builder;
  EXPECT_EQ(changed([](T) {}).code, errc{});
  EXPECT_REFUSED(changed([](T t) { t.setFingerprint(1); }), schema_mismatch, "model");
  EXPECT_REFUSED(changed([](T t) { t.setInlineUpTo(0); }), schema_mismatch, "model");
  EXPECT_REFUSED(changed([](T t) { t.setInlineUpTo(~0ull); }), schema_mismatch, "model");
  EXPECT_REFUSED(changed([](T t) { t.setReference(1); }), bad_frame, "model");
  EXPECT_REFUSED(changed([](T t) { t.setReference(0xffff); }), schema_mismatch, "model");
  EXPECT_REFUSED(changed([](T t) { t.initInlined(7); }), schema_mismatch, "model");
  EXPECT_REFUSED(changed([](T t) { t.getInlined()[100] = static_cast<kj::byte>(t.getInlined()[100] ^ 1); }),
                 digest_mismatch, "model");

  // right in everything but the header's text, its digest made anew: found before a tensor is touched
  only_set got;
  body b([&](tp::wire::Decomposed::Builder d) {
    const auto whole = tp::raw_tensors<split_model>::source(*model);
    const auto part = tp::detail::image_part::make(*whole.schema, whole.where, 16384, tp::detail::part_of_set::small);
    byte_vector image(part->schema().image_bytes);
    ASSERT_TRUE(tp::detail::read_range(part->source(whole), 0, image));
    image[20] = std::byte{'x'};
    auto f = d.initFields(1)[0];
    f.setName("model");
    auto t = f.initTensors();
    t.setFingerprint(whole.schema->fingerprint);
    t.setInlineUpTo(16384);
    t.setDigest(tp::detail::digest_of(image));
    t.setInlined(kj::arrayPtr(reinterpret_cast<const kj::byte*>(image.data()), image.size()));
  });
  ASSERT_TRUE(messages::recompose(honest->references(), b.bytes(), got));
  no_session nobody;
  split_model mine{};
  EXPECT_EQ(code_of(got.model.download_tensors(nobody, mine)), errc::schema_mismatch);
  EXPECT_TRUE(same(mine, split_model{}));
}

TEST(HostileBodies, Claims_make_no_memory_and_changed_bytes_never_crash) {
  publisher_of<net> owner;
  const auto model = random_model<split_model>(1);
  task t = some_task();
  t.model = tp::tensors_of<split_model>(*model);
  const auto honest = messages::decompose(owner, t);
  ASSERT_TRUE(honest);
  EXPECT_EQ(honest->body().size() % 8, 0u);
  const std::size_t size = honest->body().size();
  for (std::size_t n = 0; n < size; n += 8)
    EXPECT_NE(refusal<task>(body(honest->body().first(n)).bytes(), honest->references()).code, errc{}) << n;
  EXPECT_EQ(refusal<task>(honest->body().subspan(0, 0)).code, errc::bad_frame);
  EXPECT_EQ(refusal<task>(body(honest->body()).bytes().subspan(1)).code, errc::invalid_argument);

  generator random(5);
  std::size_t accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    body b(honest->body());
    for (std::uint64_t k = random() % 3 + 1; k > 0; --k)
      b.bytes()[random() % std::min<std::size_t>(size, 600)] = static_cast<std::byte>(random());
    const allocation_watch watch;
    {
      task got;
      accepted += messages::recompose(honest->references(), b.bytes(), got) ? 1 : 0;
    }
    ASSERT_LE(watch.largest(), 2 * size) << "i = " << i;
  }
  EXPECT_GT(accepted, 0u);
}

TEST(HostileBodies, Nobody_is_made_to_read_one_object_many_times) {
  // one text of 30 KB, pointed to by six fields: a body of 30 KB that claims six times as much
  const auto made = [] {
    return body([](tp::wire::Decomposed::Builder d) {
      auto list = d.initFields(6);
      for (unsigned i = 0; i < 6; ++i) {
        const char name[] = {static_cast<char>('a' + i), '\0'};
        list[i].setName(name);
        list[i].setText(std::string(i == 0 ? 30'000 : 8, 'x').c_str());
      }
    });
  };
  EXPECT_EQ(refusal<six_texts>(made().bytes()).code, errc{});
  body b = made();
  auto* const w = reinterpret_cast<std::uint64_t*>(b.bytes().data());
  // words: segment table, root, list pointer, tag, then four a field: data, data, name, text
  const auto pointer = [](std::int64_t field) { return static_cast<std::size_t>(4 + 4 * field + 3); };
  const std::int64_t text = static_cast<std::int64_t>(pointer(0)) + 1 +
                            static_cast<std::int32_t>(w[pointer(0)] & 0xffffffff) / 4;
  for (std::int64_t i = 1; i < 6; ++i) {
    const std::int64_t offset = text - static_cast<std::int64_t>(pointer(i)) - 1;
    w[pointer(i)] = (w[pointer(0)] & ~std::uint64_t{0xffffffff}) |
                    (static_cast<std::uint32_t>(offset * 4) & 0xfffffffcu) | 1u;
  }
  const allocation_watch watch;
  EXPECT_EQ(refusal<six_texts>(b.bytes()).code, errc::bad_frame);
  EXPECT_LE(watch.largest(), 2 * b.bytes().size());
}

TEST(HostileBodies, The_body_is_what_capnp_decodes) {
#ifndef TENSORPULL_MESSAGE_SCHEMA
#define TENSORPULL_MESSAGE_SCHEMA "include/tensorpull/messages/decomposed.capnp"
#endif
  publisher_of<net> owner;
  const auto model = random_model<split_model>(1);
  task t = some_task();
  t.model = tp::tensors_of<split_model>(*model);
  const auto apart = messages::decompose(owner, t);
  ASSERT_TRUE(apart);
  const own_folder folder;
  {
    std::ofstream file(folder / "body", std::ios::binary);
    file.write(reinterpret_cast<const char*>(apart->body().data()), static_cast<std::streamsize>(apart->body().size()));
  }
  const std::string command = "capnp decode -I/usr/include '" TENSORPULL_MESSAGE_SCHEMA "' Decomposed < '" +
                              (folder / "body") + "' 2>&1";
  std::string text;
  FILE* const pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  for (char piece[4096]; const std::size_t n = std::fread(piece, 1, sizeof piece, pipe);) text.append(piece, n);
  EXPECT_EQ(::pclose(pipe), 0) << text;
  for (const char* expected : {"name = \"round\", unsigned = 4000000000", "name = \"plan.rate\", floating = 0.1",
                               "name = \"site\", text = ", "dtype = \"F64\"", "inlineUpTo = 16384", "reference = 0"})
    EXPECT_NE(text.find(expected), std::string::npos) << expected << "\n" << text.substr(0, 2000);
}

}  // namespace hostile_bodies_test
