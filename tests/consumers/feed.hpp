// Drives a consumer with the bytes of an image as a transfer does, without a protocol: chunk by chunk, in pieces as
// small as a test wants.
#pragma once

#include "../support/models.hpp"
#include "../support/random.hpp"

#include <tensorpull/consumers/concept.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace test {

inline tp::description describe(const model& m) {
  const tp::image_schema& s = m.schema();
  return {{1, 2}, version_of(m), s.fingerprint, s.image_bytes, s.header_bytes, s.tensor_count, true};
}

enum class step {
  moved,
  waiting,
  done,
  failed,
};

/// One image on its way into one consumer. Calls as the concept allows them; abandons on an error, as a transfer does.
template <class Consumer>
class feeder {
 public:
  feeder(Consumer& to, const model& from, std::uint64_t chunk_bytes, std::uint64_t piece_bytes = ~std::uint64_t{0})
      : to_(to), what_(describe(from)), bytes_(from.image_bytes()), chunk_(chunk_bytes), piece_(piece_bytes) {}

  step advance() {
    if (!begun_) {
      begun_ = true;
      if (const auto ok = to_.begin(what_); !ok) return fail(ok.error());
    }
    const std::uint64_t chunk_end = std::min<std::uint64_t>(chunk_begin_ + chunk_, bytes_.size());
    std::array<byte_span, 4> out;
    const tp::prepared p = to_.prepare(at_, std::min(piece_, chunk_end - at_), out);
    if (p.bytes == 0) return step::waiting;
    EXPECT_LE(p.bytes, chunk_end - at_);
    for (std::size_t i = 0; i < p.pieces; ++i) {
      std::memcpy(out[i].data(), bytes_.data() + at_, out[i].size());
      if (const auto ok = to_.commit(at_, out[i]); !ok) return fail(ok.error());
      // a transfer hashes them there
      EXPECT_EQ(std::memcmp(out[i].data(), bytes_.data() + at_, out[i].size()), 0) << "after the commit at " << at_;
      at_ += out[i].size();
    }
    if (at_ < chunk_end) return step::moved;
    if (const auto ok = to_.chunk(chunk_begin_, at_ - chunk_begin_); !ok) return fail(ok.error());
    chunk_begin_ = at_;
    if (at_ < bytes_.size()) return step::moved;
    if (stops_before_finish) return step::done;
    if (const auto ok = to_.finish({tp::outcome::completed, at_, 1, what_.version, what_.fingerprint, what_.version});
        !ok)
      return fail(ok.error());
    return step::done;
  }

  /// To the end, or until `limit` bytes of the image have arrived.
  tp::result<void> run(std::uint64_t limit = ~std::uint64_t{0}) {
    for (;;) {
      if (at_ >= limit) return {};
      switch (advance()) {
        case step::moved: continue;
        case step::done: return {};
        case step::failed: return tp::failure(error);
        case step::waiting: return tp::failure(errc::busy);
      }
    }
  }

  std::uint64_t at() const { return at_; }
  std::uint64_t data_start() const { return what_.data_start; }
  tp::error error{};
  bool stops_before_finish = false;

 private:
  step fail(const tp::error& e) {
    error = e;
    to_.abandon(e);
    return step::failed;
  }

  Consumer& to_;
  tp::description what_;
  byte_vector bytes_;
  std::uint64_t chunk_, piece_, at_ = 0, chunk_begin_ = 0;
  bool begun_ = false;
};

/// The header in order, and what is behind it in pieces of any length and order, as over datagrams and over several
/// connections.
template <class Consumer>
tp::result<void> feed_in_any_order(Consumer& to, const model& from, std::uint64_t seed) {
  const byte_vector bytes = from.image_bytes();
  const tp::description what = describe(from);
  generator random(seed);
  struct range {
    std::uint64_t begin, end;
  };
  std::vector<range> ranges{{0, what.data_start}};
  while (ranges.back().end < bytes.size()) {
    const std::uint64_t begin = ranges.back().end;
    ranges.push_back({begin, std::min<std::uint64_t>(begin + 1 + random() % 300, bytes.size())});
  }
  auto order = ranges;
  for (std::size_t i = order.size() - 1; i > 1; --i) std::swap(order[i], order[1 + random() % i]);
  if (const auto ok = to.begin(what); !ok) return ok;
  for (const range& r : order)
    for (std::uint64_t at = r.begin; at < r.end;) {
      std::array<byte_span, 4> out;
      const tp::prepared p = to.prepare(at, r.end - at, out);
      if (p.bytes == 0) return tp::failure(errc::busy, at);
      for (std::size_t i = 0; i < p.pieces; ++i) {
        std::memcpy(out[i].data(), bytes.data() + at, out[i].size());
        if (const auto ok = to.commit(at, out[i]); !ok) return ok;
        EXPECT_EQ(std::memcmp(out[i].data(), bytes.data() + at, out[i].size()), 0) << "after the commit at " << at;
        at += out[i].size();
      }
    }
  for (const range& r : ranges)
    if (const auto ok = to.chunk(r.begin, r.end - r.begin); !ok) return ok;
  return to.finish({tp::outcome::completed, bytes.size(), ranges.size(), what.version, what.fingerprint, what.version});
}

}  // namespace test
