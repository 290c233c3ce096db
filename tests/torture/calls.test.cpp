// Q5: each call of a transport in turn does the least, or the worst, that it may: the transfer is exact or ends with a
// named error.
#include "transports/network.hpp"

#include <tensorpull/transports/session/stream_session.hpp>

#include <sys/socket.h>
#include <cstdio>

namespace calls_test {

using namespace test;
enum class fault {
  none,
  would_block,
  one_byte,
  closed,
  failed,
};
constexpr std::array faults{fault::would_block, fault::one_byte, fault::closed, fault::failed};

/// A connected socket whose calls are counted; `nth` of them (from 1) goes wrong, or every one if `nth` is 0.
struct plan {
  fault what = fault::none;
  std::uint64_t nth = 0, calls = 0;
  bool now() noexcept { return ++calls == nth || (nth == 0 && what != fault::none); }
};
struct faulty {
  tp::posix_stream stream;
  plan* of = nullptr;
  void (*idle)(void*) = nullptr;  ///< what the other end does while this one waits
  void* idle_of = nullptr;

  template <class Spans, class Call>
  tp::io_result spoil(Spans spans, Call call) noexcept {
    if (stream.native_handle() < 0) return {tp::io_status::closed, 0, 0};
    if (!of->now()) return call(spans);
    switch (of->what) {
      case fault::would_block: {
        // if every call may fail, half of them do, without a pattern that one kind of call could fall into for ever
        if (of->nth == 0 && (of->calls * 0x9e3779b97f4a7c15u) >> 63 == 0) return call(spans);
        return {tp::io_status::would_block, 0, 0};
      }
      case fault::one_byte: {
        for (const auto& s : spans)
          if (!s.empty()) {
            const std::array one{s.first(1)};
            return call(Spans(one));
          }
        return call(spans);
      }
      case fault::closed: stream = tp::posix_stream(); return {tp::io_status::closed, 0, 0};
      case fault::failed: stream = tp::posix_stream(); return {tp::io_status::failed, 5, 0};
      case fault::none: break;
    }
    return call(spans);
  }
  tp::io_result read_some(std::span<const byte_span> s) noexcept {
    return spoil(s, [&](auto some) { return stream.read_some(some); });
  }
  tp::io_result write_some(std::span<const const_byte_span> s) noexcept {
    return spoil(s, [&](auto some) { return stream.write_some(some); });
  }
  tp::io_ready wait(bool read, bool write, std::chrono::milliseconds) noexcept {
    if (idle != nullptr) idle(idle_of);
    if (of->now() && stream.native_handle() >= 0) {
      if (of->what == fault::one_byte) return {true, true};  // says more than is true
      if (of->what != fault::would_block) stream = tp::posix_stream();
      return {};
    }
    return stream.native_handle() < 0 ? tp::io_ready{} : stream.wait(read, write, 0ms);
  }
};

template <class Parts>
struct pair_of_sessions {
  using session = tp::stream_session<Parts, faulty>;
  plan at_owner, at_recipient;
  std::optional<session> owner, recipient;
  bool owner_lives = true;

  pair_of_sessions(plan o, plan r) : at_owner(o), at_recipient(r) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    owner.emplace(*session::over({tp::posix_stream(ends[0]), &at_owner, nullptr, nullptr}));
    recipient.emplace(*session::over(
        {tp::posix_stream(ends[1]), &at_recipient, [](void* p) { static_cast<pair_of_sessions*>(p)->serve(); }, this}));
  }
  void serve() {
    tp::no_transfer none;
    for (int i = 0; i < 4 && owner_lives; ++i)
      if (const auto did = owner->step_transfer(none); !did)
        owner->stream().stream = tp::posix_stream(), owner_lives = false;
  }
};

template <class Net>
class CallsOf : public testing::Test {
 public:
  std::unique_ptr<mlp> source = random_model<mlp>(1), mine = blank<mlp>();
  static tp::pull_options patient(tp::resume_cursor* c) {
    tp::pull_options o{.per_request_timeout = 5s};
    o.window = 2, o.cursor = c, o.retry.retries = 0;
    return o;
  }
  struct result {
    tp::result<tp::receipt> how{tp::failure(errc::invalid_argument)};
    std::uint64_t owner_calls = 0, recipient_calls = 0, completed = 0;
  };
  result pull(plan at_owner, plan at_recipient, tp::resume_cursor* cursor) {
    pair_of_sessions<typename Net::parts> both(at_owner, at_recipient);
    const auto ref = *both.owner->add_tensors(*source, {.recipients = 1, .id = {5, 6}});
    result r;
    r.how = both.recipient->download_tensors(ref, *mine, patient(cursor));
    r.owner_calls = both.at_owner.calls, r.recipient_calls = both.at_recipient.calls;
    for (int i = 0; i < 3; ++i) both.serve();
    r.completed = both.owner->status_of(ref)->completed;
    return r;
  }
  /// `left`: whether the owner's calls fail.
  void every_call(bool left) {
    const result clean = this->pull({}, {}, nullptr);
    ASSERT_TRUE(clean.how);
    const std::uint64_t calls = left ? clean.owner_calls : clean.recipient_calls;
    ASSERT_GT(calls, 20u);
    std::uint64_t errors = 0;
    for (const fault f : faults)
      for (std::uint64_t nth = 1; nth <= calls; ++nth) {
        SCOPED_TRACE(testing::Message() << "fault " << static_cast<int>(f) << " at call " << nth << " of " << calls);
        std::memset(mine.get(), 0, sizeof *mine);
        tp::resume_cursor cursor;
        const plan bad{f, nth, 0};
        const result r = this->pull(left ? bad : plan{}, left ? plan{} : bad, &cursor);
        if (f == fault::would_block || f == fault::one_byte) {
          const bool waited_in_vain = !r.how;
          ASSERT_FALSE(waited_in_vain) << to_string(r.how.error().code);
        }
        if (r.how) {
          ASSERT_TRUE(same(*source, *mine));
          ASSERT_EQ(r.how->outcome, tp::outcome::completed);
          continue;
        }
        ++errors;
        const auto code = r.how.error().code;
        ASSERT_TRUE(code == errc::connection_lost || code == errc::io) << to_string(code);
        // what had landed is gone on with over another connection
        const result rest = this->pull({}, {}, &cursor);
        ASSERT_TRUE(succeeded(rest.how));
        ASSERT_TRUE(same(*source, *mine));
      }
    EXPECT_GT(errors, calls / 2) << "the faults did nothing";
  }
};
using whole_digest = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<16_KiB>, tp::tcp>;
using chunk_digests = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<16_KiB>, tp::chunk_and_image_digest, tp::tcp>;
using Nets = testing::Types<whole_digest, chunk_digests>;
TYPED_TEST_SUITE(CallsOf, Nets);

TYPED_TEST(CallsOf, Q5_a_recipient_survives_a_fault_at_every_call_or_names_it) { this->every_call(false); }
TYPED_TEST(CallsOf, Q5_an_owner_survives_a_fault_at_every_call_or_names_it) { this->every_call(true); }
TYPED_TEST(CallsOf, Q5_calls_that_all_do_the_least_give_the_exact_bytes) {
  for (const fault f : {fault::would_block, fault::one_byte}) {
    std::memset(this->mine.get(), 0, sizeof *this->mine);
    const auto r = this->pull({f, 0, 0}, {f, 0, 0}, nullptr);
    ASSERT_TRUE(succeeded(r.how));
    EXPECT_TRUE(same(*this->source, *this->mine));
    EXPECT_EQ(r.completed, 1u);
  }
}

}  // namespace calls_test
