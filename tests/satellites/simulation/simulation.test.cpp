// Everything that can go wrong between an owner and its recipients, from seeds: 20,000 in an ordinary run, more with
// TENSORPULL_SIM_SEEDS. A failure prints its seed and every step; TENSORPULL_SIM_FIRST=<seed> TENSORPULL_SIM_SEEDS=1
// with the test's name runs it again.
#include <tensorpull/satellites/simulation/run_seeds.hpp>
#include <tensorpull/tensorpull.hpp>

#include <tensorpull/consumers/any_schema/digest.hpp>
#include <tensorpull/consumers/any_schema/new_model.hpp>
#include <tensorpull/consumers/tee.hpp>
#include <tensorpull/testing/failing_allocation.hpp>

#include <gtest/gtest.h>

#include <set>

namespace tests {
struct sensor_model {
  float w[5][7], b[5];
  std::uint8_t mask[13];
  double scale;
};
}  // namespace tests
BOOST_HANA_ADAPT_STRUCT(tests::sensor_model, w, b, mask, scale);

namespace simulation_test {

using namespace tensorpull;
using namespace tensorpull::testing;

template <class... Policies>
using net = pipeline<tensor_list, simulated, Policies...>;

/// So many of a thousand seeds of the whole.
seed_range part(std::uint64_t per_thousand) {
  seed_range r = seed_range::from_environment(20'000);
  r.count = std::max<std::uint64_t>(1, r.count * per_thousand / 1000);
  return r;
}

template <class Net, class Consumer = land, class Model = guarded_tensors>
simulation_report expect_truth(std::uint64_t per_thousand) {
  const seed_range seeds = part(per_thousand);
  const auto sum = run_seeds<Net, Consumer, Model>(seeds);
  EXPECT_TRUE(sum.passed()) << "seed " << sum.seed << ": " << sum.first_failure;
  EXPECT_GT(sum.completed + sum.completed_unverified, 0u);
  if (Net::parts::integrity::whole) {
    EXPECT_EQ(sum.unverified_wrong, 0u);
  } else {
    EXPECT_EQ(sum.completed, 0u) << "nobody compared a digest of the whole";
  }
  if (seeds.count >= 1000) {
    EXPECT_GT(sum.frame_faults, seeds.count / 100) << "the faults have to happen";
    for (const errc e :
         {errc::connection_lost, errc::timed_out, errc::withdrawn, errc::stale_version, errc::unexpected_frame})
      EXPECT_GT(sum.failed[static_cast<std::size_t>(e)], 0u) << to_string(e);
    EXPECT_GT(sum.went_on, seeds.count / 2);
    for (const verdict v : {verdict::quorum, verdict::failed, verdict::uncertified, verdict::withdrawn,
                            Net::parts::integrity::whole ? verdict::completed : verdict::completed_unverified})
      EXPECT_GT(sum.settled[static_cast<std::size_t>(v)], 0u) << to_string(v);
    const bool can_be_resumed = Net::parts::integrity::whole && requires(const Consumer& c) { c.read_back(); };
    EXPECT_EQ(sum.resumed > 0, can_be_resumed);
  }
  return sum;
}

TEST(Simulation, Whatever_goes_wrong_completed_is_true) { expect_truth<net<fixed_bytes<256>>>(450); }
TEST(Simulation, Digests_of_chunks_and_of_the_whole_with_any_chunk_length) {
  expect_truth<net<bytes_up_to<1024>, chunk_and_image_digest>>(150);
}
TEST(Simulation, Chunks_that_end_where_tensors_end) { expect_truth<net<per_tensor<600>>>(100); }
/// An owner that shortens chunks and allows little at a time.
struct narrow : default_limits {
  static constexpr std::uint64_t chunk_cap_bytes = 100;
  static constexpr std::size_t pipelined_requests = 2, transfers_per_connection = 1;
};
TEST(Simulation, An_owner_that_shortens_chunks) { expect_truth<net<bytes_up_to<1024>, narrow>>(50); }
TEST(Simulation, Native_frames) { expect_truth<net<whole>>(100); }
TEST(Simulation, Digests_of_chunks_alone_never_claim_completion) {
  expect_truth<net<fixed_bytes<128>, chunk_digest>>(50);
}
TEST(Simulation, A_model_known_to_the_compiler) {
  using static_net = pipeline<raw_tensors<tests::sensor_model>, simulated, fixed_bytes<64>>;
  expect_truth<static_net, land, guarded_object<raw_tensors<tests::sensor_model>>>(50);
}
/// A model and its digest at once.
struct landed_and_hashed {
  static constexpr bool irrevocable = false;
  explicit landed_and_hashed(const destination_view& to) : model(to), hash(to.schema->fingerprint), both(model, hash) {}
  std::uint64_t fingerprint() const noexcept { return both.fingerprint(); }
  const image_schema* schema() const noexcept { return both.schema(); }
  result<void> begin(const description& d) noexcept { return both.begin(d); }
  prepared prepare(std::uint64_t o, std::uint64_t n, std::span<std::span<std::byte>> out) noexcept {
    return both.prepare(o, n, out);
  }
  result<void> commit(std::uint64_t o, std::span<const std::byte> b) noexcept { return both.commit(o, b); }
  result<void> chunk(std::uint64_t o, std::uint64_t n) noexcept { return both.chunk(o, n); }
  result<void> finish(const receipt& r) noexcept {
    EXPECT_TRUE(r.outcome != outcome::completed || hash.value() == r.digest);
    return both.finish(r);
  }
  void abandon(const error& e) noexcept { both.abandon(e); }
  land model;
  basic_digest<xxhash_digest, 512> hash;
  tensorpull::tee<land, basic_digest<xxhash_digest, 512>> both;
};
TEST(Simulation, A_consumer_of_two_parts) { expect_truth<net<fixed_bytes<200>>, landed_and_hashed>(50); }

constexpr std::uint32_t only(std::initializer_list<fault> faults) {
  std::uint32_t mask = 0;
  for (const fault f : faults) mask |= 1u << static_cast<unsigned>(f);
  return mask;
}
TEST(Simulation, An_owner_that_restarts_with_the_same_content_costs_nothing_but_time) {
  const simulation_options restarts{.most_faults = 40,
                                    .fault_mask = only({fault::restart_owner, fault::reset, fault::cut, fault::lose}),
                                    .frame_faults = false,
                                    .flips = false,
                                    .transactions = false};
  const auto expect = [](const simulation_report& sum) {
    EXPECT_TRUE(sum.passed()) << "seed " << sum.seed << ": " << sum.first_failure;
    for (std::size_t i = 0; i < sum.failed.size(); ++i)
      EXPECT_TRUE(sum.failed[i] == 0 || is_passing(static_cast<errc>(i))) << to_string(static_cast<errc>(i));
    EXPECT_GT(sum.went_on, 300u);
    EXPECT_GT(sum.completed, sum.unconfirmed * 5);
  };
  expect(run_seeds<net<fixed_bytes<256>>>({0, 1000}, restarts));
  expect(run_seeds<net<bytes_up_to<1024>, chunk_and_image_digest>>({0, 1000}, restarts));
}

struct heap_tensors {
  std::vector<std::unique_ptr<std::byte[]>> memory;
  result<std::byte*> allocate(const tensor_entry& entry) {
    memory.push_back(std::make_unique<std::byte[]>(static_cast<std::size_t>(entry.size_bytes())));
    return memory.back().get();
  }
  void clear() noexcept { memory.clear(); }
};
/// A model and another one that is made from the header. One of the allocations fails now and then.
struct short_of_memory {
  static constexpr bool irrevocable = false;
  static inline std::uint64_t headers = 0, failures = 0;
  explicit short_of_memory(const destination_view& to)
      : model(to), made({}, {.max_bytes = 1u << 20}), both(model, made) {}
  std::uint64_t fingerprint() const noexcept { return both.fingerprint(); }
  const image_schema* schema() const noexcept { return both.schema(); }
  result<void> begin(const description& d) noexcept {
    ++headers;
    return both.begin(d);
  }
  prepared prepare(std::uint64_t o, std::uint64_t n, std::span<std::span<std::byte>> out) noexcept {
    return both.prepare(o, n, out);
  }
  result<void> commit(std::uint64_t o, std::span<const std::byte> b) noexcept {
    const failing_allocation now(headers % 2 == 0 ? 1 + headers / 2 % 7 : 0);
    const auto done = both.commit(o, b);
    if (now.happened()) ++failures, owes_error = true;
    if (!done) expect_out_of_memory(done);
    return done;
  }
  /// What is wrong with a header is told when its chunk is whole, since a damaged chunk comes again.
  result<void> chunk(std::uint64_t o, std::uint64_t n) noexcept {
    const auto done = both.chunk(o, n);
    if (owes_error) expect_out_of_memory(done);
    return done;
  }
  void rewind(std::uint64_t o) noexcept { owes_error = false, both.rewind(o); }
  void expect_out_of_memory(const result<void>& done) noexcept {
    EXPECT_EQ(done ? errc{} : done.error().code, errc::out_of_memory);
    owes_error = false;
  }
  result<void> finish(const receipt& r) noexcept { return both.finish(r); }
  void abandon(const error& e) noexcept { both.abandon(e); }
  land model;
  new_model<heap_tensors> made;
  tensorpull::tee<land, new_model<heap_tensors>> both;
  bool owes_error = false;
};
TEST(Simulation, Recipients_whose_allocations_fail) {
  using static_net = pipeline<raw_tensors<tests::sensor_model>, simulated, fixed_bytes<64>>;
  const seed_range all = part(50);
  simulation_report sum;
  for (std::uint64_t i = 0; i < all.count && sum.passed(); ++i) {
    short_of_memory::headers = 0;  // so that a seed alone says which fail
    sum.add(run_seeds<static_net, short_of_memory, guarded_object<raw_tensors<tests::sensor_model>>>(
        {all.first + i, 1, all.trace}));
  }
  EXPECT_TRUE(sum.passed()) << "seed " << sum.seed << ": " << sum.first_failure;
  EXPECT_GT(sum.completed, 0u);
  EXPECT_GT(sum.failed[static_cast<std::size_t>(errc::out_of_memory)], 0u);
  EXPECT_GE(short_of_memory::failures, sum.failed[static_cast<std::size_t>(errc::out_of_memory)]);
}

TEST(Simulation, The_same_seed_gives_the_same_trace) {
  std::set<std::uint64_t> hashes;
  std::vector<std::unique_ptr<std::byte[]>> elsewhere;  // moves what is allocated later
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const auto first = simulate<net<fixed_bytes<256>>>(seed);
    elsewhere.push_back(std::make_unique<std::byte[]>(100 + seed * 37));
    const auto again = simulate<net<fixed_bytes<256>>>(seed);
    ASSERT_EQ(first.trace_hash, again.trace_hash) << seed;
    ASSERT_EQ(first.steps, again.steps);
    hashes.insert(first.trace_hash);
  }
  EXPECT_EQ(hashes.size(), 300u);
}
TEST(Simulation, Without_faults_every_transfer_completes_at_once) {
  const simulation_options calm{.most_faults = 0, .frame_faults = false, .flips = false, .transactions = false};
  const auto sum = run_seeds<net<fixed_bytes<256>>>({0, 500}, calm);
  EXPECT_TRUE(sum.passed());
  for (const errc e : {errc::connection_lost, errc::digest_mismatch, errc::bad_frame, errc::unexpected_frame,
                       errc::withdrawn, errc::ended, errc::timed_out})
    EXPECT_EQ(sum.failed[static_cast<std::size_t>(e)], 0u) << to_string(e);
}

// The oracle can fail: each of these is broken in one way.

/// Changes one byte after the digest was computed.
struct spoiling : land {
  explicit spoiling(const destination_view& to) noexcept : land(to), to_(to) {}
  result<void> finish(const receipt&) noexcept {
    for (std::size_t i = 0; i < to_.schema->tensor_count; ++i)
      if (to_.schema->tensors[i].size_bytes() > 0) {
        to_.address(i)[0] ^= std::byte{1};
        return result<void>{};
      }
    return {};
  }
  destination_view to_;
};
TEST(SimulationFinds, A_consumer_that_changes_a_byte_is_a_false_completion) {
  const auto sum = run_seeds<net<fixed_bytes<256>>, spoiling>({0, 30}, {}, nullptr, 1000);
  EXPECT_GT(sum.false_completions, 20u);
  EXPECT_FALSE(sum.passed());
}
struct trespassing : spoiling {
  using spoiling::spoiling;
  result<void> finish(const receipt&) noexcept {
    for (std::size_t i = 0; i < to_.schema->tensor_count; ++i)
      to_.address(i)[to_.schema->tensors[i].size_bytes()] = std::byte{1};
    return {};
  }
};
TEST(SimulationFinds, A_byte_behind_a_tensor) {
  const auto sum = run_seeds<net<fixed_bytes<256>>, trespassing>({0, 30}, {}, nullptr, 1000);
  EXPECT_GT(sum.guard_violations, 0u);
  EXPECT_FALSE(sum.passed());
}
TEST(SimulationFinds, Wrong_bytes_that_nobody_checked_which_are_no_false_completion) {
  const auto sum = run_seeds<net<fixed_bytes<256>, unverified>>({0, 1000}, {}, nullptr);
  EXPECT_GT(sum.unverified_wrong, 0u);
  EXPECT_EQ(sum.completed, 0u);
  EXPECT_EQ(sum.false_completions, 0u);
  EXPECT_TRUE(sum.passed());
}
/// Says that everything is the same.
struct careless_hash {
  static constexpr digest_kind kind = digest_kind::xxh3_64;
  void update(std::span<const std::byte>) noexcept {}
  std::uint64_t digest() const noexcept { return 7; }
};
TEST(SimulationFinds, A_digest_that_does_not_look) {
  const auto sum = run_seeds<net<fixed_bytes<256>, basic_image_digest<careless_hash>>>({0, 1000}, {.fault_mask = 0},
                                                                                       nullptr, 1000);
  EXPECT_GT(sum.false_completions, 0u);
}
TEST(SimulationFinds, A_settlement_that_says_what_nobody_has_said) {
  const auto sum = run_seeds<net<fixed_bytes<256>>>({0, 300}, {.forged = true}, nullptr, 1000);
  EXPECT_GT(sum.false_settlements, 20u);
  EXPECT_GT(sum.false_counts, 0u);
  EXPECT_EQ(sum.false_completions, 0u) << "what the recipients say is still true";
}
TEST(SimulationFinds, A_settlement_for_somebody_whose_bytes_are_others) {
  const auto sum = run_seeds<net<fixed_bytes<256>>, spoiling>({0, 100}, {}, nullptr, 1000);
  EXPECT_GT(sum.false_settlements, 10u);
}
struct never_ready : land {
  using land::land;
  prepared prepare(std::uint64_t, std::uint64_t, std::span<std::span<std::byte>>) noexcept { return {}; }
};
TEST(SimulationFinds, Somebody_who_never_completes) {
  const auto sum = run_seeds<net<fixed_bytes<256>>, never_ready>({0, 3}, {.give_up = std::chrono::seconds(2)}, nullptr,
                                                                 1000);
  EXPECT_EQ(sum.stuck, 3u);
}

}  // namespace simulation_test
