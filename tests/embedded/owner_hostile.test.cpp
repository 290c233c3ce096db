// Strangers at the line of a small owner: whatever comes, each answer is valid frames, no longer than one datagram, and
// without a byte from outside the image.
#include "support/embedded_owner.hpp"

namespace owner_hostile_test {

using namespace test;
using kind = tp::frame_kind;
using state = tp::recipient_state;

constexpr tp::ref_id id{0x1122334455667788, 0x99aabbccddeeff00};
constexpr tp::recipient_id alice{0x123456789abcdef0};
constexpr std::string_view names[] = {"fc1.weight", "a"};
using checked_owner = small_owner<512, tp::xxh3_64>;
using radio_owner = small_owner<48, tp::basic_crc32c<tp::crc32c_small>, 128>;

template <class Owner>
struct EmbeddedOwnerAskedByStrangers : testing::Test {
  // so that a sanitizer sees every byte behind it
  const std::unique_ptr<device_model> source = std::make_unique<device_model>(random_model(1));
  const model twin = twin_of(*source);
  const byte_vector image = twin.image_bytes();
  const std::uint64_t version = version_of(twin), size = image.size();
  Owner o;
  std::uint64_t nonce = 0;

  tp::frame ask(kind k, std::uint32_t number) const {
    tp::frame q;
    q.kind = k, q.id = number, q.ref = id, q.recipient = alice;
    q.version = k == kind::describe ? 0 : version;
    q.nonce = nonce, q.digest = version, q.flag = true;
    q.fingerprint = twin.schema().fingerprint;
    q.offset = size - 20, q.length = 20, q.chunk_digest = tp::digest_kind::none;
    if (k == kind::locate) q.names = names;
    return q;
  }
  answers say(Owner& to, const_byte_span bytes) { return answers_of(to, bytes, 1000, image); }
  void SetUp() override {
    o = Owner();
    o.publish(*source, id, 99);
    // the nonce is in every chunk, however the description travels
    say(o, encode(ask(kind::describe, 100)).bytes());
    const answers last = say(o, encode(ask(kind::pull, 101)).bytes());
    ASSERT_EQ(last.size(), 1u);
    ASSERT_EQ(last[0].kind, kind::chunk);
    nonce = last[0].nonce;
    ASSERT_EQ(o.state(), state::provisional);
  }
  /// One that is under way completes whatever came before.
  void expect_it_still_serves(Owner to) {
    if (to.state() == state::completed || to.state() == state::completed_unverified) return;
    EXPECT_EQ(say(to, encode(ask(kind::pull, 0x7f000000)).bytes()).size(), 1u);
    const answers told = say(to, encode(ask(kind::confirm, 0x7f000001)).bytes());
    ASSERT_EQ(told.size(), 1u);
    // a flipped recipient number may have taken the place of an anonymous one
    EXPECT_TRUE(told[0].kind == kind::confirmed || told[0].kind == kind::refused);
  }
};
using Owners = testing::Types<checked_owner, radio_owner>;
TYPED_TEST_SUITE(EmbeddedOwnerAskedByStrangers, Owners);

TYPED_TEST(EmbeddedOwnerAskedByStrangers, Every_bit_of_every_request_flipped) {
  for (const kind k :
       {kind::describe, kind::pull, kind::confirm, kind::cancel, kind::schema, kind::locate, kind::taken}) {
    tp::frame q = this->ask(k, 102);
    byte_vector bytes(80);
    if (k == kind::taken)
      tp::detail::piece_prefix::write({kind::taken, this->nonce | 1, 1, 48, 0, 0},
                                      std::span<std::byte, 80>(bytes.data(), 80));
    else {
      const frame f = encode(q);
      bytes.assign(f.bytes().begin(), f.bytes().end());
    }
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      byte_vector flipped = bytes;
      flipped[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      TypeParam copy = this->o;
      const answers a = this->say(copy, flipped);
      EXPECT_LE(a.size(), 1u);
      const frame f{flipped};
      tp::word_framing::decode_storage lists;
      tp::frame m;
      const bool reads = tp::word_framing::decode(f.bytes(), m, lists).has_value();
      const bool confirms = reads && m.kind == kind::confirm && m.ref == id && m.version == this->version &&
                            m.nonce == this->nonce && (m.recipient == alice || !m.recipient);
      if (copy.state() == state::completed) {
        EXPECT_TRUE(confirms && m.flag && m.digest == this->version) << static_cast<int>(k) << ' ' << bit;
      }
      if (copy.state() == state::completed_unverified) {
        EXPECT_TRUE(confirms && !m.flag) << static_cast<int>(k) << ' ' << bit;
      }
      if (copy.state() == state::cancelled) {
        EXPECT_TRUE(reads && m.kind == kind::cancel && m.nonce == this->nonce && m.recipient == alice && m.ref == id)
            << bit;
      }
      if (!a.empty() && !reads) {
        EXPECT_TRUE(k == kind::locate || k == kind::taken)
            << static_cast<int>(k) << ' ' << bit << ": an answer to what is no frame";
      }
      this->expect_it_still_serves(copy);
    }
  }
}

TYPED_TEST(EmbeddedOwnerAskedByStrangers, Random_bytes_and_frames_with_random_words) {
  generator g(5);
  std::uint64_t answered = 0;
  for (int i = 0; i < 60'000; ++i) {
    std::vector<std::uint64_t> words(1 + g.below(40));
    if (g.below(4) == 0) g.fill(std::as_writable_bytes(std::span(words)));
    for (std::size_t at = 0; at + 10 <= words.size();) {  // frames with a valid head, and words that are often right
      const std::size_t n = std::min<std::size_t>(10 + g.below(4) / 3 * g.below(8), words.size() - at);
      const std::uint64_t likely[] = {id.high,        id.low, this->version, this->nonce,       alice.value,
                                      this->size,     0,      512,           ~std::uint64_t{0}, std::uint64_t{1} << 63,
                                      this->size - 1, g()};
      words[at] = std::uint64_t{n - 1} << 32;
      words[at + 1] = tp::detail::payload_prefix::root_pointer;
      words[at + 2] = static_cast<std::uint32_t>(200 + i) | std::uint64_t{g.below(18)} << 32;
      words[at + 3] = id.high, words[at + 4] = id.low;
      for (std::size_t w = 5; w < 9; ++w) words[at + w] = likely[g.below(std::size(likely))];
      if (g.below(2) == 0) words[at + 5] = this->version;
      at += n;
    }
    auto bytes = std::as_bytes(std::span(words));
    if (g.below(4) == 0) bytes = bytes.first(g.below(bytes.size() + 1));
    answered += this->say(this->o, bytes).size();
    if (this->o.state() == state::completed || this->o.state() == state::completed_unverified) this->SetUp();
  }
  EXPECT_GT(answered, 1000u) << "the frames are of some use";
}

TYPED_TEST(EmbeddedOwnerAskedByStrangers, A_datagram_that_is_cut_anywhere_is_answered_as_far_as_it_is_whole) {
  byte_vector together;
  for (std::uint32_t i = 0; i < 3; ++i) {
    tp::frame q = this->ask(kind::pull, 102 + i);
    q.offset = 8 * i, q.length = 8;
    const frame f = encode(q);
    together.insert(together.end(), f.bytes().begin(), f.bytes().end());
  }
  for (std::size_t n = 0; n <= together.size(); ++n) {
    TypeParam copy = this->o;
    const answers a = this->say(copy, std::span(together).first(n));
    EXPECT_EQ(a.size(), std::min(n / 80, TypeParam::answer_bytes / 88)) << n;
  }
  for (const std::uint64_t table :
       {std::uint64_t{0xffffffff}, std::uint64_t{1}, std::uint64_t{0xffffffff} << 32, std::uint64_t{0x20000000} << 32,
        std::uint64_t{0x1fffffff} << 32, ~std::uint64_t{0}, std::uint64_t{0}}) {
    byte_vector bad = together;
    tp::store_le64(bad.data(), table);
    TypeParam copy = this->o;
    EXPECT_TRUE(this->say(copy, bad).empty()) << std::hex << table;
  }
}

TYPED_TEST(EmbeddedOwnerAskedByStrangers, Lists_of_any_length_are_refused_or_nothing) {
  constexpr std::uint32_t most = (1u << 29) - 1;
  const std::uint64_t body = struct_pointer(0, 3, 1), r0 = id.high, r1 = id.low;
  for (const std::uint64_t list :
       {list_pointer(0, of_void, most), list_pointer(0, of_pointer, most), list_pointer(0, of_pointer, 1000),
        list_pointer(-2, of_composite, 3), list_pointer(0, of_composite, most), far_pointer(1, 0, false),
        ~std::uint64_t{0}, std::uint64_t{0}}) {
    TypeParam copy;
    copy.publish(*this->source, id, 99);
    const answers a = this->say(copy, single_segment(kind::locate, {body, r0, r1, this->version, list}).bytes());
    ASSERT_EQ(a.size(), 1u);
    EXPECT_EQ(a[0].status, tp::status::unsupported);
    EXPECT_TRUE(
        this->say(copy, single_segment(kind::application, {struct_pointer(0, 1, 2), 0, list, list}).bytes()).empty());
    EXPECT_TRUE(
        this->say(
                copy,
                single_segment(kind::schema_page, {struct_pointer(0, 5, 1), r0, r1, this->version, 0, 9, list}).bytes())
            .empty());
    EXPECT_TRUE(
        this->say(copy, single_segment(kind::locate, {struct_pointer(1, 3, 1), 0, r0, r1, this->version, list}).bytes())
            .empty())
        << "another layout";
    EXPECT_EQ(copy.state(), state::unseen);
  }
  TypeParam copy;
  EXPECT_TRUE(this->say(copy, single_segment(kind::locate, {body}).bytes()).empty());
  EXPECT_TRUE(this->say(copy, single_segment(kind::locate, {body, r0, r1, this->version}).bytes()).empty()) << "cut";
  EXPECT_EQ(this->say(copy, single_segment(kind::locate, {body, r0, r1, this->version, 0}).bytes()).size(), 1u);
}

TYPED_TEST(EmbeddedOwnerAskedByStrangers, Answers_of_its_own_and_of_other_owners_are_no_requests) {
  for (const kind k : {kind::end, kind::confirmed, kind::refused, kind::description, kind::schema_page, kind::located,
                       kind::application, kind::nothing})
    EXPECT_TRUE(this->say(this->o, encode(this->ask(k, 102)).bytes()).empty()) << static_cast<int>(k);
  tp::frame chunk = this->ask(kind::chunk, 103);
  EXPECT_TRUE(this->say(this->o, chunk_frame(chunk, std::span(this->image).first(100)).bytes()).empty());
  EXPECT_EQ(this->o.state(), state::provisional);
}

}  // namespace owner_hostile_test
