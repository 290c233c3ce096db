// One pull from description to confirmation: the recipient's state machine together with a consumer and the digests. A
// driver moves the bytes, through an endpoint; the transfer decides which bytes are wanted, where they land, and
// whether they are the published ones. The consumer has finished before the owner is told, so a confirmation that is
// lost or refused makes the result no error.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/consumers/resume_cursor.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/integrity/concept.hpp>
#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/protocol/recipient/recipient.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/optional.hpp>

#include <utility>

namespace tensorpull {

namespace detail {
// These stand where a transfer has no digest of each chunk, none of a part, and none to go back to. A type for each, so
// that none takes memory.
struct no_chunk_hash {};
struct no_part_hash {};
struct no_held_hash {};
struct no_held_part_hash {};
}  // namespace detail

/// One pull. A model of transfer_role (roles.hpp). Borrows the consumer. Do not move it while it is in use. Size with
/// XXH3-64, whose state is 576 bytes: 0.7 KiB without digests, one state and 344 bytes more for the image's digest, two
/// states and 344 bytes more for chunk digests too. `Machine`: the recipient's, over a stream by default.
template <consumer Consumer, chunking_strategy Chunking, integrity_policy Integrity, class Limits = default_limits,
          class Machine = recipient<Chunking, Limits>>
class transfer {
  static_assert(
      !Consumer::irrevocable || Integrity::per_chunk,
      "tensorpull: this consumer cannot undo what it has taken, so the pipeline needs an integrity policy that checks each chunk "
      "(chunk_and_image_digest or chunk_digest)");

 public:
  /// The consumer of the bytes.
  using consumer_type = Consumer;
  /// Bytes of payload that one read should ask for: few enough to be still in the cache when they are hashed.
  static constexpr std::size_t read_piece_bytes = Integrity::whole || Integrity::per_chunk ? 256 * 1024
                                                                                           : 4 * 1024 * 1024;

  /// `to`: borrowed. `request`: its schema, its chunk digest, and its fingerprint unless the consumer takes any schema,
  /// are filled in from the consumer and the policy. `first_id`: higher than any that the connection has used
  /// (endpoint::next_id).
  transfer(Consumer& to, pull_request request, Chunking chunking, std::uint32_t first_id) noexcept
      : to_(to), machine_(complete(request, to), chunking, first_id) {}

  /// Continues where an earlier transfer stopped, if the destination holds the cursor's bytes; call it before the first
  /// request. A cursor of another reference counts if the request states its version. Cost: one pass over the bytes
  /// that are there, to hash them. False: it starts at 0.
  bool resume(const resume_cursor& from) noexcept {
    if constexpr (can_read_back) {
      const source_view there = to_.read_back();
      const pull_request& r = machine_.request();
      if (!from || (from.ref != r.ref && r.version == 0) || (r.fingerprint != 0 && from.fingerprint != r.fingerprint) ||
          (r.version != 0 && from.version != r.version) || r.by_name() || there.schema == nullptr ||
          from.offset > there.schema->image_bytes)
        return false;
      typename Integrity::hash_type so_far;
      // the last byte is always fetched: the owner has to serve the end before it takes a confirmation
      const std::uint64_t keep = from.offset == there.schema->image_bytes ? from.offset - 1 : from.offset;
      if (!hash_range(so_far, there, 0, keep)) return false;
      typename Integrity::hash_type all = so_far;
      if (!hash_range(all, there, keep, from.offset - keep) || all.digest() != from.digest) return false;
      whole_hash_ = so_far;
      landed_ = chunk_offset_ = keep;
      machine_.resume(from.version, keep);
      return true;
    } else {
      return false;
    }
  }
  /// Where the transfer stands now, for resume(). Empty if it cannot be resumed: nothing has landed, the pull is of a
  /// subset, the consumer cannot be read back, or the digest showed that the bytes are not the published ones. If
  /// chunks have digests, it stands behind the last chunk whose digest was right.
  resume_cursor cursor() const noexcept {
    resume_cursor c;
    if constexpr (can_read_back) {
      const description& d = machine_.description();
      bool good = d.ref && !machine_.request().by_name() && readable_ &&
                  !(error_ && error_->code == errc::digest_mismatch);
      std::uint64_t checked = landed_;
      const auto* hash_there = &whole_hash_;
      if constexpr (can_rewind) {
        if (chunk_left_ > 0) checked = chunk_offset_, hash_there = &good_hash_;
      } else if constexpr (Integrity::per_chunk) {  // it cannot say what stood before the chunk
        good = good && chunk_left_ == 0 && !(error_ && error_->code == errc::chunk_digest_mismatch);
      }
      if (good && checked > 0) c = {d.ref, d.fingerprint, d.version, checked, hash_there->digest()};
    }
    return c;
  }

