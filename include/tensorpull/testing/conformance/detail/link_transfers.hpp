// The common part of whole transfers, whatever the link: what is published, where it lands, and how a transfer is
// judged.
#pragma once

#include <tensorpull/chunking/policies.hpp>
#include <tensorpull/consumers/land.hpp>
#include <tensorpull/framing/word_framing.hpp>
#include <tensorpull/integrity/xxhash/policies.hpp>
#include <tensorpull/protocol/owner/owner.hpp>
#include <tensorpull/protocol/recipient/transfer.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/testing/conformance/detail/pipe_signals.hpp>
#include <tensorpull/testing/detail/published_versions.hpp>
#include <tensorpull/testing/guarded_tensors.hpp>

#include <optional>

namespace tensorpull::testing::detail {

/// `Probe`: makes connections or pairs. `Transfer`: lands what is published, over that kind of link.
template <class Probe, class Transfer>
class link_transfers {
 protected:
  using machine = owner<xxhash_digest>;
  using transfer_type = Transfer;

  link_transfers(Probe& p, std::uint64_t scale, std::size_t least)
      : p_(p), report_(p.report), small_(shape(1, 2500)), large_(shape(scale, least)) {}

  /// Whether a requirement is not met; then the transfers are skipped.
  bool skipped() noexcept {
    for (const auto& c : report_.checks())
      if (c.result == check_result::failed) {
        report_.begin("T", "transfers");
        report_.skip("they rest on %.*s", static_cast<int>(c.number.size()), c.number.data());
        return true;
      }
    return false;
  }
  void check(std::string_view number, std::string_view what) noexcept { report_.begin(number, what); }

  /// The result of one transfer.
  struct carried {
    result<receipt> done;
    bool equal;             ///< the destination has the bytes of the version in the receipt
    bool guarded;           ///< nothing was written around it
    std::uint64_t counted;  ///< completions that the owner counts
  };
  /// One transfer, which `move(owner, transfer)` moves until it ends. Nothing if the check has failed before, or if
  /// `move` returns false: there is no connection.
  template <class Move>
  std::optional<carried> carry(const guarded_tensors::shape& s, std::uint64_t chunk, Move move) {
    if (!report_.holds()) return std::nullopt;
    guarded_tensors source(s), mine(s);
    source.fill(random_);
    published_versions oracle;
    const ref_id id{1, 2};
    const std::uint64_t version = *image_version<xxhash_digest>(source.source());
    oracle.add(version, source.source());
    owner_storage<1, 4> storage;
    machine references(storage, [this] { return random_(); });
    (void)references.publish(source.source(), version, true, id, 0);

    land to(mine.destination());
    pull_request request;
    request.ref = id;
    Transfer t(to, request, {chunk}, 1);
    if (!move(references, t)) return std::nullopt;
    const auto done = t.outcome();
    const auto counts = references.status_of(id);
    return carried{done, done && oracle.equal(done->version, mine.source()), mine.guards_intact(),
                   counts ? counts->completed : 0};
  }
  /// Fails the check if wrong bytes were reported as completed, or written where none belong.
  void truth(const carried& got, std::uint64_t chunk) noexcept {
    const auto n = static_cast<unsigned long long>(chunk);
    if (!got.guarded) report_.fail("chunks of %llu bytes: bytes were written outside the destination", n);
    if (got.done && got.done->outcome == outcome::completed && !got.equal)
      report_.fail("chunks of %llu bytes: completed, and the bytes are others", n);
  }
  /// Fails the check if the transfer did not complete.
  void completed(const carried& got, std::uint64_t chunk) noexcept {
    const auto n = static_cast<unsigned long long>(chunk);
    if (!got.done)
      report_.fail("chunks of %llu bytes: %s (after %llu bytes)", n, to_string(got.done.error().code).data(),
                   static_cast<unsigned long long>(got.done.error().at));
    else if (got.done->outcome != outcome::completed || got.counted != 1)
      report_.fail("chunks of %llu bytes: it ended, and not as completed at both ends", n);
  }

  guarded_tensors::shape shape(std::uint64_t scale, std::size_t least) {
    for (;;)
      if (const guarded_tensors::shape s(random_, scale); s.bytes() >= least) return s;
  }

  Probe& p_;
  conformance_report& report_;
  seeded_random random_{7};
  guarded_tensors::shape small_, large_;
};

}  // namespace tensorpull::testing::detail
