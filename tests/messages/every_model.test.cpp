// Random models through every path: pipelines with every kind of chunk, both framings, subsets, message sets that are
// split anywhere, two buffers, averages, files, and transfers that go on from any byte. The law: what arrives is what
// was published, or an error names the tensor. A failure prints its seed; TENSORPULL_MODEL_FIRST and
// TENSORPULL_MODEL_SEEDS choose others.
#include "support/pair.hpp"
#include "support/random_models.hpp"
#include "support/safetensors_text.hpp"

#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/consumers/average/weighted_average.hpp>
#include <tensorpull/consumers/double_buffered.hpp>
#include <tensorpull/framing/capnp/capnp_framing.hpp>
#include <tensorpull/image/choice.hpp>
#include <tensorpull/messages/tensor_decomposer.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/make_model.hpp>

#include <fstream>
#include <iterator>

namespace every_model_test {

struct set_task {
  std::uint32_t round = 0;
  tensorpull::tensors_of<tensorpull::tensor_list> model;
};
struct layer {
  float weight[9][7];
  std::int16_t bias[7];
  bool on[3];
};
/// Nested, with a tensor that is another one under a second name.
struct tied_stack {
  float embed[11][5];
  layer layers[4];
  double scale;
  float head[11][5];
};

}  // namespace every_model_test

BOOST_HANA_ADAPT_STRUCT(every_model_test::set_task, round, model);
BOOST_HANA_ADAPT_STRUCT(every_model_test::layer, weight, bias, on);
BOOST_HANA_ADAPT_STRUCT(every_model_test::tied_stack, embed, layers, scale, head);

namespace every_model_test {

using namespace test;

struct stack_task {
  tp::tensors_of<tp::raw_tensors<tp::tied<tied_stack, tp::from_to{"head", "embed"}>>> model;
};

}  // namespace every_model_test

BOOST_HANA_ADAPT_STRUCT(every_model_test::stack_task, model);

namespace every_model_test {

using any_chunk = tp::pipeline<tp::tensor_list, tp::bytes_up_to<65'536>, tp::loopback>;
using native = tp::pipeline<tp::tensor_list, tp::whole, tp::loopback, tp::capnp_framing>;
using by_tensor = tp::pipeline<tp::tensor_list, tp::per_tensor<1000>, tp::loopback, tp::chunk_and_image_digest>;

model like(const model& source) {
  return some_of(source, [](std::size_t) { return true; });
}
tp::dynamic_image image_of(model& m) {
  std::vector<tp::mutable_tensor_view> views;
  const auto to = m.destination();
  for (std::size_t i = 0; i < to.schema->tensor_count; ++i) {
    const auto& t = to.schema->tensors[i];
    views.push_back({t.name, t.type, t.extents(), to.address(i)});
  }
  std::vector<tp::metadata_entry> pairs(to.schema->pairs().begin(), to.schema->pairs().end());
  auto made = tp::dynamic_image::make(std::span<const tp::mutable_tensor_view>(views), pairs);
  EXPECT_TRUE(made);
  return std::move(*made);
}
bool same(const model& mine, const model& source) {
  if (!mine.guards_intact()) return false;
  for (std::size_t i = 0; i < mine.size(); ++i)
    if (mine.bytes_of(mine.name(i)) != source.bytes_of(mine.name(i))) return false;
  return true;
}

template <class Law>
void for_each_model(std::uint64_t usual, model_plan plan, Law law) {
  const model_seeds seeds(usual);
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    SCOPED_TRACE("TENSORPULL_MODEL_FIRST=" + std::to_string(seed));
    generator random(seed);
    drawn_model made(random, plan);
    law(made.get(), random);
    if (::testing::Test::HasFailure()) return;
  }
}

template <class Net>
tp::result<tp::receipt> carry(model& source, tp::land to, const tp::pull_options& options = {},
                              typename Net::chunking cut = {}) {
  const auto owner = std::make_unique<typename Net::downloader>();
  const auto image = image_of(source);
  const auto ref = owner->add_tensors(image, {.recipients = 1});
  EXPECT_TRUE(ref);
  auto done = Net::pull(*owner, *ref, to, options, cut);
  EXPECT_TRUE(!done || owner->settled(*ref));
  return done;
}

