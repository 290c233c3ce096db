// The pipeline of a small machine: a recipient and nothing else, with the digest of the image, on a line with COBS and
// CRC32C. It lands in the model's memory and begins at byte 0 after a restart. With -DFLASH it lands in flash, and goes
// on after a power cut. With -DOWNER it publishes the model besides, for a server that averages updates; with
// -DNARROWED, instead, what has become of it, as a difference in 8 bits to what landed. With -DPROVED a root proves
// what lands, which with -DSIGNED a key has signed. With -DWAITS the pull waits, on the stack.
#include "members.hpp"

#include <tensorpull/device.hpp>
#ifdef NARROWED
#include <tensorpull/satellites/differences/embedded_difference.hpp>
#endif
#ifdef PROVED
#include <tensorpull/satellites/proofs/embedded_proof.hpp>
#endif
#ifdef SIGNED
#include <tensorpull/satellites/proofs/embedded_reference.hpp>
#endif

using namespace tensorpull;

#ifdef PROVED
std::array<blake3_value, 1> known_root;  // by another way
#endif
#ifdef SIGNED
std::string_view reference_text;  // by any way
#endif

namespace {

struct machine {
  static std::chrono::duration<std::uint32_t, std::milli> now() noexcept {
    return std::chrono::duration<std::uint32_t, std::milli>(board::now_ms());
  }
  static std::uint64_t random() noexcept { return board::random(); }
  static void panic(const char*) noexcept {}
};
using net = tensorpull::pipeline<raw_tensors<perceptron>, fixed_bytes<chunk_bytes>,
                                 serial_over<board::device, chunk_bytes + 80>,
#ifdef OWNER
                                 answers_crc32c,
#endif
                                 small_machine<machine>>;

perceptron model;
board::device uart;
#ifdef FLASH
board::flash flash;
using landing = net::in_flash<board::flash>;
landing to(flash);
#elif defined(PROVED)
using landing = net::consumer;
landing to(model);
#else
perceptron& to = model;
#endif
#ifdef PROVED
proved_landing<landing> into(to, known_root);
#else
auto& into = to;
#endif
#ifdef NARROWED
using update_type = embedded_difference<perceptron, landing>;
#else
using update_type = perceptron;
#endif

/// What has landed becomes the model.
[[gnu::noinline]] void load() noexcept {
#ifdef FLASH
  std::byte part[64];
  for (std::uint32_t at = 0; at < landing::data_bytes; at += sizeof part) {
    const std::span some(part, std::min<std::size_t>(sizeof part, landing::data_bytes - at));
    if (to.read(at, some)) (void)net::image::write(model, at, some);
  }
#endif
}

#ifdef SIGNED
/// A signed reference is believed, and its root is known from then on.
[[gnu::noinline]] bool believe(std::string_view text, reference& ref) noexcept {
  static constexpr trusted_key keys[]{
      *parse_trusted_key("hospitals MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=")};
  const auto verifier = [](auto key, auto message, auto signature) noexcept {
    return board::verifies(key, message, signature);
  };
  const auto known = verify_reference(text, keys, {.least_round = 12, .now = 1'900'000'000}, verifier);
  if (!known) return false;
  known_root[0] = known->of.root;
  ref = known->of.model;
  return true;
}
#endif

}  // namespace

int pipeline() {
#ifdef SIGNED
  reference ref;
  while (reference_text.empty()) (void)board::read({});
  if (!believe(reference_text, ref)) return 5;
#else
  static constexpr reference ref{{1, 2}, 0, 0};
#endif
#ifdef OWNER
  static net::session_of<update_type> over(uart);
#else
  board::device& over = uart;
#endif
#ifdef WAITS
  const auto done = net::pull(over, ref, into, {.recipient = {3}});
#else
  static auto pull = net::begin_pull(over, ref, into, {.recipient = {3}});
  while (!pull.ended()) pull.step();
  const auto done = pull.outcome();
#endif
  if (!done || done->outcome != outcome::completed) return 1;
  load();
#ifdef OWNER
  model.output_bias[0] = 1;  // whatever a program computes
#ifdef NARROWED
  static update_type update(model, to);
  if (!update.prepare()) return 3;
#else
  perceptron& update = model;
#endif
  if (!over.add_tensors(update, {.id = {5, 6}})) return 4;
  const std::uint32_t began = board::now_ms();
  while (!over.settled() || !over.idle()) {
    over.step();
    if (board::now_ms() - began > 60'000) return 2;
  }
#endif
  return 0;
}
