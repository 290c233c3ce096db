// What a fuzz target is. The same functions run under libFuzzer (libfuzzer.cpp) and, for each file of the corpora, as
// ordinary tests (corpus.test.cpp).
#pragma once

#include "support/words.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace test::fuzz {

using input = const_byte_span;

/// An invariant that does not hold. Nobody catches it under libFuzzer, which then reports a crash; a test reports a
/// failure.
struct broken_invariant : std::logic_error {
  using std::logic_error::logic_error;
};
inline void require(bool holds, const char* what) {
  if (!holds) throw broken_invariant(what);
}

/// The head of a stream's input: one byte of scenario, then the sizes of reads and of writes, in turns (0: all that
/// there is).
struct settings {
  static constexpr std::size_t bytes = 8;
  std::uint8_t scenario = 0;
  std::array<std::uint8_t, 4> reads{};
  std::array<std::uint8_t, 3> writes{};

  static settings of(input in) noexcept {
    settings s;
    const auto at = [&](std::size_t i) { return i < in.size() ? static_cast<std::uint8_t>(in[i]) : std::uint8_t{0}; };
    s.scenario = at(0);
    for (std::size_t i = 0; i < s.reads.size(); ++i) s.reads[i] = at(1 + i);
    for (std::size_t i = 0; i < s.writes.size(); ++i) s.writes[i] = at(5 + i);
    return s;
  }
};
inline input stream_of(input in) noexcept {
  return in.subspan(in.size() < settings::bytes ? in.size() : settings::bytes);
}

/// A fuzz target. `run` takes any bytes, requires what must hold whatever they are, and gives how far they got; 0:
/// nothing of them was accepted. Its seeds lie in corpus/NAME beside its file.
struct target {
  std::string_view name;
  unsigned (*run)(input);
  bool of_frames = false;    ///< its inputs are frames, so they are mutated as such
  std::size_t settings = 0;  ///< bytes before the first frame
  std::string_view file{};   ///< where it was registered

  std::filesystem::path corpus() const { return std::filesystem::path(file).parent_path() / "corpus" / name; }
};
/// All targets that are linked.
inline std::vector<target>& targets() {
  static std::vector<target> all;
  return all;
}
inline const target& named(std::string_view name) {
  for (const target& t : targets())
    if (t.name == name) return t;
  throw std::invalid_argument("there is no target " + std::string(name));
}
/// A target's file has one: `const registered mine{{"frames", frames, true}};`.
struct registered {
  /// `at`: the file that has it. clang++ 14 has no std::source_location.
  registered(target t, const char* at = __builtin_FILE()) {
    t.file = at;
    targets().push_back(t);
  }
};

/// Changes a sequence of frames as frames: their words, their order, their number; the length that it has then.
/// `change_bytes` is what a fuzzer does to bytes of no known structure: (data, size, room) gives the new size.
using byte_mutator = std::size_t (*)(std::uint8_t*, std::size_t, std::size_t);
std::size_t mutate_frames(byte_span room, std::size_t size, std::size_t settings, std::uint32_t seed,
                          byte_mutator change_bytes);

}  // namespace test::fuzz
