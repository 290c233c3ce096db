// The sources of one pull: how each describes the image, and whether the bytes that it gives have the version's digest.
// A source is a number below 8, and one bit in a set of them.
#pragma once

#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/satellites/parallel/chunk_ledger.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <array>
#include <bit>
#include <cstdint>

namespace tensorpull::detail {

/// Whether two owners say the same of an image.
constexpr bool same_image(const description& a, const description& b) noexcept {
  return a.version == b.version && a.fingerprint == b.fingerprint && a.image_bytes == b.image_bytes &&
         a.data_start == b.data_start && a.tensors == b.tensors && a.verifiable == b.verifiable;
}

/// A source is asked for chunks until it is in doubt: it contradicts the others, or the whole is wrong.
/// From then on the image is read from it from the first byte to the last, and nothing of that lands. If that has the
/// version's digest, the source is right, and what differs from its bytes is from others.
template <class Hash>
class sources {
 public:
  static constexpr std::size_t most = 8;
  static constexpr std::uint8_t nobody = 0xff, all = 0xff;

  struct source {
    Hash hash{};  ///< of the first `read` bytes
    description said{};  ///< without a reference: nothing yet
    std::uint64_t read = 0;
    std::uint64_t header = 0;  ///< the digest of its header, once that was read
    std::uint64_t differs = 0;  ///< parts of the image of which it has other bytes than have landed
    std::uint64_t unseen = 0;  ///< parts that were read before that, or in part
    std::uint8_t reader = nobody;  ///< the line that reads
    bool refused = false;  ///< the consumer did not take it
    bool is_read() const noexcept { return read != 0 && read >= said.image_bytes; }
    bool header_differs(std::uint64_t from) const noexcept { return from != 0 && header != 0 && header != from; }
  };

  source& operator[](std::uint8_t s) noexcept { return all_[s % most]; }
  const source& operator[](std::uint8_t s) const noexcept { return all_[s % most]; }

  /// It describes the image so. Whatever was read of another one does not count.
  void describes(std::uint8_t s, const frame& m) noexcept {
    source& of = (*this)[s];
    const description d{m.ref, m.version, m.fingerprint, m.image_bytes, m.data_start, m.tensors, m.flag};
    if (of.said.ref && !same_image(of.said, d)) of = source{.reader = of.reader};
    of.said = d;
  }

  bool is_doubted(std::uint8_t s) const noexcept { return (doubted_ & bit(s)) != 0; }
  /// It is read on from where that has got to; from the start, if it was right before.
  void doubt(std::uint8_t s) noexcept {
    source& of = (*this)[s];
    if (!is_doubted(s) && of.is_read()) of = source{.said = of.said, .reader = of.reader};
    doubted_ |= bit(s);
  }
  /// The whole that has landed is wrong.
  void doubt_all() noexcept {
    for (std::size_t i = 0; i < most; ++i) {
      source& s = all_[i];
      // one that was right before has given something wrong since
      if (!is_doubted(static_cast<std::uint8_t>(i))) s = source{.said = s.said};
      s.differs = 0;
      s.unseen = s.read > s.said.data_start ? 2 * part_of(s.read) - 1 : 0;  // not compared with these bytes
    }
    doubted_ = all;
  }
  /// It is right, and those that were never found right are in doubt.
  void trust(std::uint8_t s, bool alone) noexcept {
    for (std::uint8_t i = 0; alone && i < most; ++i)
      if (!all_[i].is_read()) doubt(i);
    doubted_ &= static_cast<std::uint8_t>(~bit(s));
  }

  /// Those that have given wrong bytes.
  std::uint8_t wrong() const noexcept { return wrong_; }
  bool is_wrong(std::uint8_t s) const noexcept { return (wrong_ & bit(s)) != 0; }
  void accuse(std::uint8_t set) noexcept { wrong_ |= set; }
  /// Those that describe an image otherwise that is right, and whose header has this digest (0: nobody knows). A
  /// difference that nothing proves is counted only if it was refused.
  std::uint8_t unlike(const description& right, std::uint64_t header) const noexcept {
    std::uint8_t set = 0;
    for (std::uint8_t i = 0; i < most; ++i) {
      const source& s = all_[i];
      if (!s.said.ref) continue;
      if (s.said.image_bytes != right.image_bytes || s.said.data_start != right.data_start ||
          s.header_differs(header) || (s.refused && !same_image(s.said, right)))
        set |= bit(i);
    }
    return set;
  }
  /// Those that gave one of these parts alone.
  std::uint8_t givers_of(std::uint64_t parts) const noexcept {
    std::uint8_t set = 0;
    for (std::size_t i = 0; i < most_parts; ++i)
      if ((parts >> i & 1) != 0 && std::popcount(by_[i]) == 1) set |= by_[i];
    return set;
  }

  /// The image's parts have 2^shift bytes; whoever gave the first `kept` of them is not known.
  void begin(std::uint8_t shift, std::uint64_t kept) noexcept {
    by_ = {};
    shift_ = shift;
    note(all, 0, kept);
  }
  /// A source has given these bytes.
  void gave(std::uint8_t s, std::uint64_t begin, std::uint64_t end) noexcept { note(bit(s), begin, end); }
  /// All that have given something.
  std::uint8_t givers() const noexcept {
    std::uint8_t set = 0;
    for (const std::uint8_t each : by_) set |= each;
    return set;
  }
  /// The part of the image with this byte, as a bit; 0: it is behind the image.
  std::uint64_t part_of(std::uint64_t at) const noexcept {
    return at >> shift_ < most_parts ? std::uint64_t{1} << (at >> shift_) : 0;
  }
  /// Where that part ends.
  std::uint64_t part_end(std::uint64_t at) const noexcept { return ((at >> shift_) + 1) << shift_; }
  std::uint8_t shift() const noexcept { return shift_; }

  static constexpr std::uint8_t bit(std::uint8_t s) noexcept { return static_cast<std::uint8_t>(1u << (s % most)); }

 private:
  void note(std::uint8_t set, std::uint64_t begin, std::uint64_t end) noexcept {
    if (begin >= end) return;
    for (std::uint64_t i = begin >> shift_; i <= (end - 1) >> shift_; ++i) by_[static_cast<std::size_t>(i)] |= set;
  }

  std::array<source, most> all_{};
  std::array<std::uint8_t, most_parts> by_{};
  std::uint8_t shift_ = 0, doubted_ = 0, wrong_ = 0;
};

}  // namespace tensorpull::detail