  /// The next request to send. False: there is none now.
  bool next(frame& out) noexcept { return !ended_ && !paused_ && machine_.next(out); }

  /// Whether the next request, if there is one now, may be longer than 100 bytes.
  bool next_is_long() const noexcept { return !ended_ && machine_.next_is_long(); }

  /// An answer other than a chunk arrived. Errors are kept: see ended() and outcome().
  void on(const frame& m) noexcept {
    if (ended_) return;
    const auto event = machine_.on(m);
    if (!event) return fail(event.error());
    if (*event == recipient_event::nothing) return;
    ++answers_;
    if (*event == recipient_event::described) {
      if (Integrity::whole && !verifiable() && !machine_.request().unverified) return fail({errc::not_verifiable});
      begun_ = true;
      serve_ = static_cast<std::uint32_t>(machine_.nonce());
      if (const auto ok = to_.begin(machine_.description()); !ok) return fail(ok.error());
      if constexpr (can_read_back) readable_ = to_.read_back().schema != nullptr;
      if (landed_ == machine_.part_end()) part_complete();
    } else if (*event == recipient_event::described_again) {
      if (!finished_ && landed_ == machine_.part_end()) part_complete();  // of tensors without bytes
    } else if (*event == recipient_event::busy) {
      paused_ = true;
    } else if (*event == recipient_event::confirmed) {
      confirmed_ = ended_ = true;
      if constexpr (requires { to_.confirmed(); }) to_.confirmed();
    }
  }

  /// A chunk's prefix arrived. True: land its payload through prepare() and landed(); false: throw the payload away.
  bool on_chunk(const frame& m) noexcept {
    if (ended_) return false;
    const auto event = machine_.on(m);
    if (!event) {
      fail(event.error());
      return false;
    }
    if (*event != recipient_event::chunk) return false;
    chunk_left_ = m.length;
    chunk_digest_ = m.digest;
    if constexpr (Integrity::per_chunk) chunk_hash_ = chunk_hash_of<Integrity>{};
    keep_digest();
    return true;
  }

  /// Memory for what is missing of the current chunk, at most `most` bytes. No bytes: the consumer has no free memory
  /// now.
  prepared prepare(std::span<std::span<std::byte>> out, std::uint64_t most) noexcept {
    return to_.prepare(landed_, std::min(most, chunk_left_), out);
  }

  /// The transport has written these bytes, which are the first of what prepare() gave.
  void landed(std::span<const std::byte> bytes) noexcept {
    if (ended_) return;
    // hashed once they are taken: a cursor after a failure must have the digest of what landed
    if (const auto ok = to_.commit(landed_, bytes); !ok) return fail(ok.error());
    hash_landed(bytes);
    if constexpr (Integrity::per_chunk) chunk_hash_.update(bytes);
    landed_ += bytes.size();
    chunk_left_ -= bytes.size();
    if (chunk_left_ == 0) chunk_complete();
  }

  /// After a time-out, or on another connection: asks again from the first missing byte on. If chunks have digests of
  /// their own, it starts from the chunk that was not complete; otherwise nothing that has landed is fetched twice.
  void restart() noexcept {
    if (ended_) return;
    paused_ = false;
    if constexpr (Integrity::per_chunk)
      if (chunk_left_ > 0 && !rewind()) return fail({errc::connection_lost});
    chunk_left_ = 0;
    machine_.restart(landed_);
  }
  /// A driver calls it now and then with the time since the call before. It does something only if the chunking adapts.
  void measured(std::chrono::nanoseconds time) noexcept
    requires detail::adapts<Chunking>
  {
    machine_.measured(landed_, time);
  }
  /// Milliseconds that the owner's `busy` asks us to wait before restart(); 0: it is not busy.
  std::chrono::milliseconds pause() const noexcept {
    return std::chrono::milliseconds(paused_ ? std::max<std::chrono::milliseconds::rep>(machine_.delay().count(), 1)
                                             : 0);
  }

  /// Whether a chunk may arrive.
  bool awaiting_chunk() const noexcept { return !ended_ && machine_.awaiting_chunk(); }
  /// Whether the owner has described the reference.
  bool described() const noexcept { return !machine_.describing(); }
  /// Bytes that have landed and count: after a damaged chunk there are fewer.
  std::uint64_t landed_bytes() const noexcept { return landed_; }
  /// Bytes wanted in all; 0 before the description.
  std::uint64_t total_bytes() const noexcept { return machine_.description().image_bytes; }
  /// Whether it is over: confirmed, failed, or given up after everything had arrived.
  bool ended() const noexcept { return ended_; }
  /// The request.
  const pull_request& request() const noexcept { return machine_.request(); }
  /// Chunks that have landed whole.
  std::uint64_t chunks() const noexcept { return chunks_; }
  /// Answers other than chunks so far, to what was asked; a driver counts them as progress.
  std::uint32_t answers() const noexcept { return answers_; }
  /// The first request id that was not used.
  std::uint32_t next_id() const noexcept { return machine_.next_id(); }

