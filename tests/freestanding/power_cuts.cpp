// A small machine pulls a model into flash of three kinds: NOR, with ECC, and with blank bytes of 0. Its power goes at
// each byte that is erased or programmed, in turn, and the pull after that has to complete. Runs on the host and in the
// emulator of a Cortex-M3. Status 0: it always did, and no unit was programmed that must not be.
#include <tensorpull/embedded/flash_landing.hpp>
#include <tensorpull/embedded/owner.hpp>
#include <tensorpull/embedded/recipient.hpp>

#include <array>

namespace {

using namespace tensorpull;

struct mlp {
  float w[8][10], b[10];
};

}  // namespace
template <>
inline constexpr auto tensorpull::members_of<mlp> = tensorpull::members(tensorpull::member{"w", &mlp::w},
                                                                        tensorpull::member{"b", &mlp::b});
namespace {

enum class kind {
  nor,
  ecc,
  zero
};
template <kind Kind>
struct chip {
  static constexpr std::uint32_t page_bytes = 128, program_bytes = 8, pages = 5, units = pages * page_bytes / 8;
  static constexpr bool programs_once = Kind != kind::nor;
  static constexpr std::byte blank_byte{Kind == kind::zero ? std::uint8_t{0} : std::uint8_t{0xff}};

  bool erase(std::uint32_t page) noexcept {
    if (page >= pages) return false;
    for (std::uint32_t i = 0; i < page_bytes; ++i) {
      const std::uint32_t at = page * page_bytes + i;
      blank[at / program_bytes] = false;
      if (!step()) return false;
      bytes[at] = blank_byte;
    }
    for (std::uint32_t u = 0; u < page_bytes / program_bytes; ++u) {
      blank[page * page_bytes / program_bytes + u] = true;
      torn[page * page_bytes / program_bytes + u] = false;
    }
    return true;
  }
  bool program(std::uint32_t at, std::span<const std::byte> in) noexcept {
    for (std::size_t i = 0; i < in.size(); ++i, ++at) {
      const std::uint32_t unit = at / program_bytes;
      if (i % program_bytes == 0) {
        if (programs_once && !blank[unit]) refused = true;
        if (refused) return false;
        blank[unit] = false;
        torn[unit] = programs_once;  // until all of its checksum is there
      }
      if (!step()) return false;
      if (Kind == kind::nor) bytes[at] &= in[i];
      else bytes[at] = in[i];
      if (i % program_bytes == program_bytes - 1) torn[unit] = false;
    }
    return true;
  }
  bool read(std::uint32_t at, std::span<std::byte> out) noexcept {
    for (std::size_t i = 0; i < out.size(); ++i, ++at) {
      if (torn[at / program_bytes]) return false;
      out[i] = bytes[at];
    }
    return true;
  }
  /// Another byte is written, unless the power is gone.
  bool step() noexcept {
    on = on && left > 0;
    if (on) --left;
    return on;
  }

  std::array<std::byte, pages * page_bytes> bytes;
  std::array<bool, units> blank, torn;
  std::uint32_t left;  // bytes until the power goes
  bool on, refused;
};

constexpr std::size_t chunk_bytes = 48;
using owner_type = embedded_owner<mlp, chunk_bytes>;
mlp model;

/// One program of the machine. True: it has the model.
template <kind Kind>
bool pulls(chip<Kind>& flash, owner_type& from, std::uint32_t now) noexcept {
  flash_landing<embedded_image<mlp>, chip<Kind>> landing(flash);
  static_assert(landing.pages == chip<Kind>::pages);
  embedded_recipient<decltype(landing), chunk_bytes> recipient(landing, {.ref = {1, 2}, .recipient = {5}},
                                                               std::uint64_t{now} << 32 | 7);
  std::byte asked[80], answered[owner_type::answer_bytes];
  for (int i = 0; i < 400 && !recipient.ended() && flash.on; ++i) {
    now += 1000;
    const std::size_t n = recipient.next(asked, now);
    const std::size_t m = n != 0 ? from.answer({asked, n}, answered, now) : 0;
    if (m != 0) recipient.received({answered, m}, now);
  }
  return flash.on && recipient.ended() && recipient.outcome().has_value() && landing.valid() &&
         landing.finished() == from.reference().version;
}

template <kind Kind>
bool survives() noexcept {
  static chip<Kind> flash;
  static owner_type owner;
  for (std::uint32_t cut = 0;; ++cut) {
    flash.bytes.fill(std::byte{0xa5});
    flash.blank.fill(false);
    flash.torn.fill(false);
    flash.left = cut;
    flash.on = true;
    flash.refused = false;
    owner.publish(model, {1, 2}, cut + 77);
    if (pulls(flash, owner, 1)) return cut > sizeof model && !flash.refused;
    if (flash.on) return false;  // nothing but a power cut ends a pull
    flash.on = true;
    flash.left = ~0u;
    if (!pulls(flash, owner, 1'000'000) || flash.refused) return false;
  }
}

}  // namespace

#ifdef TENSORPULL_ON_A_BOARD
int run() {
#else
int main() {
#endif
  for (int i = 0; i < 80; ++i) model.w[i / 10][i % 10] = static_cast<float>(i) * 0.37f + 1;
  if (!survives<kind::nor>()) return 1;
  if (!survives<kind::ecc>()) return 2;
  return survives<kind::zero>() ? 0 : 3;
}
