// Whole transfers whose replies are damaged on their way: a pull ends `completed` with exactly the published bytes, or
// it is an error. Bits of control frames, of payload, of both and of anything are flipped, for a model in memory, for
// one that is made from the header, and for a file.
#include "../support/pair.hpp"
#include "../support/whole_schedule.hpp"
#include "safetensors_text.hpp"

#include <tensorpull/consumers/any_schema/new_model.hpp>
#include <tensorpull/consumers/any_schema/safetensors_file.hpp>

#include <memory>

namespace mutated_replies_test {

using namespace test;

model published_model() {
  model m;
  m.add("a.weight", dtype::f32, {5, 7}).add("b", dtype::i64, {3}).add("mask", dtype::u8, {13});
  return std::move(m.ready());
}

/// What arrives, as an image: nothing if nothing stands under its final name.
struct into_memory {
  explicit into_memory(const std::string&) {}
  model mine = published_model();
  tp::land to{mine.destination()};
  tp::land& consumer() { return to; }
  bool holds(const model& source, const_byte_span) { return mine.same_tensors(source); }
};
struct heap_tensors {
  std::vector<std::unique_ptr<std::byte[]>> memory;
  tp::result<std::byte*> allocate(const tp::tensor_entry& entry) {
    return memory.emplace_back(new std::byte[entry.size_bytes() + 1]).get();
  }
  void clear() noexcept { memory.clear(); }
};
struct into_new_model {
  explicit into_new_model(const std::string&) {}
  tp::new_model<heap_tensors> to{heap_tensors{}, {.max_bytes = 1 << 20}};
  tp::new_model<heap_tensors>& consumer() { return to; }
  bool holds(const model& source, const_byte_span) {
    const tp::image_schema &made = to.made(), &theirs = source.schema();
    if (made.fingerprint != theirs.fingerprint || made.tensor_count != theirs.tensor_count ||
        to.allocator().memory.size() != theirs.tensor_count)
      return false;
    for (std::size_t i = 0; i < theirs.tensor_count; ++i) {
      const auto wanted = source.bytes_of(theirs.tensors[i].name);
      if (made.tensors[i].name != theirs.tensors[i].name ||
          !std::equal(wanted.begin(), wanted.end(), to.allocator().memory[i].get()))
        return false;
    }
    return true;
  }
};
struct into_file {
  explicit into_file(const std::string& name)
      : path(name), to(tp::safetensors_file::create(name, {.fsync = false, .max_bytes = 1 << 16})) {
    EXPECT_TRUE(to);
  }
  std::string path;
  tp::result<tp::safetensors_file> to;
  tp::safetensors_file& consumer() { return *to; }
  bool holds(const model&, const_byte_span image) {
    std::ifstream in(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    return std::filesystem::remove(path) && text.size() == image.size() &&
           std::memcmp(text.data(), image.data(), image.size()) == 0;
  }
};

struct tally {
  std::uint64_t completed = 0, unconfirmed = 0, failed = 0, damaged = 0;
};

class MutatedReplies : public folder_test {
 protected:
  /// One transfer whose replies `damage` changes: it is given each whole frame and its number.
  template <class Integrity, class Into, class Damage>
  void pull(Damage damage, bool version_is_known = false) {
    pair p({}, 1);
    p.left.publish(source_);
    std::uint64_t n = 0;
    p.owner_lies = [&](byte_vector& f) {
      if (n < frames_.size()) damage(f, n);
      ++n;
    };
    bool finished = false;
    {
      Into into(path);
      using consumer_type = std::remove_reference_t<decltype(into.consumer())>;
      tp::transfer<consumer_type, tp::fixed_bytes<200>, Integrity> t(
          into.consumer(), {.ref = {1, 2}, .version = version_is_known ? version_of(source_) : 0}, {}, 1);
      tp::no_transfer idle;
      p.right.end.begin_pull();
      p.run(idle, t, [&] { return t.ended() || t.pause().count() > 0; });
      // a hang is a lost connection to a driver
      t.fail({p.right_error ? p.right_error->code : errc::connection_lost, 0, 0, {}});
      const auto done = t.outcome();
      finished = done.has_value();
      if (!done) ++sum_.failed;
      else ++(done->confirmed ? sum_.completed : sum_.unconfirmed);
      if (done) {
        sum_.damaged += done->damaged;
        ASSERT_EQ(done->outcome, tp::outcome::completed);
        ASSERT_EQ(done->bytes, image_.size());
        ASSERT_EQ(done->version, version_of(source_));
        ASSERT_TRUE(into.holds(source_, image_)) << "completed, with other bytes";
      }
      p.right.end.end_pull(t);
    }
    if constexpr (std::is_same_v<Into, into_file>) {
      ASSERT_TRUE(std::filesystem::is_empty(directory))
          << (finished ? "a part is left beside the file" : "a file after an error");
    }
  }

