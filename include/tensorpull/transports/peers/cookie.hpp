// Cookies: an address proves that it receives what is sent to it. Without that, an attacker that forges a sender's
// address could make an owner send megabytes to somebody else, or fill its table of peers.
//
// On a link whose addresses are not proved, each datagram begins with a word of 8 bytes, and frames follow it. An end
// that serves strangers (the door) keeps nothing for them: it computes an address's word from the address and a secret.
// To a datagram without the right word it answers with the right one, which is shorter than the datagram, and drops the
// rest. The other end (the guest) takes the word into all that it sends from then on; the door's datagrams to it begin
// with the same word, so that frames from a third party with the door's address are dropped.
//
// A third party could also send words with the door's address. So a guest begins with a random number in place of the
// word, and the door's answer repeats what stood in front of the datagram that it answers: the number at first, the old
// word later. Only a receiver of the guest's datagrams knows either. Doors of earlier versions answer with the word
// alone and guests of earlier versions understand nothing else. So a guest that wants the echo asks for it with a mark
// in the last byte of its number; the words that it is told keep the mark. It takes words without an echo until it has
// seen one.
#pragma once

#include <tensorpull/core/detail/siphash.hpp>
#include <tensorpull/links/datagram_link.hpp>
#include <tensorpull/std/chrono.hpp>

#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

namespace tensorpull {

/// Bytes of the word in front of each datagram of a link whose addresses are not proved.
inline constexpr std::size_t cookie_bytes = 8;

/// The word of a datagram that has at least cookie_bytes bytes.
inline std::uint64_t cookie_in(std::span<const std::byte> datagram) noexcept {
  std::uint64_t word;
  std::memcpy(&word, datagram.data(), sizeof word);
  return word;
}

namespace detail {

/// The last byte, in the order of memory, of the words of those that want to have them echoed.
inline constexpr std::byte echo_mark{0xec};
using word_bytes = std::array<std::byte, cookie_bytes>;

inline bool wants_echo(std::uint64_t word) noexcept { return std::bit_cast<word_bytes>(word).back() == echo_mark; }
/// The word with the mark or without it, never 0.
inline std::uint64_t marked(std::uint64_t word, bool mark) noexcept {
  if (mark || wants_echo(word)) {
    auto bytes = std::bit_cast<word_bytes>(word);
    bytes.back() = mark ? echo_mark : ~echo_mark;
    word = std::bit_cast<std::uint64_t>(bytes);
  }
  return word != 0 ? word : 1;
}

/// Gives `send` the spans of a datagram behind its word. Nothing is sent if they are more than 64.
template <class Send>
io_result send_behind(const std::uint64_t& word, gather_list spans, Send send) noexcept {
  std::array<std::span<const std::byte>, 64 + 1> all;
  if (spans.size() >= all.size()) return {};
  all[0] = std::as_bytes(std::span(&word, 1));
  for (std::size_t i = 0; i < spans.size(); ++i) all[i + 1] = spans[i];
  io_result io = send(gather_list(all.data(), spans.size() + 1));
  if (io.bytes >= cookie_bytes) io.bytes -= cookie_bytes;
  return io;
}

}  // namespace detail

/// A door's answer to a datagram without the right word.
class cookie_answer {
 public:
  /// Nothing.
  cookie_answer() noexcept = default;
  /// The right word, and what stood in front of the datagram if its sender wants to have it echoed.
  cookie_answer(std::uint64_t right, std::uint64_t front) noexcept
      : words_{right, front}, count_(detail::wants_echo(front) ? 2 : 1) {}

  /// The bytes to send back; empty: nothing.
  std::span<const std::byte> bytes() const noexcept { return std::as_bytes(std::span(words_).first(count_)); }

 private:
  std::array<std::uint64_t, 2> words_{};
  std::size_t count_ = 0;
};

/// The worth of a word.
enum class cookie_verdict : std::uint8_t {
  wrong,  ///< it is of another address, too old, or made up
  right,  ///< the address has received it
  outdated,  ///< the same, with the secret before the present one: it will be wrong soon
};

/// The words of all addresses, without memory for any. A word is valid for one to two `lifetime`s. Cost of each call:
/// one or two SipHash-2-4 of the address.
class cookie_door {
 public:
  using time_point = std::chrono::steady_clock::time_point;  ///< of the clock that the driver hands in
  /// How long a secret is used for new words.
  static constexpr std::chrono::minutes lifetime{2};

  /// `random`: gives 64 secret bits with each call (system_entropy).
  template <class Random>
  cookie_door(Random random, time_point now) noexcept : since_(now) {
    for (auto& s : secrets_) s = {random(), random()};
  }

