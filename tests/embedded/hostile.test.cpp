// What owners and links that lie can do to the recipient of small machines: cost it time, or end it by name.
#include "embedded/small_pair.hpp"

#include <set>

namespace hostile_test {

using namespace test;
using tp::frame;
using tp::frame_kind;
using bytes = byte_vector;

struct tiny {
  std::uint64_t guard_before;
  float a[20];
  std::array<std::int16_t, 33> b;
  char padded;
  std::uint64_t guard_after;
};

}  // namespace hostile_test

template <>
inline constexpr auto tensorpull::members_of<hostile_test::tiny> = tensorpull::members(
    tensorpull::member{"a", &hostile_test::tiny::a}, tensorpull::member{"b", &hostile_test::tiny::b});

namespace hostile_test {

bytes encoded(const frame& m) {
  bytes out(512);
  const auto n = tp::word_framing::encode(m, out);
  EXPECT_TRUE(n);
  out.resize(*n);
  return out;
}
bytes chunk_of(const frame& m, const_byte_span payload) {
  bytes out(80 + (payload.size() + 7) / 8 * 8);
  tp::detail::payload_prefix::write(m, std::span(out).first<80>());
  std::copy(payload.begin(), payload.end(), out.begin() + 80);
  return out;
}

/// An owner of a few lines, whose answers a test can spoil.
struct script {
  explicit script(const model& m) : image(m.image_bytes()) {
    about.kind = frame_kind::description;
    about.ref = {1, 2};
    about.version = version_of(m), about.fingerprint = m.schema().fingerprint, about.nonce = 0x7777'8888;
    about.image_bytes = image.size(), about.data_start = m.schema().header_bytes,
    about.tensors = m.schema().tensor_count;
    about.length = 64, about.window = 4, about.flag = true;
  }
  bytes answer(const_byte_span request) const {
    frame m, a;
    tp::word_framing::decode_storage lists;
    EXPECT_TRUE(tp::word_framing::decode(request, m, lists));
    a.id = m.id, a.ref = m.ref, a.nonce = about.nonce, a.version = m.version;
    EXPECT_EQ(m.ref, (tp::ref_id{1, 2}));
    if (m.kind == frame_kind::describe) {
      a = about, a.id = m.id;
    } else if (m.kind == frame_kind::confirm) {
      a.kind = frame_kind::confirmed;
      a.status = m.flag && m.digest != about.version ? tp::status::digest_mismatch : tp::status::ok;
    } else if (m.kind != frame_kind::pull) {
      return {};
    } else if (m.version != about.version || m.offset >= image.size() || m.length == 0) {
      a.kind = frame_kind::refused, a.offset = m.offset;
      a.status = m.version != about.version ? tp::status::stale : tp::status::out_of_range;
    } else {
      a.kind = frame_kind::chunk, a.offset = m.offset;
      a.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(m.length, image.size() - m.offset));
      return chunk_of(a, std::span(image).subspan(static_cast<std::size_t>(m.offset), a.length));
    }
    return encoded(a);
  }
  frame about;
  bytes image;
};

/// A recipient of `tiny` and what it asks; every step checks that nothing but the published bytes has landed.
struct victim {
  explicit victim(const model& m, const tp::embedded_pull& pull = net_pull)
      : source(data_of(m)), header(static_cast<std::uint32_t>(m.schema().header_bytes)), small(pull) {}

