// Tensors on a device: memory that is reachable only through calls, at both ends of a transfer, alone and among tensors
// in memory.
#include "../support/pair.hpp"
#include "values.hpp"

#include <tensorpull/consumers/any_schema/digest.hpp>
#include <tensorpull/consumers/average/weighted_average.hpp>
#include <tensorpull/consumers/double_buffered.hpp>
#include <tensorpull/consumers/tee.hpp>

#include <map>

namespace device_tensors_test {

using namespace test;

/// A device's memory by token, with what tests want to know about the calls.
struct device {
  std::map<std::uintptr_t, byte_vector> memory;
  std::uint64_t writes = 0, reads = 0, longest = 0;
  std::uint64_t writes_left = ~std::uint64_t{0};

  static tp::result<void> read(const void* context, std::uintptr_t token, std::uint64_t offset,
                               byte_span out) noexcept {
    auto& self = *const_cast<device*>(static_cast<const device*>(context));
    const auto& from = self.memory.at(token);
    ++self.reads;
    EXPECT_LE(offset + out.size(), from.size());
    std::memcpy(out.data(), from.data() + offset, out.size());
    return {};
  }
  static tp::result<void> write(void* context, std::uintptr_t token, std::uint64_t offset,
                                const_byte_span bytes) noexcept {
    auto& self = *static_cast<device*>(context);
    if (self.writes_left-- == 0) return tp::failure(tp::error{errc::io, 5, 0, {}});
    auto& to = self.memory.at(token);
    ++self.writes;
    self.longest = std::max<std::uint64_t>(self.longest, bytes.size());
    EXPECT_FALSE(bytes.empty());
    EXPECT_LE(offset + bytes.size(), to.size());
    std::memcpy(to.data() + offset, bytes.data(), bytes.size());
    return {};
  }
};

enum class place {
  device,
  memory,
};

/// A model of some tensors on the device and some in memory.
class device_model {
 public:
  device_model(std::vector<place> places, std::size_t staging_bytes, std::uint64_t seed, bool readable = true)
      : staging_(staging_bytes) {
    const struct {
      const char* name;
      dtype type;
      std::vector<std::uint64_t> shape;
    } tensors[] = {{"a", dtype::f32, {5, 7}}, {"b", dtype::f64, {3}}, {"c", dtype::f32, {101}},
                   {"d", dtype::u8, {13}},    {"e", dtype::f32, {0}}, {"f", dtype::f32, {}}};
    generator random(seed);
    std::vector<tp::mutable_tensor_view> views;
    for (std::size_t i = 0; i < std::size(tensors); ++i) {
      const auto& t = tensors[i];
      byte_vector& bytes = on.memory[i + 1];  // elements of a map stay where they are
      bytes.resize(static_cast<std::size_t>(*tp::size_bytes(t.type, t.shape)));
      random.fill(bytes);
      const bool far = places[i % places.size()] == place::device;
      views.push_back({t.name, t.type, t.shape, far ? reinterpret_cast<std::byte*>(i + 1) : bytes.data(), {}, far});
    }
    const tp::source_reader reader{&device::read, &on};
    auto made = tp::dynamic_image::make(std::span<const tp::mutable_tensor_view>(views), {},
                                        {&device::write, &on, staging_, readable ? &reader : nullptr});
    EXPECT_TRUE(succeeded(made));
    image_.push_back(std::move(*made));
  }
  device_model(const device_model&) = delete;

  tp::source_view source() const { return image_.front().source(); }
  tp::destination_view destination() { return image_.front().destination(); }
  device on;

