// The device: pulls the model of a round, infers with it, trains it with its own digits, and has its update pulled. The
// line is served in both directions all the time: while it computes, too.
#pragma once

#include "../digits_partition.hpp"
#include "../references.hpp"
#include "board.hpp"

#include <tensorpull/device.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

template <>
inline constexpr auto tensorpull::members_of<microcontroller::mlp> = tensorpull::members(
    tensorpull::member{"hidden_weight", &microcontroller::mlp::hidden_weight},
    tensorpull::member{"hidden_bias", &microcontroller::mlp::hidden_bias},
    tensorpull::member{"output_weight", &microcontroller::mlp::output_weight},
    tensorpull::member{"output_bias", &microcontroller::mlp::output_bias});

namespace microcontroller {

/// The clock, and numbers that nobody can guess. It sleeps until something arrives or a millisecond has passed.
struct platform {
  static std::chrono::duration<std::uint32_t, std::milli> now() noexcept {
    return std::chrono::duration<std::uint32_t, std::milli>(board::now_ms());
  }
  static std::uint64_t random() noexcept { return board::random(); }
  static void panic(const char*) noexcept { board::leave(3); }
  static void idle() noexcept { board::sleep(); }
};

/// As `over_line` of the server, but for the machine.
using net = tensorpull::pipeline<tensorpull::raw_tensors<mlp>, tensorpull::fixed_bytes<device_chunk_bytes>,
                                 tensorpull::serial_over<board::uart>, tensorpull::small_machine<platform>>;

/// A request that is not answered is made again after so long. At 115,200 bits a second a chunk and its request take 60
/// ms.
inline constexpr std::chrono::milliseconds resend{100};
/// A pull is given up after so long without progress, and begun again.
inline constexpr std::chrono::seconds timeout{30};
/// After so long without a byte of the next model the device looks for any: the server may have been started again.
inline constexpr std::uint32_t patience_ms = 300'000;
/// How long it waits before it asks again for what is not there yet.
inline constexpr std::uint32_t pause_ms = 50;

/// `Place` says where a model lands: `place(mlp&, session&)`; `open()`, called once; `landing()`, an embedded_landing;
/// `finish()`, after which the model is in the memory of the mlp; and `round()`: that of the model, or the part of one,
/// which was there before the reset; 0: none. Optionally `text()`, a landing for a signed reference, which is pulled
/// before the model; `trust(round)`: which model it vouches for; and `took(round)`: that model has landed. `Update`
/// says what is published: the model, or an embedded_difference to what has landed.
template <template <class Session> class Place, class Update = mlp>
class device {
  static constexpr bool whole = std::is_same_v<Update, mlp>;
  using session = net::session_of<Update>;
  using place = Place<session>;
  static constexpr bool proves = requires(place& p, std::uint32_t round) { p.trust(round); };
  /// More stack than this is a mistake.
  static constexpr std::uint32_t most_stack = proves ? 4096 : 2048;

 public:
  /// A status for the emulator: 0 all rounds are over, 1 something went wrong.
  int run() noexcept {
    if (!read_options() || !find_digits()) return 1;
    if (!place_.open()) return fail(proves ? "its flash or its key cannot be used" : "the flash cannot be used");
    std::uint32_t round = place_.round();
    if (round != 0) say("in its flash is the model of round ", round, ", or a part of it");
    else round = 1;
    for (bool expected = false;; expected = true) {
      const std::uint32_t found = pull_model(round, expected);
      if (found == 0 || !place_.finish()) return fail("the model is not usable");
      const std::size_t right = measure();
      board::say("device: round ");
      board::say(found);
      board::say(": model ");
      board::say_hex(version_);
      board::say_line(": ", right, " of ", digits_->held_out, " right");
      if (found > rounds_) break;
      if (!train_and_publish(found)) return 1;
      round = found + 1;
    }
    return check_stack() ? 0 : 1;
  }

 private:
  template <class... Parts>
  static void say(const Parts&... parts) noexcept {
    board::say("device: ");
    board::say_line(parts...);
  }
  static int fail(std::string_view what) noexcept {
    say(what);
    return 1;
  }

  bool read_options() noexcept {
    for (const char* c = board::argument(2); *c >= '0' && *c <= '9' && rounds_ < 1000; ++c)
      rounds_ = rounds_ * 10 + static_cast<std::uint32_t>(*c - '0');
    return rounds_ > 0 || fail("it was not told how many rounds there are") == 0;
  }
  bool find_digits() noexcept {
    digits_ = reinterpret_cast<const digits_header*>(digits_address);
    const std::uint32_t most = (digits_bytes - sizeof(digits_header)) / sizeof(pooled_digit);
    if (digits_->magic != digits_header::expected_magic || digits_->held_out > most ||
        digits_->share > most - digits_->held_out) {
      fail("there are no digits in its flash");
      return false;
    }
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(digits_ + 1);
    if (digits_checksum(bytes, (digits_->held_out + digits_->share) * sizeof(pooled_digit)) != digits_->checksum) {
      fail("the digits in its flash are damaged");
      return false;
    }
    return true;
  }
  const pooled_digit* held_out() const noexcept { return reinterpret_cast<const pooled_digit*>(digits_ + 1); }

  /// Answers what has come.
  void serve() noexcept {
    while (session_.step()) {
    }
    note_taken();
  }
  void note_taken() noexcept {
    if (!taken_ && session_.state() == tensorpull::recipient_state::completed) {
      taken_ = true;
      say("the update was taken");
    }
  }
  void pause() noexcept {
    for (const std::uint32_t start = board::now_ms(); board::now_ms() - start < pause_ms;) {
      serve();
      board::sleep();
    }
  }

