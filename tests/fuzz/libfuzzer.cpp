// libFuzzer's entry points for the target that the build names (TENSORPULL_FUZZ_TARGET).
#include "target.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t room);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t room, unsigned seed);

namespace {

const test::fuzz::target& chosen() {
  static const test::fuzz::target& one = test::fuzz::named(TENSORPULL_FUZZ_TARGET);
  return one;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  chosen().run(std::as_bytes(std::span(data, size)));
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t room, unsigned seed) {
  if (!chosen().of_frames) return LLVMFuzzerMutate(data, size, room);
  // one change in four knows nothing of frames, so that no shape of input is out of reach
  if (seed % 4 == 0) return LLVMFuzzerMutate(data, size, room);
  return test::fuzz::mutate_frames(std::as_writable_bytes(std::span(data, room)), size, chosen().settings, seed / 4,
                                   LLVMFuzzerMutate);
}
