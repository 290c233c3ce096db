// Changes to sequences of frames that leave most of them frames.
#include <tensorpull/core/byte_order.hpp>
#include "support/words.hpp"
#include "target.hpp"

#include "support/messages.hpp"
#include "support/random.hpp"

#include <tensorpull/core/xxh3.hpp>

#include <algorithm>

namespace test::fuzz {
namespace {

namespace tp = tensorpull;
using bytes = byte_vector;

/// The frames; behind them, as the last element, what is none (perhaps nothing).
std::vector<bytes> split(const_byte_span all) {
  std::vector<bytes> parts;
  while (!all.empty()) {
    const auto size = tp::detail::measure_frame(all, all.size(), 512);
    if (!size || !*size) break;
    parts.emplace_back(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(**size));
    all = all.subspan(**size);
  }
  parts.emplace_back(all.begin(), all.end());
  return parts;
}

std::uint64_t word(const bytes& b, std::size_t i) { return tp::load_le64(b.data() + 8 * i); }
void set_word(bytes& b, std::size_t i, std::uint64_t value) { tp::store_le64(b.data() + 8 * i, value); }

class mutation {
 public:
  mutation(std::vector<bytes>& parts, std::uint32_t seed, byte_mutator change_bytes)
      : parts_(parts), random_(seed), change_bytes_(change_bytes) {}

  void run() {
    const std::size_t frames = parts_.size() - 1;
    const std::uint64_t what = random_.below(12);
    if (frames == 0 || what == 0) return insert();
    bytes& f = parts_[random_.below(frames)];
    switch (what) {
      case 1: parts_.insert(parts_.begin() + place(frames), bytes(f)); break;
      case 2: parts_.erase(parts_.begin() + place(frames - 1)); break;
      case 3: std::swap(f, parts_[random_.below(frames)]); break;
      case 4: resize(f); break;
      case 5: f = changed(f); break;
      case 6: seal(f); break;
      case 7: f[random_.below(f.size())] ^= static_cast<std::byte>(1 << random_.below(8)); break;
      default:
        for (std::uint64_t n = 1 + random_.below(3); n > 0; --n)
          set_word(f, random_.below(f.size() / 8), interesting(f));
    }
  }

 private:
  std::ptrdiff_t place(std::size_t last) { return static_cast<std::ptrdiff_t>(random_.below(last + 1)); }

  std::uint64_t interesting(const bytes& f) {
    const bytes& other = parts_[random_.below(parts_.size() - 1)];
    switch (random_.below(7)) {
      case 0: return random_.below(16);
      case 1: return ~random_.below(64);
      case 2: return word(other, random_.below(other.size() / 8));
      case 3: return word(f, random_.below(f.size() / 8)) + random_.below(17) - 8;
      case 4: return std::uint64_t{1} << random_.below(64);
      case 5:
        return struct_pointer(static_cast<std::int32_t>(random_.below(24)) - 12,
                              static_cast<std::uint16_t>(random_.below(10)),
                              static_cast<std::uint16_t>(random_.below(4)));
      default:
        return list_pointer(static_cast<std::int32_t>(random_.below(24)) - 12, static_cast<list_size>(random_.below(8)),
                            static_cast<std::uint32_t>(random_.below(80)));
    }
  }
  /// Another kind of message with the reference, version and nonce of one that is there.
  void insert() {
    const auto all = every_message();
    tp::frame m = all[random_.below(all.size())];
    const std::size_t frames = parts_.size() - 1;
    if (frames > 0) {
      const bytes& like = parts_[random_.below(frames)];
      const decoded d{frame(like)};
      const auto m2 = d.outcome ? d.m : tp::frame{};
      m.id = m2.id + static_cast<std::uint32_t>(random_.below(3));
      m.ref = m2.ref, m.version = m2.version, m.nonce = m2.nonce, m.digest = m2.digest;
      m.offset = random_.below(4) == 0 ? interesting(like) : random_.below(600);
      m.length = static_cast<std::uint32_t>(random_.below(600));
    }
    const frame made = encode(m);
    parts_.insert(parts_.begin() + place(frames), bytes(made.bytes().begin(), made.bytes().end()));
  }
  /// Longer or shorter by some words, with a segment table that knows.
  void resize(bytes& f) {
    const std::size_t words = std::clamp<std::size_t>(f.size() / 8 + random_.below(9) - 4, 2, 1024);
    f.resize(words * 8);
    set_word(f, 0, segment_table(static_cast<std::uint32_t>(words - 1)));
  }
  bytes changed(const bytes& f) {
    std::vector<std::uint8_t> room(f.size() + 64);
    std::transform(f.begin(), f.end(), room.begin(), [](std::byte b) { return static_cast<std::uint8_t>(b); });
    const std::size_t n = std::max<std::size_t>((change_bytes_(room.data(), f.size(), room.size()) + 7) / 8 * 8, 16);
    bytes out(n);
    std::transform(room.begin(), room.begin() + static_cast<std::ptrdiff_t>(std::min(n, room.size())), out.begin(),
                   [](std::uint8_t b) { return static_cast<std::byte>(b); });
    return out;
  }
  /// A chunk with the digest of its bytes, so that what was changed in them gets past it.
  static void seal(bytes& f) {
    using prefix = tp::detail::payload_prefix;
    if (f.size() < prefix::bytes || !prefix::announces_payload(f)) return;
    const auto m = prefix::read(const_byte_span(f).first<prefix::bytes>());
    if (!m || m->length > f.size() - prefix::bytes) return;
    tp::xxh3_64 hash;
    hash.update(reinterpret_cast<const char*>(f.data()) + prefix::bytes, m->length);
    set_word(f, 8, hash.digest());
  }

  std::vector<bytes>& parts_;
  generator random_;
  byte_mutator change_bytes_;
};

}  // namespace

std::size_t mutate_frames(byte_span room, std::size_t size, std::size_t settings, std::uint32_t seed,
                          byte_mutator change_bytes) {
  if (size < settings) {
    std::fill(room.begin() + static_cast<std::ptrdiff_t>(size),
              room.begin() + static_cast<std::ptrdiff_t>(std::min(settings, room.size())), std::byte{});
    size = std::min(settings, room.size());
  }
  generator random(seed);
  if (settings > 0 && size >= settings && random.below(8) == 0) {
    room[random.below(settings)] = static_cast<std::byte>(random());
    return size;
  }
  auto parts = split(room.first(size).subspan(settings));
  mutation(parts, static_cast<std::uint32_t>(random()), change_bytes).run();
  std::size_t at = settings;
  for (const bytes& p : parts) {
    const std::size_t n = std::min(p.size(), room.size() - at);
    std::copy_n(p.begin(), n, room.begin() + static_cast<std::ptrdiff_t>(at));
    at += n;
  }
  return at;
}

}  // namespace test::fuzz
