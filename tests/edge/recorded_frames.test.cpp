// The recorded wire (tests/wire/recording.txt, made on x86-64), read and written again on this machine: every frame
// comes out with the bytes that it had.
#include <tensorpull/framing/word_framing.hpp>

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#ifndef TENSORPULL_WIRE_RECORDING
#define TENSORPULL_WIRE_RECORDING "tests/wire/recording.txt"
#endif

namespace {

using namespace tensorpull;
using bytes = std::vector<std::byte>;

bytes from_hex(const std::string& text) {
  bytes b;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    b.push_back(static_cast<std::byte>(std::stoul(text.substr(i, 2), nullptr, 16)));
  return b;
}

TEST(RecordedFrames, Are_read_and_written_alike_on_every_machine) {
  std::ifstream file(TENSORPULL_WIRE_RECORDING);
  ASSERT_TRUE(file) << TENSORPULL_WIRE_RECORDING;
  std::map<std::string, int> same;
  const auto lists = std::make_unique<word_framing::decode_storage>();
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string scenario, direction, kind, hex, more;
    std::size_t size = 0;
    if (line.empty() || line[0] == '#' || !(words >> scenario >> direction >> kind >> size >> hex) ||
        direction == "value" || kind == "part")
      continue;
    const bool shortened = static_cast<bool>(words >> more);
    // at an odd address, since a frame may begin anywhere in a buffer
    bytes room{std::byte{}};
    const bytes recorded = from_hex(hex);
    room.insert(room.end(), recorded.begin(), recorded.end());
    const auto in = std::span<const std::byte>(room).subspan(1);
    if (kind == "chunk") {
      const auto head = in.first<detail::payload_prefix::bytes>();
      ASSERT_TRUE(detail::payload_prefix::announces_payload(head)) << line;
      const auto m = detail::payload_prefix::read(head);
      ASSERT_TRUE(m) << line;
      bytes out(head.size());
      detail::payload_prefix::write(*m, std::span(out).first<detail::payload_prefix::bytes>());
      ASSERT_TRUE(std::equal(out.begin(), out.end(), head.begin())) << line;
    } else {
      if (shortened) continue;
      frame m;
      const auto read = word_framing::decode(in, m, *lists);
      ASSERT_TRUE(read) << to_string(read.error().code) << ": " << line;
      bytes out(in.size());
      const auto n = word_framing::encode(m, out);
      ASSERT_TRUE(n) << to_string(n.error().code) << ": " << line;
      ASSERT_EQ(*n, in.size()) << line;
      ASSERT_TRUE(std::equal(out.begin(), out.end(), in.begin())) << line;
    }
    ++same[kind];
  }
  for (const char* const kind : {"nothing", "describe", "pull", "chunk", "end", "confirm", "confirmed", "cancel",
                                 "refused", "schema", "description", "schema_page", "locate", "located", "application"})
    EXPECT_GT(same[kind], 0) << kind;
}

}  // namespace
