// The small engine: a recipient and nothing else, with the digest of the image, on a line with COBS and CRC32C. It
// lands in the model's memory and begins at byte 0 after a restart. With -DFLASH it lands in flash, and goes on after a
// power cut. With -DOWNER it publishes the model besides, for a server that averages updates; with -DNARROWED, instead,
// what has become of it, as a difference in 8 bits to what landed.
#include "members.hpp"

#include <tensorpull/embedded/line.hpp>
#include <tensorpull/embedded/recipient.hpp>
#ifdef FLASH
#include <tensorpull/embedded/flash_landing.hpp>
#endif
#ifdef OWNER
#include <tensorpull/embedded/owner.hpp>
#endif
#ifdef NARROWED
#include <tensorpull/satellites/differences/embedded_difference.hpp>
#endif

using namespace tensorpull;

namespace {

perceptron model;
board::device uart;
#ifdef FLASH
using landing = flash_landing<embedded_image<perceptron>, board::flash>;
board::flash flash;
#else
using landing = model_landing<perceptron>;
#endif
using recipient_type = embedded_recipient<landing, chunk_bytes>;
#ifdef OWNER
#ifdef NARROWED
using update_type = embedded_difference<perceptron, landing>;
#else
using update_type = perceptron;
#endif
using owner_type = embedded_owner<update_type, chunk_bytes, detail::embedded::default_hash<embedded_image<update_type>>,
                                  basic_crc32c<crc32c_small>>;
constexpr std::size_t max_out = owner_type::answer_bytes;
#else
constexpr std::size_t max_out = recipient_type::max_out;
#endif

/// What has landed becomes the model.
[[gnu::noinline]] void load([[maybe_unused]] landing& from) noexcept {
#ifdef FLASH
  std::byte part[64];
  for (std::uint32_t at = 0; at < landing::data_bytes; at += sizeof part) {
    const std::span some(part, std::min<std::size_t>(sizeof part, landing::data_bytes - at));
    if (from.read(at, some)) (void)embedded_image<perceptron>::write(model, at, some);
  }
#endif
}

}  // namespace

int pipeline() {
#ifdef FLASH
  static landing to(flash);
#else
  static landing to(model);
#endif
  static embedded_line<board::device, recipient_type::max_in, max_out> line(uart);
  static recipient_type recipient(to, {.ref = {1, 2}, .recipient = {3}}, board::random());
#ifdef OWNER
  static owner_type owner;
#else
  static no_role owner;
#endif
  while (!recipient.ended() || !line.idle()) step(line, recipient, owner, board::now_ms());
  const auto done = recipient.outcome();
  if (!done || done->outcome != outcome::completed) return 1;
  load(to);
#ifdef OWNER
  model.output_bias[0] = 1;  // whatever a program computes
#ifdef NARROWED
  static update_type update(model, to);
  if (!update.prepare()) return 3;
  owner.publish(update, {5, 6}, board::random());
#else
  owner.publish(model, {5, 6}, board::random());
#endif
  no_role none;
  const std::uint32_t began = board::now_ms();
  while (owner.state() != recipient_state::completed || !line.idle()) {
    step(line, none, owner, board::now_ms());
    if (board::now_ms() - began > 60'000) return 2;
  }
#endif
  return 0;
}
