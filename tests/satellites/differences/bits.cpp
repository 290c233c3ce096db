// Moves and narrows many patterns and compares a digest of all bits with the one of a build without optimiser. CMake
// builds it with the flags that change arithmetic elsewhere. It is a program of its own, since inline functions of two
// builds in one program would be one function.
#include <tensorpull/satellites/differences/scheme/scaled_blocks.hpp>

#include <cstdio>
#include <cstring>
#include <iterator>
#include <vector>

using namespace tensorpull;

namespace {

std::uint64_t state = 1;
std::uint64_t next() {
  state += 0x9e3779b97f4a7c15;
  std::uint64_t z = state;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

template <class T>
void add(std::uint64_t& digest, const std::vector<T>& values) {
  for (const T& value : values) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    digest = (digest ^ bits) * 0x100000001b3;
  }
}

/// Patterns of bits: with subnormals, -0.0, infinities and NaNs. F64: none that is subnormal, nor NaN, whose bits are
/// the processor's.
template <class T>
void patterns(std::vector<T>& values) {
  for (T& value : values) {
    std::uint64_t bits = next();
    if constexpr (sizeof(T) == 8) bits = (bits & 0x800fffffffffffff) | (900 + next() % 200) << 52;
    if constexpr (sizeof(T) == 4) {
      if (next() % 4 == 0) bits &= 0x807fffff;
    }
    std::memcpy(&value, &bits, sizeof(T));
  }
}

template <class T, unsigned Bits = 8>
std::uint64_t digest_of_moves() {
  using blocks = scaled_blocks<256, Bits>;
  std::uint64_t digest = 0xcbf29ce484222325;
  std::vector<T> base(256), model(256);
  std::vector<typename blocks::code_type> codes(blocks::code_bytes(256));
  for (int round = 0; round < 2000; ++round) {
    patterns(base);
    for (auto& code : codes) code = static_cast<typename blocks::code_type>(static_cast<int>(next() & 255) - 128);
    const std::uint64_t exponent = round % 3 == 0 ? 1 + next() % 40 : 1 + next() % 253;
    const float scale = std::bit_cast<float>(static_cast<std::uint32_t>(exponent << 23 | (next() & 0x7fffff)));
    blocks::template move<T>(base, scale, codes);
    add(digest, base);
    for (std::size_t i = 0; i < base.size(); ++i) {
      base[i] = detail::narrowed_to<T>(static_cast<double>(static_cast<std::int32_t>(next())) * 0x1p-31);
      model[i] = moved(base[i], static_cast<double>(static_cast<std::int32_t>(next())) * 0x1p-40);
    }
    const auto by = blocks::template scale<T>(model, base);
    if (!by) return 0;
    blocks::template narrow<T>(model, base, *by, codes);
    add(digest, codes);
    auto here = base;
    blocks::template move<T>(here, *by, codes);
    if (!blocks::template advance<T>(model, base) ||
        std::memcmp(here.data(), base.data(), sizeof(T) * base.size()) != 0)
      return 0;
    add(digest, base);
  }
  return digest;
}

}  // namespace

int main() {
  const std::uint64_t made[] = {digest_of_moves<float>(),    digest_of_moves<double>(),
                                digest_of_moves<float16>(),  digest_of_moves<bfloat16>(),
                                digest_of_moves<float, 4>(), digest_of_moves<bfloat16, 4>()};
  constexpr std::uint64_t expected[] = {0x552078e3e1949e5e, 0x535f9035f2249b66, 0xd3e93f423ba96a70,
                                        0xb07365afa6afde48, 0xdec211fdfd30f33f, 0xb8c6d73c74763967};
  for (std::size_t i = 0; i < std::size(made); ++i) std::printf("%016llx\n", static_cast<unsigned long long>(made[i]));
  return std::memcmp(made, expected, sizeof made) == 0 ? 0 : 1;
}
