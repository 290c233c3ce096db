// One pull over datagrams: a transfer whose chunks may land in any order. If the consumer's memory can be read back,
// they land in place and are hashed when everything before them is there; otherwise they wait in memory that the driver
// gives.
#pragma once

#include <tensorpull/protocol/datagrams/selective_recipient.hpp>
#include <tensorpull/protocol/recipient/transfer.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <array>
#include <cstring>
#include <span>

namespace tensorpull {

/// One pull over datagrams. A model of transfer_role with the time besides (datagram_endpoint.hpp). Borrows the
/// consumer. Do not move it while it is in use.
template <consumer Consumer, chunking_strategy Chunking, integrity_policy Integrity, class Limits = default_limits>
class datagram_transfer
    : private transfer<Consumer, Chunking, Integrity, Limits, selective_recipient<Chunking, Limits>> {
  using base = transfer<Consumer, Chunking, Integrity, Limits, selective_recipient<Chunking, Limits>>;
  static_assert(
      Chunking::max_chunk_bytes != 0,
      "tensorpull: over datagrams a chunk has to fit a datagram: use fixed_bytes<N> or fit_datagram instead of `whole`");
  using base::arrived, base::begun_, base::chunk_complete, base::chunk_digest_, base::chunk_hash_, base::chunk_left_,
      base::damaged_, base::damaged_in_a_row_, base::ended_, base::hash_back, base::hash_landed, base::keep_digest,
      base::landed_, base::machine_, base::paused_, base::rewind, base::to_;

 public:
  /// Points in time, and durations.
  using time = std::chrono::microseconds;
  using base::base;
  // what stays as it is
  using base::read_piece_bytes, base::resume, base::cursor, base::next, base::next_is_long, base::measured, base::pause,
      base::described, base::awaiting_chunk, base::landed_bytes, base::total_bytes, base::ended, base::request,
      base::chunks, base::answers, base::next_id, base::outcome, base::give_reason, base::fail, base::farewell;
  using typename base::consumer_type;

  /// The longest datagram of the link, without what a driver puts in front. Call it before the first request, and
  /// hold() too.
  void fits(std::size_t datagram_bytes) noexcept {
    machine_.fits(datagram_bytes - std::min<std::size_t>(datagram_bytes, 80));
  }
  /// Memory for chunks that arrive before it is their turn, for a consumer that takes bytes in order only, and for the
  /// image's header; borrowed. It bounds the window of such a consumer; with none, it has one request on its way.
  void hold(std::span<std::byte> memory) noexcept { hold_ = memory; }
  /// Any of several owners of the same content may answer for a chunk; see datagram_plan::for_any_owner.
  void from_any_owner() noexcept { machine_.from_any_owner(); }

  /// Lets time pass; the endpoint calls it.
  void at(time now) noexcept {
    if (ended_) return;
    machine_.at(now);
    if (stalled_) drain();
  }
  /// When there is something to do although nothing arrives; time::max(): never.
  time wakes(time now) const noexcept {
    if (ended_ || paused_) return time::max();
    return stalled_ ? now + time(1000) : machine_.wakes();
  }
  /// Whether the request is still of use, or its answer would be.
  bool expects(std::uint32_t id) const noexcept { return !ended_ && !paused_ && machine_.expects(id); }
  /// Pulls that may travel in one datagram.
  std::uint32_t batch() const noexcept { return machine_.batch(); }
  /// Whether next_pull() should be called now.
  bool wants_pulls(time now) const noexcept { return !ended_ && !paused_ && machine_.wants_pulls(now); }
  /// The next request for a chunk. False: there is none now. `last`: it asks for the last bytes.
  bool next_pull(frame& out, bool& last, time now) noexcept { return machine_.next_pull(out, last, now); }
  /// Requests for chunks that the link did not take.
  void not_sent(std::uint32_t first, std::uint32_t count) noexcept { machine_.not_sent(first, count); }

  /// An answer other than a chunk arrived.
  void on(const frame& m) noexcept {
    base::on(m);
    if (begun_ && m.kind != frame_kind::refused) machine_.lands(lands_anywhere(), hold_);
  }
  /// A chunk's prefix arrived. True: its payload is wanted, through prepare() and landed(), now.
  bool on_chunk(const frame& m) noexcept {
    if (ended_ || paused_) return false;
    if (!machine_.on_chunk(m)) {
      if (machine_.served_anew()) {
        if (machine_.anew.begins()) restart();
        else fail({errc::wrong_payload});
      }
      return false;
    }
    chunk_bytes_ = m.length;
    if (machine_.place() == landing_place::next) chunk_left_ = m.length;
    chunk_digest_ = m.digest;
    if constexpr (Integrity::per_chunk) chunk_hash_ = chunk_hash_of<Integrity>{};
    keep_digest();
    return true;
  }
  /// Memory for what is missing of the chunk. No bytes: the consumer has no memory now, so the chunk is thrown away and
  /// asked for again.
  prepared prepare(std::span<std::span<std::byte>> out, std::uint64_t most) noexcept {
    switch (machine_.place()) {
      case landing_place::held: {
        out[0] = machine_.hold();
        return {1, out[0].size()};
      }
      case landing_place::early: return to_.prepare(machine_.position(), std::min(most, chunk_bytes_), out);
      default: {
        const prepared p = base::prepare(out, most);
        if (p.bytes > 0 || chunk_left_ == 0) return p;
        if constexpr (Integrity::per_chunk)  // what has landed of it was not checked
          if (chunk_left_ < chunk_bytes_ && !rewind()) {
            fail({errc::connection_lost});
            return p;
          }
        chunk_left_ = 0;
        machine_.go_back(landed_);
        return p;
      }
    }
  }
  /// These bytes, which are the first of what prepare() gave, have been written.
  void landed(std::span<const std::byte> bytes) noexcept {
    if (ended_) return;
    const landing_place place = machine_.place();
    if (place == landing_place::next) {
      if (bytes.size() == chunk_left_) machine_.arrived();
      base::landed(bytes);
      if (chunk_left_ == 0) drain();
      return;
    }
    if (place == landing_place::early)
      if (const auto ok = to_.commit(machine_.position(), bytes); !ok) return fail(ok.error());
    if constexpr (Integrity::per_chunk) chunk_hash_.update(bytes);
    machine_.filled(bytes.size());
    if ((chunk_bytes_ -= bytes.size()) > 0) return;
    if constexpr (Integrity::per_chunk)
      if (chunk_hash_.digest() != chunk_digest_) {
        if (damaged_in_a_row_++ == base::most_damaged) return fail({errc::chunk_digest_mismatch});
        ++damaged_;
        return machine_.damaged();
      }
    machine_.arrived();
    drain();
  }

  /// After a time-out: asks again for everything from the first missing byte on.
  void restart() noexcept {
    base::restart();
    stalled_ = false;
    taken_ = 0;
  }

 private:
  /// Whether a chunk may land before those that precede it: not before a consumer that learns its schema from the
  /// header has one.
  bool lands_anywhere() const noexcept {
    if constexpr (requires { requires Consumer::any_order; } && !Integrity::per_chunk) {
      if constexpr (base::can_look_back)
        if (arrived().schema != nullptr) return true;
      return !Integrity::whole && to_.schema() != nullptr;
    } else {
      return false;
    }
  }

  /// Passes on chunks that have arrived early and whose turn it is now.
  void drain() noexcept {
    stalled_ = false;
    while (!ended_ && chunk_left_ == 0) {
      if (const std::uint64_t n = machine_.first_early(); n > 0) {
        if (!hash_back(n)) return fail({errc::io});
        landed_ += n;
      } else if (const auto held = machine_.first_held(); !held.empty()) {
        if (!take(held)) return;
      } else {
        return;
      }
      if (ended_) return;
      machine_.pass();
      chunk_complete(true);
    }
  }
  /// Hands a chunk that was held to the consumer. False: it has no memory for all of it now, or the transfer has
  /// failed.
  bool take(std::span<const std::byte> chunk) noexcept {
    while (taken_ < chunk.size()) {
      std::array<std::span<std::byte>, 16> room;
      const prepared p = to_.prepare(landed_, chunk.size() - taken_, room);
      if (p.bytes == 0) {
        stalled_ = true;
        return false;
      }
      for (std::size_t i = 0; i < p.pieces; ++i) {
        const auto part = room[i];
        std::memcpy(part.data(), chunk.data() + taken_, part.size());
        if (const auto ok = to_.commit(landed_, part); !ok) {
          fail(ok.error());
          return false;
        }
        hash_landed(part);
        landed_ += part.size();
        taken_ += part.size();
      }
    }
    taken_ = 0;
    return true;
  }
  std::span<std::byte> hold_{};
  std::uint64_t chunk_bytes_ = 0;  // of the chunk that is landing; if it lands early, those that are missing
  std::size_t taken_ = 0;  // of the first chunk that is held
  bool stalled_ = false;  // the consumer has no memory for it
};

}  // namespace tensorpull
