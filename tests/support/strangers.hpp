// Strangers, generated: whoever belongs to no transfer and does what it likes at one end of a stream. Each driver of
// the library has a row for each of them: a room of third_parties.hpp names the driver, and this list the strangers.
// bench/hostile.cpp measures their cost to others.
#pragma once

#include "words.hpp"

#include <tensorpull/framing/word_framing.hpp>
#include <tensorpull/links/byte_stream.hpp>

#include <algorithm>
#include <array>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace test {

/// What a stranger does with a connection.
struct stranger_habit {
  enum class then : std::uint8_t {
    waits,  ///< says nothing more
    drips,  ///< a byte of the rest now and then
    floods,  ///< the same again and again, and reads nothing
    leaves,  ///< ends the connection at once
  };
  std::string name;
  byte_vector first{};
  then next = then::waits;
  byte_vector rest{};
};

inline byte_vector bytes_of(std::string_view text) {
  const auto all = std::as_bytes(std::span(text.data(), text.size()));
  return {all.begin(), all.end()};
}

/// All of them. They speak frames, TLS and HTTP, whatever the driver speaks.
inline std::vector<stranger_habit> stranger_habits() {
  using then = stranger_habit::then;
  tp::frame nothing;  // asks for what is not there
  nothing.kind = tp::frame_kind::describe, nothing.id = 1, nothing.ref = {1234, 5678};
  alignas(8) std::array<std::byte, 256> room{};
  const byte_vector asks(room.begin(),
                         room.begin() + static_cast<std::ptrdiff_t>(*tp::word_framing::encode(nothing, room)));
  const byte_vector half(asks.begin(), asks.begin() + static_cast<std::ptrdiff_t>(asks.size() / 2));
  byte_vector long_frame(64);
  long_frame[4] = std::byte{100};  // one segment of 800 bytes
  byte_vector many;
  for (int i = 0; i < 64; ++i) many.insert(many.end(), asks.begin(), asks.end());
  const std::string_view hello("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);  // of 512 bytes
  return {
      {"silent ones"},
      {"ones that ask for what is not there", asks},
      {"ones that stop in the middle of a request", half},
      {"ones that stop in the middle of a long frame", long_frame},
      {"ones that say a byte now and then", {}, then::drips, many},
      {"ones that stop in the middle of a handshake", bytes_of(hello)},
      {"ones that stop in the middle of a head", bytes_of("GET / HTTP/1.1\r\nHost: a\r\nX: ")},
      {"ones that ask and ask and do not read", {}, then::floods, many},
      {"ones that ask HTTP and do not read", {}, then::floods, bytes_of("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")},
      {"ones that come and go", {}, then::leaves}};
}

/// One connection of such a stranger. `Peer` can say(bytes), reset(), and knows whether it has ended(); its stream() is
/// one of the library's.
template <class Peer>
class strange_peer {
 public:
  strange_peer(Peer peer, const stranger_habit& habit) : peer_(std::move(peer)), habit_(&habit) {
    if (!habit.first.empty()) (void)peer_.say(habit.first);
  }
  /// A little more of what it does. False: the other end has ended it.
  bool goes_on() {
    using then = stranger_habit::then;
    if (habit_->next == then::floods) {
      for (int i = 0; i < 16; ++i) {
        const auto io = write(habit_->rest);
        if (tensorpull::is_end(io.status)) return false;
        if (io.bytes < habit_->rest.size()) break;
      }
      return true;
    }
    if (peer_.ended()) return false;
    if (habit_->next == then::drips && !tensorpull::is_end(write(std::span(habit_->rest).subspan(said_, 1)).status))
      said_ = (said_ + 1) % habit_->rest.size();
    return true;
  }
  void reset() { peer_.reset(); }

 private:
  tensorpull::io_result write(const_byte_span bytes) {
    const std::array all{bytes};
    return peer_.stream().write_some(all);
  }
  Peer peer_;
  const stranger_habit* habit_;
  std::size_t said_ = 0;
};

/// So many connections of one kind of stranger, each of which is begun again when the driver has ended it.
/// `connect() -> Peer`.
template <class Connect>
class crowd {
 public:
  crowd(Connect connect, stranger_habit habit, std::size_t count)
      : connect_(std::move(connect)), habit_(std::move(habit)), count_(count) {}
  crowd(const crowd&) = delete;
  /// A little more of what they do. It waits for nobody.
  void act(const std::stop_token& stop = {}) {
    if (habit_.next == stranger_habit::then::leaves) {
      for (std::size_t i = 0; i < count_; ++i) connect_().reset();
      return;
    }
    (void)left();
    while (all_.size() < count_ && !stop.stop_requested()) all_.emplace_back(connect_(), habit_);
  }
  /// How many the driver has not ended.
  std::size_t left() {
    std::erase_if(all_, [](auto& p) { return !p.goes_on(); });
    return all_.size();
  }

 private:
  Connect connect_;
  stranger_habit habit_;
  std::size_t count_;
  std::vector<strange_peer<decltype(std::declval<Connect&>()())>> all_;
};

}  // namespace test
