// Hostile users of the same account: they say anything on the subjects of a reference, name other places for the
// answers, and answer themselves.
#include "nats_network.hpp"
#include "support/frames.hpp"

#include <atomic>
#include <stop_token>
#include <vector>

namespace nats_strangers_test {

using namespace test;
using NatsStrangers = nats_test;

/// Anybody whom the server has let in, with libnats as it is.
class stranger {
 public:
  explicit stranger(const nats_process& server) {
    EXPECT_EQ(natsConnection_ConnectTo(&connection_, server.url().c_str()), NATS_OK);
  }
  stranger(const stranger&) = delete;
  ~stranger() {
    natsSubscription_Destroy(subscription_);
    natsConnection_Destroy(connection_);
  }
  void listen(const std::string& subject, const char* group = nullptr) {
    EXPECT_EQ(group != nullptr ? natsConnection_QueueSubscribeSync(&subscription_, connection_, subject.c_str(), group)
                               : natsConnection_SubscribeSync(&subscription_, connection_, subject.c_str()),
              NATS_OK);
    EXPECT_EQ(natsConnection_Flush(connection_), NATS_OK);
  }
  void say(std::string_view subject, std::string_view reply, std::span<const std::byte> bytes) {
    const std::string to(subject), from(reply);
    const auto size = static_cast<int>(bytes.size());
    EXPECT_EQ(reply.empty() ? natsConnection_Publish(connection_, to.c_str(), bytes.data(), size)
                            : natsConnection_PublishRequest(connection_, to.c_str(), from.c_str(), bytes.data(), size),
              NATS_OK);
  }
  void flush() { EXPECT_EQ(natsConnection_Flush(connection_), NATS_OK); }
  /// The next message, or nullptr.
  natsMsg* hear(std::int64_t milliseconds) {
    natsMsg* m = nullptr;
    return natsSubscription_NextMsg(&m, subscription_, milliseconds) == NATS_OK ? m : nullptr;
  }

 private:
  natsConnection* connection_ = nullptr;
  natsSubscription* subscription_ = nullptr;
};

const std::string inbox = "_INBOX.0123456789abcdef0123456789abcdef";

TEST_F(NatsStrangers, F16_anything_on_the_subjects_changes_nothing_for_honest_recipients) {
  const nats_process server;
  auto owner = nats_owner_at<large>(server);
  const auto source = random_model<large>(1), mine = blank<large>();
  const auto ref = *owner.add_tensors(*source, {.recipients = 1});
  serving on(owner);
  joined_thread noise([&](std::stop_token stop) {
    stranger s(server);
    generator random(3);
    std::vector<std::byte> bytes(3000);
    for (int i = 0; !stop.stop_requested(); ++i) {
      random.fill(bytes);
      if (i % 3 == 0) {  // a request, cut somewhere or changed in one place
        const auto asked = request(tp::frame_kind::pull, 7, ref.id, 0, 64);
        std::copy(asked.begin(), asked.end(), bytes.begin());
        bytes[static_cast<std::size_t>(i) % asked.size()] ^= std::byte{0x10};
      }
      s.say((i % 2 == 0 ? tp::nats_subject::any(ref.id) : tp::nats_subject::coordinator(ref.id)).view(),
            i % 5 == 0 ? "" : inbox, std::span(bytes).first(static_cast<std::size_t>(i) % bytes.size()));
      s.say("_INBOX.00000000000000000000000000000001", inbox, bytes);  // a guess
      if (i % 64 == 0) s.flush();
    }
  });
  const auto done = nats_net<large>::download_tensors(server.url(), ref, *mine);
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_TRUE(same(*mine, *source));
  noise.request_stop();
  noise.join();
  on.stop();
  EXPECT_GT(owner.counts().malformed, 0u);
  EXPECT_EQ(owner.settlement_of(ref)->verdict, tp::verdict::completed);
}

// An owner sends with its own rights: it must not be led to write where the stranger may not.
TEST_F(NatsStrangers, Answers_are_sent_to_inboxes_alone) {
  const nats_process server;
  auto owner = nats_owner_at<mlp>(server);
  const auto source = random_model<mlp>(1);
  const auto ref = *owner.add_tensors(*source);
  serving on(owner);
  stranger victim(server), s(server);
  victim.listen(">");
  const auto ask = request(tp::frame_kind::pull, 1, ref.id, 0, 1000, {5});
  for (const std::string& reply :
       {std::string("orders.new"), std::string("_INBOX.short"), std::string(tp::nats_subject::any(ref.id).view()),
        std::string(tp::nats_subject::coordinator(ref.id).view())})
    s.say(tp::nats_subject::coordinator(ref.id).view(), reply, ask);
  s.say(tp::nats_subject::coordinator(ref.id).view(), inbox, ask);
  int heard = 0;
  while (natsMsg* const m = victim.hear(heard < 6 ? 10'000 : 300)) {
    ++heard;
    const std::string_view to = natsMsg_GetSubject(m);
    EXPECT_TRUE(to == inbox || to == tp::nats_subject::coordinator(ref.id).view()) << to;
    natsMsg_Destroy(m);
  }
  EXPECT_EQ(heard, 5 + 1) << "five questions and one answer";
}

// It has read the ID in a subject's name, serves other bytes under it, and is the first to answer every other time.
TEST_F(NatsStrangers, C1_an_owner_of_other_bytes_completes_no_pull_that_was_given_the_version) {
  const nats_process server;
  const auto source = random_model<tiny>(1), other = random_model<tiny>(2), mine = blank<tiny>();
  for (const bool claims : {false, true}) {
    auto owner = nats_owner_at<tiny>(server), liar = nats_owner_at<tiny>(server);
    const auto ref = *owner.add_tensors(*source);
    ASSERT_TRUE(liar.add_tensors(*other, {.id = ref.id, .version = claims ? ref.version : 0}));
    serving on(owner), beside(liar);
    for (int i = 0; i < 20; ++i) {
      const tp::pull_options once{.per_request_timeout = 5s, .retry = {.retries = 0}};
      const auto done = nats_net<tiny>::download_tensors(server.url(), ref, *mine, once);
      if (!done) continue;  // one answer is enough to end a pull
      EXPECT_TRUE(same(*mine, *source)) << "digest " << done->digest;
      EXPECT_FALSE(done->believed);
    }
    EXPECT_EQ(nats_net<tiny>::download_tensors(server.url(), ref.id, *mine).error(), tp::errc::version_required);
    const auto believed = nats_net<tiny>::download_tensors(server.url(), ref.id, *mine, {.believe = true});
    if (believed) {
      EXPECT_TRUE(believed->believed);
    }
  }
}

// It has the reference, so it can answer as a replica does; wrong bytes are found by the digest.
TEST_F(NatsStrangers, C1_forged_chunks_never_complete) {
  const nats_process server;
  auto owner = nats_owner_at<large>(server);
  const auto source = random_model<large>(1), mine = blank<large>();
  const auto ref = *owner.add_tensors(*source, {.recipients = 1});
  serving on(owner);
  std::atomic<int> lies{0};
  std::atomic<bool> ready{false};
  joined_thread liar([&](std::stop_token stop) {
    stranger s(server);
    s.listen(std::string(tp::nats_subject::any(ref.id).view()), "owners");
    ready = true;
    while (!stop.stop_requested()) {
      natsMsg* const m = s.hear(50);
      if (m == nullptr) continue;
      const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(natsMsg_GetData(m)),
                                             static_cast<std::size_t>(natsMsg_GetDataLength(m)));
      const std::size_t size = request(tp::frame_kind::pull, 1, ref.id, 0, 1).size();
      for (std::size_t at = 0; at + size <= bytes.size(); at += size) {  // a datagram has several requests
        tp::word_framing::decode_storage lists;
        tp::frame asked, lie;
        const test::frame one(bytes.subspan(at, size));
        if (!tp::word_framing::decode(one.bytes(), asked, lists) || asked.kind != tp::frame_kind::pull) break;
        lie.kind = tp::frame_kind::chunk;
        lie.id = asked.id, lie.ref = asked.ref, lie.version = ref.version, lie.offset = asked.offset, lie.nonce = 99,
        lie.length = asked.length;
        std::vector<std::byte> answer(tp::detail::payload_prefix::bytes +
                                      tp::detail::payload_prefix::padded(asked.length));
        tp::detail::payload_prefix::write(lie, std::span(answer).first<tp::detail::payload_prefix::bytes>());
        s.say(natsMsg_GetReply(m), inbox, answer);
        ++lies;
      }
      natsMsg_Destroy(m);
    }
  });
  ASSERT_TRUE(eventually("the liar listens", [&] { return ready.load(); }));
  const auto done = nats_net<large>::download_tensors(server.url(), ref, *mine);
  liar.request_stop();
  liar.join();
  ASSERT_GT(lies, 0);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, tp::errc::digest_mismatch) << describe(done.error());
  on.stop();
  EXPECT_EQ(owner.status_of(ref)->completed, 0u);
}