  /// How it ended; ended() must be true. The error's `at` is the number of bytes that had landed. Once the consumer has
  /// finished it is a receipt, which has whether the owner has confirmed.
  result<receipt> outcome() const noexcept {
    if (error_) return failure(*error_);
    return made_receipt();
  }

  /// Sets a number, chosen by the application, that farewell() tells the owner.
  void give_reason(std::uint32_t reason) noexcept { reason_ = reason; }
  /// Ends the transfer with this error, if it has not ended. If the consumer has finished, it is only the confirmation
  /// that has failed.
  void fail(error reason) noexcept {
    if (ended_) return;
    ended_ = true;
    machine_.settle();
    if (finished_) {
      unconfirmed_because_ = reason.code;
      return;
    }
    reason.at = landed_;
    error_ = reason;
    if (begun_) to_.abandon(reason);
  }

  /// The frame that tells the owner that we gave up, and whether the bytes were wrong or not what the consumer takes.
  /// Nothing if the owner need not be told.
  optional<frame> farewell() const noexcept {
    if (!error_ || machine_.nonce() == 0 || error_->code == errc::withdrawn || error_->code == errc::ended ||
        error_->code == errc::unreadable)
      return {};
    bool looked = false;
    if constexpr (requires { to_.looked(); }) looked = to_.looked();
    if (error_->code == errc::stale_version && !looked) return {};
    frame m = machine_.farewell();
    m.reason = reason_;
    if (error_->code == errc::digest_mismatch || error_->code == errc::chunk_digest_mismatch)
      m.status = status::digest_mismatch;
    // nothing but the header has arrived
    else if (landed_ <= machine_.description().data_start) m.status = declining(error_->code);
    // nobody is counted as wrong for bytes that another serve may have given
    const bool mixed = error_->code == errc::digest_mismatch && serve_ != static_cast<std::uint32_t>(m.nonce);
    if (looked || mixed) m.status = status::looked;
    return m;
  }

 protected:
  static pull_request complete(pull_request request, const Consumer& to) noexcept {
    if (const std::uint64_t own = to.fingerprint(); own != 0)
      request.fingerprint = own;  // a consumer of any schema expects what the reference states
    request.schema = to.schema();
    request.chunk_digest = chunk_digest_kind<Integrity>;
    return request;
  }

  /// `checked`: its own digest was right.
  void chunk_complete(bool checked = false) noexcept {
    if constexpr (Integrity::per_chunk)
      if (!checked && chunk_hash_.digest() != chunk_digest_) {
        // damaged on its way, or by a source that changed: ask for the same range again, a few times
        if (!rewind() || damaged_in_a_row_++ == most_damaged) return fail({errc::chunk_digest_mismatch});
        ++damaged_;
        return machine_.restart(landed_);
      }
    damaged_in_a_row_ = 0;
    ++chunks_;
    // including what had landed of it before a connection was lost
    const std::uint64_t offset = std::exchange(chunk_offset_, landed_);
    if (const auto ok = to_.chunk(offset, landed_ - offset); !ok) return fail(ok.error());
    if (landed_ == machine_.part_end()) part_complete();
  }

  /// Whether the owner has stated the digest of the wanted bytes: the version, or of named tensors a digest of their
  /// own.
  bool verifiable() const noexcept { return machine_.description().verifiable || machine_.request().by_name(); }

  /// Bytes have landed behind those that did before: they count for the digests.
  void hash_landed(std::span<const std::byte> bytes) noexcept {
    if constexpr (Integrity::whole) {
      whole_hash_.update(bytes);
      if (machine_.in_parts()) part_hash_.update(bytes);
    }
  }
  /// Hashes the next bytes where they have landed. The header is never among them.
  bool hash_back(std::uint64_t bytes) noexcept {
    if constexpr (Integrity::whole && can_look_back) {
      const source_view there = arrived();
      const std::uint64_t from = there.schema->header_bytes + (landed_ - machine_.description().data_start);
      return hash_range(whole_hash_, there, from, bytes).has_value() &&
             (!machine_.in_parts() || hash_range(part_hash_, there, from, bytes).has_value());
    } else {
      return true;
    }
  }
  /// Keeps the digests of what is before a chunk, so that rewind() can go back there.
  void keep_digest() noexcept {
    if constexpr (can_rewind && Integrity::whole) {
      good_hash_ = whole_hash_;
      if (machine_.in_parts()) good_part_hash_ = part_hash_;
    }
  }

