// Cookies: an address proves that it receives what is sent to it. Without that, whoever forges a sender's address could
// make an owner send megabytes to somebody else, or fill its table of peers.
//
// On a link whose addresses are not proved, each datagram begins with a word of 8 bytes, and frames follow it. An end
// that serves strangers (the door) keeps nothing for them: it computes an address's word from the address and a secret.
// To a datagram without the right word it answers with the word alone, which is shorter than what came, and drops the
// rest. The other end (the guest) takes the word into all that it sends from then on; what the door sends it begins
// with the same word, so that frames from a third party with the door's address are dropped.
#pragma once

#include <tensorpull/std/chrono.hpp>
#include <tensorpull/transports/datagrams/detail/siphash.hpp>

#include <array>
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

/// What a word is worth.
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
    secrets_[1] = now - since_ < 2 * lifetime ? secrets_[0] : detail::siphash_key{random(), random()};  // nobody was
                                                                                                        // here for long
    secrets_[0] = {random(), random()};
    since_ = now;
  }
  /// The word of an address, never 0.
  template <class Address>
  std::uint64_t of(const Address& a) const noexcept {
    return word(secrets_[0], a);
  }
  /// What a word from this address is worth.
  template <class Address>
  cookie_verdict check(const Address& a, std::uint64_t with) const noexcept {
    if (with == word(secrets_[0], a)) return cookie_verdict::right;
    return with == word(secrets_[1], a) ? cookie_verdict::outdated : cookie_verdict::wrong;
  }
  /// Whether a datagram of a stranger is answered with a word: only one that is longer than the answer, and has room
  /// for a frame. So no answer is longer than what came, and two doors never answer each other.
  static constexpr bool answers(std::size_t datagram_bytes) noexcept { return datagram_bytes >= cookie_bytes + 16; }

 private:
  template <class Address>
  static std::uint64_t word(const detail::siphash_key& key, const Address& a) noexcept {
    static_assert(
        std::has_unique_object_representations_v<Address>,
        "tensorpull: a link whose addresses are not proved has addresses without padding, since cookies are computed from their bytes");
    const std::uint64_t w = detail::siphash(key, std::as_bytes(std::span(&a, 1)));
    return w != 0 ? w : 1;
  }

  std::array<detail::siphash_key, 2> secrets_{};  // the present one, and the one before
  time_point since_;
};

/// The word that the other end wants to see.
class cookie_guest {
 public:
  /// What goes in front of the next datagram; 0 before the door has said its word.
  std::uint64_t word() const noexcept { return words_[0]; }

  /// Looks at a datagram of the door and gives its frames: none if it was the word alone, or if it is to be dropped.
  std::span<const std::byte> open(std::span<const std::byte> datagram) noexcept {
    if (datagram.size() < cookie_bytes) return {};
    const std::uint64_t w = cookie_in(datagram);
    if (w == 0) return {};
    if (datagram.size() == cookie_bytes) {
      if (w != words_[0]) words_ = {w, words_[0]}, changed_ = true;
      return {};
    }
    return w == words_[0] || w == words_[1] ? datagram.subspan(cookie_bytes) : std::span<const std::byte>{};
  }
  /// Whether the word has changed since the last call: the door has dropped what was sent, so that it has to be sent
  /// again.
  bool changed() noexcept { return std::exchange(changed_, false); }

 private:
  std::array<std::uint64_t, 2> words_{};  // the present one, and the one before: what is under way has it
  bool changed_ = false;
};

}  // namespace tensorpull
