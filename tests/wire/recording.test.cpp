// The frames of today's wire beside those that were recorded: whatever changes a byte fails here, and is named.
//
// TENSORPULL_WRITE_RECORDING=<file> makes the first test write the recording instead. Only a deliberate change of the
// wire may do that: peers of other versions read what recording.txt says.
#include "wire/scenarios.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#ifndef TENSORPULL_WIRE_RECORDING
#define TENSORPULL_WIRE_RECORDING "tests/wire/recording.txt"
#endif

namespace recording_test {

using namespace test::wire_recording;
using lines = std::vector<std::string>;

constexpr std::size_t chunk_prefix_bytes = 80;
/// Longer control frames and values are written as their beginning and a digest.
constexpr std::size_t longest_in_full = 1536;

std::string hex_of(std::span<const std::byte> content) {
  std::string text;
  for (const std::byte b : content)
    for (const unsigned shift : {4u, 0u}) text += "0123456789abcdef"[std::to_integer<unsigned>(b) >> shift & 15];
  return text;
}
bytes from_hex(std::string_view text) {
  bytes b;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    b.push_back(static_cast<std::byte>(std::stoul(std::string(text.substr(i, 2)), nullptr, 16)));
  return b;
}

/// <scenario> <direction> <kind> <bytes> <hex> and, where the hex is only the beginning: +<bytes>:<XXH3-64 of the rest>
std::string line_of(const std::string& scenario, const said& s) {
  const std::span<const std::byte> all = s.content;
  const bool shortened = s.direction != "value" && is_chunk(s) ? all.size() > chunk_prefix_bytes
                                                               : all.size() > longest_in_full;
  const std::size_t shown = shortened ? chunk_prefix_bytes : all.size();
  std::string line = scenario + ' ' + s.direction + ' ' + s.what + ' ' + std::to_string(all.size()) + ' ' +
                     hex_of(all.first(shown));
  if (shortened) {
    const auto rest = all.subspan(shown);
    const std::uint64_t digest = XXH3_64bits(rest.data(), rest.size());
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(digest));
    line += " +" + std::to_string(rest.size()) + ':' + digits;
  }
  return line;
}
lines lines_of(const scenario& s) {
  lines all;
  for (const said& each : s.play()) all.push_back(line_of(s.name, each));
  return all;
}

/// The word of a line, counted from 0.
std::string word_of(const std::string& line, std::size_t n) {
  std::istringstream words(line);
  std::string word;
  for (std::size_t i = 0; i <= n; ++i)
    if (!(words >> word)) return {};
  return word;
}
lines recording() {
  std::ifstream file(TENSORPULL_WIRE_RECORDING);
  EXPECT_TRUE(file) << TENSORPULL_WIRE_RECORDING;
  lines all;
  for (std::string line; std::getline(file, line);)
    if (!line.empty() && line[0] != '#') all.push_back(line);
  EXPECT_FALSE(all.empty());
  return all;
}

/// By direction: in which order two directions take turns is not on the wire.
std::map<std::string, lines> by_direction(const lines& all, const std::string& scenario) {
  std::map<std::string, lines> sorted;
  for (const std::string& line : all)
    if (word_of(line, 0) == scenario) sorted[word_of(line, 1)].push_back(line);
  return sorted;
}
/// Names the first frame of a scenario that differs, and what each says; empty if none does.
std::string first_difference(const lines& recorded, const lines& now, const std::string& scenario) {
  auto was = by_direction(recorded, scenario), is = by_direction(now, scenario);
  std::set<std::string> directions;
  for (const auto* each : {&was, &is})
    for (const auto& [direction, frames] : *each) directions.insert(direction);
  for (const std::string& direction : directions) {
    const lines &before = was[direction], &after = is[direction];
    for (std::size_t i = 0; i < std::max(before.size(), after.size()); ++i) {
      const std::string a = i < before.size() ? before[i] : "(nothing)", b = i < after.size() ? after[i] : "(nothing)";
      if (a == b) continue;
      const auto same = static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                                 a.begin());
      return scenario + ' ' + direction + ", frame " + std::to_string(i) + ", from character " + std::to_string(same) +
             " of the line on:\n  recorded " + a + "\n  now      " + b;
    }
  }
  return {};
}