TEST_F(NatsStrangers, R7_guessed_references_find_nothing) {
  const nats_process server;
  auto owner = nats_owner_at<mlp>(server);
  const auto source = random_model<mlp>(1), mine = blank<mlp>();
  const auto ref = *owner.add_tensors(*source, {.recipients = 1});
  serving on(owner);
  stranger s(server);
  s.listen(inbox);
  for (std::uint64_t i = 1; i <= 1000; ++i)
    s.say(tp::nats_subject::coordinator(ref.id).view(), inbox,
          request(tp::frame_kind::describe, static_cast<std::uint32_t>(i), {i, i}, 0, 0, {i}));
  s.flush();
  EXPECT_TRUE(nats_net<mlp>::download_tensors(server.url(), ref, *mine));
  while (natsMsg* const m = s.hear(200)) {
    EXPECT_LE(natsMsg_GetDataLength(m), 150);
    natsMsg_Destroy(m);
  }
  on.stop();
  EXPECT_EQ(owner.status_of(ref)->acquired, 1u);
}

TEST_F(NatsStrangers, Accounts_are_apart) {
  const nats_process server(R"(accounts {
    A { users = [{user: a, password: a}] }
    B { users = [{user: b, password: b}] }
  })");
  const std::string a = server.url("a:a"), b = server.url("b:b");
  auto owner = nats_net<mlp>::downloader::open({.server = {.url = a, .timeout = std::chrono::minutes(1)}});
  ASSERT_TRUE(owner);
  const auto source = random_model<mlp>(1), mine = blank<mlp>();
  const auto ref = *owner->add_tensors(*source, {.recipients = 1});
  serving on(*owner);
  EXPECT_EQ(nats_net<mlp>::download_tensors(b, ref, *mine, {.retry = {.retries = 0}}).error().code,
            tp::errc::connection_failed);
  EXPECT_TRUE(nats_net<mlp>::download_tensors(a, ref, *mine));
}

}  // namespace nats_strangers_test