TEST(EveryModel, Arrives_in_chunks_of_any_length) {
  for_each_model(120, {.most_bytes = 20'000}, [](model& source, generator& random) {
    constexpr std::uint64_t lengths[] = {1, 2, 7, 8, 63, 64, 65, 1000, 4096, 65'536};
    std::uint64_t length = lengths[random.below(std::size(lengths))];
    if (source.schema().image_bytes / length > 5000) length = 64;
    model mine = like(source), all = like(source), one = like(source);
    const auto done = carry<any_chunk>(source, tp::land(mine.destination()), {}, tp::bytes_up_to<65'536>{length});
    ASSERT_TRUE(completed(done)) << ", chunks of " << length;
    EXPECT_TRUE(same(mine, source));
    const auto at_once = carry<native>(source, tp::land(all.destination()));
    ASSERT_TRUE(succeeded(at_once));
    EXPECT_TRUE(same(all, source));
    const auto each = carry<by_tensor>(source, tp::land(one.destination()));
    ASSERT_TRUE(succeeded(each));
    EXPECT_TRUE(same(one, source));
  });
}

/// A request by name is no longer than a page. A longer name is an error that says which.
constexpr std::size_t longest_name_in_a_request = 967;
void expect_a_name_that_is_too_long(const model& asked, const tp::error& why) {
  std::size_t i = 0;
  while (i < asked.size() &&
         (asked.name(i).size() <= longest_name_in_a_request || tp::error_name(asked.name(i)).view() != why.name.view()))
    ++i;
  EXPECT_LT(i, asked.size()) << describe(why);
}

TEST(EveryModel, Any_choice_of_its_tensors_arrives) {
  for_each_model(200, {.most_bytes = 10'000}, [](model& source, generator& random) {
    const std::uint64_t one_in = 1 + random.below(3);
    const bool misses = random.below(5) == 0;
    model mine = some_of(source, [&](std::size_t) { return random.below(one_in) == 0; });
    if (mine.size() == 0) return;
    std::vector<std::string_view> names;
    for (const auto& t : mine.schema().entries()) names.push_back(t.name);
    for (std::size_t i = names.size(); i > 1; --i) std::swap(names[i - 1], names[random.below(i)]);
    tp::xxhash_digest digest;
    for (const auto& t : mine.schema().entries()) digest.update(source.bytes_of(t.name));
    tp::pull_options options;
    if (random.below(2) == 0) options.part = true;
    else options.tensors = names;
    const std::size_t gone = random.below(source.size());
    model published = some_of(source, [&](std::size_t i) { return !misses || i != gone; });
    for (std::size_t i = 0; i < published.size(); ++i) {
      const auto to = published.destination();
      const auto bytes = source.bytes_of(to.schema->tensors[i].name);
      if (!bytes.empty()) std::memcpy(to.address(i), bytes.data(), bytes.size());
    }
    const bool wanted = misses && tp::detail::find_tensor(mine.schema(), source.name(gone)) < mine.size();
    if (published.size() == 0) return;
    const auto done = carry<any_chunk>(published, tp::land(mine.destination()), options, tp::bytes_up_to<65'536>{100});
    if (!done && done.error() == errc::does_not_fit) return expect_a_name_that_is_too_long(mine, done.error());
    if (wanted) {
      ASSERT_FALSE(done);
      EXPECT_EQ(done.error().name.view(), tp::error_name(source.name(gone)).view()) << describe(done.error());
      return;
    }
    ASSERT_TRUE(completed(done)) << ", " << names.size() << " of " << source.size();
    EXPECT_EQ(done->digest, digest.digest());
    EXPECT_TRUE(same(mine, source));
    model again = some_of(mine, [](std::size_t) { return true; });
    const auto checked = carry<by_tensor>(published, tp::land(again.destination()), options);
    ASSERT_TRUE(succeeded(checked));
    EXPECT_TRUE(same(again, source));
  });
}

/// Where a message's large tensors are pulled from.
template <class Net>
struct pulls_from_owner {
  typename Net::downloader& owner;
  tp::result<tp::receipt> pull(const tp::reference& ref, tp::land& to, const tp::pull_options& options) {
    return Net::pull(owner, ref, to, options);
  }
};
template <class Net, class Threshold>
void travels_in_a_message(model& source) {
  const auto owner = std::make_unique<typename Net::downloader>();
  const auto image = image_of(source);
  using messages = tp::tensor_decomposer<Net, Threshold>;
  const auto apart = messages::decompose(*owner, set_task{7, image});
  ASSERT_TRUE(succeeded(apart)) << ", up to " << Threshold::bytes;
  set_task got;
  const auto together = messages::recompose(apart->references(), apart->body(), got);
  ASSERT_TRUE(succeeded(together));
  model mine = like(source);
  auto to = image_of(mine);
  pulls_from_owner<Net> from{*owner};
  const auto done = got.model.download_tensors(from, to);
  ASSERT_TRUE(succeeded(done)) << ", up to " << Threshold::bytes;
  EXPECT_TRUE(same(mine, source)) << "up to " << Threshold::bytes;
  EXPECT_TRUE(apart->settled(*owner));
}
TEST(EveryModel, Travels_in_a_message_that_is_split_anywhere) {
  for_each_model(80, {.most_bytes = 150'000, .threshold = 4000}, [](model& source, generator&) {
    travels_in_a_message<any_chunk, tp::inline_up_to<0>>(source);
    travels_in_a_message<any_chunk, tp::inline_up_to<64>>(source);
    travels_in_a_message<any_chunk, tp::inline_up_to<16 * 1024>>(source);
    travels_in_a_message<native, tp::inline_up_to<4000>>(source);
  });
}

TEST(EveryModel, Takes_the_place_of_the_one_before_or_leaves_it) {
  for_each_model(60, {.most_bytes = 20'000}, [](model& source, generator& random) {
    model front = like(source).fill(random()), back = like(source), before = like(source);
    for (std::size_t i = 0; i < front.size(); ++i)
      if (const auto& t = front.schema().tensors[i]; t.size_bytes() > 0)
        std::memcpy(before.destination().address(i), front.destination().address(i), t.size_bytes());
    auto both = tp::double_buffered::make(front.destination(), back.destination());
    ASSERT_TRUE(both);
    const auto owner = std::make_unique<any_chunk::downloader>();
    const auto image = image_of(source);
    const auto ref = owner->add_tensors(image);
    ASSERT_TRUE(ref);
    const bool stops = random.below(3) == 0;
    std::stop_source stop;
    tp::pull_options options;
    if (stops) {
      options.stop = stop.get_token();
      stop.request_stop();
    }
    const auto done = any_chunk::pull(*owner, *ref, *both, options, tp::bytes_up_to<65'536>{200});
    EXPECT_EQ(done.has_value(), !stops);
    EXPECT_EQ(both->front_index(), stops ? 0u : 1u);
    EXPECT_TRUE(same(front, before));
    EXPECT_TRUE(stops || same(back, source));
  });
}

TEST(EveryModel, Is_its_own_average_or_the_tensor_that_cannot_be_is_named) {
  for_each_model(60, {.most_bytes = 10'000, .tame = true}, [](model& source, generator& random) {
    using net = tp::pipeline<tp::tensor_list, tp::bytes_up_to<4096>, tp::loopback, tp::chunk_and_image_digest>;
    auto buffers = tp::chunk_buffers::make(4096);
    ASSERT_TRUE(buffers);
    {
      drawn_model any(random, {.most_tensors = 10, .most_bytes = 1000});
      const auto average = tp::weighted_average<>::make(any.get().destination(), *buffers);
      const auto entries = any.get().schema().entries();
      const bool good = std::ranges::all_of(entries, [](auto& t) { return drawn_model::averages(t.type); });
      EXPECT_EQ(average.has_value(), good);
      if (!average) {
        EXPECT_TRUE(std::ranges::any_of(entries, [&](auto& t) {
          return !drawn_model::averages(t.type) && tp::error_name(t.name).view() == average.error().name.view();
        }));
      }
    }
    model mine = like(source);
    auto average = tp::weighted_average<>::make(mine.destination(), *buffers);
    ASSERT_TRUE(succeeded(average));
    const auto owner = std::make_unique<net::downloader>();
    const auto image = image_of(source);
    const auto ref = owner->add_tensors(image);
    ASSERT_TRUE(ref);
    tp::weighted_average<>::update update(*average, 1.0, {tp::update_peer("site"), 1});
    const auto done = net::pull(*owner, *ref, update, {}, tp::bytes_up_to<4096>{1 + random.below(4096)});
    ASSERT_TRUE(succeeded(done));
    const auto finished = average->finish();
    ASSERT_TRUE(succeeded(finished));
    EXPECT_TRUE(same(mine, source));
  });
}

class EveryModelInAFile : public folder_test {};
TEST_F(EveryModelInAFile, Is_the_image_and_a_part_of_it_is_an_image_too) {
  for_each_model(40, {.most_bytes = 20'000}, [this](model& source, generator& random) {
    const auto owner = std::make_unique<any_chunk::downloader>();
    const auto image = image_of(source);
    const auto ref = owner->add_tensors(image);
    ASSERT_TRUE(ref);
    const auto write = [&](const tp::safetensors_file_options& how, const tp::pull_options& options) {
      auto file = tp::safetensors_file::create(path, how);
      ASSERT_TRUE(succeeded(file));
      const auto done = any_chunk::pull(*owner, *ref, *file, options, tp::bytes_up_to<65'536>{1 + random.below(5000)});
      ASSERT_TRUE(succeeded(done));
    };
    const auto content = [&] {
      std::ifstream in(path, std::ios::binary);
      const std::string all((std::istreambuf_iterator<char>(in)), {});
      const auto* const bytes = reinterpret_cast<const std::byte*>(all.data());
      return byte_vector(bytes, bytes + all.size());
    };
    write({.fsync = false}, {});
    EXPECT_EQ(content(), source.image_bytes());
    model part = some_of(source, [&](std::size_t i) {
      return source.name(i).size() <= longest_name_in_a_request && random.below(2) == 0;
    });
    if (part.size() == 0) return;
    for (std::size_t i = 0; i < part.size(); ++i) {
      const auto bytes = source.bytes_of(part.schema().tensors[i].name);
      if (!bytes.empty()) std::memcpy(part.destination().address(i), bytes.data(), bytes.size());
    }
    write({.fsync = false, .schema = &part.schema()}, {.part = true});
    EXPECT_EQ(content(), part.image_bytes());
  });
}

TEST(EveryModel, Goes_on_from_any_byte_also_after_damage) {
  for_each_model(150, {.most_bytes = 5000}, [](model& source, generator& random) {
    // the header counts as well: of a model without the metadata nothing that has landed is believed
    const bool alike = random.below(4) != 0 || source.schema().metadata_count == 0;
    model mine = some_of(
        source, [](std::size_t) { return true; },
        alike ? source.schema().pairs() : std::span<const tp::metadata_entry>());
    tp::resume_cursor cursor;
    std::uint64_t landed = 0;
    const std::uint64_t stops_at = random.below(source.schema().image_bytes), damaged = random.below(20);
    const bool damages = random.below(2) == 0;
    const tp::bytes_up_to<65'536> cut{1 + random.below(400)};
    {
      pair p;
      p.left.publish(source, {1, 2}, 1);
      tp::land to(mine.destination());
      transfer<tp::bytes_up_to<65'536>, tp::chunk_and_image_digest> t(to, {.ref = {1, 2}, .recipient = {7}}, cut, 1);
      std::uint64_t last = ~std::uint64_t{0}, chunks = 0;
      if (damages)
        p.owner_lies = [&](byte_vector& f) {  // one chunk comes damaged each time
          if (kind_of(f) != tp::frame_kind::chunk) return;
          const auto m = tp::detail::payload_prefix::read(std::span<const std::byte, tp::detail::payload_prefix::bytes>(
              f.data(), tp::detail::payload_prefix::bytes));
          if (!m) return;
          if (chunks++ == damaged) last = m->offset;
          if (m->offset == last) f[tp::detail::payload_prefix::bytes] ^= std::byte{1};
        };
      tp::no_transfer idle;
      p.right.end.begin_pull();
      p.run(idle, t, [&] { return t.ended() || (!damages && t.landed_bytes() > stops_at); });
      cursor = t.cursor();
      landed = t.landed_bytes();
      if (t.ended() && t.outcome()) {
        EXPECT_TRUE(same(mine, source));
        return;
      }
      EXPECT_TRUE(!t.ended() || t.outcome().error().code == errc::chunk_digest_mismatch)
          << describe(t.outcome().error());
    }
    pair p;
    p.left.publish(source, {1, 2}, 1);
    tp::land to(mine.destination());
    transfer<tp::bytes_up_to<65'536>, tp::chunk_and_image_digest> t(to, {.ref = {1, 2}, .recipient = {7}}, cut, 1);
    EXPECT_EQ(cursor && t.resume(cursor), cursor && alike) << "what the cursor counts is there";
    const auto done = p.pull(t);
    ASSERT_TRUE(confirmed(done)) << ", after " << landed << " bytes";
    EXPECT_TRUE(same(mine, source));
  });
}

/// The same struct with the same tensors under other names, and one of them tied.
using tied_tensors = tp::raw_tensors<tp::tied<tied_stack, tp::from_to{"head", "embed"}>>;
using tied_net = tp::pipeline<tied_tensors, tp::bytes_up_to<65'536>, tp::loopback>;

void fill(tied_stack& m, generator& random) {
  std::memset(&m, 0, sizeof m);
  for (auto& row : m.embed)
    for (float& f : row) f = static_cast<float>(random.below(1000));
  for (layer& l : m.layers) {
    for (auto& row : l.weight)
      for (float& f : row) f = static_cast<float>(random.below(1000));
    for (std::int16_t& b : l.bias) b = static_cast<std::int16_t>(random.below(1000));
    for (bool& b : l.on) b = random.below(2) == 0;
  }
  m.scale = static_cast<double>(random.below(1000));
  std::memcpy(m.head, m.embed, sizeof m.head);
}
bool equal(const tied_stack& a, const tied_stack& b) {
  const auto same_layer = [](const layer& x, const layer& y) {
    return std::memcmp(x.weight, y.weight, sizeof x.weight) == 0 && std::memcmp(x.bias, y.bias, sizeof x.bias) == 0 &&
           std::equal(x.on, x.on + 3, y.on);
  };
  return std::memcmp(a.embed, b.embed, sizeof a.embed) == 0 && std::memcmp(a.head, b.head, sizeof a.head) == 0 &&
         a.scale == b.scale && std::equal(a.layers, a.layers + 4, b.layers, same_layer);
}
TEST(EveryModel, Of_a_struct_with_ties_arrives_however_it_lands) {
  const model_seeds seeds(20);
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    SCOPED_TRACE("TENSORPULL_MODEL_FIRST=" + std::to_string(seed));
    generator random(seed);
    tied_stack source;
    fill(source, random);
    const auto owner = std::make_unique<tied_net::downloader>();
    const auto ref = owner->add_tensors(source);
    ASSERT_TRUE(ref);
    const tp::bytes_up_to<65'536> cut{1 + random.below(3000)};
    tied_stack mine{};
    ASSERT_TRUE(tied_net::download_tensors(*owner, *ref, mine, {}, cut));
    EXPECT_TRUE(equal(mine, source));
    using models = tp::double_buffered_models<tied_tensors, std::unique_ptr<tied_stack>>;
    models both(std::make_unique<tied_stack>(), std::make_unique<tied_stack>());
    ASSERT_TRUE(tied_net::pull(*owner, *ref, both.consumer(), {}, cut));
    EXPECT_TRUE(equal(both.front(), source)) << "in two buffers";
    using messages = tp::tensor_decomposer<tied_net, tp::inline_up_to<40>>;
    const auto apart = messages::decompose(*owner, stack_task{source});
    ASSERT_TRUE(succeeded(apart));
    stack_task got;
    ASSERT_TRUE(messages::recompose(apart->references(), apart->body(), got));
    tied_stack sent{};
    pulls_from_owner<tied_net> from{*owner};
    const auto done = got.model.download_tensors(from, sent);
    ASSERT_TRUE(succeeded(done));
    EXPECT_TRUE(equal(sent, source)) << "in a message";
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace every_model_test
