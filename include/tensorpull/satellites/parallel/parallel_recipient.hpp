// One line of a parallel pull: a recipient that asks for the chunks that it is given, in whatever order they lie in the
// image.
#pragma once

#include <tensorpull/protocol/recipient/recipient.hpp>
#include <tensorpull/satellites/parallel/chunk_ledger.hpp>

#include <array>
#include <cstdint>

namespace tensorpull {

/// The source of a connection's chunks.
enum class chunk_order : std::uint8_t {
  one_by_one,  ///< the recipient cuts the next one when the one before has arrived
  given,  ///< ask() gives them, and the owner answers in turn
  all,  ///< as a recipient that has the image for itself
};

/// The frames of one connection. Descriptions, names and the confirmation are those of recipient.
template <chunking_strategy Chunking, class Limits = default_limits>
class parallel_recipient : private recipient<Chunking, Limits> {
  using base = recipient<Chunking, Limits>;
  using phase = typename base::phase;
  using base::ask_, base::ask_for, base::before_last_byte, base::chunker_, base::confirms_, base::expected_id_,
      base::in_flight_, base::next_id_, base::nonce_, base::phase_, base::received_, base::request_, base::start_over,
      base::version_, base::window_;

 public:
  /// Chunks that a line asks for ahead.
  static constexpr std::uint32_t most_asked = 8;
  /// Lines that one pull may have.
  static constexpr std::size_t most_lines = 8;
  /// The missing chunks, for all lines of a pull.
  using ledger = detail::chunk_ledger<most_lines, most_lines * most_asked + 1>;
  /// A chunk that was asked for.
  struct asked_chunk {
    std::uint64_t position = 0;  ///< among the wanted bytes
    std::uint64_t offset = 0;  ///< in the image
    std::uint32_t length = 0;  ///< in bytes
    typename ledger::number of{};  ///< which chunk of the ledger it was
    typename detail::wanted_ranges<Limits::slices>::runs_type runs{};  ///< how its bytes lie
  };
  using base::base;
  // what stays as it is
  using base::anew, base::on, base::restart, base::resume, base::confirm, base::next_part, base::part_end,
      base::is_last_part, base::in_parts, base::next_is_long, base::settle, base::farewell, base::describing,
      base::awaiting_chunk, base::description, base::nonce, base::expected_digest, base::own_digest, base::verified,
      base::request, base::next_id, base::delay;

  /// Tells an adaptive strategy of the transfer's rate. Lengths of given chunks may change at any time, since their
  /// requests are remembered.
  void measured(std::uint64_t landed, std::chrono::nanoseconds time) noexcept
    requires detail::adapts<Chunking>
  {
    if (order_ == chunk_order::given) chunker_.measured({ask_.offset, ask_.offset, landed, time});
    else base::measured(landed, time);
  }

