// What a fuzz target is. The same functions run under libFuzzer (libfuzzer.cpp) and, for each file of the corpora, as
// ordinary tests (corpus.test.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace test::fuzz {

using input = std::span<const std::byte>;

/// An invariant that does not hold. Nobody catches it under libFuzzer, which then reports a crash; a test reports a
/// failure.
struct broken_invariant : std::logic_error {
  using std::logic_error::logic_error;
};
inline void require(bool holds, const char* what) {
  if (!holds) throw broken_invariant(what);
}

// Each takes any bytes, requires what must hold whatever they are, and says how far they got; 0: nothing of them was
// accepted.
unsigned frames(input);    ///< one frame
unsigned requests(input);  ///< settings, then what a recipient sends to an owner
unsigned replies(input);   ///< settings, then what an owner sends to a recipient
unsigned datagrams(input); ///< settings, then frames that come in datagrams, to both ends
unsigned cookies(input);   ///< datagrams from several addresses, to an owner
unsigned headers(input);   ///< a list of tensors
unsigned texts(input);     ///< a reference, an address of a socket or a serial line, or a dtype, as users write them
unsigned cursors(input);   ///< a mode, a resume cursor, edits of the destination
unsigned files(input);     ///< a safetensors file, or the text of its header
unsigned arrays(input);    ///< an npy or npz file
unsigned answers(input);   ///< what an HTTP proxy answers
unsigned http_requests(input);  ///< settings, then what an HTTP client says
unsigned http_responses(input);  ///< what an HTTP server answers, or where it redirects to
unsigned lines(input);     ///< the size of a read, then the bytes of a serial line
unsigned segments(input);  ///< a mode, the index of an image in shared memory
unsigned replicas(input);  ///< settings, then what a recipient and a coordinator say to a replica, in turns
unsigned landings(input);  ///< a mode, then an image that is written by ranges
unsigned differences(input);  ///< a mode, then a coded block or a difference between two versions of a model

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

struct target {
  std::string_view name;
  unsigned (*run)(input);
  bool of_frames;       ///< its inputs are frames, so they are mutated as such
  std::size_t settings; ///< bytes before the first frame
};
inline constexpr std::array targets{
    target{"frames", frames, true, 0},
    target{"requests", requests, true, settings::bytes},
    target{"replies", replies, true, settings::bytes},
    target{"datagrams", datagrams, true, settings::bytes},
    target{"cookies", cookies, false, 0},
    target{"headers", headers, false, 0},
    target{"texts", texts, false, 0},
    target{"cursors", cursors, false, 0},
    target{"files", files, false, 0},
    target{"arrays", arrays, false, 0},
    target{"answers", answers, false, 0},
    target{"http_requests", http_requests, false, 0},
    target{"lines", lines, false, 0},
    target{"http_responses", http_responses, false, 0},
    target{"segments", segments, false, 0},
    target{"replicas", replicas, true, settings::bytes},
    target{"landings", landings, false, 0},
    target{"differences", differences, false, 0},
};

/// Changes a sequence of frames as frames: their words, their order, their number; the length that it has then.
/// `change_bytes` is what a fuzzer does to bytes of no known structure: (data, size, room) gives the new size.
using byte_mutator = std::size_t (*)(std::uint8_t*, std::size_t, std::size_t);
std::size_t mutate_frames(std::span<std::byte> room, std::size_t size, std::size_t settings, std::uint32_t seed,
                          byte_mutator change_bytes);

}  // namespace test::fuzz
