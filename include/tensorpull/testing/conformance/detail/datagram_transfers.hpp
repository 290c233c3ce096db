// Whole transfers over a datagram link, in one thread: with chunks of many lengths, and with what networks do to
// datagrams. Whatever happens, a transfer that reports `completed` must have the published bytes.
#pragma once

#include <tensorpull/framing/detail/payload_prefix.hpp>
#include <tensorpull/protocol/datagrams/datagram_endpoint.hpp>
#include <tensorpull/protocol/datagrams/datagram_transfer.hpp>
#include <tensorpull/pull/datagram_step.hpp>
#include <tensorpull/testing/conformance/detail/datagram_probe.hpp>
#include <tensorpull/testing/conformance/detail/link_transfers.hpp>
#include <tensorpull/testing/faulty_datagrams.hpp>

#include <memory>

namespace tensorpull::testing::detail {

/// A link as the link to one peer: `peer`, or the one that has sent last. There are no strangers in a check, so there
/// are no cookies.
template <datagram_link Link>
class link_to_one {
 public:
  using address = only_peer;
  static constexpr std::size_t max_datagram_bytes = Link::max_datagram_bytes;
  static constexpr bool checked = Link::checked;
  static constexpr bool addresses_are_proved = true;

  link_to_one(Link link, const typename Link::address& peer) noexcept : link_(std::move(link)), peer_(peer) {}
  std::size_t datagram_bytes() const noexcept { return link_.datagram_bytes(); }
  io_result receive(std::span<std::byte> memory, address&) noexcept { return link_.receive(memory, peer_); }
  io_result send(gather_list spans, const address&) noexcept { return link_.send(spans, peer_); }
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    return link_.wait(read, write, timeout);
  }

 private:
  Link link_;
  typename Link::address peer_;
};

template <datagram_factory Connect>
class datagram_transfers
    : link_transfers<datagram_probe<Connect>, datagram_transfer<land, bytes_up_to<1u << 20>, image_digest>> {
  using probe = datagram_probe<Connect>;
  using link = link_to_one<faulty_datagrams<typename probe::link>>;
  using base = typename datagram_transfers::link_transfers;
  using base::check, base::p_, base::report_, base::random_, base::small_, base::large_;
  using typename base::machine, typename base::transfer_type;
  using end_time = std::chrono::microseconds;

 public:
  explicit datagram_transfers(probe& p) : base(p, 20, 40'000) {}

  void run() {
    if (base::skipped()) return;
    check("T1", "transfers of every chunk length that fits");
    for (const std::uint64_t chunk : std::initializer_list<std::uint64_t>{1, 7, 40, most() / 2 + 1, most()})
      expect(chunk < 40 ? small_ : large_, chunk, {}, true);
    check("T2", "of ten datagrams one is lost, and of four");
    for (const std::uint32_t lost : {100u, 250u}) expect(small_, most(), {.lost = lost}, true);
    check("T3", "datagrams arrive twice");
    expect(small_, most(), {.doubled = 300}, true);
    check("T4", "bits are changed: datagrams are lost, or the digest shows it");
    expect(small_, most(), {.damaged = 50}, Link::checked);
    check("T5", "all of it at once");
    for (std::uint64_t seed = 1; seed <= 3; ++seed)
      expect(small_, most() / 2 + 1, {.lost = 100, .doubled = 100, .seed = seed}, true);
    check("T6", "nothing arrives: the transfer fails, and its destination is untouched");
    expect(small_, most(), {.lost = 1000}, false);
    check("T7", "no transfer raises a signal");
    pipe_signals::judge(report_);
  }

 private:
  using Link = typename probe::link;
  /// A lost datagram is asked for again after one to four seconds, and may be lost again several times.
  static constexpr std::uint64_t standstill_us = 60'000'000;
  /// Memory that endpoints want to be aligned.
  template <std::size_t Bytes>
  struct room {
    alignas(64) std::array<std::byte, Bytes> bytes{};
  };

  static constexpr std::uint64_t most() noexcept {
    return std::min<std::uint64_t>((Link::max_datagram_bytes - tensorpull::detail::payload_prefix::bytes) / 8 * 8,
                                   1u << 20);
  }

  /// Checks that a transfer did not report wrong bytes as completed. `completes`: it has to.
  void expect(const guarded_tensors::shape& s, std::uint64_t chunk, const datagram_faults& faults, bool completes) {
    const auto got = base::carry(
        s, chunk, [&](machine& references, transfer_type& t) { return move(references, t, faults, completes); });
    if (!got) return;
    base::truth(*got, chunk);
    if (faults.lost == 1000 && (got->done || got->done.error().at != 0))
      report_.fail("nothing arrives, and the transfer has landed something");
    if (completes) base::completed(*got, chunk);
  }
  /// Moves a transfer over a new pair until it ends, or is found not to go on. False: there is no pair.
  bool move(machine& references, transfer_type& t, const datagram_faults& faults, bool completes) {
    auto made = p_.connect();
    if (!made) return false;
    auto back = faults;
    back.seed += 1000;
    const auto to_right = made->to_right;
    link left(faulty_datagrams<Link>(std::move(made->left), faults), to_right),
        right(faulty_datagrams<Link>(std::move(made->right), back), {});
    const auto memory = std::make_unique<std::array<room<4096>, 4>>();
    const std::span<std::byte> all((*memory)[0].bytes.data(), sizeof *memory);
    buffer_pool<> owner_pool(all.first(8192), 4096);
    buffer_pool<> pool(all.subspan(8192), 4096);
    ignore_messages handler;
    no_owner none;
    no_transfer idle;
    datagram_endpoint<word_framing, default_limits, machine, ignore_messages> owner_end(
        references, owner_pool, handler, right.datagram_bytes(), random_());
    datagram_endpoint<word_framing, default_limits, no_owner, ignore_messages> end(none, pool, handler,
                                                                                   left.datagram_bytes(), random_());
    std::vector<std::byte> held(std::size_t{32} << 10);
    std::vector<std::uint64_t> scratch(std::max(owner_end.scratch_bytes(), end.scratch_bytes()) / 8 + 1);
    const auto bytes = std::as_writable_bytes(std::span(scratch));
    const auto come = std::make_unique<tensorpull::detail::datagram_memory<link>>();
    t.fits(left.datagram_bytes());
    t.hold(held);
    end.begin_pull();
    std::uint64_t landed = 0;
    for (std::uint64_t begin = p_.now_us(); !t.ended();) {
      const auto now = end_time(p_.now_us());
      const auto served = step_datagrams(owner_end, idle, right, bytes, *come, now);
      const auto did = step_datagrams(end, t, left, bytes, *come, now);
      if (!did || !served) t.fail(did ? served.error() : did.error());
      if (t.landed_bytes() > landed) {
        begin = p_.now_us();
        landed = t.landed_bytes();
      }
      if (!t.ended() && p_.now_us() - begin > (completes ? standstill_us : 500'000)) t.fail({errc::timed_out});
      if (did && served && did->received + did->sent + served->received + served->sent == 0)
        left.wait(true, did->blocked, 1ms);
    }
    end.end_pull(t);
    return true;
  }
};

}  // namespace tensorpull::testing::detail
