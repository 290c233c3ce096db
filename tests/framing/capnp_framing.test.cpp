// Every message survives its frame, and the `capnp` tool reads the same in it.
#include <tensorpull/core/byte_order.hpp>
#include "support/allocation_counter.hpp"
#include "support/messages.hpp"

namespace capnp_framing_test {

using namespace test;

void expect_equal(const tp::frame& a, const tp::frame& b) {
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.ref, b.ref);
  EXPECT_EQ(std::tie(a.version, a.nonce, a.fingerprint, a.digest, a.offset, a.image_bytes, a.data_start, a.tensors),
            std::tie(b.version, b.nonce, b.fingerprint, b.digest, b.offset, b.image_bytes, b.data_start, b.tensors));
  EXPECT_EQ(std::tie(a.length, a.delay_ms, a.application, a.window, a.request_words, a.flag, a.memory, a.status),
            std::tie(b.length, b.delay_ms, b.application, b.window, b.request_words, b.flag, b.memory, b.status));
  ASSERT_EQ(a.rows.size(), b.rows.size());
  for (std::size_t i = 0; i < a.rows.size(); ++i) {
    EXPECT_EQ(a.rows[i].name, b.rows[i].name);
    EXPECT_EQ(a.rows[i].dtype, b.rows[i].dtype);
    EXPECT_TRUE(std::ranges::equal(a.rows[i].shape, b.rows[i].shape));
  }
  EXPECT_TRUE(std::ranges::equal(a.names, b.names));
  EXPECT_TRUE(std::ranges::equal(a.references, b.references));
  EXPECT_TRUE(std::ranges::equal(a.body, b.body));
  ASSERT_EQ(a.ranges.size(), b.ranges.size());
  for (std::size_t i = 0; i < a.ranges.size(); ++i)
    EXPECT_TRUE(a.ranges[i].begin == b.ranges[i].begin && a.ranges[i].end == b.ranges[i].end);
}

TEST(CapnpFraming, Every_message_survives_its_frame) {
  for (const tp::frame& m : every_message()) {
    const decoded d(encode(m));
    ASSERT_TRUE(d.outcome) << "kind " << static_cast<int>(m.kind);
    expect_equal(m, d.m);
  }
}

TEST(CapnpFraming, Encoding_is_deterministic_and_says_a_multiple_of_a_word) {
  for (const tp::frame& m : every_message()) {
    const frame a = encode(m), b = encode(m, 4096);
    ASSERT_EQ(a.size() % 8, 0u);
    ASSERT_EQ(a.size(), b.size());
    EXPECT_TRUE(std::ranges::equal(a.bytes(), b.bytes()));
    EXPECT_EQ(a.size(), 8 + 8 * (a.word(0) >> 32));
  }
}

TEST(CapnpFraming, Encoding_into_too_little_memory_does_not_fit_and_writes_nothing_behind) {
  for (const tp::frame& m : every_message()) {
    const frame whole = encode(m);
    for (std::size_t room = 0; room < whole.size() + 8; ++room) {
      std::vector<std::uint64_t> memory(room / 8 + 2, 0x5a5a5a5a5a5a5a5a);
      const auto n = tp::capnp_framing::encode(m, std::as_writable_bytes(std::span(memory)).first(room));
      if (room < whole.size()) EXPECT_EQ(n.error(), tp::errc::does_not_fit) << room;
      else EXPECT_EQ(*n, whole.size());
      for (std::size_t i = room; i < memory.size() * 8; ++i)
        ASSERT_EQ(reinterpret_cast<unsigned char*>(memory.data())[i], 0x5a) << room;
    }
  }
}

TEST(CapnpFraming, The_capnp_tool_reads_every_kind) {
  const char* const expected[] = {"nothing = void",
                                  "describe = (refHigh",
                                  "pull = (refHigh",
                                  "runs = true",
                                  "end = (refHigh",
                                  "confirm = (refHigh",
                                  "confirmed = (refHigh",
                                  "cancel = (refHigh",
                                  "status = alreadyFinal, delayMs = 250",
                                  "status = withdrawn, delayMs = 70000",
                                  "status = unreadable",
                                  "status = ownerLost",
                                  "first = 5",
                                  "window = 7, verifiable = true",
                                  "shape = [7, 0, 18446744073709551615]",
                                  "names = [(name = \"layers.0.weight\", begin = 0, end = 0, dimension = 0)",
                                  "(name = \"\", begin = 1, end = 2, dimension = 65244)",
                                  "ranges = [(begin = 8, end = 16)",
                                  "kind = 77"};
  std::size_t i = 0;
  for (const tp::frame& m : every_message()) {
    const std::string text = capnp_decode(encode(m));
    EXPECT_NE(text.find(expected[i]), std::string::npos) << expected[i] << " not in " << text;
    EXPECT_EQ(text.find("(id = 4275878552"), 0u) << text;
    ++i;
  }
}

