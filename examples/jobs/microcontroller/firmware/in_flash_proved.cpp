// The firmware whose model lands in flash, and is proved by a signed reference that the device verifies: whoever is at
// the line can lie about nothing. The key is in a file of the debugger's machine, which stands for what the device was
// given when it was made.
#include "ed25519.hpp"
#include "in_flash.hpp"

#include <tensorpull/satellites/proofs/embedded_proof.hpp>
#include <tensorpull/satellites/proofs/embedded_reference.hpp>

template <>
inline constexpr auto tensorpull::members_of<microcontroller::reference_text> = tensorpull::members(
    tensorpull::member{"text", &microcontroller::reference_text::text});

namespace microcontroller {

template <class Session>
class in_flash_proved : public in_flash<Session> {
 public:
  using landing_type = tensorpull::proved_landing<typename in_flash<Session>::landing_type>;
  using text_landing = tensorpull::model_landing<reference_text>;

  in_flash_proved(mlp& model, Session& session) noexcept
      : in_flash<Session>(model, session), landing_(in_flash<Session>::landing(), root_) {}
  bool open() noexcept {
    if (!in_flash<Session>::open(slots::pages) || !read_key()) return false;
    // rounds count for one key: a device that is given another one begins again
    const auto taken = slots_.load(unit_);
    least_round_ = taken && taken.fingerprint == key_number() ? static_cast<std::uint32_t>(taken.ref.low) : 0;
    return true;
  }
  landing_type& landing() noexcept { return landing_; }
  text_landing& text() noexcept { return text_landing_; }

  /// Which model the text vouches for: from then on that one alone lands. There is no clock, so it does not expire.
  tensorpull::result<tensorpull::reference> trust(std::uint32_t round) noexcept {
    std::size_t n = 0;
    while (n < sizeof text_.text && text_.text[n] != 0) ++n;
    const auto known = tensorpull::verify_reference({reinterpret_cast<const char*>(text_.text), n}, std::span(&key_, 1),
                                                    {.federation = federation, .least_round = least_round_, .now = 0},
                                                    monocypher_ed25519{});
    if (!known) return tensorpull::failure(known.error());
    // a signed one all the same, of a later round than it was asked for
    if (known->round != round || known->of.model.id != model_of(round))
      return tensorpull::failure(tensorpull::errc::not_permitted, known->round, std::string_view("round"));
    root_[0] = known->of.root;
    return known->of.model;
  }
  /// No earlier round is trusted from now on, whatever happens to the power.
  bool took(std::uint32_t round) noexcept {
    if (round <= least_round_) return true;
    least_round_ = round;
    return slots_.store({.ref = model_of(round), .fingerprint = key_number(), .version = 1, .offset = 1}, unit_);
  }

 private:
  using slots = tensorpull::cursor_slots<file_flash>;

  bool read_key() noexcept {
    const std::size_t n = board::read_file(board::argument(3), key_text_);
    std::string_view line(key_text_, n);
    const std::size_t end = line.find('\n');
    if (end == line.npos) return false;
    line.remove_suffix(n - end);
    const auto key = tensorpull::parse_trusted_key(line);
    if (key) key_ = *key;
    return key.has_value();
  }
  std::uint64_t key_number() const noexcept {
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < 8; ++i) number = number << 8 | std::to_integer<std::uint64_t>(key_.key[i]);
    return number;
  }

  std::array<tensorpull::blake3_value, 1> root_{};
  landing_type landing_;
  reference_text text_{};
  text_landing text_landing_{text_};
  char key_text_[128]{};  // of which the federation's name is a part
  tensorpull::trusted_key key_{};
  /// The last round that was taken, kept as a cursor is, in the pages behind the model's.
  slots slots_{this->flash(), in_flash<Session>::landing_type::pages};
  std::byte unit_[file_flash::program_bytes]{};
  std::uint32_t least_round_ = 0;
};

static device<in_flash_proved> the_device;

}  // namespace microcontroller

int run() { return microcontroller::the_device.run(); }