  /// The next request, of now or after time has passed; empty: it has ended.
  bytes ask() {
    bytes out(80);
    for (int n = 0; n < 200 && !small.recipient.ended(); ++n, now += 50)
      if (small.recipient.next(out, now) > 0) return out;
    return {};
  }
  void hear(const_byte_span datagram) { small.recipient.received(datagram, now); }
  bool nothing_wrong_landed() const {
    const std::uint32_t landed = small.recipient.landed_bytes(), n = landed - std::min(landed, header);
    const bytes here = data_of(small.target);
    return small.guards_intact() && std::equal(here.begin(), here.begin() + n, source.begin()) &&
           std::all_of(here.begin() + n, here.end(), [](std::byte b) { return b == std::byte{0x5a}; });
  }
  /// Lets an honest owner answer everything that is left.
  void finish(const script& owner) {
    for (int n = 0; n < 1'000 && !small.recipient.ended(); ++n)
      if (const bytes request = ask(); !request.empty()) hear(owner.answer(request));
  }

  bytes source;
  std::uint32_t header;
  landed_net<64, tiny> small;
  std::uint32_t now = 1;
};

model published(std::uint64_t seed = 1) { return fill(list_of<tiny>(), seed); }

TEST(EmbeddedHostile, A_bit_that_was_changed_in_any_answer_lands_nothing_wrong) {
  const model source = published();
  const script owner(source);
  victim honest(source);
  std::vector<bytes> answers;
  for (bytes request = honest.ask(); !request.empty(); request = honest.ask())
    answers.push_back(owner.answer(request)), honest.hear(answers.back());
  ASSERT_TRUE(honest.small.recipient.outcome());
  ASSERT_GE(answers.size(), 6u);
  std::set<errc> how;
  for (std::size_t k = 0; k < answers.size(); ++k)
    for (std::size_t bit = 0; bit < 8 * answers[k].size(); ++bit) {
      SCOPED_TRACE(std::to_string(k) + ", bit " + std::to_string(bit));
      victim v(source);
      for (std::size_t i = 0; i < k; ++i) (void)v.ask(), v.hear(answers[i]);
      (void)v.ask();
      bytes spoilt = answers[k];
      spoilt[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      const auto landed = v.small.recipient.landed_bytes();
      v.hear(spoilt);
      // which only the digest, or the link, can tell
      const bool payload = k > 0 && k + 1 < answers.size() && bit >= 640;
      if (!payload) {
        EXPECT_TRUE(v.nothing_wrong_landed());
        if (k > 0 && k + 1 < answers.size() && v.small.recipient.landed_bytes() != landed) {
          const std::size_t at = bit / 8;
          EXPECT_TRUE((at >= 22 && at < 24) || (at >= 64 && at < 72))
              << "bits of a chunk that have no meaning, and the digest that was not asked for";
        }
      }
      v.finish(owner);
      ASSERT_TRUE(v.small.recipient.ended());
      EXPECT_TRUE(v.small.guards_intact());
      const auto done = v.small.recipient.outcome();
      if (done) {
        EXPECT_EQ(done->outcome, k == 0 && bit / 8 == 146 ? done->outcome : tp::outcome::completed);
        EXPECT_EQ(data_of(v.small.target), v.source);
      } else {
        how.insert(done.error().code);
        EXPECT_TRUE(k == 0 || payload || done.error().code == errc::timed_out) << code_name(done.error().code);
      }
    }
  for (const errc why : {errc::bad_frame, errc::too_large, errc::stale_version, errc::schema_mismatch,
                         errc::not_verifiable, errc::digest_mismatch})
    EXPECT_TRUE(how.contains(why)) << code_name(why);
}
TEST(EmbeddedHostile, A_datagram_that_was_cut_anywhere_is_nothing) {
  const model source = published();
  const script owner(source);
  victim v(source);
  for (bytes request = v.ask(); !request.empty(); request = v.ask()) {
    const bytes answer = owner.answer(request);
    const auto landed = v.small.recipient.landed_bytes();
    for (std::size_t n = 0; n < answer.size(); ++n) {
      // so that a sanitizer sees what is read behind it
      const bytes exact(answer.begin(), answer.begin() + static_cast<std::ptrdiff_t>(n));
      v.hear(exact);
      ASSERT_EQ(v.small.recipient.landed_bytes(), landed) << n;
      ASSERT_FALSE(v.small.recipient.ended());
    }
    v.hear(answer);
    ASSERT_TRUE(v.nothing_wrong_landed());
  }
  EXPECT_TRUE(v.small.recipient.outcome());
}
TEST(EmbeddedHostile, A_description_that_cannot_be_is_refused_by_name_before_a_byte_lands) {
  const model source = published();
  const script honest(source);
  constexpr std::uint64_t exabyte = std::uint64_t{1} << 60;
  struct {
    const char* what;
    std::function<void(frame&)> lie;
    errc why;
  } const cases[] = {
      {"an exabyte of data", [](frame& m) { m.image_bytes = exabyte; }, errc::too_large},
      {"an exabyte of header", [](frame& m) { m.image_bytes = m.data_start = exabyte; }, errc::too_large},
      {"2 GiB", [](frame& m) { m.image_bytes = std::uint64_t{1} << 31; }, errc::too_large},
      {"4 GiB more, so that 32 bits are right", [](frame& m) { m.image_bytes += std::uint64_t{1} << 32; },
       errc::too_large},
      {"the same for both",
       [](frame& m) { m.image_bytes += std::uint64_t{1} << 32, m.data_start += std::uint64_t{1} << 32; },
       errc::too_large},
      {"a header longer than all", [](frame& m) { m.data_start = m.image_bytes + 1; }, errc::bad_frame},
      {"a header longer than 64 bits of image", [](frame& m) { m.data_start = ~std::uint64_t{0}; }, errc::bad_frame},
      {"a header without its length", [](frame& m) { m.data_start = 7; }, errc::bad_frame},
      {"nothing at all", [](frame& m) { m.image_bytes = m.data_start = 0; }, errc::bad_frame},
      {"chunks of no bytes", [](frame& m) { m.length = 0; }, errc::bad_frame},
      {"no version", [](frame& m) { m.version = 0; }, errc::bad_frame},
      {"more data than the schema has", [](frame& m) { m.image_bytes += 8; }, errc::schema_mismatch},
      {"less data than the schema has", [](frame& m) { m.data_start += 8; }, errc::schema_mismatch},
      {"no data", [](frame& m) { m.image_bytes = m.data_start; }, errc::schema_mismatch},
      {"no digest", [](frame& m) { m.flag = false; }, errc::not_verifiable},
  };
  for (const auto& c : cases) {
    script owner = honest;
    c.lie(owner.about);
    victim v(source);
    v.hear(owner.answer(v.ask()));
    v.finish(owner);
    ASSERT_FALSE(v.small.recipient.outcome()) << c.what;
    EXPECT_EQ(v.small.recipient.outcome().error().code, c.why) << c.what;
    EXPECT_EQ(v.small.recipient.landed_bytes(), 0u) << c.what;
    EXPECT_TRUE(v.nothing_wrong_landed());
  }
}
TEST(EmbeddedHostile, An_owner_that_describes_other_sizes_under_the_same_version_is_refused) {
  const model source = published();
  for (const bool header : {false, true}) {
    script owner(source);
    victim v(source);
    while (v.small.recipient.landed_bytes() < v.header + 8) v.hear(owner.answer(v.ask()));
    owner.about.nonce ^= 1;
    v.hear(owner.answer(v.ask()));  // a chunk of another serve
    (header ? owner.about.data_start : owner.about.image_bytes) -= 8;
    v.hear(owner.answer(v.ask()));
    v.finish(owner);
    EXPECT_EQ(code_of(v.small.recipient.outcome()), errc::bad_frame);
    EXPECT_TRUE(v.nothing_wrong_landed());
  }
}
TEST(EmbeddedHostile, An_owner_of_ever_new_serves_is_given_up) {
  const model source = published();
  script owner(source);
  victim v(source);
  const auto began = v.now;
  while (!v.small.recipient.ended()) {
    if (const bytes request = v.ask(); !request.empty()) v.hear(owner.answer(request));
    ++owner.about.nonce;
    ++v.now;
  }
  EXPECT_EQ(code_of(v.small.recipient.outcome()), errc::timed_out);
  EXPECT_LT(v.now - began, 3 * net_pull.timeout_ms);
}
TEST(EmbeddedHostile, Noise_in_place_of_datagrams_changes_nothing) {
  const model source = published();
  const script owner(source);
  generator random(11);
  victim v(source);
  for (bytes request = v.ask(); !request.empty(); request = v.ask()) {
    const bytes answer = owner.answer(request);
    const auto landed = v.small.recipient.landed_bytes();
    for (int n = 0; n < 2'000; ++n) {
      bytes noise;
      if (n % 2 == 0) {
        noise.resize(random() % 300);
        random.fill(noise);
      } else {  // words of a frame in another order, or of other frames
        noise = n % 4 == 1 ? answer : request;
        for (std::size_t i = 0, times = 1 + random() % 3; i < times; ++i) {
          const std::size_t to = 8 * (random() % (noise.size() / 8)), from = 8 * (random() % (noise.size() / 8));
          if (to >= 80 || from >= 80) continue;
          if (random() % 2 == 0)
            std::swap_ranges(noise.begin() + static_cast<std::ptrdiff_t>(to),
                             noise.begin() + static_cast<std::ptrdiff_t>(to) + 8,
                             noise.begin() + static_cast<std::ptrdiff_t>(from));
          else random.fill(std::span(noise).subspan(to, 8));
        }
        if (noise == answer || tp::load_le64(noise.data() + 56) != tp::load_le64(answer.data() + 56) ||
            tp::load_le64(noise.data() + 48) != tp::load_le64(answer.data() + 48))
          noise.clear();  // a nonce may make it ask again, and a digest means nothing
      }
      if (noise == answer || (noise.size() > 80 && std::equal(noise.begin(), noise.begin() + 64, answer.begin())))
        continue;
      v.hear(noise);
      ASSERT_EQ(v.small.recipient.landed_bytes(), landed);
      if (v.small.recipient.ended()) break;
    }
    if (v.small.recipient.ended()) break;
    v.hear(answer);
  }
  ASSERT_TRUE(v.small.recipient.ended());
  EXPECT_TRUE(v.nothing_wrong_landed());
}
TEST(EmbeddedHostile, A_datagram_holds_any_number_of_frames) {
  const model source = published();
  const script owner(source);
  victim v(source);
  bytes last;
  for (bytes request = v.ask(); !request.empty(); request = v.ask()) {
    bytes all = last;  // an old answer, a request for a role that is not here, the answer, and the answer again
    frame other;
    other.kind = frame_kind::describe, other.ref = {1, 2},
    other.id = static_cast<std::uint32_t>(tp::load_le32(request.data() + 16));
    for (const bytes& part : {encoded(other), last = owner.answer(request), last})
      all.insert(all.end(), part.begin(), part.end());
    v.hear(all);
    ASSERT_TRUE(v.nothing_wrong_landed());
  }
  EXPECT_TRUE(v.small.recipient.outcome());
}
TEST(EmbeddedHostile, Pieces_that_do_not_fit_are_nothing_and_the_right_ones_are_taken_once) {
  const model source = published();
  script owner(source);
  owner.about.length = 48;
  landed_net<48, tiny> small;
  generator random(5);
  std::uint32_t now = 1;
  bytes out(80);
  ASSERT_EQ(small.recipient.next(out, now), 80u);
  const bytes description = owner.answer(out);
  ASSERT_EQ(description.size(), 152u);
  const auto piece_of = [&](std::uint64_t sender, std::uint32_t number, std::uint32_t offset, std::uint32_t length,
                            std::uint32_t total) {
    bytes d(80 + (length + 7) / 8 * 8);
    tp::detail::piece_prefix::write({frame_kind::piece, sender, number, offset, total, length},
                                    std::span(d).first<80>());
    for (std::uint32_t i = 0; i < length && offset + i < description.size(); ++i) d[80 + i] = description[offset + i];
    return d;
  };
  const auto taken = [&]() -> int {
    if (small.recipient.next(out, now) == 0 || out[20] != std::byte{16}) return -1;
    const auto p = tp::detail::piece_prefix::read(std::span(out).first<80>());
    EXPECT_TRUE(p);
    return static_cast<int>(p->offset) + (p->number == 8 ? 1'000 : 0);
  };
  const auto hear = [&](const bytes& d) { small.recipient.received(d, now); };
  for (const auto& lie : {piece_of(3, 7, 0, 48, 4096), piece_of(3, 7, 0, 48, 48), piece_of(3, 7, 144, 16, 152),
                          piece_of(3, 7, 0xffff'fff0, 48, 152), piece_of(0, 7, 0, 48, 152), piece_of(3, 7, 0, 0, 152),
                          piece_of(3, 7, 0, 47, 152)}) {
    hear(lie);
    EXPECT_EQ(taken(), -1);
  }
  hear(piece_of(3, 7, 48, 48, 152));
  EXPECT_EQ(taken(), -1) << "nobody is known who could be told";
  hear(piece_of(3, 7, 0, 48, 152));
  EXPECT_EQ(taken(), 48);
  hear(piece_of(3, 7, 0, 48, 152));
  EXPECT_EQ(taken(), 48) << "a double is answered again";
  hear(piece_of(3, 7, 96, 48, 152));
  EXPECT_EQ(taken(), 48) << "a gap";
  hear(piece_of(4, 1, 96, 48, 152));
  EXPECT_EQ(taken(), -1) << "of another sender, and not its first";
  hear(piece_of(3, 7, 48, 48, 152));
  EXPECT_EQ(taken(), 96);
  hear(piece_of(3, 6, 96, 48, 152));
  EXPECT_EQ(taken(), 96) << "of the frame before";
  hear(piece_of(3, 7, 96, 48, 152));
  EXPECT_EQ(taken(), 144);
  EXPECT_EQ(small.recipient.total_bytes(), 0u);
  hear(piece_of(3, 7, 144, 8, 152));
  EXPECT_EQ(taken(), 1'000);
  EXPECT_EQ(small.recipient.total_bytes(), source.schema().image_bytes);
  hear(piece_of(3, 7, 144, 8, 152));
  EXPECT_EQ(taken(), 1'000) << "it is said as often as it is asked";
  for (int n = 0; n < 5'000; ++n) {  // any numbers: nothing is written outside
    bytes d = piece_of(random() % 3, static_cast<std::uint32_t>(random() % 4 + 6),
                       static_cast<std::uint32_t>(random() % 200), static_cast<std::uint32_t>(random() % 49),
                       random() % 8 == 0 ? 160 : 152);
    hear(d);
    (void)taken();
  }
  for (int n = 0; n < 100 && !small.recipient.ended(); ++n, now += 100)
    if (small.recipient.next(out, now) > 0) hear(owner.answer(out));
  ASSERT_TRUE(small.recipient.outcome());
  EXPECT_EQ(data_of(small.target), data_of(source));
  EXPECT_TRUE(small.guards_intact());
}
TEST(EmbeddedHostile, A_model_of_another_shape_is_named_by_its_first_tensor_that_differs) {
  const auto like = [](auto change) {
    model m;
    const auto& own = tp::embedded_image<net>::schema;
    for (std::size_t i = 0; i < own.tensor_count; ++i) {
      std::string name(own.tensors[i].name);
      dtype type = own.tensors[i].type;
      std::vector<std::uint64_t> shape(own.tensors[i].shape, own.tensors[i].shape + own.tensors[i].rank);
      if (change(i, name, type, shape)) m.add(name, type, shape);
    }
    return m;
  };
  constexpr std::size_t count = tp::embedded_image<net>::tensor_count;
  const auto pulled = [&](model&& other, std::uint64_t index, const std::string& what) {
    SCOPED_TRACE(what);
    other.ready().fill(1);
    for (const std::size_t datagram : {640u, 200u, 128u}) {
      small_pair pair({datagram});
      landed_net<48> small;
      pair.left->publish(other, {1, 2}, 1);
      ASSERT_EQ(code_of(pair.pull(small.recipient)), errc::schema_mismatch);
      EXPECT_EQ(small.recipient.outcome().error().at, index);
      const auto here = data_of(small.target);
      EXPECT_TRUE(std::all_of(here.begin(), here.end(), [](std::byte b) { return b == std::byte{0x5a}; }))
          << "the model is untouched";
      EXPECT_EQ(pair.status().cancelled, 1u);
    }
  };
  for (std::size_t k = 0; k < count; ++k) {
    pulled(like([&](std::size_t i, std::string&, dtype&, std::vector<std::uint64_t>& shape) {
             if (i == k) shape.insert(shape.begin(), 2);
             return true;
           }),
           k, "one more dimension of " + std::to_string(k));
    pulled(like([&](std::size_t i, std::string& name, dtype&, std::vector<std::uint64_t>&) {
             if (i == k) name += "x";
             return true;
           }),
           k, "another name of " + std::to_string(k));
    pulled(like([&](std::size_t i, std::string&, dtype&, std::vector<std::uint64_t>&) { return i != k; }), k,
           "without " + std::to_string(k));
  }
  model more = like([](std::size_t, std::string&, dtype&, std::vector<std::uint64_t>&) { return true; });
  more.add("zz", dtype::boolean, {3});
  pulled(std::move(more), count, "one more");
}

TEST(EmbeddedHostile, A_header_with_metadata_is_that_of_the_same_model) {
  const model source = published();
  script owner(source);
  const auto& own = tp::embedded_image<tiny>::header;
  std::string text(R"({"__metadata__":{"format":"pt"},)");
  for (std::size_t i = 9; i < own.size(); ++i) text += static_cast<char>(own[i]);
  for (const std::size_t pad : {0u, 5u}) {  // of any length
    std::string header(8, '\0');
    header += text + std::string(pad, ' ');
    tp::store_le64(header.data(), header.size() - 8);
    owner.image.assign(reinterpret_cast<const std::byte*>(header.data()),
                       reinterpret_cast<const std::byte*>(header.data()) + header.size());
    const bytes data = data_of(source);
    owner.image.insert(owner.image.end(), data.begin(), data.end());
    tp::xxhash_digest digest;
    digest.update(owner.image);
    owner.about.version = digest.digest(), owner.about.image_bytes = owner.image.size(),
    owner.about.data_start = header.size();
    victim v(source);
    v.finish(owner);
    ASSERT_TRUE(completed(v.small.recipient.outcome()));
    EXPECT_EQ(data_of(v.small.target), data);
    EXPECT_TRUE(v.small.guards_intact());
    owner.about.fingerprint ^= 1;
    victim other(source);
    other.finish(owner);
    EXPECT_EQ(code_of(other.small.recipient.outcome()), errc::schema_mismatch);
    EXPECT_EQ(other.small.recipient.outcome().error().at, 0u);
    owner.about.fingerprint ^= 1;
  }
}

}  // namespace hostile_test