  /// Chooses the source of its chunks; one_by_one at first.
  void take(chunk_order from) noexcept { order_ = from; }
  /// As chosen by take().
  chunk_order order() const noexcept { return order_; }
  /// The next request, other than for a given chunk. False: there is none now.
  bool next(frame& out) noexcept {
    // nothing is asked ahead of the description: how long a chunk is depends on it
    if (phase_ == phase::describing && !request_.by_name()) return false;
    const bool waits = order_ == chunk_order::given || (order_ == chunk_order::one_by_one && in_flight_ > 0);
    if (phase_ == phase::pulling && !confirms_ && waits) return false;
    return base::next(out);
  }
  /// Whether chunks are asked for by ask().
  bool takes_chunks() const noexcept { return order_ == chunk_order::given && phase_ == phase::pulling && !confirms_; }
  /// Whether another chunk may be asked for now.
  bool may_ask() const noexcept { return takes_chunks() && in_flight_ < std::min<std::uint32_t>(window_, most_asked); }
  /// Chunks whose answers are awaited.
  std::uint32_t in_flight() const noexcept { return in_flight_; }
  /// The request for a chunk.
  void ask(frame& out, const asked_chunk& c) noexcept {
    out = {};
    out.ref = request_.ref;
    out.version = version_;
    ask_for(out, c.offset, c.length, c.runs);
    out.id = next_id_++;
    if (in_flight_++ == 0) expected_id_ = out.id;
    asked_[(first_ + count_++) % most_asked] = c;
  }
  /// The chunk that this prefix begins; nothing: nobody awaits it any more. An error ends the line.
  result<optional<asked_chunk>> answered(const frame& m) noexcept {
    if (m.ref != request_.ref || in_flight_ == 0 || detail::comes_before(m.id, expected_id_))
      return optional<asked_chunk>();
    if (m.id != expected_id_) return failure(errc::wrong_payload, received_);
    if (m.version != version_) return failure(errc::stale_version, received_);
    const asked_chunk c = asked_[first_];
    if (m.offset != c.offset || m.length != c.length) return failure(errc::wrong_payload, received_);
    if (m.nonce != nonce_) {  // another serve of the same content
      if (!anew.begins()) return failure(errc::wrong_payload, received_);
      start_over(received_);
      return optional<asked_chunk>();
    }
    anew = {};
    --in_flight_;
    ++expected_id_;
    first_ = (first_ + 1) % most_asked;
    --count_;
    return optional<asked_chunk>(c);
  }
  /// Calls `f(asked_chunk)` for each that will not be answered: the line began anew, or its connection is gone.
  template <class F>
  void unanswered(bool gone, F f) noexcept {
    if (gone) in_flight_ = 0;
    for (; count_ > in_flight_; --count_, first_ = (first_ + 1) % most_asked) f(asked_[first_]);
  }
  /// After restart() on a connection that has not asked for the named tensors: an owner accepts their confirmation only
  /// from a line that it has served their end.
  void name_again() noexcept {
    if (phase_ == phase::confirming && request_.by_name()) start_over(before_last_byte());
  }
  /// Later requests are numbered from `id`, if that is after the next one.
  void number_from(std::uint32_t id) noexcept {
    if (detail::comes_before(next_id_, id)) next_id_ = id;
  }

  /// The length of the chunk at a position, as this line cuts the image, at most `most`.
  std::uint64_t length_from(std::uint64_t position, std::uint64_t most) const noexcept {
    return std::min(chunker_.length(chunker_.wanted.at(position), request_), most);
  }
  /// A chunk of the ledger as any line asks for it; its first part, if one request cannot have all of it.
  asked_chunk chunk_at(std::uint64_t position, std::uint64_t length, typename ledger::number of) const noexcept {
    const auto from = chunker_.wanted.at(position);
    length = chunker_.within_runs(from, length, request_);
    return {position, from.offset, static_cast<std::uint32_t>(length), of, chunker_.wanted.runs(from, length)};
  }
  /// The longest chunk that its owner serves.
  std::uint64_t longest_chunk() const noexcept { return chunker_.owners_cap(); }
  /// No later chunk is longer. Call it while none is in flight.
  void cut_at(std::uint64_t most) noexcept { chunker_.cut_at(most); }
  /// Whether another line's owner describes the same image.
  bool agrees_with(const parallel_recipient& other) const noexcept {
    return version_ == other.version_ && chunker_.is_of(other.chunker_.image());
  }
  /// The version that is pulled, once it is known.
  std::uint64_t version() const noexcept { return version_; }
  /// Whether it only looks for the first difference between the schemas.
  bool comparing() const noexcept { return phase_ == phase::comparing; }
  /// As if nothing had been asked or answered yet. Ids go on.
  void forget() noexcept { *this = parallel_recipient(request_, chunker_.strategy(), next_id_); }

 private:
  std::array<asked_chunk, most_asked> asked_{};
  std::uint32_t first_ = 0, count_ = 0;
  chunk_order order_ = chunk_order::one_by_one;
};

}  // namespace tensorpull