void write_recording(const char* path) {
  std::ofstream file(path);
  file
      << "# What is said on the wire, frame by frame; written by the tests of tests/wire (see recording.test.cpp) and compared by them.\n"
         "# <scenario> <direction> <kind> <bytes> <hex> and, where the hex is only the beginning: +<bytes>:<XXH3-64 of the rest>\n";
  for (const scenario& s : scenarios())
    for (const std::string& line : lines_of(s)) file << line << '\n';
  EXPECT_TRUE(file.flush());
}

TEST(Wire, Every_scenario_says_what_was_recorded) {
  if (const char* const path = std::getenv("TENSORPULL_WRITE_RECORDING"); path != nullptr) return write_recording(path);
  const lines recorded = recording();
  std::set<std::string> names;
  for (const scenario& s : scenarios()) {
    EXPECT_TRUE(names.insert(s.name).second) << s.name << " twice";
    const lines now = lines_of(s);
    EXPECT_FALSE(now.empty()) << s.name;
    const std::string difference = first_difference(recorded, now, s.name);
    EXPECT_TRUE(difference.empty()) << difference;
  }
  for (const std::string& line : recorded)
    EXPECT_TRUE(names.contains(word_of(line, 0))) << "recorded, and no scenario: " << line.substr(0, 100);
}

/// Both framings read the same message from a frame, and write it as it was.
void expect_round_trip(std::span<const std::byte> content, const std::string& where) {
  const test::frame f(content);
  const auto words = through_words(f), capnp = through_capnp(f);
  EXPECT_NE(words.text, "") << "not read: " << where;
  EXPECT_EQ(words.text, capnp.text) << where;
  EXPECT_EQ(hex_of(words.again), hex_of(content)) << where;
  EXPECT_EQ(hex_of(capnp.again), hex_of(content)) << where;
}

TEST(Wire, Every_recorded_control_frame_is_read_and_written_again_as_it_was) {
  std::set<std::string> kinds;
  for (const std::string& line : recording()) {
    const said s{word_of(line, 1), word_of(line, 2), from_hex(word_of(line, 4))};
    if (is_chunk(s) || !is_whole_frame(s)) continue;
    kinds.insert(s.what);
    expect_round_trip(s.content, line);
  }
  EXPECT_EQ(kinds.size(), 14u) << "every kind but chunks";
  // of the long ones the recording has only a digest
  std::size_t more = 0;
  for (const scenario& s : scenarios())
    for (const said& each : s.play())
      if (each.content.size() > longest_in_full && !is_chunk(each) && is_whole_frame(each))
        expect_round_trip(each.content, s.name), ++more;
  EXPECT_GT(more, 0u);
}

TEST(Wire, A_scenario_says_the_same_again) {
  for (const scenario& s : scenarios()) EXPECT_EQ(lines_of(s), lines_of(s)) << s.name;
}

TEST(Wire, A_single_bit_a_frame_that_is_missing_and_one_too_many_are_found) {
  const lines recorded = recording();
  const std::string scenario = "fixed_1024";
  ASSERT_EQ(first_difference(recorded, recorded, scenario), "");
  for (std::size_t at = 0; at < recorded.size(); ++at) {
    if (word_of(recorded[at], 0) != scenario) continue;
    lines changed = recorded;
    char& digit = changed[at].back();
    const bool turns_into_a_letter = digit == '9';  // 8 in its place
    digit = turns_into_a_letter ? '8' : static_cast<char>(digit ^ 1);
    const std::string found = first_difference(recorded, changed, scenario);
    EXPECT_NE(found.find(word_of(recorded[at], 1) + ", frame "), std::string::npos);
    EXPECT_NE(found.find("recorded " + recorded[at]), std::string::npos);
    EXPECT_NE(found.find("now      " + changed[at]), std::string::npos);
    lines shorter = recorded;
    shorter.erase(shorter.begin() + static_cast<std::ptrdiff_t>(at));
    EXPECT_NE(first_difference(recorded, shorter, scenario), "");
    EXPECT_NE(first_difference(shorter, recorded, scenario), "");
  }
  // and a bit of a payload, of which the recording has a digest
  auto frames = scenarios().front().play();
  const auto chunk = std::find_if(frames.begin(), frames.end(), is_chunk);
  ASSERT_NE(chunk, frames.end());
  const std::string before = line_of(scenario, *chunk);
  chunk->content.back() ^= std::byte{1};
  EXPECT_NE(line_of(scenario, *chunk), before);
}

}  // namespace recording_test
