// Whole transfers through a byte stream, in one thread: with chunks of many lengths, in odd steps, and with the faults
// of networks. Whatever happens, a transfer that reports `completed` must have the published bytes.
#pragma once

#include <tensorpull/links/pump.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>
#include <tensorpull/testing/conformance/detail/link_transfers.hpp>
#include <tensorpull/testing/conformance/detail/stream_probe.hpp>
#include <tensorpull/testing/conformance/faulty_stream.hpp>

#include <optional>

namespace tensorpull::testing::detail {

template <stream_factory Connect>
class stream_transfers : link_transfers<stream_probe<Connect>, transfer<land, bytes_up_to<1u << 20>, image_digest>> {
  using probe = stream_probe<Connect>;
  using stream = faulty_stream<typename probe::stream>;
  using base = typename stream_transfers::link_transfers;
  using base::check, base::truth, base::p_, base::report_, base::small_, base::large_;
  using typename base::carried, typename base::machine, typename base::transfer_type;

 public:
  explicit stream_transfers(probe& p) : base(p, 200, 500'000) {}

  void run() {
    if (base::skipped()) return;
    check("T1", "transfers of every chunk length");
    for (const std::uint64_t chunk : {1u, 7u, 64u, 1000u, 1u << 16}) expect_completed(small_, chunk, {}, {});
    for (const std::uint64_t chunk : {1u << 12, 1u << 16, 1u << 20}) expect_completed(large_, chunk, {}, {});
    check("T2", "one byte for each read and each write");
    expect_completed(small_, 500, {.most_per_read = 1, .most_per_write = 1}, {.most_per_read = 1, .most_per_write = 1});
    check("T3", "odd splits, different ones in both directions");
    for (const std::size_t n : {3u, 13u, 79u, 81u, 1021u})
      expect_completed(small_, 333, {.most_per_read = n, .most_per_write = n + 2},
                       {.most_per_read = n + 4, .most_per_write = n});
    check("T4", "would_block on every other call, and on two of three (Q5)");
    for (const std::uint32_t n : {1u, 2u})
      expect_completed(small_, 333, {.most_per_write = 100, .blocked_calls = n},
                       {.most_per_read = 50, .blocked_calls = n});
    check("T5", "a stall in the middle");
    expect_completed(small_, 333, {}, {.stall_after = 400, .stalled_calls = 30});
    check("T6", "the connection ends at byte k: an error, and a new connection completes");
    for (const std::uint64_t k : {0u, 1u, 60u, 100u, 180u, 333u, 700u, 1500u}) {
      expect_truth(small_, 300, {}, {.read_ends_after = k}, true);
      expect_completed(small_, 300, {}, {});
    }
    check("T7", "the peer is gone in the middle of a send (Q6)");
    for (const std::uint64_t k : {1u, 50u, 90u}) expect_truth(small_, 300, {.read_ends_after = k}, {}, false);
    meddle("T8", "a frame arrives twice", frame_fault_kind::duplicate, 0);
    meddle("T9", "frames change their order", frame_fault_kind::late, 1);
    meddle("T10", "a frame is shortened", frame_fault_kind::truncate, 40);
    meddle("T11", "a bit of a frame's head is another", frame_fault_kind::flip_head, 0);
    meddle("T12", "a bit of a payload is another", frame_fault_kind::flip_payload, 0);
    meddle("T13", "a frame is dropped", frame_fault_kind::drop, 0);
    check("T14", "the connection ends at byte k: the transfer goes on over another one");
    for (const std::uint64_t k : {0u, 60u, 333u, 700u, 1500u})
      expect_completed(small_, 300, {}, {.read_ends_after = k}, 2);
    check("T15", "no transfer raises a signal");
    pipe_signals::judge(report_);
  }

 private:
  void meddle(std::string_view number, std::string_view what, frame_fault_kind kind, std::uint64_t detail) {
    check(number, what);
    for (std::uint64_t frame = 0; frame < 6; ++frame)
      for (const std::uint64_t more : {0u, 37u, 301u})
        expect_truth(small_, 300, {.sent = {{{kind, frame, detail + more}}}}, {}, false);
  }

  void expect_completed(const guarded_tensors::shape& s, std::uint64_t chunk, const stream_faults& owner_side,
                        const stream_faults& recipient_side, int connections = 1) {
    const auto got = carry(s, chunk, owner_side, recipient_side, connections);
    if (!got) return;
    base::completed(*got, chunk);
    truth(*got, chunk);
  }
  /// Checks that a transfer did not report wrong bytes as completed. It may fail, and must if `must_fail`.
  void expect_truth(const guarded_tensors::shape& s, std::uint64_t chunk, const stream_faults& owner_side,
                    const stream_faults& recipient_side, bool must_fail) {
    const auto got = carry(s, chunk, owner_side, recipient_side);
    if (!got) return;
    truth(*got, chunk);
    if (must_fail && got->done)
      report_.fail("the connection ended at byte %llu, and the transfer says that it completed",
                   static_cast<unsigned long long>(recipient_side.read_ends_after));
  }

  /// One transfer, over at most so many connections, of which only the first has faults.
  std::optional<carried> carry(const guarded_tensors::shape& s, std::uint64_t chunk, const stream_faults& owner_side,
                               const stream_faults& recipient_side, int connections = 1) {
    return base::carry(s, chunk, [&](machine& references, transfer_type& t) {
      if (!connect_and_move(references, t, owner_side, recipient_side, connections == 1)) return false;
      while (!t.ended()) {
        t.restart();
        if (!connect_and_move(references, t, {}, {}, --connections == 1)) return false;
      }
      return true;
    });
  }
  /// Moves a transfer over a new connection until it ends. Unless this is the last connection, one that is lost leaves
  /// the transfer open. False: there is no connection.
  bool connect_and_move(machine& references, transfer_type& t, const stream_faults& owner_side,
                        const stream_faults& recipient_side, bool last) {
    auto made = p_.connect();
    if (!made) return false;
    std::vector<std::uint64_t> memory(4096 / 8 * 4), scratch(8192 / 8);
    buffer_pool<> owner_pool(std::as_writable_bytes(std::span(memory)).first(8192), 4096);
    buffer_pool<> pool(std::as_writable_bytes(std::span(memory)).subspan(8192), 4096);
    ignore_messages handler;
    no_owner none;
    no_transfer idle;
    std::optional<stream> left(std::in_place, std::move(made->left), owner_side);
    stream right(std::move(made->right), recipient_side);
    endpoint<word_framing, default_limits, machine, ignore_messages> owner_end(references, owner_pool, handler);
    endpoint<word_framing, default_limits, no_owner, ignore_messages> end(none, pool, handler);
    end.begin_pull();
    // after a frame that was dropped or shortened the recipient waits: that must end, too
    const std::uint64_t patience = owner_side.sent[0].kind != frame_fault_kind::none
                                       ? std::min<std::uint64_t>(p_.patience_us(), 20'000)
                                       : p_.patience_us();
    bool lost = false;
    for (std::uint64_t begin = p_.now_us(); !t.ended() && !lost;) {
      const auto served = left ? pump_once(owner_end, idle, *left, std::as_writable_bytes(std::span(scratch)))
                               : result<pumped>(pumped{});
      if (!served) left.reset();
      const auto did = pump_once(end, t, right, std::span<std::byte>());
      if (!did && did.error().code == errc::connection_lost && !last) lost = true;
      else if (!did) t.fail(did.error());
      else if (did->received + did->sent > 0 || (served && served->received + served->sent > 0)) begin = p_.now_us();
      else if (p_.now_us() - begin > patience) t.fail({errc::timed_out});
      else {
        if (left) left->release();
        right.wait(true, false, 1ms);
      }
    }
    end.end_pull(t);
    return true;
  }
};

}  // namespace tensorpull::testing::detail
