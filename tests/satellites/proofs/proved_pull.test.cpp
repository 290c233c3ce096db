// Bytes are proved as they land: a source that lies is named, the next one goes on, and no more than a group of wrong
// bytes ever lands.
#include "proved_model.hpp"

#include <tensorpull/consumers/any_schema/digest.hpp>
#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/consumers/average/weighted_average.hpp>

#include "support/own_folder.hpp"

#include <filesystem>
#include <fstream>
#include <list>

namespace proved_pull_test {

using namespace test;
using namespace test::proved;

template <class Consumer>
tp::result<tp::proved_receipt> pull_from(const owners_list& from, const published& what, Consumer& to,
                                         const tp::proof_options& how = fine, const tp::pull_options& options = {}) {
  auto all = sources(from);
  return tp::pull_proved<loopback_net>(std::span(all), what.ref, to, how, options);
}
struct landing {
  model into = bytes_model(bytes, 99);
  tp::land to{into.destination()};
  tp::result<tp::proved_receipt> pull(const owners_list& from, tp::pull_options options = {},
                                      const tp::proof_options& how = fine) {
    options.retry = {.retries = 0};
    return pull_from(from, the_model(), to, how, options);
  }
  bool has_it() const { return into.image_bytes() == the_model().now.image_bytes(); }
};

TEST(ProvedPull, A_model_is_proved_with_any_memory_for_its_proof) {
  for (const std::uint64_t most : {64u, 100u, 4096u, 1u << 20}) {
    const auto owners = owners_of(the_model().owner());
    landing here;
    const auto done = here.pull(owners, {}, {.most_bytes = most});
    ASSERT_TRUE(succeeded(done)) << most;
    EXPECT_EQ(done->last.outcome, tp::outcome::completed);
    EXPECT_FALSE(done->last.believed);
    EXPECT_TRUE(done->last.confirmed);
    EXPECT_EQ(done->wrong, 0u);
    EXPECT_TRUE(here.has_it());
  }
  const auto owners = owners_of(the_model().owner());
  landing here;
  EXPECT_EQ(code_of(here.pull(owners, {}, {.most_bytes = 63})), errc::invalid_argument);
}
// What a recipient needs besides the memory of a pull that compares a digest.
static_assert(sizeof(tp::proved<tp::land>) + tp::proof_options{}.most_bytes <= 4096);

TEST(ProvedPull, A_liar_is_named_and_the_next_one_goes_on_behind_what_is_right) {
  for (const std::uint64_t at : {std::uint64_t{0}, group - 200, group, 5 * group + 17, bytes - 1}) {
    const model lie = changed_at(at);
    const auto owners = owners_of(the_model().owner(&lie), the_model().owner());
    landing here;
    const auto done = here.pull(owners);
    ASSERT_TRUE(succeeded(done)) << at;
    EXPECT_EQ(done->source, 1u);
    EXPECT_EQ(done->wrong, 1u) << at;
    EXPECT_TRUE(here.has_it());
    const std::uint64_t header = the_model().now.schema().header_bytes, right = (header + at) / group * group;
    const auto counted = owners[1]->status_of(the_model().ref.model);
    ASSERT_TRUE(counted);
    EXPECT_EQ(counted->bytes_sent, the_model().ref.image_bytes - right) << "nothing that is right is sent again";
  }
}
TEST(ProvedPull, No_more_than_a_group_of_wrong_bytes_lands) {
  const model lie = bytes_model(bytes, 2);
  const std::uint64_t at = 3 * group + 5;
  model half = bytes_model(bytes, 1);
  std::copy(data(lie).begin() + at, data(lie).end(), data(half).begin() + at);
  const auto owners = owners_of(the_model().owner(&half));
  landing here;
  const byte_vector before(data(here.into).begin(), data(here.into).end());
  const auto done = here.pull(owners);
  EXPECT_EQ(code_of(done), errc::digest_mismatch);
  const std::uint64_t header = the_model().now.schema().header_bytes, end = 4 * group - header;
  const const_byte_span landed = data(here.into), right = data(the_model().now);
  EXPECT_TRUE(std::equal(right.begin(), right.begin() + at, landed.begin()));
  EXPECT_TRUE(std::equal(before.begin() + static_cast<std::ptrdiff_t>(end), before.end(),
                         landed.begin() + static_cast<std::ptrdiff_t>(end)));
}
TEST(ProvedPull, All_lie) {
  const model first = changed_at(700), second = changed_at(bytes - 1);
  const auto owners = owners_of(the_model().owner(&first), the_model().owner(&second));
  landing here;
  std::uint64_t wrong = 8;
  EXPECT_EQ(code_of(here.pull(owners, {}, {.most_bytes = 64 * 1024, .wrong = &wrong})), errc::digest_mismatch);
  EXPECT_EQ(wrong, 3u) << "they are named, although nobody had it";
  for (const auto& o : owners) EXPECT_EQ(o->status_of(the_model().ref.model)->failed, 1u) << "each is told";
}
TEST(ProvedPull, Sources_that_lie_in_any_byte_about_anything) {
  const published& right = the_model();
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    generator random(seed);
    std::list<model> models;
    std::list<published> others;
    owners_list owners;
    std::uint64_t wrong = 0;
    const std::size_t n = 1 + random.below(4);
    std::size_t honest = random.below(n + 1);  // n: none
    bool proof_known = false;  // from a source whose tree was right
    for (std::size_t i = 0; i < n; ++i) {
      if (i == honest) {
        owners.push_back(right.owner());
        continue;
      }
      const std::uint64_t how = random.below(6);
      bool names_it = false;  // otherwise it is refused for another reason, or nobody gets to it
      switch (how) {
        case 0: owners.push_back(std::make_unique<loopback_net::downloader>()); break;  // has nothing
        case 1:                                // other bytes
          models.push_back(changed_at(random.below(bytes)));
          owners.push_back(right.owner(&models.back()));
          names_it = true;
          break;
        case 2:  // another length
          models.push_back(bytes_model(
              random.chance(0.5) ? bytes - 1 - random.below(bytes - 100) : bytes + 1 + random.below(group), seed));
          owners.push_back(right.owner(&models.back()));
          break;
        case 3:  // another name
          models.push_back(bytes_model(bytes, 1, "v"));
          owners.push_back(right.owner(&models.back()));
          break;
        case 4:  // another tree, and the bytes that belong to it
          others.emplace_back(bytes_model(bytes, seed));
          owners.push_back(right.owner(&others.back().now, &others.back().tree.image()));
          break;
        case 5:  // a tree of another length
          others.emplace_back(bytes_model(bytes + 2 * group, seed));
          owners.push_back(right.owner(nullptr, &others.back().tree.image()));
          break;
      }
      if (names_it && i < honest) wrong |= std::uint64_t{1} << i;
      if (how == 5 && proof_known) honest = std::min(honest, i);  // its bytes are right
      proof_known = proof_known || (how >= 1 && how <= 3);
    }
    landing here;
    const auto done = here.pull(owners, {}, {.most_bytes = random.chance(0.5) ? 256u : 64u * 1024});
    if (honest == n) {
      EXPECT_FALSE(done) << seed;
    } else {
      ASSERT_TRUE(succeeded(done)) << seed;
      EXPECT_EQ(done->source, honest) << seed;
      EXPECT_EQ(done->wrong & wrong, wrong) << seed;
      EXPECT_EQ(done->wrong >> honest, 0u) << "an honest one is never named; seed " << seed;
      EXPECT_TRUE(here.has_it()) << seed;
    }
  }
}
TEST(ProvedPull, D4_A_file_that_was_cut_off_and_changed_goes_on_behind_what_is_right_there) {
  own_folder folder;
  const std::string path = folder.path() / "m.safetensors";
  tp::resume_cursor where;
  const auto owners = owners_of(the_model().owner());
  {
    auto file = tp::safetensors_file::create(path, {.fsync = false, .resume = &where});
    ASSERT_TRUE(succeeded(file));
    std::stop_source stop;
    const auto seen = [&](const tp::progress_event& e) {
      if (e.bytes_done > 3 * group) stop.request_stop();
    };
    const auto done = pull_from(
        owners, the_model(), *file, fine,
        {.stop = stop.get_token(), .cursor = &where, .progress = seen, .progress_interval = 0ms});
    ASSERT_EQ(code_of(done), errc::cancelled);
  }
  ASSERT_TRUE(where);
  const std::string part = folder.path() / ".m.safetensors.part";
  {  // somebody changes a byte of the second group
    std::fstream f(part, std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(group + 5);
    f.put('\x55');
  }
  auto file = tp::safetensors_file::create(path, {.fsync = false, .resume = &where});
  ASSERT_TRUE(succeeded(file));
  const std::uint64_t before = owners[0]->status_of(the_model().ref.model)->bytes_sent;
  const auto done = pull_from(owners, the_model(), *file, fine, {.cursor = &where});
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(owners[0]->status_of(the_model().ref.model)->bytes_sent - before, the_model().ref.image_bytes - group);
  EXPECT_EQ(file_root(path), the_model().ref.root);
}
TEST(ProvedPull, A_file_whose_first_source_lies_is_written_by_the_next) {
  own_folder folder;
  const std::string path = folder.path() / "m.safetensors";
  for (const bool resumes : {false, true}) {
    const model lie = changed_at(4 * group);
    const auto owners = owners_of(the_model().owner(&lie), the_model().owner());
    tp::resume_cursor where;
    auto file = tp::safetensors_file::create(path, {.fsync = false, .resume = resumes ? &where : nullptr});
    ASSERT_TRUE(succeeded(file));
    const auto done = pull_from(owners, the_model(), *file, fine, {.cursor = resumes ? &where : nullptr});
    ASSERT_TRUE(succeeded(done)) << resumes;
    EXPECT_EQ(done->wrong, 1u);
    EXPECT_EQ(file_root(path), the_model().ref.root);
  }
  // all lie: nothing is left under any name
  const model lie = changed_at(4 * group);
  const auto owners = owners_of(the_model().owner(&lie), the_model().owner(&lie));
  std::filesystem::remove(path);
  auto file = tp::safetensors_file::create(path, {.fsync = false});
  EXPECT_EQ(code_of(pull_from(owners, the_model(), *file, fine)), errc::digest_mismatch);
  file = tp::failure(errc::cancelled);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}
TEST(ProvedPull, A_consumer_that_cannot_undo_hears_of_proved_groups_alone) {
  const published update([] {
    model m;
    m.add("w", dtype::f32, {3 * group / 4}).ready();
    std::vector<float> ones(3 * group / 4, 1.0f);
    std::memcpy(data(m).data(), ones.data(), data(m).size());
    return m;
  }());
  model wrong;
  wrong.add("w", dtype::f32, {3 * group / 4}).ready();
  std::vector<float> values(3 * group / 4, 1.0f);
  values[2 * group / 4 + 7] = 1e30f;
  std::memcpy(data(wrong).data(), values.data(), data(wrong).size());

  model out;
  out.add("w", dtype::f32, {3 * group / 4}).ready();
  auto buffers = tp::chunk_buffers::make(group);
  auto average = tp::weighted_average<>::make(out.destination(), *buffers);
  ASSERT_TRUE(succeeded(average));
  const auto owners = owners_of(update.owner(&wrong), update.owner());
  tp::weighted_average<>::update site(*average, 2.0, {"site", 1});
  const auto done = pull_from(owners, update, site, fine);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(done->wrong, 1u);
  ASSERT_TRUE(succeeded(average->finish()));
  EXPECT_EQ(out.image_bytes(), update.now.image_bytes());
}
TEST(ProvedPull, An_owner_without_the_model_or_of_another_one_is_no_liar) {
  const model other = bytes_model(bytes, 1, "v");
  const auto owners = owners_of(std::make_unique<loopback_net::downloader>(), the_model().owner(&other),
                                the_model().owner());
  landing here;
  const auto done = here.pull(owners);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(done->wrong, 0u);
  EXPECT_EQ(done->source, 2u);
}
TEST(ProvedPull, An_image_of_another_length_is_refused_before_it_lands) {
  for (const std::uint64_t other : {bytes - 1, bytes + 3 * group}) {
    const model lie = bytes_model(other, 1);
    const auto owners = owners_of(the_model().owner(&lie));
    tp::digest any;
    EXPECT_EQ(code_of(pull_from(owners, the_model(), any)), errc::digest_mismatch);
  }
  const auto honest = owners_of(the_model().owner());
  const auto by = tp::download_proof<loopback_net>(*honest[0], the_model().ref, fine);
  tp::digest any;
  tp::proved checked(any, *by);
  tp::description d{.image_bytes = by->image_bytes() + 1, .data_start = 72, .tensors = 1};
  EXPECT_EQ(code_of(checked.begin(d)), errc::digest_mismatch) << "although all bytes of the image would be right";
  --d.image_bytes;
  EXPECT_TRUE(succeeded(checked.begin(d)));
}
TEST(ProvedPull, Some_tensors_are_refused_by_name) {
  const auto owners = owners_of(the_model().owner());
  landing here;
  EXPECT_EQ(code_of(here.pull(owners, {.part = true})), errc::not_verifiable);
  EXPECT_EQ(code_of(here.pull({})), errc::invalid_argument);
  auto by = tp::download_proof<loopback_net>(*owners[0], the_model().ref, fine);
  ASSERT_TRUE(succeeded(by));
  tp::proved checked(here.to, *by);
  EXPECT_EQ(code_of(loopback_net::pull(*owners[0], the_model().ref.model, checked, {.part = true})),
            errc::not_verifiable);
}
TEST(ProvedPull, A_model_of_one_group_needs_no_tree) {
  const published small(bytes_model(1000, 5));
  ASSERT_TRUE(small.tree.is_root_alone());
  model lie = bytes_model(1000, 5);
  data(lie)[999] ^= std::byte{128};
  const auto owners = owners_of(small.owner(&lie), small.owner());
  model into = bytes_model(1000, 6);
  tp::land to(into.destination());
  const auto done = pull_from(owners, small, to);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(done->wrong, 1u);
  EXPECT_EQ(into.image_bytes(), small.now.image_bytes());
}

}  // namespace proved_pull_test
