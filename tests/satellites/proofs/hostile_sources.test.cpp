// Sources that lie about more than bytes, one after another: none of them ends a pull that an honest one can complete,
// and none takes what another has brought.
#include "proved_model.hpp"

#include <tensorpull/consumers/any_schema/digest.hpp>
#include <tensorpull/consumers/any_schema/new_model.hpp>
#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/consumers/average/weighted_average.hpp>
#include <tensorpull/consumers/double_buffered.hpp>
#include <tensorpull/consumers/tee.hpp>

#include "support/own_folder.hpp"

#include <filesystem>
#include <fstream>

namespace hostile_sources_test {

using namespace test;
using namespace test::proved;

/// The group that a byte of the tensor is in.
std::uint64_t group_of(std::uint64_t at) { return (the_model().now.schema().header_bytes + at) / group; }
template <class Consumer>
tp::result<tp::proved_receipt> pull_from(const owners_list& from, const published& what, Consumer& to,
                                         tp::pull_options options = {}) {
  options.retry = {.retries = 0};
  auto all = sources(from);
  return tp::pull_proved<loopback_net>(std::span(all), what.ref, to, fine, options);
}
template <class Parts>
std::unique_ptr<typename Parts::downloader> publishes(const published& what, const tp::source_view& with) {
  auto made = std::make_unique<typename Parts::downloader>();
  tp::publish_options how;
  how.id = what.ref.model.id;
  how.version = what.ref.model.version;
  EXPECT_TRUE(succeeded(made->add_image(with, how)));
  if (!what.tree.is_root_alone()) {
    how.id = what.ref.tree.id;
    how.version = what.ref.tree.version;
    EXPECT_TRUE(succeeded(made->add_image(what.tree.image().source(), how)));
  }
  return made;
}
/// A source that is an owner of either kind.
template <class Net, class Liar>
struct either {
  using parts = typename Net::parts;
  typename Net::downloader* honest = nullptr;
  typename Liar::downloader* liar = nullptr;