 private:
  byte_vector staging_;
  std::vector<tp::dynamic_image> image_;
};

tp::ref_id publish(pair& p, const device_model& m) {
  tp::xxhash_digest all;
  EXPECT_TRUE(tp::hash_range(all, m.source(), 0, m.source().schema->image_bytes));
  EXPECT_TRUE(p.left.references.publish(m.source(), all.digest(), true, {1, 2}, 0u));
  return {1, 2};
}
template <class Integrity = tp::image_digest, class Consumer>
tp::result<tp::receipt> pull(pair& p, Consumer& to, std::uint64_t chunk_bytes) {
  tp::transfer<Consumer, tp::bytes_up_to<4096>, Integrity> t(to, {.ref = {1, 2}}, {chunk_bytes}, p.right.end.next_id());
  return p.pull(t);
}

const std::vector<place> layouts[] = {
    {place::device}, {place::device, place::memory}, {place::memory, place::device, place::device}};

TEST(DeviceTensors, Arrive_from_a_device_on_a_device_however_they_are_cut) {
  generator random(5);
  for (const auto& from_places : layouts)
    for (const auto& to_places : layouts)
      for (const std::size_t staging : {1u, 3u, 64u, 65536u})
        for (const std::uint64_t chunk : {1u, 7u, 101u, 4096u}) {
          const device_model from(from_places, 64, 1);
          device_model to(to_places, staging, 2);
          pair p(chunk == 101 ? cut{9, &random} : cut{});
          publish(p, from);
          tp::land consumer(to.destination());
          const auto done = pull(p, consumer, chunk);
          ASSERT_TRUE(completed(done)) << " staging " << staging << " chunk " << chunk;
          ASSERT_EQ(to.on.memory, from.on.memory)
              << "from layout " << (&from_places - layouts) << " to " << (&to_places - layouts) << " staging "
              << staging << " chunk " << chunk;
          EXPECT_LE(to.on.longest, staging);
          EXPECT_GT(to.on.writes, 0u);
        }
}

TEST(DeviceTensors, A_damaged_chunk_is_written_again) {
  const device_model from({place::device}, 64, 1);
  device_model to({place::device, place::memory}, 16, 2);
  pair p;
  publish(p, from);
  // not every third: with eight requests on their way that is the same chunk each time
  p.owner_lies = [seen = 0](byte_vector& f) mutable {
    if (kind_of(f) == tp::frame_kind::chunk && ++seen % 5 == 0)
      f[tp::detail::payload_prefix::bytes + 5] ^= std::byte{0x40};
  };
  tp::land consumer(to.destination());
  const auto done = pull<tp::chunk_and_image_digest>(p, consumer, 50);
  ASSERT_TRUE(succeeded(done));
  EXPECT_GT(done->damaged, 0u);
  EXPECT_EQ(to.on.memory, from.on.memory);
}

TEST(DeviceTensors, A_write_that_fails_ends_the_transfer_with_the_tensors_name) {
  for (std::uint64_t writes = 0; writes < 12; ++writes) {
    const device_model from({place::device}, 64, 1);
    device_model to({place::device}, 64, 2);
    to.on.writes_left = writes;
    pair p;
    publish(p, from);
    tp::land consumer(to.destination());
    const auto done = pull(p, consumer, 64);
    if (to.on.writes_left != ~std::uint64_t{0}) continue;  // it was not reached
    ASSERT_EQ(code_of(done), errc::io);
    EXPECT_EQ(done.error().system, 5);
    EXPECT_EQ(done.error().name.view().size(), 1u) << "a tensor's name";
  }
}

TEST(DeviceTensors, After_a_write_that_failed_a_transfer_goes_on_from_the_cursor) {
  const device_model from({place::device}, 64, 1);
  device_model to({place::device}, 64, 2);
  using transfer_type = tp::transfer<tp::land, tp::fixed_bytes<64>, tp::image_digest>;
  tp::resume_cursor where;
  {
    pair p;
    publish(p, from);
    tp::land consumer(to.destination());
    transfer_type t(consumer, {.ref = {1, 2}}, {}, p.right.end.next_id());
    to.on.writes_left = 8;
    ASSERT_FALSE(p.pull(t));
    where = t.cursor();
    ASSERT_TRUE(where);
  }
  pair p;
  publish(p, from);
  tp::land consumer(to.destination());
  transfer_type t(consumer, {.ref = {1, 2}}, {}, p.right.end.next_id());
  EXPECT_TRUE(t.resume(where)) << "the digest is that of the bytes that landed";
  EXPECT_EQ(t.landed_bytes(), where.offset);
  ASSERT_TRUE(p.pull(t));
  EXPECT_EQ(to.on.memory, from.on.memory);
}

TEST(DeviceTensors, A_resumed_transfer_reads_back_what_is_there) {
  for (const bool readable : {true, false}) {
    const device_model from({place::device}, 64, 1);
    device_model to({place::device, place::memory}, 64, 2, readable);
    using transfer_type = tp::transfer<tp::land, tp::fixed_bytes<64>, tp::image_digest>;
    tp::resume_cursor where;
    {
      pair p;
      publish(p, from);
      tp::land consumer(to.destination());
      transfer_type t(consumer, {.ref = {1, 2}}, {}, p.right.end.next_id());
      tp::no_transfer idle;
      p.right.end.begin_pull();
      p.run(idle, t, [&] { return t.landed_bytes() > t.total_bytes() * 3 / 4 && t.total_bytes() > 0; });
      where = t.cursor();
      EXPECT_EQ(static_cast<bool>(where), readable) << "no cursor for what nobody can read";
      t.fail({errc::cancelled, 0, 0, {}});
    }
    pair p;
    publish(p, from);
    tp::land consumer(to.destination());
    transfer_type t(consumer, {.ref = {1, 2}}, {}, p.right.end.next_id());
    if (!readable) where = {{1, 2}, from.source().schema->fingerprint, 1, 100, 0};
    EXPECT_EQ(t.resume(where), readable);
    const auto done = p.pull(t);
    ASSERT_TRUE(completed(done));
    EXPECT_EQ(to.on.memory, from.on.memory);
  }
  // What changed meanwhile is not believed.
  const device_model from({place::device}, 64, 1);
  device_model to({place::device}, 64, 2);
  tp::land consumer(to.destination());
  tp::transfer<tp::land, tp::fixed_bytes<64>, tp::image_digest> t(consumer, {.ref = {1, 2}}, {}, 1);
  EXPECT_FALSE(t.resume({{1, 2}, from.source().schema->fingerprint, 1, from.source().schema->image_bytes - 10, 77}));
  EXPECT_GT(to.on.reads, 0u);
}

TEST(DeviceTensors, Behind_other_consumers) {
  const device_model from({place::device, place::memory}, 64, 1);
  {
    device_model front({place::device}, 32, 2), back({place::device}, 32, 3);
    auto both = tp::double_buffered::make(front.destination(), back.destination());
    ASSERT_TRUE(both) << "two devices with the same tokens";
    EXPECT_EQ(code_of(tp::double_buffered::make(front.destination(), front.destination())), errc::invalid_argument);
    pair p;
    publish(p, from);
    ASSERT_TRUE(pull(p, *both, 100));
    EXPECT_EQ(back.on.memory, from.on.memory);
    EXPECT_EQ(front.on.writes, 0u);
  }
  device_model to({place::memory, place::device}, 32, 2), copy({place::device}, 7, 3);
  tp::land first(to.destination()), second(copy.destination());
  tp::tee both(first, second);
  pair p;
  publish(p, from);
  ASSERT_TRUE(pull(p, both, 100));
  EXPECT_EQ(to.on.memory, from.on.memory);
  EXPECT_EQ(copy.on.memory, from.on.memory);
}

TEST(DeviceTensors, Are_refused_by_name_where_nothing_can_write_them) {
  device there;
  there.memory[1].resize(8);
  std::array<std::byte, 8> staging;
  const std::uint64_t shape[] = {8};
  const tp::mutable_tensor_view far[] = {{"far", dtype::u8, shape, reinterpret_cast<std::byte*>(1), {}, true}};
  const auto make = [&](const tp::destination_writer& w) { return tp::dynamic_image::make(std::span(far), {}, w); };
  for (const auto& refused : {make({}), make({&device::write, &there, {}}), make({nullptr, &there, staging})}) {
    ASSERT_EQ(code_of(refused), errc::invalid_argument);
    EXPECT_EQ(refused.error().name.view(), "far");
  }
  auto writable = make({&device::write, &there, staging});
  ASSERT_TRUE(writable);
  // Without a reader it is no source.
  std::array<const_byte_span, 4> pieces;
  std::array<std::byte, 64> slice;
  EXPECT_TRUE(tp::gather(writable->source(), writable->schema().header_bytes, 8, pieces, slice).failed);
  EXPECT_FALSE(writable->destination().readable());
  // A view that a program made itself is not believed either.
  for (const tp::destination_writer& nothing :
       {tp::destination_writer{&device::write, &there, {}}, tp::destination_writer{nullptr, &there, staging}}) {
    tp::destination_view view = writable->destination();
    view.writer = &nothing;
    tp::land to(view);
    const auto& schema = writable->schema();
    const auto begun = to.begin({.image_bytes = schema.image_bytes, .data_start = schema.header_bytes});
    EXPECT_EQ(code_of(begun), errc::invalid_argument);
  }
  const auto average = tp::weighted_average<tp::partial_updates::staged>::make(writable->destination());
  EXPECT_EQ(code_of(average), errc::unsupported_layout);
}

}  // namespace device_tensors_test