  /// The frames of a transfer that nobody meddles with.
  template <class Integrity, class Into>
  void learn() {
    std::vector<byte_vector> seen;
    frames_.assign(64, {});
    sum_ = {};
    pull<Integrity, Into>([&](byte_vector& f, std::uint64_t) { seen.push_back(f); });
    frames_ = std::move(seen);
    ASSERT_GE(frames_.size(), 4u);
    ASSERT_EQ(kind_of(frames_.front()), tp::frame_kind::description);
    ASSERT_EQ(kind_of(frames_.back()), tp::frame_kind::confirmed);
    ASSERT_EQ(sum_.completed, 1u);
    sum_ = {};
  }
  /// Bytes of a frame that are no payload.
  std::size_t head_bytes(std::size_t frame) const {
    return kind_of(frames_[frame]) == tp::frame_kind::chunk ? 80 : frames_[frame].size();
  }
  static void flip(byte_vector& f, std::uint64_t bit) {
    f[static_cast<std::size_t>(bit / 8)] ^= static_cast<std::byte>(1u << bit % 8);
  }
  static void flip_payload(byte_vector& f, std::uint64_t seed) {
    const auto m = tp::detail::payload_prefix::read(std::span<const std::byte, 80>(f.data(), 80));
    if (m) flip(f, 80 * 8 + generator(seed).below(std::uint64_t{m->length} * 8));
  }

  template <class Integrity, class Into>
  void every_bit_of_first_and_last() {
    learn<Integrity, Into>();
    for (const std::size_t frame : {std::size_t{0}, frames_.size() - 1})
      for (std::uint64_t bit = 0; bit < frames_[frame].size() * 8; ++bit) {
        pull<Integrity, Into>(
            [&](byte_vector& f, std::uint64_t n) {
              if (n == frame) flip(f, bit);
            },
            bit % 2 != 0);
        ASSERT_FALSE(HasFatalFailure()) << "bit " << bit << " of frame " << frame;
      }
  }
  template <class Integrity, class Into>
  void every_control_bit_with_payload(std::uint64_t payload_bits) {
    learn<Integrity, Into>();
    for (std::size_t frame = 0; frame < frames_.size(); ++frame)
      for (std::uint64_t bit = 0; bit < head_bytes(frame) * 8; ++bit)
        for (std::uint64_t seed = 0; seed < payload_bits; ++seed) {
          const std::size_t victim = 1 + static_cast<std::size_t>(generator(bit * 8 + seed).below(frames_.size() - 2));
          pull<Integrity, Into>(
              [&](byte_vector& f, std::uint64_t n) {
                if (n == victim) flip_payload(f, bit ^ seed << 32);
                if (n == frame) flip(f, bit);
              },
              seed % 2 != 0);
          ASSERT_FALSE(HasFatalFailure()) << "bit " << bit << " of frame " << frame << ", payload seed " << seed;
        }
  }
  template <class Integrity, class Into>
  void random_damage(std::uint64_t times) {
    learn<Integrity, Into>();
    for (std::uint64_t seed = 0; seed < times; ++seed) {
      generator random(seed);
      const bool known = random.below(2) != 0;
      pull<Integrity, Into>(
          [&](byte_vector& f, std::uint64_t) {
            if (random.below(frames_.size()) > 1) return;
            for (std::uint64_t k = 1 + random.below(3); k > 0; --k)
              flip(f, random.below(random.below(2) != 0 ? f.size() * 8 : std::min<std::size_t>(f.size(), 112) * 8));
          },
          known);
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
    }
  }
  /// The damage happened, and did not merely fail.
  template <class Integrity>
  void expect_both() const {
    EXPECT_GT(sum_.failed, 50u);
    EXPECT_GT(sum_.completed, 10u);
    EXPECT_GT(sum_.unconfirmed, 0u);
    EXPECT_EQ(sum_.damaged > 0, Integrity::per_chunk);
  }

