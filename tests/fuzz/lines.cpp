// The bytes of a serial line, which any noise may give: the reader of frames against one that was written another way.
#include "support/words.hpp"
#include "target.hpp"

#include <tensorpull/links/serial/cobs.hpp>

#include <algorithm>
#include <vector>

namespace test::fuzz {
namespace {

constexpr std::size_t most = 128;
using bytes = byte_vector;

std::uint32_t crc_bit_by_bit(const_byte_span all) noexcept {
  std::uint32_t crc = ~0u;
  for (const std::byte b : all)
    for (unsigned i = 0; i < 8; ++i) {
      const bool one = ((crc ^ static_cast<std::uint32_t>(b) >> i) & 1) != 0;
      crc = crc >> 1 ^ (one ? 0x82f63b78u : 0u);
    }
  return ~crc;
}
/// What stands between two zeros, as a whole; empty: it is no frame.
bytes decoded(const_byte_span frame) {
  bytes all;
  while (!frame.empty()) {
    const auto code = static_cast<std::size_t>(frame[0]);
    if (code > frame.size()) return {};
    all.insert(all.end(), frame.begin() + 1, frame.begin() + static_cast<std::ptrdiff_t>(code));
    frame = frame.subspan(code);
    if (code < 255 && !frame.empty()) all.push_back(std::byte{0});
  }
  if (all.size() <= 4 || all.size() > most + 4) return {};
  const std::size_t n = all.size() - 4;
  const std::uint32_t crc = crc_bit_by_bit(std::span(all).first(n));
  for (unsigned i = 0; i < 4; ++i)
    if (all[n + i] != static_cast<std::byte>(crc >> 8 * i & 0xff)) return {};
  all.resize(n);
  return all;
}

}  // namespace

static unsigned lines(input in) {
  if (in.empty()) return 0;
  const std::size_t step = static_cast<std::size_t>(in[0]) + 1;
  in = in.subspan(1);
  std::vector<bytes> expected;
  std::uint64_t dropped = 0;
  for (auto rest = in;;) {
    const auto zero = std::find(rest.begin(), rest.end(), std::byte{0});
    if (zero == rest.end()) break;
    const auto n = static_cast<std::size_t>(zero - rest.begin());
    if (bytes d = decoded(rest.first(n)); !d.empty()) expected.push_back(std::move(d));
    else if (n > 0) ++dropped;
    rest = rest.subspan(n + 1);
  }

  tensorpull::cobs_reader<most> reader;
  std::vector<bytes> found;
  for (auto rest = in; !rest.empty();) {
    const bytes piece(rest.begin(),
                      // memory of exactly this size
                      rest.begin() + static_cast<std::ptrdiff_t>(std::min(step, rest.size())));
    const_byte_span part(piece);
    rest = rest.subspan(piece.size());
    while (reader.read(part)) found.emplace_back(reader.datagram().begin(), reader.datagram().end());
    require(part.empty(), "a reader takes all that it is given");
  }
  require(found == expected, "a line is read as frames exactly as another reader reads it");
  require(reader.dropped() == dropped, "what is between two zeros and no frame is counted as dropped");
  tensorpull::cobs_writer<most> writer;
  for (const bytes& d : found) {
    const const_byte_span all(d);
    require(writer.write({&all, 1}), "what was read can be written");
    const_byte_span frame = writer.frame();
    require(std::count(frame.begin(), frame.end(), std::byte{0}) == 1 && frame.back() == std::byte{0},
            "a frame has one zero, at its end");
    require(frame.size() <= tensorpull::cobs_frame_bytes(d.size()), "a frame is no longer than stated");
    tensorpull::cobs_reader<most> again;
    require(again.read(frame) && std::ranges::equal(again.datagram(), d), "what was written is read");
  }
  return static_cast<unsigned>(found.size());
}
static const registered lines_target{{"lines", lines}};

}  // namespace test::fuzz
