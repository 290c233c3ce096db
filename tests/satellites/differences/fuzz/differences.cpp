// Differences between two versions of a model: one coded block, or a whole one that is applied to a small model.
#include "fuzz/fixture.hpp"
#include "support/words.hpp"

#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>
#include <tensorpull/satellites/differences/applied_difference.hpp>
#include <tensorpull/satellites/differences/deflate/deflate.hpp>

#include <optional>

namespace test::fuzz {
namespace {

using bytes = byte_vector;
using u64 = std::uint64_t;

/// The same rules in another way: each plane by a stream of zlib's of its own, each element by its place in the order.
struct second_reader {
  static bool inflated(const_byte_span in, byte_span out) {
    bytes room(out.size() + 1);  // a plane that is longer shows it
    z_stream s{};
    require(inflateInit2(&s, -MAX_WBITS) == Z_OK, "zlib begins");
    s.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(in.data()));
    s.avail_in = static_cast<uInt>(in.size());
    s.next_out = reinterpret_cast<Bytef*>(room.data());
    s.avail_out = static_cast<uInt>(room.size());
    const bool ended = inflate(&s, Z_FINISH) == Z_STREAM_END;
    const bool all = ended && s.avail_in == 0 && s.total_out == out.size();
    (void)inflateEnd(&s);
    if (all && !out.empty()) std::memcpy(out.data(), room.data(), out.size());
    return all;
  }
  static std::uint32_t check_of(const_byte_span elements) {
    tp::xxhash_digest hash;
    hash.update(elements);
    return static_cast<std::uint32_t>(hash.digest());
  }
  static bool apply(tp::dtype type, bytes& inout, const_byte_span coded) {
    const auto of = tp::number_bytes(type);
    const std::size_t width = of == 0 ? 1 : of, n = inout.size() / width;
    const bool floating = type == tp::dtype::f16 || type == tp::dtype::bf16 || type == tp::dtype::f32 ||
                          type == tp::dtype::f64 || type == tp::dtype::c64;
    std::vector<u64> z(n);
    if (n > 0 && coded.size() == width && std::ranges::count(coded, std::byte{}) == std::ptrdiff_t(width)) return true;
    if (n == 0) return coded.empty();
    if (coded.size() < 5) return false;
    std::uint32_t check = 0;
    for (std::size_t i = 4; i-- > 0;) check = check << 8 | static_cast<std::uint32_t>(coded[i]);
    coded = coded.subspan(4);
    if (coded[0] == std::byte{3}) {
      if (!sparse(8 * width, z, coded.subspan(1))) return false;
      bytes old;
      for (std::size_t i = 0; i < n; ++i)
        if (z[i] != 0)
          for (std::size_t k = 0; k < width; ++k) old.push_back(inout[i * width + k]);
      if (check_of(old) != check) return false;
      add(width, floating, inout, z);
      return true;
    }
    bytes plane(n);
    for (std::size_t k = 0; k < width && n > 0; ++k) {
      if (coded.empty()) return false;
      const auto kind = static_cast<unsigned>(coded[0]);
      coded = coded.subspan(1);
      std::size_t taken = 0;
      if (kind == 0) {
        std::fill(plane.begin(), plane.end(), std::byte{});
      } else if (kind == 1) {
        taken = n;
        if (coded.size() < n) return false;
        std::copy_n(coded.begin(), n, plane.begin());
      } else if (kind == 2) {
        if (coded.size() < 4) return false;
        for (std::size_t i = 4; i-- > 0;) taken = taken << 8 | static_cast<std::size_t>(coded[i]);
        coded = coded.subspan(4);
        if (coded.size() < taken || !inflated(coded.first(taken), plane)) return false;
      } else {
        return false;
      }
      coded = coded.subspan(taken);
      for (std::size_t i = 0; i < n; ++i) z[i] |= static_cast<u64>(plane[i]) << (8 * k);
    }
    if (!coded.empty() || check_of(inout) != check) return false;
    add(width, floating, inout, z);
    return true;
  }
  /// Bit by bit: each number is a quotient as zeros and a one, then its low bits; after twenty zeros all of its bits.
  static bool sparse(std::size_t bits, std::vector<u64>& z, const_byte_span coded) {
    if (coded.size() < 4) return false;
    const auto ks = std::pair{static_cast<std::size_t>(coded[0]), static_cast<std::size_t>(coded[1])};
    const std::size_t count = static_cast<std::size_t>(coded[2]) | static_cast<std::size_t>(coded[3]) << 8;
    if (ks.first > 31 || ks.second >= bits || count == 0 || count * 8 > z.size()) return false;
    coded = coded.subspan(4);
    std::size_t at = 0;
    const auto bit = [&] {
      const bool set = at / 8 < coded.size() && (static_cast<unsigned>(coded[at / 8]) >> at % 8 & 1) != 0;
      ++at;
      return set;
    };
    const auto number = [&](std::size_t k, std::size_t all) -> std::optional<u64> {
      u64 quotient = 0, low = 0;
      while (!bit())
        if (++quotient > 20) return std::nullopt;
      const std::size_t lows = quotient == 20 ? all : k;
      for (std::size_t i = 0; i < lows; ++i) low |= static_cast<u64>(bit()) << i;
      if (quotient == 20) return low;
      for (std::size_t i = 0; i < k; ++i) {
        if (quotient >= u64{1} << 63) return std::nullopt;
        quotient *= 2;
      }
      return quotient + low;
    };
    std::size_t element = 0;
    for (std::size_t i = 0; i < count; ++i, ++element) {
      const auto gap = number(ks.first, 32), step = number(ks.second, bits);
      if (!gap || !step || *gap >= z.size() - element) return false;
      if (bits < 64 ? *step >= (u64{1} << bits) - 1 : *step == ~u64{0}) return false;
      element += static_cast<std::size_t>(*gap);
      z[element] = *step + 1;
    }
    if (at > 8 * coded.size() || 8 * coded.size() - at > 7) return false;
    while (at % 8 != 0)
      if (bit()) return false;
    return true;
  }
  static void add(std::size_t width, bool floating, bytes& inout, const std::vector<u64>& z) {
    const std::size_t n = z.size();
    const u64 top = u64{1} << (8 * width - 1), all = top | (top - 1);
    for (std::size_t i = 0; i < n; ++i) {
      u64 v = 0;
      for (std::size_t k = width; k-- > 0;) v = v << 8 | static_cast<u64>(inout[i * width + k]);
      const u64 step = z[i] % 2 == 0 ? z[i] / 2 : ~(z[i] / 2);
      if (floating) v = v < top ? v + top : all - v;  // the place of a float in the order of all
      v = (v + step) & all;
      if (floating) v = v >= top ? v - top : all - v;
      for (std::size_t k = 0; k < width; ++k) inout[i * width + k] = static_cast<std::byte>(v >> (8 * k) & 0xff);
    }
  }
};

/// The dtype, elements (two bytes), a seed for the old ones, then the block.
unsigned one_block(input in) {
  if (in.size() < 4) return 0;
  const auto type = static_cast<tp::dtype>(static_cast<unsigned>(in[0]) % tp::dtype_count);
  const std::size_t width = tp::number_bytes(type) == 0 ? 1 : tp::number_bytes(type);
  const std::size_t n = (static_cast<std::size_t>(in[1]) | (static_cast<std::size_t>(in[2]) & 15) << 8) * width;
  bytes old(n);
  generator g(static_cast<u64>(in[3]));
  g.fill(old);
  const input coded = in.subspan(4);
  const guarded_bytes inout(n), scratch(n);
  if (n != 0) std::memcpy(inout.bytes().data(), old.data(), n);
  tp::deflate_coder coder;
  const bool took = tp::apply_block(coder, type, inout.bytes(), coded, scratch.bytes()).has_value();
  require(inout.intact() && scratch.intact(), "nothing is written around a block");
  bytes expected = old;
  require(took == second_reader::apply(type, expected, coded), "a block is taken exactly if another reader takes it");
  if (!took) expected = old;
  require(std::equal(expected.begin(), expected.end(), inout.bytes().begin()),
          "the elements are what another reader makes of them, or as they were");
  if (!took) return 0;
  // what came of it can be coded again
  const guarded_bytes room(tp::coded_block_bound(n));
  const std::size_t k = tp::encode_block(coder, type, old, expected, room.bytes(), scratch.bytes());
  require(k <= tp::coded_block_bound(n) && room.intact() && scratch.intact(), "a block is no longer than its bound");
  if (n != 0) std::memcpy(inout.bytes().data(), old.data(), n);
  require(tp::apply_block(coder, type, inout.bytes(), room.bytes().first(k), scratch.bytes()).has_value() &&
              std::equal(expected.begin(), expected.end(), inout.bytes().begin()),
          "what is coded comes back bit for bit");
  return 1;
}

using applied = tp::applied_difference<tp::deflate_coder>;

/// As a transfer does that the caller abandons, in chunks and pieces of these lengths.
tp::result<void> applied_to(applied& to, const_byte_span difference, std::size_t chunk, std::size_t piece) {
  constexpr std::size_t header = 64;  // nobody looks at it
  const std::size_t end = header + difference.size();
  if (const auto ok = to.begin({.image_bytes = end, .data_start = header}); !ok) return ok;
  for (std::size_t at = 0, begin = 0; at < end;) {
    byte_span out[2];
    const tp::prepared p = to.prepare(at, std::min({piece, begin + chunk - at, end - at}), out);
    require(p.pieces == 1 && p.bytes > 0 && p.bytes == out[0].size(), "there is memory for what comes");
    for (std::size_t i = 0; i < out[0].size(); ++i)
      out[0][i] = at + i < header ? std::byte{0x20} : difference[at + i - header];
    const bytes came(out[0].begin(), out[0].end());
    if (const auto ok = to.commit(at, out[0]); !ok) return ok;
    require(std::equal(came.begin(), came.end(), out[0].begin()), "what came is hashed where it lies after commit()");
    at += out[0].size();
    if (at != end && at != begin + chunk) continue;
    if (const auto ok = to.chunk(begin, at - begin); !ok) return ok;
    begin = at;
  }
  return to.finish({});
}

/// Lengths of chunks and pieces, then a difference; `fitting`: what it begins with is made to fit the model.
unsigned whole(input in, bool fitting) {
  if (in.size() < 2) return 0;
  static small_model model;
  const std::size_t chunk = 1 + static_cast<std::size_t>(in[0]), piece = 1 + static_cast<std::size_t>(in[1]);
  model.fill(1);
  const bytes before = model.image_bytes();
  const tp::destination_view to = model.destination();
  bytes difference(in.begin() + 2, in.end());
  tp::difference_prologue begin{to.schema->fingerprint, to.schema->data_bytes(), 0, tp::difference_block_bytes, 1};
  if (fitting) {
    difference.insert(difference.begin(), begin.bytes, std::byte{});
    begin.write(std::span<std::byte, 64>(difference.data(), 64));
  }
  unsigned reached = 0;
  for (int again = 0; again < 2; ++again) {
    model.fill(1);
    tp::deflate_coder coder;
    auto consumer = applied::make(to, coder, chunk);
    require(consumer.has_value(), "there is memory for a consumer");
    const auto done = applied_to(*consumer, difference, chunk, piece);
    const bytes left = model.image_bytes();
    tp::xxhash_digest is;
    is.update(std::span(left).subspan(static_cast<std::size_t>(to.schema->header_bytes)));
    if (!done) consumer->abandon(done.error());
    require(model.guards_intact(), "nothing is written around a tensor");
    require(done.has_value() == (consumer->state() == tp::difference_state::applied), "the state says how it ended");
    require(consumer->state() != tp::difference_state::untouched || model.image_bytes() == before,
            "an untouched model has its bytes");
    require(tp::check_booleans(to).has_value(), "a bool is true or false");
    if (done) {
      require(is.digest() == consumer->to_digest(), "what was applied has the digest that it should have");
      reached = 1;
    }
    if (!fitting || done || done.error() != tp::errc::digest_mismatch || !done.error().name.view().empty()) break;
    // every block was one of these elements: the same with the digest of what came of them is a difference
    require(again == 0, "a difference that says what comes of it is taken");
    begin.to = is.digest();
    begin.write(std::span<std::byte, 64>(difference.data(), 64));
  }
  return reached;
}

}  // namespace

static unsigned differences(input in) {
  if (in.empty()) return 0;
  const auto mode = static_cast<unsigned>(in[0]) % 3;
  return mode == 0 ? one_block(in.subspan(1)) : whole(in.subspan(1), mode == 1);
}
static const registered differences_target{{"differences", differences}};

}  // namespace test::fuzz