  model source_ = published_model().fill(1);
  byte_vector image_ = source_.image_bytes();
  std::vector<byte_vector> frames_;
  tally sum_{};
};

TEST_F(MutatedReplies, Every_bit_of_the_first_and_the_last_frame) {
  every_bit_of_first_and_last<tp::image_digest, into_memory>();
  every_bit_of_first_and_last<tp::image_digest, into_new_model>();
  every_bit_of_first_and_last<tp::image_digest, into_file>();
  every_bit_of_first_and_last<tp::chunk_and_image_digest, into_memory>();
  every_bit_of_first_and_last<tp::chunk_and_image_digest, into_new_model>();
}
TEST_F(MutatedReplies, Every_control_bit_together_with_a_bit_of_payload) {
  every_control_bit_with_payload<tp::image_digest, into_memory>(::test::repetitions(8));
  every_control_bit_with_payload<tp::image_digest, into_new_model>(::test::repetitions(8));
  every_control_bit_with_payload<tp::image_digest, into_file>(1);
  every_control_bit_with_payload<tp::chunk_and_image_digest, into_memory>(::test::repetitions(8));
  every_control_bit_with_payload<tp::chunk_and_image_digest, into_new_model>(::test::repetitions(8));
}
TEST_F(MutatedReplies, A_damaged_chunk_of_the_header_of_a_new_model_comes_again) {
  learn<tp::chunk_and_image_digest, into_new_model>();
  const std::uint64_t bits = source_.schema().header_bytes * 8;
  for (std::uint64_t bit = 0; bit < bits; ++bit) {
    bool done = false;
    pull<tp::chunk_and_image_digest, into_new_model>([&](byte_vector& f, std::uint64_t) {
      if (done || kind_of(f) != tp::frame_kind::chunk) return;
      const auto m = tp::detail::payload_prefix::read(std::span<const std::byte, 80>(f.data(), 80));
      done = bit / 8 < m->offset + m->length;
      if (done) flip(f, (80 - m->offset) * 8 + bit);
    });
    ASSERT_FALSE(HasFatalFailure()) << "bit " << bit;
  }
  EXPECT_EQ(sum_.completed, bits);
  EXPECT_EQ(sum_.damaged, bits);
}
TEST_F(MutatedReplies, Anything_in_memory) {
  random_damage<tp::image_digest, into_memory>(::test::repetitions(20'000));
  expect_both<tp::image_digest>();
  random_damage<tp::chunk_and_image_digest, into_memory>(::test::repetitions(20'000));
  expect_both<tp::chunk_and_image_digest>();
}
TEST_F(MutatedReplies, Anything_in_a_new_model) {
  random_damage<tp::image_digest, into_new_model>(::test::repetitions(20'000));
  expect_both<tp::image_digest>();
  random_damage<tp::chunk_and_image_digest, into_new_model>(::test::repetitions(20'000));
  expect_both<tp::chunk_and_image_digest>();
}
TEST_F(MutatedReplies, Anything_in_a_file) {
  random_damage<tp::image_digest, into_file>(500);
  expect_both<tp::image_digest>();
  random_damage<tp::chunk_and_image_digest, into_file>(500);
  expect_both<tp::chunk_and_image_digest>();
}

}  // namespace mutated_replies_test
