// A model that is brought up to date by the tensors that have changed, by an owner's digests of tensors: what comes,
// what the owner counts, and what digests that lie cost.
#include "published_tensors.hpp"
#include "support/allocation_counter.hpp"

#include <tensorpull/satellites/differences/deflate/deflate.hpp>
#include <tensorpull/satellites/differences/download_changes.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/transports/over/loopback/loopback.hpp>
#include <tensorpull/transports/over/udp/udp.hpp>

#include <atomic>
#include <functional>
#include <map>

namespace changed_tensors_test {
/// One tensor under two names, and members that are bools.
struct with_ties {
  float head[900], bias[3], embed[900];
  bool mask[5];
};
}  // namespace changed_tensors_test
BOOST_HANA_ADAPT_STRUCT(changed_tensors_test::with_ties, head, bias, embed, mask);
namespace changed_tensors_test {

using namespace test;
using namespace test::changed;

TEST(ChangedTensors, A_round_of_adapters_takes_under_half_a_percent_of_the_bytes_and_counts_once) {
  tensors mine = with_adapters(usual_layers, 256 * 1024);
  publication<net> p(trained(mine));
  std::uint64_t kept = 0;
  const auto done = p.bring(mine, kept);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(mine, p.now);
  EXPECT_EQ(done->outcome, tp::outcome::completed);
  EXPECT_TRUE(done->confirmed);
  EXPECT_FALSE(done->believed);
  EXPECT_EQ(done->version, p.ref.version);
  EXPECT_EQ(done->digest, p.ref.version);
  EXPECT_EQ(done->fingerprint, p.ref.fingerprint);
  EXPECT_GE(done->bytes, p.published_bytes() + 16 * 180) << "of the whole, with its digits";
  EXPECT_EQ(kept, 60u * 256 * 1024);
  EXPECT_LT(p.counted_once().bytes_sent, p.published_bytes() / 200);
}

TEST(ChangedTensors, If_nothing_has_changed_the_smallest_tensor_comes_and_the_owner_counts_once) {
  tensors mine;
  mine.add("a", {dtype::f64, {5000}}, 1);
  mine.add("b", {dtype::i8, {3}}, 2);
  mine.add("none", {dtype::f32, {0, 3}}, 3);
  publication<net> p(mine);
  std::uint64_t kept = 0;
  const auto done = p.bring(mine, kept);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(mine, p.now);
  EXPECT_EQ(kept, 40'000u);
  p.counted_once();
}

TEST(ChangedTensors, Whatever_a_recipient_has_it_gets_what_is_published) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    generator g(seed);
    const dtype types[] = {dtype::f32, dtype::f64, dtype::i8, dtype::u16, dtype::bf16};
    const std::vector<std::uint64_t> shapes[] = {{}, {0}, {1}, {3, 0}, {7}, {33, 5}, {4096}, {70'000}};
    tensors of, mine;
    const std::uint64_t count = 1 + g() % 20;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::string name = "t" + std::to_string(g() % 1000) + (g() % 2 == 0 ? "\xc3\xa9\"" : "");
      of.add(name, {types[g() % 5], shapes[g() % 8]}, g());
    }
    mine = of;
    for (auto& [name, t] : mine.all)
      if (g() % 2 == 0 && !t.second.empty()) t.second[g() % t.second.size()] ^= std::byte{4};
    const tp::metadata_entry said[] = {{"round", "7"}, {"zone", "\xc3\xa9"}};
    const bool digests = g() % 5 != 0;
    publication<over<tp::bytes_up_to<2_MiB>, tp::tcp>> p(of, {.recipients = 1, .tensor_digests = digests},
                                                         std::span(said).first(g() % 3));
    std::uint64_t kept = 0;
    const auto done = p.bring(mine, kept);
    ASSERT_TRUE(succeeded(done));
    EXPECT_EQ(mine, p.now);
    EXPECT_FALSE(done->believed);
    EXPECT_TRUE(digests || kept == 0);
    p.counted_once();
  }
}

/// Publishes `s.now` with `text` as the digests of its tensors, and brings `s.old` up to date. The bytes that were
/// kept.
std::uint64_t brought(small& s, const std::string& text) {
  const tp::metadata_entry said[] = {{tp::tensor_digests_key, text}};
  publication<net> p(s.now, {.recipients = 1}, said);
  std::uint64_t kept = 7;
  const auto done = p.bring(s.old, kept);
  if (!done) {
    ADD_FAILURE() << to_string(done.error().code);
    return kept;
  }
  EXPECT_EQ(s.old, s.now);
  EXPECT_TRUE(done->confirmed);
  p.counted_once();
  return kept;
}

TEST(ChangedTensors, Digests_that_say_the_same_where_it_is_not_cost_a_pull_of_all_that_counts_once) {
  for (const char* const untrue : {"a", "c", "ac"}) {
    SCOPED_TRACE(untrue);
    small s;
    tensors lie = s.now;
    for (const char* c = untrue; *c != 0; ++c) lie.all[std::string(1, *c)] = s.old.all[std::string(1, *c)];
    EXPECT_EQ(brought(s, digits_of(lie)), 0u);
  }
}
TEST(ChangedTensors, Digests_that_say_other_where_it_is_the_same_cost_these_tensors) {
  small s;
  tensors lie = s.now;
  lie.all["b"].second[0] ^= std::byte{1};
  lie.all["c"] = s.old.all["c"];  // and one is the same that is not: of no harm to the others
  lie.all["c"].second[0] ^= std::byte{1};
  lie.all["a"].second[1] ^= std::byte{1};
  (void)brought(s, digits_of(lie));
}

TEST(ChangedTensors, Digests_that_are_none_are_as_if_there_were_none) {
  for (const std::string& text : {std::string(), std::string("00"), std::string(48, 'z'), std::string(47, '0'),
                                  std::string(49, '0'), std::string(48, ' '), std::string(64, '0')}) {
    SCOPED_TRACE(text);
    small s;
    EXPECT_EQ(brought(s, text), 0u);
  }
}

/// A header that nobody of ours writes, over the tensors of `s.now`.
TEST(ChangedTensors, A_header_that_says_a_key_twice_or_a_tensor_twice_costs_a_pull_of_all) {
  for (const bool key : {true, false}) {
    SCOPED_TRACE(key);
    small s;
    const std::string text = digits_of(s.now);
    auto image = s.now.image();
    tp::image_schema wrong = image.schema();
    std::vector<tp::tensor_entry> entries(wrong.entries().begin(), wrong.entries().end());
    const tp::metadata_entry said[] = {{tp::tensor_digests_key, text}, {tp::tensor_digests_key, text}};
    const std::span pairs = std::span(said).first(key ? 2 : 1);
    if (!key) entries[1].name = entries[0].name;
    wrong = *tp::detail::place_entries(entries, pairs);
    tp::source_view view = image.source();
    view.schema = &wrong;
    auto owner = net::downloader::open({});
    const auto ref = owner->add_image(view, {.recipients = 1});
    ASSERT_TRUE(ref);
    std::optional<serving> server(std::in_place, *owner);
    auto model = s.old.image();
    const auto done = tp::download_changes<net>(local(owner->port()), *ref, model);
    server.reset();
    if (key) {
      ASSERT_TRUE(succeeded(done));
      EXPECT_EQ(s.old, s.now);
      EXPECT_EQ(owner->status_of(*ref)->completed, 1u);
    } else {
      EXPECT_EQ(code_of(done), errc::schema_mismatch);
      EXPECT_EQ(s.old, small().old) << "nothing has landed";
    }
  }
}

TEST(ChangedTensors, An_owner_without_a_digest_of_the_whole_is_refused_as_ever_and_nothing_lands) {
  small s;
  const auto image = s.now.image();
  auto owner = over<tp::fixed_bytes<64_KiB>, tp::tcp, tp::unverified>::downloader::open({});
  const auto ref = owner->add_tensors(image, {.tensor_digests = true});
  const serving server(*owner);
  auto model = s.old.image();
  EXPECT_EQ(code_of(tp::download_changes<net>(local(owner->port()), *ref, model)), errc::not_verifiable);
  EXPECT_EQ(s.old, small().old);
}

using tied_net =
    tp::pipeline<tp::raw_tensors<tp::tied<with_ties, tp::from_to{"embed", "head"}>>, tp::fixed_bytes<64_KiB>, tp::tcp>;
TEST(ChangedTensors, A_member_that_is_tied_changes_with_the_other) {
  for (const char* const changed : {"head", "bias", ""}) {
    SCOPED_TRACE(changed);
    with_ties old{}, now{};
    old.head[7] = now.head[7] = 3;
    old.mask[1] = now.mask[1] = true;
    if (changed == std::string_view("head")) now.head[8] = 4;
    if (changed == std::string_view("bias")) now.bias[1] = 5;
    auto owner = tied_net::downloader::open({});
    const auto ref = owner->add_tensors(now, {.recipients = 1, .tensor_digests = true});
    ASSERT_TRUE(ref);
    const serving server(*owner);
    std::uint64_t kept = 0;
    ASSERT_TRUE(tp::download_changes<tied_net>(local(owner->port()), *ref, old, {}, &kept));
    for (int i = 0; i < 900; ++i) {
      ASSERT_EQ(old.head[i], now.head[i]);
      ASSERT_EQ(old.embed[i], now.head[i]) << "the tie is made in any case";
    }
    EXPECT_EQ(old.bias[1], now.bias[1]);
    EXPECT_EQ(kept, changed == std::string_view("head") ? 17u : 3605u + (*changed != 0 ? 0 : 7));
  }
}
TEST(ChangedTensors, A_bool_that_is_neither_is_an_error_with_its_name_and_leaves_a_bool) {
  using bools = raw_net<with_ties, tp::tcp>;
  tensors other;
  for (const char* const name : {"head", "embed"}) other.add(name, {dtype::f32, {900}}, 1);
  other.add("bias", {dtype::f32, {3}}, 2);
  other.add("mask", {dtype::boolean, {5}}, 3);
  other.all["mask"].second.assign(5, std::byte{1});
  other.all["mask"].second[3] = std::byte{2};
  publication<net> p(other);
  with_ties mine{};
  std::memcpy(mine.head, other.all["head"].second.data(), sizeof mine.head);
  const auto done = tp::download_changes<bools>(p.address(), p.ref, mine);
  EXPECT_EQ(code_of(done), errc::value_out_of_range);
  EXPECT_EQ(done.error().name.view(), "mask");
  EXPECT_LE(reinterpret_cast<const unsigned char*>(mine.mask)[3], 1);
}

TEST(ChangedTensors, Other_tensors_are_an_error_that_names_one_and_nothing_lands) {
  small s;
  tensors other = s.now;
  other.add("b", {dtype::f32, {5001}}, 2);
  publication<net> p(other);
  auto model = s.old.image();
  const tensors before = s.old;
  const auto done = tp::download_changes<net>(p.address(), p.ref, model);
  EXPECT_EQ(code_of(done), errc::schema_mismatch);
  EXPECT_EQ(done.error().name.view(), "b");
  EXPECT_EQ(s.old, before);
}

TEST(ChangedTensors, They_come_over_any_chunks_digests_and_links) {
  const tensors now = trained(with_adapters());
  {
    using one = over<tp::whole, tp::tcp>;
    publication<one> p(now);
    comes_by_parts(p.address(), p);
  }
  {
    using one = over<tp::per_tensor<4_KiB>, tp::tcp, tp::chunk_and_image_digest>;
    publication<one> p(now);
    comes_by_parts(p.address(), p);
  }
  {
    using one = over<tp::fit_datagram, tp::udp>;
    publication<one> p(now);
    comes_by_parts(p.address(), p);
  }
}
TEST(ChangedTensors, In_one_process_they_come_from_the_owner_itself) {
  using here = over<tp::fixed_bytes<64_KiB>, tp::loopback>;
  tensors mine = with_adapters(), now = trained(mine);
  const auto image = now.image();
  here::downloader owner;
  const auto ref = owner.add_tensors(image, {.recipients = 1, .tensor_digests = true});
  auto model = mine.image();
  std::uint64_t kept = 0;
  const auto done = tp::download_changes<here>(owner, *ref, model, {}, &kept);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(mine, now);
  EXPECT_EQ(kept, usual_layers * weight_bytes);
  EXPECT_EQ(owner.status_of(*ref)->completed, 1u);
}
TEST(ChangedTensors, A_session_brings_one_version_after_the_other) {
  publication<net> p(trained(with_adapters()), {.tensor_digests = true});
  tensors mine = with_adapters();
  auto model = mine.image();
  auto session = net::session::connect(p.address());
  ASSERT_TRUE(session);
  for (int round = 0; round < 3; ++round) {
    std::uint64_t kept = 0;
    const auto done = tp::download_changes<net>(*session, p.ref, model, {}, &kept);
    ASSERT_TRUE(succeeded(done));
    EXPECT_EQ(mine, p.now);
    EXPECT_EQ(kept, round == 0 ? usual_layers * weight_bytes : p.now.data_bytes() - 32);
    mine.all["layer.7.lora_A"].second[3] ^= std::byte{8};
  }
}
TEST(ChangedTensors, Without_a_version_whoever_answers_is_believed) {
  small s;
  publication<net> p(s.now, {.tensor_digests = true});
  auto model = s.old.image();
  const auto done = tp::download_changes<net>(p.address(), {p.ref.id, 0, 0}, model);
  ASSERT_TRUE(done);
  EXPECT_TRUE(done->believed);
  EXPECT_EQ(s.old, s.now);
  const auto other = tp::download_changes<net>(p.address(), {p.ref.id, 5, 0}, model);
  EXPECT_EQ(code_of(other), errc::stale_version);
}

TEST(ChangedTensors, A_named_recipient_counts_once_whatever_the_digests_say) {
  small s;
  tensors lie = s.now;
  lie.all["a"] = s.old.all["a"];
  const std::string text = digits_of(lie);
  const tp::metadata_entry said[] = {{tp::tensor_digests_key, text}};
  const tp::recipient_id sites[] = {tp::recipient_named("site-1")};
  publication<net> p(s.now, {.named = sites}, said);
  auto model = s.old.image();
  ASSERT_TRUE(tp::download_changes<net>(p.address(), p.ref, model, {.recipient = sites[0]}));
  EXPECT_EQ(s.old, s.now);
  p.counted_once();
}

TEST(ChangedTensors, A_name_that_fits_in_no_request_costs_a_pull_of_all_that_counts_once) {
  // `z` is in a part of its own, behind others that have landed by then
  for (const bool others : {false, true}) {
    SCOPED_TRACE(others);
    tensors mine;
    mine.add("z" + std::string(5000, 'x'), {dtype::f32, {64}}, 1);
    mine.add("same", {dtype::f32, {5000}}, 2);
    for (int i = 0; i < 40; ++i) mine.add("a" + std::to_string(i), {dtype::f32, {64}}, 3);
    tensors now = mine;
    for (auto& [name, t] : now.all)
      if (name[0] == 'z' || (others && name[0] == 'a')) t.second[3] ^= std::byte{1};
    publication<net> p(now);
    std::uint64_t kept = 7;
    const auto done = p.bring(mine, kept);
    ASSERT_TRUE(succeeded(done));
    EXPECT_EQ(mine, p.now);
    EXPECT_EQ(kept, 0u);
    p.counted_once();
  }
}

/// One tensor elsewhere, which calls `first` before it is read for the first time.
struct watched_tensor {
  byte_vector bytes;
  std::function<void()> first;
  std::array<std::byte, 4096> staging{};
  std::uint64_t shape[1]{};
  tp::source_reader reader{[](const void* of, std::uintptr_t, std::uint64_t at, byte_span out) noexcept {
                             auto& w = *static_cast<watched_tensor*>(const_cast<void*>(of));
                             if (auto call = std::exchange(w.first, {}); call) call();
                             std::memcpy(out.data(), w.bytes.data() + at, out.size());
                             return tp::result<void>{};
                           },
                           this};
  tp::destination_writer writer{[](void* of, std::uintptr_t, std::uint64_t at, const_byte_span in) noexcept {
                                  std::memcpy(static_cast<watched_tensor*>(of)->bytes.data() + at, in.data(),
                                              in.size());
                                  return tp::result<void>{};
                                },
                                this, staging, &reader};
};

TEST(ChangedTensors, Without_a_version_another_one_that_is_published_after_the_look_is_brought) {
  for (const bool given : {false, true}) {
    SCOPED_TRACE(given);
    small s;
    const auto image = s.now.image();
    tensors newer = s.now;
    newer.all["b"].second[9] ^= std::byte{1};
    const auto newer_image = newer.image();
    auto owner = net::downloader::open({});
    const auto ref = owner->add_tensors(image, {.recipients = 1, .tensor_digests = true});
    ASSERT_TRUE(ref);
    tp::reference next{};
    std::optional<serving> server(std::in_place, *owner);
    watched_tensor b{s.old.all["b"].second, {}};
    b.shape[0] = 5000;
    b.first = [&] {
      server.reset();
      next = *owner->add_tensors(newer_image, {.recipients = 1, .id = ref->id, .tensor_digests = true});
      server.emplace(*owner);
    };
    auto &a = s.old.all["a"], &c = s.old.all["c"];
    const tp::mutable_tensor_view views[] = {{"a", dtype::f32, a.first.shape, a.second.data()},
                                             {"b", dtype::f32, b.shape, nullptr, {}, true},
                                             {"c", dtype::f32, c.first.shape, c.second.data()}};
    auto model = tp::dynamic_image::make(std::span<const tp::mutable_tensor_view>(views), {}, b.writer);
    ASSERT_TRUE(succeeded(model));
    const auto done = tp::download_changes<net>(local(owner->port()), given ? *ref : tp::reference{ref->id, 0, 0},
                                                *model);
    server.reset();
    if (given) {
      EXPECT_EQ(code_of(done), errc::stale_version);
      continue;
    }
    ASSERT_TRUE(succeeded(done));
    EXPECT_EQ(done->version, next.version);
    EXPECT_TRUE(done->believed);
    EXPECT_EQ(a.second, newer.all["a"].second);
    EXPECT_EQ(b.bytes, newer.all["b"].second);
    EXPECT_EQ(owner->status_of(next)->completed, 1u);
    EXPECT_EQ(owner->status_of(next)->final(), 1u);
  }
}

TEST(ChangedTensors, A_stop_ends_all_and_a_stop_before_anything_came_counts_nobody) {
  small s;
  publication<net> p(s.now);
  auto model = s.old.image();
  std::stop_source stop;
  stop.request_stop();
  const auto done = tp::download_changes<net>(p.address(), p.ref, model, {.stop = stop.get_token()});
  EXPECT_EQ(code_of(done), errc::cancelled);
  EXPECT_EQ(s.old, small().old);
  EXPECT_EQ(p.owner->status_of(p.ref)->final(), 0u);
  const auto nobody = tp::download_changes<net>(local(own_port()), p.ref, model, {.retry = {.retries = 0}});
  EXPECT_EQ(code_of(nobody), errc::connection_failed);
}

TEST(ChangedTensors, A_pull_that_was_cut_off_leaves_what_had_come_for_the_next) {
  tensors mine = with_adapters(), now = mine;
  for (auto& [name, t] : now.all) t.second[5] ^= std::byte{1};
  now.all["layer.3.weight"] = mine.all["layer.3.weight"];
  using cut = over<tp::fixed_bytes<64_KiB>, tp::tcp>;
  publication<cut> p(now, {.tensor_digests = true});
  auto model = mine.image();
  std::stop_source stop;
  auto end = [&](const tp::progress_event& e) {
    if (e.bytes_done > 500'000) stop.request_stop();
  };
  const auto half = tp::download_changes<cut>(p.address(), p.ref, model,
                                              {.stop = stop.get_token(), .progress = end, .progress_interval = 0ms});
  ASSERT_EQ(code_of(half), errc::cancelled);
  ASSERT_NE(mine, p.now);
  std::uint64_t kept = 0;
  const auto done = tp::download_changes<cut>(p.address(), p.ref, model, {}, &kept);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(mine, p.now);
  EXPECT_GT(kept, 400'000u);
}

TEST(ChangedTensors, Nothing_is_allocated_for_a_chunk_and_little_for_a_tensor) {
  using cut = over<tp::bytes_up_to<2_MiB>, tp::loopback>;
  const auto allocations = [](std::uint64_t count, std::uint64_t extent, std::uint64_t& largest) {
    tensors mine;
    for (std::uint64_t i = 0; i < count; ++i) mine.add("layer." + std::to_string(1000 + i), {dtype::f32, {extent}}, i);
    tensors now = mine;
    for (std::uint64_t i = 0; i < count; i += 2) now.all["layer." + std::to_string(1000 + i)].second[0] ^= std::byte{1};
    const auto image = now.image();
    auto owner = std::make_unique<cut::downloader>();
    const auto ref = owner->add_tensors(image, {.tensor_digests = true});
    auto model = mine.image();
    const allocation_watch watch;
    const auto done = tp::download_changes<cut>(*owner, *ref, model);
    const auto n = watch.count();
    largest = watch.largest();
    EXPECT_TRUE(done);
    EXPECT_EQ(mine, now);
    return n;
  };
  std::uint64_t of_few = 0, of_long = 0, of_many = 0;
  const auto few = allocations(16, 1000, of_few), longer = allocations(16, 1'000'000, of_long);
  EXPECT_EQ(few, longer) << "a thousand times the bytes";
  EXPECT_EQ(of_few, of_long);
  allocations(1600, 100, of_many);
  EXPECT_LE(of_many, 1600u * 200) << "bytes of the largest table";
}

TEST(ChangedTensors, A_reader_of_one_model_is_left_alone_while_the_other_becomes_the_next) {
  // what double_buffered does for whole pulls: a difference changes what it begins from, so that is the other model
  tensors models[2] = {with_adapters(), with_adapters()};
  std::size_t front = 0;
  tensors now = models[0];
  for (int round = 0; round < 3; ++round) {
    now = trained(now);
    now.all["layer.1.weight"].second[static_cast<std::size_t>(round)] ^= std::byte{1};
    publication<net> p(now);
    const tensors read = models[front];
    tensors& back = models[1 - front];
    std::uint64_t kept = 0;
    const auto done = p.bring(back, kept);
    ASSERT_TRUE(done);
    EXPECT_EQ(models[front], read);
    EXPECT_EQ(back, p.now);
    EXPECT_EQ(kept, (usual_layers - 1) * weight_bytes);
    front = 1 - front;
  }
}

// --- the owner's side -----------------------------------------------------------------------------------------------

TEST(TensorDigests, The_metadata_has_one_pair_more_which_python_reads) {
  small s;
  const tp::metadata_entry said[] = {{"round", "7"}, {tp::tensor_digests_key, "of an earlier owner"}, {"zone", "3"}};
  const auto image = s.now.image(said);
  const auto made = tp::image_with_tensor_digests::make<tp::xxh3_64>(image.source());
  ASSERT_TRUE(made);
  const tp::image_schema& with = *made->source().schema;
  ASSERT_EQ(with.metadata_count, 3u);
  EXPECT_EQ(with.metadata[0].key, "round");
  EXPECT_EQ(with.metadata[1].key, "tensorpull.digests");
  EXPECT_EQ(with.metadata[1].value, digits_of(s.now));
  EXPECT_EQ(with.metadata[2].value, "3");
  EXPECT_EQ(with.fingerprint, image.schema().fingerprint);
  EXPECT_EQ(with.data_bytes(), image.schema().data_bytes());
  // its header is what an image with that metadata writes, byte for byte
  const tp::metadata_entry same[] = {{"round", "7"}, {tp::tensor_digests_key, with.metadata[1].value}, {"zone", "3"}};
  const auto plain = s.now.image(same);
  EXPECT_EQ(*tp::image_version<tp::xxh3_64>(made->source()), *tp::image_version<tp::xxh3_64>(plain.source()));
}
TEST(TensorDigests, A_model_that_was_handed_over_is_released_with_its_table_and_a_full_table_leaves_nothing) {
  struct watched {
    tensors of;
    std::optional<tp::dynamic_image> image;
    int* alive;
    explicit watched(int& n) : alive(&n) {
      of.add("a", {dtype::f32, {50}}, 1);
      image.emplace(of.image());
      ++n;
    }
    watched(const watched&) = delete;
    ~watched() { --*alive; }
  };
  using here = over<tp::fixed_bytes<64_KiB>, tp::loopback>;
  int alive = 0;
  auto owner = std::make_unique<here::downloader>();
  const auto hand_over = [&] {
    auto w = std::make_shared<watched>(alive);
    return owner->add_tensors(std::shared_ptr<const tp::dynamic_image>(w, &*w->image), {.tensor_digests = true});
  };
  const auto ref = hand_over();
  ASSERT_TRUE(ref);
  EXPECT_EQ(alive, 1);
  ASSERT_TRUE(owner->withdraw(*ref));
  EXPECT_EQ(alive, 0);
  std::vector<tp::reference> all;
  for (;;) {
    const auto one = hand_over();
    if (!one) {
      EXPECT_EQ(code_of(one), errc::table_full);
      break;
    }
    all.push_back(*one);
  }
  EXPECT_EQ(alive, static_cast<int>(all.size()));
  for (const auto& one : all) ASSERT_TRUE(owner->withdraw(one));
  EXPECT_EQ(alive, 0);
}

// --- together with coded differences --------------------------------------------------------------------------------

TEST(ChangedTensors, A_coded_difference_to_a_model_with_digests_of_tensors_is_not_pulled_again_as_a_whole) {
  tensors mine = with_adapters();
  tensors now = trained(mine);
  tp::deflate_coder coder;
  const auto old_image = mine.image();
  publication<net> p(now);
  const auto difference = tp::model_difference::make(old_image.source(), p.image.source(), coder);
  ASSERT_TRUE(difference);
  p.server.reset();
  const auto changes = *p.owner->add_image(difference->image());
  p.server.emplace(*p.owner);
  auto model = mine.image();
  std::uint64_t came = 0;
  const auto done = tp::download_changes<net>(p.address(), p.ref, changes, model, coder, {}, &came);
  ASSERT_TRUE(succeeded(done));
  EXPECT_GT(came, 0u);
  EXPECT_EQ(mine, p.now);
  EXPECT_LT(p.counted_once().bytes_sent, 50'000u) << "a look at the header, and the smallest tensor";
}

}  // namespace changed_tensors_test
