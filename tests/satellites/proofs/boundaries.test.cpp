// Images of every length around a boundary of the tree, what an earlier pull has left of them, and sources that lie,
// stall or have nothing: a model of what must be true judges each pull.
#include "proved_model.hpp"

#include <tensorpull/consumers/any_schema/safetensors_file.hpp>

#include "support/own_folder.hpp"

#include <fstream>
#include <list>
#include <optional>

namespace proof_boundaries_test {

using namespace test;
using namespace test::proved;

/// An image of that length.
model of_length(std::uint64_t image_bytes, std::uint64_t seed) {
  std::uint64_t n = image_bytes - bytes_model(image_bytes, 1).schema().header_bytes;
  n = image_bytes - bytes_model(n, 1).schema().header_bytes;
  return bytes_model(n, seed);
}
/// Their lengths.
std::vector<std::uint64_t> lengths() {
  std::vector<std::uint64_t> all;
  for (const std::uint64_t at : {1024u, 2048u, 3072u, 4096u})
    for (const std::uint64_t n : {at - 1, at, at + 1}) all.push_back(n);
  for (const std::uint64_t groups : {1u, 2u, 3u, 4u, 5u, 7u, 8u, 9u})
    for (const std::uint64_t n : {groups * group - 1, groups * group, groups * group + 1}) all.push_back(n);
  return all;
}

/// An owner, how much of a pull it goes along with, and where a pull from it has begun.
struct source {
  enum does {
    right,
    nothing,
    lies,
    stalls,
    other_tree
  };

  does what = right;
  std::uint64_t at = 0;  ///< of the image: the byte that is another, or from which on nothing is sent
  loopback_net::downloader* owner = nullptr;
  // of the last pull from it
  mutable std::optional<std::uint64_t> began{};
  mutable std::uint64_t ended_at = 0;
  mutable bool completed = false;
};
/// A pull from such. Where nothing is sent any more, the time is up.
struct any_source {
  using parts = loopback_net::parts;

  template <class Consumer>
  static tp::result<tp::receipt> pull(const source& from, const tp::reference& ref, Consumer& to,
                                      tp::pull_options options) noexcept {
    options.retry = {.retries = 0};
    if (ref.id != tp::ref_id{1, 2}) return loopback_net::pull(*from.owner, ref, to, options);
    from.began = options.cursor->offset;
    if (from.what != source::stalls) return loopback_net::pull(*from.owner, ref, to, options);
    std::stop_source stop;
    const auto seen = [&](const tp::progress_event& e) {
      if (e.bytes_done >= from.at) stop.request_stop();
    };
    options.stop = stop.get_token();
    options.progress = seen;
    options.progress_interval = 0ms;
    auto done = loopback_net::pull(*from.owner, ref, to, options);
    from.ended_at = options.cursor->offset;
    from.completed = done.has_value();
    return done ? done : tp::failure(done.error().code == errc::cancelled ? errc::timed_out : done.error().code);
  }
};

TEST(ProofBoundaries, Of_every_length_whatever_is_there_and_whoever_lies) {
  own_folder folder;
  std::uint64_t seed = 0, completed = 0, named = 0, resumed = 0, stalled = 0;
  for (const std::uint64_t length : lengths()) {
    const published right(of_length(length, 1));
    const std::uint64_t header = right.now.schema().header_bytes;
    const byte_vector image = right.now.image_bytes();
    ASSERT_EQ(right.ref.image_bytes, length);
    ASSERT_EQ(right.ref.root, blake3_of(image));
    for (int k = 0; k < 7; ++k) {
      generator random(++seed);
      std::uint64_t wrong = 0, named_before = 0;
      const tp::proof_options how{.most_bytes = std::array{64u, 96u, 128u, 256u, 65536u}[random.below(5)],
                                  .wrong = &wrong};
      const std::uint64_t step = std::uint64_t{1} << tp::level_within(length, how.most_bytes);
      /// The whole groups before a byte. The last one is always fetched.
      const auto before = [&](std::uint64_t at) { return std::min(at, length - 1) / step * step; };
      const std::string name = "m" + std::to_string(seed) + ".safetensors", path = folder.path() / name;
      tp::resume_cursor where;
      const auto pull = [&](std::span<const source> from) {
        auto file = tp::safetensors_file::create(path, {.fsync = false, .resume = &where});
        EXPECT_TRUE(succeeded(file));
        return tp::pull_proved<any_source>(from, right.ref, *file, how, {.cursor = &where}).has_value();
      };

      std::list<model> lies;
      std::list<published> others;
      owners_list owners;
      std::vector<source> from;
      const auto add = [&](source::does what) {
        source s{what};
        s.at = header + random.below(length - header);
        switch (what) {
          case source::nothing: owners.push_back(std::make_unique<loopback_net::downloader>()); break;
          case source::lies:
            data(lies.emplace_back(of_length(length, 1)))[s.at - header] ^= static_cast<std::byte>(1u
                                                                                                   << random.below(8));
            owners.push_back(right.owner(&lies.back()));
            break;
          case source::other_tree:
            others.emplace_back(of_length(length, seed + 7));
            owners.push_back(right.owner(nullptr, &others.back().tree.image()));
            break;
          default: owners.push_back(right.owner());
        }
        if (what == source::stalls && random.chance(0.3)) s.at = length * 99 / 100;
        s.owner = owners.back().get();
        from.push_back(s);
      };

      // what is there: some bytes, of which one may be another
      std::uint64_t there = 0, left = 0;
      if (random.chance(0.5)) {
        add(source::stalls);
        if (!pull(from)) {
          left = there = before(where.offset);
          if (where.offset > 0 && random.chance(0.5)) {
            const std::uint64_t at = random.below(where.offset);
            std::fstream f(folder.path() / ("." + name + ".part"), std::ios::in | std::ios::out | std::ios::binary);
            f.seekp(static_cast<std::streamoff>(at));
            f.put(static_cast<char>(image[at] ^ std::byte{1}));
            there = std::min(there, before(at));
          }
        }
        resumed += there > 0;
        from.clear();
      }

      const std::size_t n = 1 + random.below(4);
      for (std::size_t i = 0; i < n; ++i) {
        const auto what = static_cast<source::does>(random.below(5));
        add(what == source::other_tree && right.tree.is_root_alone() ? source::lies : what);
      }
      const bool done = pull(from);
      bool has_tree = tp::groups_of(length, tp::level_within(length, how.most_bytes)) == 1, ended = false;
      for (std::size_t i = 0; i < n; ++i) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", source " + std::to_string(i));
        const source& s = from[i];
        const bool tree_lies = s.what == source::other_tree && !has_tree && !ended;
        if (ended || tree_lies || (s.what == source::nothing && !has_tree)) {
          EXPECT_FALSE(s.began) << "nobody asks it for the model";
          if (tree_lies) named_before |= std::uint64_t{1} << i;
          continue;
        }
        ASSERT_TRUE(s.began);
        if (*s.began > left || i == 0) {
          EXPECT_EQ(*s.began, there) << "nothing that is right is asked for again, and nothing else is left";
        }
        // once a byte that was wrong has landed anew, what was left behind it counts again
        EXPECT_GE(*s.began, there);
        there = *s.began;
        has_tree = true;
        if (s.what == source::nothing) continue;
        if (s.what == source::lies && s.at >= there) {
          named_before |= std::uint64_t{1} << i;
          there = std::max(there, before(s.at));
          continue;
        }
        if (s.what == source::stalls) {  // at a byte that depends on the window
          const std::uint64_t reached = before(s.ended_at);
          EXPECT_GE(reached, there);
          if (!s.completed) {
            there = reached;
            ++stalled;
            continue;
          }
        }
        ended = true;
        EXPECT_EQ(s.owner->status_of(right.ref.model)->bytes_sent, length - there);
      }
      EXPECT_EQ(done, ended) << seed;
      EXPECT_EQ(wrong, named_before) << seed;
      completed += done;
      named += wrong != 0;
      if (!done) {  // the next one completes it, behind what is right
        EXPECT_GE(where.offset, has_tree ? there : 0) << seed;
        from.clear();
        add(source::right);
        EXPECT_TRUE(pull(from)) << seed;
        EXPECT_TRUE(from[0].began == there || (from[0].began > there && from[0].began <= left)) << seed;
      }
      EXPECT_EQ(file_root(path), right.ref.root) << seed;
    }
  }
  EXPECT_GT(completed, 60u);
  EXPECT_GT(named, 60u);
  EXPECT_GT(resumed, 15u);
  EXPECT_GT(stalled, 15u);
}

