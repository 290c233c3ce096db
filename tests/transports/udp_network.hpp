// What the tests of UDP share: pipelines, a plain socket that says anything, links with faults.
#pragma once

#include "sample_models.hpp"
#include "support/frames.hpp"
#include "support/own_port.hpp"

#include <tensorpull/testing/faulty_datagrams.hpp>
#include <tensorpull/transports/over/udp/udp.hpp>

#include <vector>

namespace test {

/// The longest chunk that fits a datagram of 1,200 bytes.
using fit = tp::fixed_bytes<1112>;
static_assert(tp::udp::max_payload_bytes == 1112);
using udp_net = tp::pipeline<tp::raw_tensors<mlp>, fit, tp::udp>;

/// UDP whose datagrams meet `faults` on their way, in both directions.
struct troubled_udp : tp::datagram_transport<troubled_udp, tp::testing::faulty_datagrams<tp::udp_link>> {
  static constexpr std::string_view any_address = any_port;
  static inline tp::testing::datagram_faults faults{};

  static tp::result<link> connect(std::string_view address, std::chrono::milliseconds, const tp::stop_token&) noexcept {
    return around(tp::udp_link::connect(address), 1);
  }
  static tp::result<link> open(std::string_view address) noexcept { return around(tp::udp_link::open(address), 2); }

 private:
  static tp::result<link> around(tp::result<tp::udp_link> inner, std::uint64_t salt) noexcept {
    if (!inner) return tp::failure(inner.error());
    auto own = faults;
    own.seed = own.seed * 1000 + salt;
    return link(std::move(*inner), own);
  }
};

/// UDP with somebody between the owner and a recipient, who sees nothing of what they say.
struct forged_udp {
  enum class kind {
    made_up,          ///< in front of each datagram of the owner's come words in its name that are made up
    earlier_owner,  ///< the owner is of a version that answers with its word alone
  };
  static inline kind what = kind::made_up;

  class link {
   public:
    using address = tp::udp_address;
    static constexpr std::size_t max_datagram_bytes = tp::udp_link::max_datagram_bytes;
    static constexpr bool checked = false, addresses_are_proved = false;

    explicit link(tp::udp_link inner) noexcept : link_(std::move(inner)) {}
    std::size_t datagram_bytes() const noexcept { return max_datagram_bytes; }
    tp::io_result receive(byte_span memory, address& from) noexcept {
      if (held_ == 0) {
        auto io = link_.receive(real_, from);
        if (io.status != tp::io_status::ok) return io;
        held_ = io.bytes;
        if (what == kind::earlier_owner) held_ = held_ == 2 * tp::cookie_bytes ? tp::cookie_bytes : held_;
        else forged_ = 3;
      }
      if (forged_ > 0) {
        --forged_;
        const std::array made_up{random_(), random_()};
        std::memcpy(memory.data(), made_up.data(), sizeof made_up);
        return {tp::io_status::ok, 0, tp::cookie_bytes * (1 + forged_ % 2)};
      }
      std::memcpy(memory.data(), real_.data(), held_);
      return {tp::io_status::ok, 0, std::exchange(held_, 0)};
    }
    tp::io_result send(std::span<const const_byte_span> spans, const address& to) noexcept {
      return link_.send(spans, to);
    }
    tp::io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
      return link_.wait(read && held_ == 0, write, timeout);
    }

   private:
    tp::udp_link link_;
    alignas(8) std::array<std::byte, max_datagram_bytes> real_;
    std::size_t held_ = 0;
    unsigned forged_ = 0;
    tp::testing::seeded_random random_{3};
  };
  template <class Parts>
  static tp::result<tp::receipt> pull(std::uint16_t port, const tp::reference& ref,
                                      typename Parts::tensors::model_type& to) {
    tp::land all(Parts::tensors::destination(to));
    const auto connect = [&]() -> tp::result<tp::guest_link<link>> {
      auto socket = tp::udp_link::connect(local(port));
      if (!socket) return tp::failure(socket.error());
      return tp::guest_link<link>(link(std::move(*socket)));
    };
    return tp::pull_datagrams_with<Parts>(connect, [](std::chrono::milliseconds time) { be_slow(time); }, ref, all);
  }
};

/// Anybody with a UDP socket.
class stranger {
 public:
  explicit stranger(const std::string& address) : link_(std::move(*large::connect(address))) {}
  explicit stranger(std::uint16_t port) : stranger(local(port)) {}

  void say(std::uint64_t word, const_byte_span frames = {}) {
    const std::array all{std::as_bytes(std::span(&word, 1)), frames};
    sent += link_.send(all, {}).bytes;
    (void)link_.wait(false, false, 0ms);
  }
  void say_bytes(const_byte_span bytes) {
    const std::array all{bytes};
    sent += link_.send(all, {}).bytes;
    (void)link_.wait(false, false, 0ms);
  }
  /// What comes within the time, or nothing.
  byte_vector hear(std::chrono::milliseconds time = 2000ms) {
    const auto end = within(time);
    for (;;) {
      alignas(8) std::byte memory[9000];
      tp::udp_address from;
      const auto io = link_.receive(memory, from);
      if (io.status == tp::io_status::ok) {
        heard += io.bytes;
        return byte_vector(memory, memory + io.bytes);
      }
      if (end.stop_requested()) return {};
      (void)link_.wait(true, false, 5ms);
    }
  }
  /// Asks for the word of its address. 0: it was not told.
  std::uint64_t word() {
    const std::array<std::byte, 16> nothing{};
    say(0, nothing);
    const auto answer = hear();
    return answer.size() == tp::cookie_bytes ? tp::cookie_in(answer) : 0;
  }

  std::uint64_t sent = 0, heard = 0;

 private:
  using large = tp::basic_udp_link<9000>;
  large link_;
};

inline frame describe_of(const tp::reference& ref, std::uint32_t id = 1) {
  tp::frame m;
  m.kind = tp::frame_kind::describe;
  m.id = id;
  m.ref = ref.id;
  m.recipient = {77};
  return encode(m);
}

}  // namespace test
