#include <tensorpull/satellites/nats/nats_subject.hpp>

#include <gtest/gtest.h>

#include <concepts>
#include <string>
#include <type_traits>

namespace nats_subject_test {

using namespace tensorpull;

static_assert(std::regular<nats_subject> && std::is_trivially_copyable_v<nats_subject>);

constexpr ref_id id{0x0123456789abcdef, 0xfedcba9876543210};

TEST(NatsSubject, Of_a_reference_has_its_digits) {
  EXPECT_EQ(nats_subject::coordinator(id).view(), "tensorpull.0123456789abcdeffedcba9876543210.coordinator");
  EXPECT_EQ(nats_subject::any(id).view(), "tensorpull.0123456789abcdeffedcba9876543210.any");
  EXPECT_STREQ(nats_subject::any(id).c_str(), "tensorpull.0123456789abcdeffedcba9876543210.any");
  EXPECT_NE(nats_subject::any(id), nats_subject::coordinator(id));
  EXPECT_NE(nats_subject::any(id).hash(), nats_subject::coordinator(id).hash());
  EXPECT_FALSE(nats_subject());
}

TEST(NatsSubject, Takes_tokens_and_no_wildcards) {
  EXPECT_TRUE(nats_subject::of("a"));
  EXPECT_TRUE(nats_subject::of("a.b-c.D_9"));
  EXPECT_TRUE(nats_subject::of(std::string(95, 'x')));
  for (const std::string& bad :
       {std::string(), std::string(96, 'x'), std::string("."), std::string(".a"), std::string("a."),
        std::string("a..b"), std::string("a.*"), std::string("a.>"), std::string("a b"),
        std::string("a\r\nPUB b 0\r\n\r\n"), std::string("a\0b", 3), std::string("\x80"), std::string("a\x7f")})
    EXPECT_EQ(nats_subject::of(bad).error().code, errc::bad_address) << bad;
}

TEST(NatsSubject, An_inbox_is_a_prefix_and_a_random_token) {
  const auto inbox = nats_subject::inbox("_INBOX_alice", id);
  ASSERT_TRUE(inbox);
  EXPECT_EQ(inbox->view(), "_INBOX_alice.0123456789abcdeffedcba9876543210");
  EXPECT_TRUE(nats_subject::inbox(std::string("_INBOX") + std::string(56, 'x'), id));
  EXPECT_EQ(nats_subject::inbox(std::string("_INBOX") + std::string(57, 'x'), id).error().code, errc::bad_address);
  for (const char* bad : {"", "INBOX", "orders", "_INBOX.", "_INBOX.*", "_INBOX >"})
    EXPECT_EQ(nats_subject::inbox(bad, id).error().code, errc::bad_address) << bad;
}

// Otherwise an owner would send, with its own rights, to any subject that a stranger names.
TEST(NatsSubject, Answers_go_to_inboxes_alone) {
  constexpr std::string_view digits = "0123456789abcdeffedcba9876543210";
  EXPECT_TRUE(nats_subject::inbox_named("_INBOX." + std::string(digits)));
  EXPECT_TRUE(nats_subject::inbox_named("_INBOX_alice.b." + std::string(digits)));
  for (const std::string& bad :
       {std::string(), std::string("_INBOX"), "orders." + std::string(digits), "$SYS._INBOX." + std::string(digits),
        "_INBOX." + std::string(digits.substr(1)), "_INBOX." + std::string(digits) + ".x",
        "_INBOX.*." + std::string(digits), "_INBOX.>." + std::string(digits), "_INBOX.." + std::string(digits),
        "_INBOX." + std::string(70, 'x') + "." + std::string(digits), nats_subject::any(id).c_str() + std::string(),
        "_INBOX.x y." + std::string(digits)})
    EXPECT_FALSE(nats_subject::inbox_named(bad)) << bad;
}

}  // namespace nats_subject_test
