// The firmware whose model lands in flash, and is proved by a root that it has by another way than the line: a file of
// the debugger's machine stands for whatever a device trusts.
#include "in_flash.hpp"

#include <tensorpull/satellites/proofs/embedded_proof.hpp>

namespace microcontroller {

template <class Session>
class in_flash_proved : public in_flash<Session> {
 public:
  using landing_type = tensorpull::proved_landing<typename in_flash<Session>::landing_type>;

  in_flash_proved(mlp& model, Session& session) noexcept
      : in_flash<Session>(model, session), landing_(in_flash<Session>::landing(), root_) {}
  landing_type& landing() noexcept { return landing_; }

  /// Whether the model of a round has a root: a file in the folder of the command line has what `b3sum` prints for it.
  bool knows(std::uint32_t round) noexcept {
    char path[256], text[64];
    std::size_t n = 0;
    for (const char* c = board::argument(3); *c != '\0'; ++c) {
      if (n == sizeof path - 12) return false;
      path[n++] = *c;
    }
    path[n++] = '/';
    std::uint32_t place = 1;
    while (round / place >= 10) place *= 10;
    for (; place != 0; place /= 10) path[n++] = static_cast<char>('0' + round / place % 10);
    path[n] = '\0';
    if (board::read_file(path, text) != sizeof text) return false;
    for (std::size_t i = 0; i < sizeof text; ++i) {
      const char c = text[i];
      const bool is_letter = c >= 'a' && c <= 'f';
      if (!is_letter && (c < '0' || c > '9')) return false;
      root_[0][i / 2] = root_[0][i / 2] << 4 | static_cast<std::byte>(c - (is_letter ? 'a' - 10 : '0'));
    }
    return true;
  }

 private:
  std::array<tensorpull::blake3_value, 1> root_{};
  landing_type landing_;
};

static device<in_flash_proved> the_device;

}  // namespace microcontroller

int run() { return microcontroller::the_device.run(); }