  template <class Consumer>
  static tp::result<tp::receipt> pull(const either& from, const tp::reference& ref, Consumer& to,
                                      const tp::pull_options& options) noexcept {
    return from.honest != nullptr ? Net::pull(*from.honest, ref, to, options) : Net::pull(*from.liar, ref, to, options);
  }
};

struct short_chunks : tp::default_limits {
  static constexpr std::uint64_t chunk_cap_bytes = 4096;
};
TEST(HostileSources, One_with_shorter_chunks_than_the_image_does_not_end_the_pull) {
  using whole = tp::pipeline<tp::tensor_list, tp::whole, tp::loopback>;
  using little = tp::pipeline<tp::tensor_list, tp::whole, tp::loopback, short_chunks>;
  using both = either<whole, little>;
  const auto liar = publishes<little>(the_model(), the_model().now.source());
  const auto honest = publishes<whole>(the_model(), the_model().now.source());
  const both from[]{{.liar = liar.get()}, {.honest = honest.get()}};
  model into = bytes_model(bytes, 9);
  tp::land to(into.destination());
  const auto done = tp::pull_proved<both>(std::span(from), the_model().ref, to, fine);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(done->source, 1u);
  EXPECT_EQ(into.image_bytes(), the_model().now.image_bytes());
}
TEST(HostileSources, What_is_proved_stays_although_all_lie) {
  own_folder folder;
  const std::string path = folder.path() / "m.safetensors";
  const model early = changed_at(2 * group), late = changed_at(5 * group);
  const auto liars = owners_of(the_model().owner(&early), the_model().owner(&late));
  const auto honest = owners_of(the_model().owner());
  const std::uint64_t right = group_of(5 * group) * group;
  tp::resume_cursor where;
  {
    auto file = tp::safetensors_file::create(path, {.fsync = false, .resume = &where});
    ASSERT_TRUE(succeeded(file));
    EXPECT_EQ(code_of(pull_from(liars, the_model(), *file, {.cursor = &where})), errc::digest_mismatch);
    EXPECT_EQ(where.offset, right);
  }
  auto file = tp::safetensors_file::create(path, {.fsync = false, .resume = &where});
  ASSERT_TRUE(succeeded(file));
  EXPECT_EQ(where.offset, right);
  ASSERT_TRUE(succeeded(pull_from(honest, the_model(), *file, {.cursor = &where})));
  EXPECT_EQ(honest[0]->status_of(the_model().ref.model)->bytes_sent, the_model().ref.image_bytes - right);
  EXPECT_EQ(file_root(path), the_model().ref.root);

  // the same in memory, and under the cursor of the caller
  where = {};
  model into = bytes_model(bytes, 9);
  tp::land to(into.destination());
  EXPECT_EQ(code_of(pull_from(liars, the_model(), to, {.cursor = &where})), errc::digest_mismatch);
  EXPECT_EQ(where.offset, right);
}
struct crowd : tp::loopback {
  static constexpr bool anyone_answers = true;
};
TEST(HostileSources, Where_anybody_can_answer_the_root_is_enough) {
  using loud = tp::pipeline<tp::tensor_list, tp::fixed_bytes<24_KiB>, crowd>;
  const auto owner = publishes<loud>(the_model(), the_model().now.source());
  loud::downloader* const from[]{owner.get()};
  model into = bytes_model(bytes, 9);
  tp::land to(into.destination());
  EXPECT_TRUE(succeeded(tp::pull_proved<loud>(std::span(from), the_model().ref, to, fine)));
}

/// A pipeline that leaves all checks to the root.
using rootless = tp::pipeline<tp::tensor_list, tp::fixed_bytes<24_KiB>, tp::loopback, tp::unverified>;
TEST(HostileSources, The_receipt_tells_that_the_bytes_are_right_whatever_the_pipeline_compares) {
  const auto owner = publishes<rootless>(the_model(), the_model().now.source());
  rootless::downloader* const from[]{owner.get()};
  model into = bytes_model(bytes, 9);
  tp::land to(into.destination());
  const auto done = tp::pull_proved<rootless>(std::span(from), the_model().ref, to, fine);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(done->last.outcome, tp::outcome::completed);
  EXPECT_FALSE(done->last.believed);
}
TEST(HostileSources, One_that_denies_its_digest_does_not_matter) {
  const auto liar = publishes<rootless>(the_model(), the_model().now.source());
  rootless::downloader* const from[]{liar.get()};
  model into = bytes_model(bytes, 9);
  tp::land to(into.destination());
  EXPECT_TRUE(succeeded(tp::pull_proved<loopback_net>(std::span(from), the_model().ref, to, fine)));
}
model ones(float spike) {
  model m;
  m.add("w", dtype::f32, {3 * group / 4}).ready();
  std::vector<float> values(3 * group / 4, 1.0f);
  values[2 * group / 4 + 7] = spike;
  std::memcpy(data(m).data(), values.data(), data(m).size());
  return m;
}
/// Any owner, pulled from without a digest.
struct unchecked {
  using parts = rootless::parts;
  loopback_net::downloader* honest = nullptr;
  rootless::downloader* liar = nullptr;

