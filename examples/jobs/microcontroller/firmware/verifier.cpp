// Verifies signatures on the board, and tells how long one takes and how much stack. With the emulator's `-icount
// shift=0` a millisecond is a million instructions.
#include "board.hpp"
#include "ed25519.hpp"

#include <string_view>

namespace microcontroller {

template <std::size_t Bytes>
consteval std::array<std::byte, Bytes> bytes(const char* digits) {
  std::array<std::byte, Bytes> out{};
  for (std::size_t i = 0; i < 2 * Bytes; ++i)
    out[i / 2] = out[i / 2] << 4 | static_cast<std::byte>(digits[i] >= 'a' ? digits[i] - 'a' + 10 : digits[i] - '0');
  return out;
}

// of RFC 8032, 7.1, test 3
constexpr auto key = bytes<32>("fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025");
constexpr auto message = bytes<2>("af82");
constexpr auto signature = bytes<64>(
    "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
    "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a");

}  // namespace microcontroller

int run() {
  using namespace microcontroller;
  const monocypher_ed25519 verify;
  if (!verify(key, message, signature)) return 1;
  for (std::size_t i = 0; i < signature.size(); ++i) {
    auto another = signature;
    another[i] ^= std::byte{4};
    if (verify(key, message, another)) return 1;
  }
  // one that is wrong takes as long, of a text as long as a signed reference
  static constexpr std::array<std::byte, 300> text{};
  constexpr std::uint32_t times = 20;
  const std::uint32_t begun = board::now_ms();
  for (std::uint32_t i = 0; i < times; ++i)
    if (verify(key, text, signature)) return 1;
  board::say_line("verifier: ", times, " verifications in ", board::now_ms() - begun, " ms, ", board::stack().used,
                  " bytes of stack");
  return 0;
}
