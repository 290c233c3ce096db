// A pull whose bytes are already there: the owner describes the image and passes its memory; chunks are copied from it
// and do not travel. Checks, digests, landing, confirmation and records are those of every pull.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/satellites/shared_memory/shared_segments.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <array>
#include <type_traits>
#include <utility>
#include <variant>

namespace tensorpull::detail {

/// A consumer that reads the memory itself: `take(segments)` gets it before the first prepare(), which gives spans of
/// it.
template <class Consumer>
concept reads_memory = requires(Consumer& c, shared_segments s) {
  { c.take(std::move(s)) } -> std::same_as<result<void>>;
};

/// `Transfer`: the protocol's transfer into this consumer. If the owner passes no memory, or chunks need the owner's
/// digests, bytes travel as over any stream; a consumer that reads the memory itself then fails with memory_not_shared.
/// `Hashes`: whether it computes a digest.
template <class Transfer, std::uint64_t MostExtents, bool Hashes>
class shared_transfer : public Transfer {
  using consumer_type = typename Transfer::consumer_type;
  static constexpr bool views = reads_memory<consumer_type>;
  /// About what one step copies: 0.2 ms of a core. Without hashing a piece is the whole chunk, since memcpy is fastest
  /// with the longest.
  static constexpr std::uint64_t step_bytes = 1024 * 1024;

 public:
  template <class Request, class Chunking>
  shared_transfer(consumer_type& to, Request&& request, Chunking chunking, std::uint32_t first_id) noexcept
      : Transfer(to, std::forward<Request>(request), chunking, first_id), to_(to) {}

  bool next(frame& out) noexcept {
    works_ = false;
    std::uint64_t left = step_bytes;
    while (!waits_) {
      if (chunk_.length > 0) {
        if (!copy(left)) return false;
        works_ = Transfer::next_is_long();  // whether there is room for such a request was not asked
        if (works_) return false;
      }
      if (!Transfer::next(out)) return false;
      if (out.kind == frame_kind::describe) {
        out.memory = waits_ = true;
        asked_ = out.id;
        return true;
      }
      if (out.kind != frame_kind::pull || !memory_there() || out.chunk_digest != digest_kind::none) return true;
      begin(out);
    }
    return false;  // nothing is asked for ahead: it might not have to travel
  }
  /// A request for named tensors may follow the description, which is not asked for ahead.
  bool next_is_long() const noexcept { return !waits_ && Transfer::next_is_long(); }
  /// Whether next() has more to do.
  bool works() const noexcept { return works_ && !this->ended(); }

  /// Descriptors that arrived with the last bytes.
  void take(passed_descriptors&& came) noexcept {
    if (came.count > 0) came_ = std::move(came);
  }
  void on(const frame& m) noexcept {
    const bool answers = waits_ && m.id == asked_ && m.ref == this->request().ref && !this->ended();
    if (!answers) return Transfer::on(m);
    frame described = m;
    if (m.memory && came_.count > 0 && this->request().chunk_digest == digest_kind::none)
      described.length = max_payload_bytes;  // what does not travel has no owner's cap
    Transfer::on(described);
    waits_ = false;
    passed_descriptors came = std::exchange(came_, {});
    if (this->ended() || m.kind != frame_kind::description) return;
    serve_ = {m.version, m.nonce, m.image_bytes};
    if (const auto ok = use(m, std::move(came)); !ok) this->fail(ok.error());
    else works_ = memory_there();
  }
  void restart() noexcept {
    Transfer::restart();
    waits_ = works_ = false;
    chunk_.length = 0;
  }

 private:
  struct serve {
    std::uint64_t version = 0, nonce = 0, image_bytes = 0;
  };
  struct chunk {
    std::uint64_t offset = 0, length = 0;
    byte_runs runs{};
    std::uint64_t done = 0;
  };

  bool memory_there() const noexcept {
    if constexpr (views) return true;
    else return static_cast<bool>(memory_);
  }

  result<void> use(const frame& m, passed_descriptors&& came) noexcept {
    if constexpr (!views) memory_ = {};
    if (!m.memory || came.count == 0) return views ? result<void>(failure(errc::memory_not_shared)) : result<void>{};
    auto memory = shared_segments::open(std::move(came), m.version, m.image_bytes, MostExtents);
    if (!memory) return failure(memory.error());
    if constexpr (views) return to_.take(std::move(*memory));
    else {
      const auto mapped = memory->map(false);
      if (mapped) memory_ = std::move(*memory);
      return mapped;
    }
  }

  /// Answers a pull as the owner would, with a chunk's prefix.
  void begin(const frame& asked) noexcept {
    frame answer;
    answer.kind = frame_kind::chunk;
    answer.id = asked.id;
    answer.ref = asked.ref;
    answer.version = serve_.version;
    answer.nonce = serve_.nonce;
    answer.offset = asked.offset;
    answer.length = static_cast<std::uint32_t>(
        std::min({std::uint64_t{asked.length}, serve_.image_bytes - std::min(serve_.image_bytes, asked.offset),
                  max_payload_bytes}));
    if (this->on_chunk(answer)) chunk_ = {answer.offset, answer.length, runs_of(asked)};
    works_ = true;
  }

  /// Copies the next bytes of the chunk. The system's error; 0: none.
  int read(std::span<std::byte> to) noexcept {
    while (!to.empty()) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(to.size(), chunk_.runs.left_in_run(chunk_.done)));
      const int system = memory_.read(chunk_.offset + chunk_.runs.distance(chunk_.done), to.first(n));
      if (system != 0) return system;
      chunk_.done += n;
      to = to.subspan(n);
    }
    return 0;
  }
  /// Copies the rest of the chunk, at most about `left` bytes. False: not all of it could be copied now.
  bool copy(std::uint64_t& left) noexcept {
    std::array<std::span<std::byte>, 32> room;
    while (chunk_.length > 0) {
      if (left == 0) {
        works_ = true;
        return false;
      }
      const prepared p = this->prepare(
          room, Hashes ? std::min<std::uint64_t>(chunk_.length, Transfer::read_piece_bytes) : chunk_.length);
      if (p.bytes == 0) return false;  // the consumer has no memory now
      for (std::size_t i = 0; i < p.pieces; ++i) {
        if constexpr (!views)
          if (const int system = read(room[i]); system != 0) {
            this->fail({errc::io, system});
            return false;
          }
        this->landed(room[i]);
        if (this->ended()) return false;
        chunk_.length -= room[i].size();
      }
      if constexpr (!views || Hashes) left -= std::min(left, p.bytes);
    }
    return true;
  }

  consumer_type& to_;
  passed_descriptors came_;
  [[no_unique_address]] std::conditional_t<views, std::monostate, shared_segments> memory_;
  serve serve_{};
  chunk chunk_{};
  std::uint32_t asked_ = 0;
  bool waits_ = false;  // the owner has not described the image yet
  bool works_ = false;
};

}  // namespace tensorpull::detail