  template <class Consumer>
  static tp::result<tp::receipt> pull(const unchecked& from, const tp::reference& ref, Consumer& to,
                                      const tp::pull_options& options) noexcept {
    return from.honest != nullptr ? rootless::pull(*from.honest, ref, to, options)
                                  : rootless::pull(*from.liar, ref, to, options);
  }
};
TEST(HostileSources, An_update_of_which_a_liar_denies_the_digest_is_taken_from_the_next_one) {
  const published update(ones(1));
  const model wrong = ones(1e30f);
  const auto liar = publishes<rootless>(update, wrong.source());
  const auto honest = update.owner();
  const unchecked from[]{{.liar = liar.get()}, {.honest = honest.get()}};
  model out = ones(0);
  auto buffers = tp::chunk_buffers::make(group);
  auto average = tp::weighted_average<>::make(out.destination(), *buffers);
  ASSERT_TRUE(succeeded(average));
  tp::weighted_average<>::update site(*average, 2.0, {"site", 1});
  const auto done = tp::pull_proved<unchecked>(std::span(from), update.ref, site, fine);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(done->wrong, 1u);
  ASSERT_TRUE(succeeded(average->finish()));
  EXPECT_EQ(out.image_bytes(), update.now.image_bytes());
}
TEST(HostileSources, A_file_that_keeps_its_part_is_completed_without_a_cursor) {
  own_folder folder;
  const std::string path = folder.path() / "m.safetensors";
  const model lie = changed_at(4 * group);
  const auto owners = owners_of(the_model().owner(&lie), the_model().owner());
  tp::resume_cursor where;
  auto file = tp::safetensors_file::create(path, {.fsync = false, .resume = &where});
  ASSERT_TRUE(succeeded(file));
  ASSERT_TRUE(succeeded(pull_from(owners, the_model(), *file)));
  EXPECT_EQ(file_root(path), the_model().ref.root);
}
TEST(HostileSources, A_stop_is_the_result_although_one_has_lied_before) {
  const model lie = changed_at(4 * group);
  const auto owners = owners_of(the_model().owner(&lie), the_model().owner());
  model into = bytes_model(bytes, 9);
  tp::land to(into.destination());
  std::stop_source stop;
  const auto seen = [&](const tp::progress_event& e) {
    if (e.bytes_done > 6 * group) stop.request_stop();
  };
  EXPECT_EQ(code_of(pull_from(owners, the_model(), to,
                              {.stop = stop.get_token(), .progress = seen, .progress_interval = 0ms})),
            errc::cancelled);
}
TEST(HostileSources, The_bytes_of_the_root_do_not_land_under_other_names) {
  model into = bytes_model(bytes, 9, "v");
  tp::image_schema lie = the_model().now.schema();
  lie.fingerprint = into.schema().fingerprint;
  tp::source_view with = the_model().now.source();
  with.schema = &lie;
  const auto liar = publishes<loopback_net>(the_model(), with);
  loopback_net::downloader* const from[]{liar.get()};
  published told(bytes_model(bytes, 1));
  told.ref.model.fingerprint = the_model().now.schema().fingerprint;
  tp::land to(into.destination());
  EXPECT_EQ(code_of(tp::pull_proved<loopback_net>(std::span(from), told.ref, to, fine)), errc::schema_mismatch);
}
struct refusing : tp::digest {
  tp::result<void> finish(const tp::receipt&) noexcept { return tp::failure(errc::digest_mismatch); }
};
TEST(HostileSources, None_is_named_for_the_refusal_of_a_consumer) {
  const auto owners = owners_of(the_model().owner(), the_model().owner());
  const auto by = tp::download_proof<loopback_net>(*owners[0], the_model().ref, fine);
  refusing to;
  tp::proved checked(to, *by);
  EXPECT_EQ(code_of(loopback_net::pull(*owners[0], the_model().ref.model, checked, {})), errc::digest_mismatch);
  EXPECT_TRUE(checked.refused());
  const model lie = changed_at(4 * group);
  const auto liar = owners_of(the_model().owner(&lie));
  EXPECT_EQ(code_of(loopback_net::pull(*liar[0], the_model().ref.model, checked, {})), errc::digest_mismatch);
  EXPECT_FALSE(checked.refused());
}
TEST(HostileSources, Progress_is_of_the_model_alone) {
  const auto owners = owners_of(the_model().owner());
  model into = bytes_model(bytes, 9);
  tp::land to(into.destination());
  const auto seen = [&](const tp::progress_event& e) { EXPECT_EQ(e.bytes_total, the_model().ref.image_bytes); };
  ASSERT_TRUE(succeeded(pull_from(owners, the_model(), to, {.progress = seen, .progress_interval = 0ms})));
}
TEST(HostileSources, A_model_and_its_file_come_from_the_next_one) {
  own_folder folder;
  const std::string path = folder.path() / "m.safetensors";
  const model lie = changed_at(4 * group);
  const auto owners = owners_of(the_model().owner(&lie), the_model().owner());
  model into = bytes_model(bytes, 9);
  tp::land first(into.destination());
  auto file = tp::safetensors_file::create(path, {.fsync = false});
  ASSERT_TRUE(succeeded(file));
  tp::tee to(first, *file);
  const auto done = pull_from(owners, the_model(), to);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(done->wrong, 1u);
  EXPECT_EQ(into.image_bytes(), the_model().now.image_bytes());
  EXPECT_EQ(file_root(path), the_model().ref.root);
}
/// Hands the bytes [from, to) of `image` to a consumer, as a transport does.
template <class Consumer>
tp::result<void> feed(Consumer& into, const byte_vector& image, std::uint64_t from, std::uint64_t to) {
  while (from < to) {
    std::array<byte_span, 4> room;
    const tp::prepared p = into.prepare(from, to - from, room);
    if (p.bytes == 0) return tp::failure(errc::busy, from);
    for (std::size_t i = 0; i < p.pieces; ++i) {
      std::memcpy(room[i].data(), image.data() + from, room[i].size());
      if (const auto ok = into.commit(from, room[i]); !ok) return ok;
      from += room[i].size();
    }
  }
  return {};
}
TEST(HostileSources, A_chunk_that_was_cut_off_arrives_again) {
  const published update(ones(1));
  const byte_vector image = update.now.image_bytes();
  const auto owners = owners_of(update.owner());
  const auto by = tp::download_proof<loopback_net>(*owners[0], update.ref, fine);
  ASSERT_TRUE(succeeded(by));
  const tp::image_schema& schema = update.now.schema();
  const tp::description d{.ref = update.ref.model.id,
                          .version = update.ref.model.version,
                          .fingerprint = schema.fingerprint,
                          .image_bytes = schema.image_bytes,
                          .data_start = schema.header_bytes,
                          .tensors = 1,
                          .verifiable = true};
  model out = ones(0);
  auto buffers = tp::chunk_buffers::make(group);
  auto average = tp::weighted_average<>::make(out.destination(), *buffers);
  ASSERT_TRUE(succeeded(average));
  tp::weighted_average<>::update site(*average, 2.0, {"site", 1});
  tp::proved checked(site, *by);
  ASSERT_TRUE(succeeded(checked.begin(d)));
  ASSERT_TRUE(succeeded(feed(checked, image, 0, group + 5000)));
  // it began in the group before, which counts already: other bytes make no difference there
  checked.rewind(group - 1000);
  byte_vector other = image;
  std::fill_n(other.begin() + group - 1000, 1000, std::byte{0x55});
  ASSERT_TRUE(succeeded(feed(checked, other, group - 1000, 2 * group + 9000)));
  EXPECT_EQ(checked.proved_bytes(), 2 * group);
  // it began in this one
  checked.rewind(2 * group + 8000);
  ASSERT_TRUE(succeeded(feed(checked, image, 2 * group + 8000, image.size())));
  // the last one, of which all is here
  checked.rewind(2 * group + 8000);
  ASSERT_TRUE(succeeded(feed(checked, other, 2 * group + 8000, image.size())));
  ASSERT_TRUE(succeeded(checked.finish({})));
  ASSERT_TRUE(succeeded(average->finish()));
  EXPECT_EQ(out.image_bytes(), image);

  // the consumer goes back to where the group began
  tp::digest all;
  tp::proved hashed(all, *by);
  ASSERT_TRUE(succeeded(hashed.begin(d)));
  ASSERT_TRUE(succeeded(feed(hashed, image, 0, group + 5000)));
  hashed.rewind(group - 1000);
  ASSERT_TRUE(succeeded(feed(hashed, image, group - 1000, image.size())));
  EXPECT_EQ(all.value(), update.ref.model.version);

  // damaged before the rest arrived again
  model into = ones(0);
  tp::land to(into.destination());
  tp::proved again(to, *by);
  ASSERT_TRUE(succeeded(again.begin(d)));
  other = image;
  other[2000] ^= std::byte{1};
  ASSERT_TRUE(succeeded(feed(again, other, 0, 3000)));
  again.rewind(1000);
  EXPECT_EQ(code_of(feed(again, image, 1000, group)), errc::wrong_payload) << "nobody has lied";
}
struct vectors {
  std::vector<std::vector<std::byte>> all;
  tp::result<std::byte*> allocate(const tp::tensor_entry& entry) {
    return all.emplace_back(static_cast<std::size_t>(entry.size_bytes())).data();
  }
  void clear() { all.clear(); }
};
TEST(HostileSources, Other_consumers_are_completed_by_the_next_one) {
  const model lie = changed_at(4 * group);
  const auto owners = owners_of(the_model().owner(&lie), the_model().owner());
  tp::new_model<vectors> fresh({}, {.max_bytes = 1 << 20});
  ASSERT_TRUE(succeeded(pull_from(owners, the_model(), fresh)));
  EXPECT_TRUE(std::ranges::equal(fresh.allocator().all.at(0), data(the_model().now)));

  model front = bytes_model(bytes, 8), back = bytes_model(bytes, 9);
  auto both = tp::double_buffered::make(front.destination(), back.destination());
  ASSERT_TRUE(succeeded(both));
  ASSERT_TRUE(succeeded(pull_from(owners, the_model(), *both)));
  EXPECT_EQ(both->front_index(), 1u);
  EXPECT_EQ(back.image_bytes(), the_model().now.image_bytes());

  const published update(ones(1));
  const model wrong = ones(1e30f);
  const auto peers = owners_of(update.owner(&wrong), update.owner());
  model out = ones(0);
  using average = tp::weighted_average<tp::partial_updates::staged>;
  auto staged = average::make(out.destination());
  ASSERT_TRUE(succeeded(staged));
  average::update site(*staged, 2.0, {"site", 1});
  ASSERT_TRUE(succeeded(pull_from(peers, update, site)));
  ASSERT_TRUE(succeeded(staged->finish()));
  EXPECT_EQ(out.image_bytes(), update.now.image_bytes());
}
TEST(HostileSources, An_owner_that_expects_one_recipient_counts_one) {
  const model lie = changed_at(4 * group);
  for (const bool liar_first : {false, true}) {
    loopback_net::downloader owner;
    std::optional<tp::settlement> how;
    const auto settled = [&](const tp::settlement& s) { how = s; };
    tp::publish_options options;
    options.recipients = 1;
    options.settled = settled;
    const auto model_ref = owner.add_image(the_model().now.source(), options);
    ASSERT_TRUE(succeeded(model_ref));
    const auto tree_ref = owner.add_image(the_model().tree.image().source(), {.beside = model_ref->id});
    ASSERT_TRUE(succeeded(tree_ref));
    tp::proved_reference ref = the_model().ref;
    ref.model = *model_ref;
    ref.tree = *tree_ref;
    published as(bytes_model(bytes, 1));
    as.ref = ref;
    const auto liar = publishes<loopback_net>(as, lie.source());
    std::vector<loopback_net::downloader*> from{&owner};
    if (liar_first) from.insert(from.begin(), liar.get());
    model into = bytes_model(bytes, 9);
    tp::land to(into.destination());
    const auto done = tp::pull_proved<loopback_net>(std::span(from), ref, to, fine);
    ASSERT_TRUE(succeeded(done));
    ASSERT_TRUE(how) << liar_first;
    EXPECT_EQ(how->verdict, tp::verdict::completed);
    EXPECT_EQ(how->counts.completed, 1u);
    EXPECT_EQ(how->counts.acquired, 1u);
    EXPECT_EQ(how->counts.final(), 1u);
  }
}

}  // namespace hostile_sources_test