  /// Makes a new secret if the present one is old. Call it before check() and of(), at any interval.
  template <class Random>
  void pass_time(Random random, time_point now) noexcept {
    if (now - since_ < lifetime) return;
    // nobody was here for long
    secrets_[1] = now - since_ < 2 * lifetime ? secrets_[0] : detail::siphash_key{random(), random()};
    secrets_[0] = {random(), random()};
    since_ = now;
  }
  /// The word of an address, never 0, for a guest that has put `front` where the word goes.
  template <class Address>
  std::uint64_t of(const Address& a, std::uint64_t front = 0) const noexcept {
    return word(secrets_[0], a, front);
  }
  /// The worth of a word from this address.
  template <class Address>
  cookie_verdict check(const Address& a, std::uint64_t with) const noexcept {
    if (with == word(secrets_[0], a, with)) return cookie_verdict::right;
    return with == word(secrets_[1], a, with) ? cookie_verdict::outdated : cookie_verdict::wrong;
  }
  /// Whether a datagram of a stranger is answered with a word: only one that is longer than the answer, and has room
  /// for a frame. So no answer is longer than its datagram, and two doors never answer each other.
  static constexpr bool answers(std::size_t datagram_bytes) noexcept { return datagram_bytes >= least_answered_bytes; }
  /// The shortest datagram that is answered.
  static constexpr std::size_t least_answered_bytes = cookie_bytes + 16;
  /// The answer to a datagram that has come from an address without its right word.
  template <class Address>
  cookie_answer answer(const Address& a, std::span<const std::byte> datagram) const noexcept {
    if (!answers(datagram.size())) return {};
    const std::uint64_t front = cookie_in(datagram);
    return {of(a, front), front};
  }

 private:
  template <class Address>
  static std::uint64_t word(const detail::siphash_key& key, const Address& a, std::uint64_t front) noexcept {
    static_assert(
        std::has_unique_object_representations_v<Address>,
        "tensorpull: a link whose addresses are not proved has addresses without padding, since cookies are computed from their bytes");
    return detail::marked(detail::siphash(key, std::as_bytes(std::span(&a, 1))), detail::wants_echo(front));
  }

  std::array<detail::siphash_key, 2> secrets_{};  // the present one, and the one before
  time_point since_;
};

/// The word that the other end wants to see.
class cookie_guest {
 public:
  /// `random`: 64 bits that nobody can guess.
  explicit cookie_guest(std::uint64_t random) noexcept : number_(detail::marked(random, true)) {}

  /// The word in front of the next datagram: the door's, or our own number before the door has sent one.
  std::uint64_t word() const noexcept { return words_[0] != 0 ? words_[0] : number_; }
  /// The number in front of a datagram that asks for the word.
  std::uint64_t number() const noexcept { return number_; }
  /// Whether the word is the door's: it has come with an echo.
  bool proved() const noexcept { return proved_; }

  /// Looks at a datagram of the door and gives its frames: none if it was the word alone, or if it is to be dropped.
  std::span<const std::byte> open(std::span<const std::byte> datagram) noexcept {
    if (datagram.size() < cookie_bytes) return {};
    const std::uint64_t w = cookie_in(datagram);
    if (w == 0) return {};
    if (datagram.size() <= 2 * cookie_bytes) {  // no frame is so short
      if (datagram.size() % cookie_bytes == 0) take(w, datagram.subspan(cookie_bytes));
      return {};
    }
    return w == words_[0] || w == words_[1] ? datagram.subspan(cookie_bytes) : std::span<const std::byte>{};
  }
  /// Whether the word has changed since the last call: the door has dropped what was sent, so that it has to be sent
  /// again.
  bool changed() noexcept { return std::exchange(changed_, false); }

 private:
  void take(std::uint64_t word, std::span<const std::byte> echo) noexcept {
    // a word that is not proved is no secret, so that its echo proves nothing
    const bool proves = !echo.empty() && (cookie_in(echo) == number_ || (proved_ && cookie_in(echo) == words_[0]));
    if (!proves && proved_) return;
    if (word != words_[0]) {
      words_ = {word, words_[0]};
      changed_ = true;
    }
    if (!proved_ && proves) words_[1] = 0;
    proved_ |= proves;
  }

  std::uint64_t number_;
  std::array<std::uint64_t, 2> words_{};  // the present one, and the one before: what is under way has it
  bool changed_ = false, proved_ = false;
};

}  // namespace tensorpull
