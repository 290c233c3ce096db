// A source that lies in any byte, at any time, about anything, as a seed decides.
#pragma once

#include "support/pair.hpp"

namespace test {

inline bool is_chunk(const byte_vector& f) {
  return !f.empty() && kind_of(f) == tp::frame_kind::chunk && f.size() > 88;
}
template <class Change>
tampering describes(Change change) {
  return lie_about(tp::frame_kind::description, change);
}

/// Its frames are changed from one on, each with the same likelihood, and perhaps only up to another one.
/// `may_be_endless`: the image of some has no end.
inline tampering a_liar(std::uint64_t seed, bool may_be_endless = false) {
  generator r(seed);
  const std::uint64_t kind = r.below(may_be_endless ? 13 : 12), rate = 1 + r.below(8), from = r.below(12),
                      to = from + 1 + r.below(30);
  const tampering longer = describes([](tp::frame& m) { m.image_bytes += 8; }),
                  shifted = describes([](tp::frame& m) { m.image_bytes += 8, m.data_start += 8; }),
                  longer_header = describes([](tp::frame& m) { m.data_start += 8; }),
                  endless = describes([](tp::frame& m) { m.image_bytes = ~std::uint64_t{0} / 2; }),
                  another_schema = describes([](tp::frame& m) { ++m.fingerprint; }),
                  unproved = describes([](tp::frame& m) { m.flag = false; }),
                  short_chunks = describes(
                      [seed](tp::frame& m) { m.length = static_cast<std::uint32_t>(1 + seed % 99'999); }),
                  another_serve = describes([](tp::frame& m) { ++m.nonce; }), busy = describes([](tp::frame& m) {
                                                                                m.kind = tp::frame_kind::refused;
                                                                                m.status = tp::status::busy;
                                                                                m.delay_ms = 1;
                                                                              });
  return [=, n = std::uint64_t{0}](byte_vector& f) mutable {
    const std::uint64_t i = n++;
    const bool now = r.below(rate) == 0, at_times = r.below(2) == 0;
    const auto damage = [&](bool does, std::size_t at) {
      if (does && is_chunk(f)) f[at] ^= std::byte{1};
    };
    const std::size_t any = is_chunk(f) ? 80 + r.below(f.size() - 88) : 0;
    switch (kind) {
      case 0: return damage(now && i >= from && i < to, any);
      case 1: return now && i >= from ? f.clear() : void();
      case 2: return i >= from ? f.clear() : void();
      case 3: return i == 0 || i % to >= from ? longer(f) : void();
      case 4: shifted(f); return damage(i > from, 80);
      case 5: return at_times ? another_schema(f) : damage(now && i > from, 80);
      case 6: return at_times ? unproved(f) : damage(now && i > from, 80);
      case 7: short_chunks(f); return damage(now && i > from, 80);
      case 8: return at_times ? another_serve(f) : damage(now && i > from, 80);
      case 9: return now ? busy(f) : damage(now && i > from, 80);
      case 10: return damage(now && i > from, any);
      case 11:
        if (may_be_endless) return endless(f);
        [[fallthrough]];
      default: return now ? longer_header(f) : damage(at_times && i < 2 * from, any);
    }
  };
}

}  // namespace test