TEST(ProofBoundaries, An_empty_model_and_one_of_a_byte) {
  model none;
  none.ready();
  const published empty(std::move(none)), one(bytes_model(1, 5));
  for (const published* p : {&empty, &one}) {
    ASSERT_TRUE(p->tree.is_root_alone());
    EXPECT_EQ(p->ref.root, blake3_of(p->now.image_bytes()));
    model into = p == &one ? bytes_model(1, 6) : model();
    into.ready();
    tp::land to(into.destination());
    const auto pull = [&](const owners_list& from, const tp::proved_reference& of) {
      auto all = sources(from);
      return tp::pull_proved<loopback_net>(std::span(all), of, to, fine, {.retry = {.retries = 0}});
    };
    tp::proved_reference other = p->ref;
    other.root[31] ^= std::byte{1};
    EXPECT_EQ(code_of(pull(owners_of(p->owner()), other)), errc::digest_mismatch);
    other = p->ref;
    ++other.image_bytes;
    EXPECT_EQ(code_of(pull(owners_of(p->owner()), other)), errc::digest_mismatch);
    ASSERT_TRUE(succeeded(pull(owners_of(p->owner()), p->ref)));
    EXPECT_EQ(into.image_bytes(), p->now.image_bytes());
  }
  model lie = bytes_model(1, 5);
  data(lie)[0] ^= std::byte{1};
  model into = bytes_model(1, 6);
  tp::land to(into.destination());
  const auto owners = owners_of(one.owner(&lie), one.owner());
  auto all = sources(owners);
  const auto done = tp::pull_proved<loopback_net>(std::span(all), one.ref, to, fine);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(done->wrong, 1u);
  EXPECT_EQ(into.image_bytes(), one.now.image_bytes());
}
TEST(ProofBoundaries, A_root_beside_the_digest_of_other_bytes_completes_neither) {
  const published other(bytes_model(bytes, 2));
  for (const bool right_version : {false, true}) {
    tp::proved_reference mixed = the_model().ref;  // the version of one model, and the root of the other
    if (right_version) mixed.root = other.ref.root, mixed.tree = other.ref.tree;
    else mixed.model.version = other.ref.model.version;
    published as(bytes_model(bytes, 1));
    as.ref = mixed;
    // owners of either model, whose digest is then right or claimed, with either tree
    for (const published* bytes_of : {&the_model(), &other}) {
      for (const published* tree_of : {&the_model(), &other}) {
        const auto owners = owners_of(as.owner(&bytes_of->now, &tree_of->tree.image()));
        auto all = sources(owners);
        model into = bytes_model(bytes, 9);
        tp::land to(into.destination());
        const auto done = tp::pull_proved<loopback_net>(std::span(all), mixed, to, fine, {.retry = {.retries = 0}});
        EXPECT_EQ(code_of(done), errc::digest_mismatch);
      }
    }
  }
}

}  // namespace proof_boundaries_test