  /// Pulls once. `look` is called with the pull after each of its steps.
  template <class Landing, class Look>
  [[gnu::always_inline]] tensorpull::result<tensorpull::receipt> pull_into(Landing& to,
                                                                           const tensorpull::reference& ref,
                                                                           Look look) noexcept {
    auto pull = net::begin_pull(session_, ref, to,
                                {.per_request_timeout = timeout, .resend = resend, .recipient = recipient_of(0)});
    while (!pull.ended()) {
      const bool moved = pull.step();
      look(pull);
      note_taken();
      if (!moved) board::sleep();
    }
    return pull.outcome();
  }
  /// Pulls the model of a round once. `begun`: its length, if it is there.
  tensorpull::result<tensorpull::receipt> pull_once(std::uint32_t round, std::uint32_t& begun) noexcept {
    tensorpull::reference model{model_of(round), 0, 0};
    if constexpr (proves) {
      const auto told = pull_into(place_.text(), {reference_of(round), 0, 0}, [](auto&) {});
      if (!told) return told;
      const auto trusted = place_.trust(round);
      if (!trusted) {
        const auto why = trusted.error().name.view();
        say("round ", round, ": a signed reference is refused: ", why.empty() ? "it is none" : why);
        return tensorpull::failure(tensorpull::errc::unknown_reference);
      }
      model = *trusted;
    }
    return pull_into(place_.landing(), model, [&](auto& pull) {
      if (begun != 0 || pull.total_bytes() == 0) return;
      begun = pull.total_bytes();
      say("round ", round, ": pulls from byte ", pull.landed_bytes(), " of ", begun);
    });
  }

  /// Pulls the model of the round; of any, if that one is not expected, or does not come for long. Meanwhile the last
  /// update can be pulled. The round; 0: it cannot be had.
  std::uint32_t pull_model(std::uint32_t round, bool expected) noexcept {
    std::uint32_t asked = round, since = board::now_ms();
    for (;;) {
      std::uint32_t begun = 0;
      const auto done = pull_once(asked, begun);
      if (done && done->outcome == tensorpull::outcome::completed) {
        version_ = done->version;
        say("round ", asked, proves ? ": the root is right, " : ": the digest is right, ",
            static_cast<std::uint32_t>(done->bytes), " bytes in ", static_cast<std::uint32_t>(done->chunks), " chunks");
        if constexpr (proves)
          if (!place_.took(asked)) return 0;
        return asked;
      }
      using tensorpull::errc;
      const errc why = done ? errc::not_verifiable : done.error().code;
      const bool later = why == errc::unknown_reference || why == errc::withdrawn || why == errc::ended ||
                         why == errc::already_final || why == errc::timed_out || why == errc::busy ||
                         why == errc::stale_version;
      if (!later)
        say("round ", asked, ": ", tensorpull::to_string(why), ", at ",
            static_cast<std::uint32_t>(done ? 0 : done.error().at));
      // where nothing is proved it is the owner's word; else anybody's
      if (!proves && (why == errc::schema_mismatch || why == errc::not_verifiable || why == errc::unsupported_layout))
        return 0;
      if (begun != 0) since = board::now_ms();
      if (board::now_ms() - since > patience_ms) expected = false;
      if (!expected) asked = asked % (rounds_ + 1) + 1;
      pause();
    }
  }

  std::size_t measure() noexcept {
    return count_right(perceptron_, model_, held_out(), digits_->held_out, [this] { serve(); });
  }

  bool train_and_publish(std::uint32_t round) noexcept {
    session_.busy(std::chrono::milliseconds(pause_ms));
    train(perceptron_, model_, held_out() + digits_->held_out, digits_->share, [this] { serve(); });
    const std::size_t right = measure();
    if constexpr (!whole)
      if (const auto made = update_.prepare(); !made) {
        say("round ", round, ": no update: ", tensorpull::to_string(made.error().code), " in tensor ",
            static_cast<std::uint32_t>(made.error().at));
        return false;
      }
    const auto published = session_.add_tensors(this->update(), {.id = update_of(0, round)});
    if (!published) return false;
    taken_ = false;
    board::say("device: round ");
    board::say(round);
    board::say(": update ");
    board::say_hex(published->version);
    board::say_line(": ", right, " of ", digits_->held_out, " right");
    return true;
  }

  auto& update() noexcept {
    if constexpr (whole) return model_;
    else return update_;
  }

  bool check_stack() noexcept {
    const auto s = board::stack();
    say("memory: ", s.without, " bytes of variables, ", s.used, " of stack, ", s.all - s.used, " free; no heap");
    return s.used <= most_stack || fail("that is more than it should be") == 0;
  }

  /// Of a device that publishes its model.
  struct nothing {
    template <class... Any>
    explicit nothing(Any&...) noexcept {}
  };

  mlp model_;
  board::uart uart_;
  session session_{uart_};
  place place_{model_, session_};
  [[no_unique_address]] std::conditional_t<whole, nothing, Update> update_{model_, place_.landing()};
  perceptron perceptron_;
  const digits_header* digits_ = nullptr;
  std::uint64_t version_ = 0;
  std::uint32_t rounds_ = 0;
  bool taken_ = true;
};

}  // namespace microcontroller