  /// All that the owner was asked for by name is there, or all of the image.
  void part_complete() noexcept {
    bool verified = false;
    std::uint64_t own = 0;
    if constexpr (Integrity::whole) {
      own = machine_.in_parts() ? part_hash_.digest() : whole_hash_.digest();
      verified = verifiable();
      if (verified && own != machine_.expected_digest()) return fail({errc::digest_mismatch});
    }
    if (!machine_.is_last_part()) {
      if constexpr (Integrity::whole) part_hash_ = {};
      return machine_.next_part();
    }
    machine_.confirm(own, verified);
    if (const auto ok = to_.finish(made_receipt()); !ok) return fail(ok.error());
    finished_ = true;
  }
  /// Valid once confirm() was called.
  receipt made_receipt() const noexcept {
    const description& d = machine_.description();
    receipt r;
    r.outcome = machine_.verified() ? tensorpull::outcome::completed : tensorpull::outcome::completed_unverified;
    r.bytes = landed_;
    r.chunks = chunks_;
    r.damaged = damaged_;
    r.version = d.version;
    r.fingerprint = d.fingerprint;
    if constexpr (Integrity::whole) r.digest = machine_.in_parts() ? whole_hash_.digest() : machine_.own_digest();
    r.confirmed = confirmed_;
    r.unconfirmed_because = unconfirmed_because_;
    r.believed = !machine_.verified() || machine_.request().believes();
    return r;
  }

  /// Forgets what has landed of the current chunk. False: this consumer cannot do that.
  bool rewind() noexcept {
    if constexpr (can_rewind) {
      if constexpr (Integrity::whole) {
        whole_hash_ = good_hash_;
        if (machine_.in_parts()) part_hash_ = good_part_hash_;
      }
      landed_ = chunk_offset_;
      chunk_left_ = 0;
      to_.rewind(landed_);
      return true;
    } else {
      return false;
    }
  }

  /// A consumer whose memory can be read back has `read_back()` (consumers/concept.hpp).
  static constexpr bool can_read_back = Integrity::whole && requires(const Consumer& c) { c.read_back(); };
  /// A consumer that takes bytes in any order shows them by `arrived()`, or else by `read_back()`.
  static constexpr bool can_look_back = requires(const Consumer& c) { c.arrived(); } ||
                                        requires(const Consumer& c) { c.read_back(); };
  source_view arrived() const noexcept {
    if constexpr (requires { to_.arrived(); }) return to_.arrived();
    else return to_.read_back();
  }
  static constexpr std::uint32_t most_damaged = 3;
  /// A consumer that can take a chunk a second time has `rewind(offset)`: the bytes from there on are sent again.
  static constexpr bool can_rewind = Integrity::per_chunk && requires(Consumer& c) { c.rewind(std::uint64_t{}); };

  // first, because a digest may have to lie at a multiple of 64 bytes
  [[no_unique_address]] typename Integrity::hash_type whole_hash_{};
  [[no_unique_address]] std::conditional_t<Integrity::per_chunk, chunk_hash_of<Integrity>, detail::no_chunk_hash>
      chunk_hash_{};
  [[no_unique_address]] std::conditional_t<can_rewind && Integrity::whole, typename Integrity::hash_type,
                                           detail::no_held_hash> good_hash_{};  // before the chunk
  // of what was asked for by name last; it is XXH3-64, as every version is, and used only if there are several parts
  [[no_unique_address]] std::conditional_t<Integrity::whole, xxh3_64, detail::no_part_hash> part_hash_{};
  [[no_unique_address]] std::conditional_t<can_rewind && Integrity::whole, xxh3_64, detail::no_held_part_hash>
      good_part_hash_{};
  Consumer& to_;
  Machine machine_;
  std::uint64_t landed_ = 0, chunk_offset_ = 0, chunk_left_ = 0, chunk_digest_ = 0, chunks_ = 0, damaged_ = 0;
  optional<error> error_;
  std::uint32_t answers_ = 0, reason_ = 0;
  std::uint32_t serve_ = 0;  // which one has described the image first
  std::uint8_t damaged_in_a_row_ = 0;
  errc unconfirmed_because_{};
  bool begun_ = false, finished_ = false, confirmed_ = false, ended_ = false, paused_ = false, readable_ = false;
};

}  // namespace tensorpull