TEST(CapnpFraming, The_capnp_tool_reads_a_chunk) {
  tp::frame m;
  m.id = 9;
  m.ref = {1, 2};
  m.version = 3, m.offset = 4, m.nonce = 5, m.digest = 6;
  const std::string text = capnp_decode(chunk_frame(m, some_body));
  // tools before 0.10 write the payload's bytes in octal, later ones in hexadecimal
  const std::string head =
      "(id = 9, chunk = (refHigh = 1, refLow = 2, version = 3, offset = 4, nonce = 5, digest = 6, payload = \"";
  EXPECT_EQ(text.substr(0, head.size()), head);
  EXPECT_TRUE(text.find("\\001\\000\\377") != std::string::npos || text.find("\\x01\\x00\\xff") != std::string::npos)
      << text;
}

TEST(CapnpFraming, Full_size_messages_survive) {
  std::vector<std::byte> body(64 * 1024, std::byte{7});
  std::vector<tp::reference> references(8, {{1, 2}, 3, 4});
  tp::frame m;
  m.kind = tp::frame_kind::application;
  m.body = body;
  m.references = references;
  const decoded d(encode(m));
  ASSERT_TRUE(d.outcome);
  expect_equal(m, d.m);
}

TEST(CapnpFraming, Nothing_is_allocated_for_valid_frames) {
  tp::capnp_framing::decode_storage lists;
  std::vector<std::uint64_t> out(512);
  const auto room = std::as_writable_bytes(std::span(out));
  tp::frame back;
  const auto messages = every_message();
  (void)decoded(encode(messages[0]));  // whatever the library makes once
  const allocation_watch watch;
  bool ok = true;
  for (const tp::frame& m : messages) {
    const auto n = tp::capnp_framing::encode(m, room);
    ok = ok && n && tp::capnp_framing::decode(room.first(*n), back, lists);
  }
  EXPECT_EQ(watch.count(), 0u);
  EXPECT_TRUE(ok);
}

TEST(CapnpFraming, F17_every_unknown_kind_is_an_unexpected_message) {
  frame f = encode(every_message()[1]);
  const auto original = f.word(2);
  for (std::uint64_t tag = 15; tag < 65536; tag += tag < 300 ? 1 : 997) {
    tp::store_le64(f.bytes().data() + 16, (original & 0xffff0000ffffffff) | tag << 32);
    EXPECT_EQ(decode_error(f), tp::errc::unexpected_frame) << tag;
  }
}

TEST(CapnpFraming, F17_an_unknown_status_is_unsupported_never_success) {
  for (const auto kind : {tp::frame_kind::refused, tp::frame_kind::confirmed}) {
    tp::frame m;
    m.kind = kind;
    for (unsigned s = 16; s < 65536; s += 501) {
      m.status = static_cast<tp::status>(s);
      const decoded d(encode(m));
      ASSERT_TRUE(d.outcome);
      EXPECT_EQ(d.m.status, tp::status::unsupported);
    }
  }
}

TEST(CapnpFraming, F17_a_newer_schema_with_more_fields_is_read_as_far_as_we_know_it) {
  const frame old = encode(every_message()[2]);
  words w{segment_table(1 + 9 + 3), struct_pointer(0, 9, 3)};  // two data words and two pointers more
  for (std::size_t i = 2; i < 9; ++i) w.push_back(old.word(i));
  w.insert(w.end(), {0x1234, 0x5678, old.word(9), 0, 0});
  const decoded d{frame(w)};
  ASSERT_TRUE(d.outcome);
  expect_equal(every_message()[2], d.m);
}

TEST(CapnpFraming, An_older_schema_with_fewer_fields_is_read_with_defaults) {
  const decoded d{frame(words{segment_table(4), struct_pointer(0, 3, 0), std::uint64_t{2} << 32 | 5, 11, 12})};
  ASSERT_TRUE(d.outcome);
  EXPECT_EQ(d.m.kind, tp::frame_kind::pull);
  EXPECT_EQ(d.m.ref, (tp::ref_id{11, 12}));
  EXPECT_EQ(d.m.length, 0u);
}

}  // namespace capnp_framing_test
