// The laws of all transports over UDP and serial lines.
#include "laws.hpp"
#include "serial_network.hpp"
#include "third_parties.hpp"
#include "two_way_laws.hpp"
#include "udp_network.hpp"

#include <sys/syscall.h>

namespace laws_datagrams_test {

/// Messages that this program has handed to the system over UDP. One carries many datagrams if the system cuts them.
std::atomic<std::uint64_t> messages_sent{0};

}  // namespace laws_datagrams_test

extern "C" int sendmmsg(int fd, mmsghdr* all, unsigned count, int flags) {
  const auto done = static_cast<int>(::syscall(SYS_sendmmsg, fd, all, count, flags));
  if (done > 0) laws_datagrams_test::messages_sent += static_cast<unsigned>(done);
  return done;
}

namespace laws_datagrams_test {

using namespace test;

struct udp_room : usual_room {
  using transport = tp::udp;
  template <class Model>
  using net = tp::pipeline<tp::raw_tensors<Model>, fit, transport>;

  template <class Model>
  auto open(const tp::authorise_callback& may) {
    return net<Model>::downloader::open({.listen = port.address(), .authorise = may});
  }
  const std::string& where() const { return port.address(); }
  /// At most the word of its address comes back, which everybody gets, and never more than was said.
  bool stranger(std::string_view said) const {
    test::stranger peer(port.address());
    peer.say_bytes(std::as_bytes(std::span(said.data(), std::min<std::size_t>(said.size(), 1200))));
    return peer.hear(20ms).size() <= std::min(tp::cookie_bytes, said.size());
  }
  own_udp_port port;
};
struct serial_room : usual_room {
  using transport = tp::serial;
  template <class Model>
  using net = tp::pipeline<tp::raw_tensors<Model>, tp::fixed_bytes<512>, transport>;
  static constexpr std::uint32_t recipients = 1;  // a line has two ends

  template <class Model>
  auto open(const tp::authorise_callback& may) {
    return net<Model>::downloader::open({.listen = line.right(), .authorise = may});
  }
  std::string where() const { return line.left(); }

  noisy_line line;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Udp, Laws, udp_room);
INSTANTIATE_TYPED_TEST_SUITE_P(Serial, Laws, serial_room);

/// UDP with a third party that sends with the address of the other end, and sees nothing of what the ends say. Between
/// the datagrams that come, an end is given what the third party says now.
struct haunted_udp {
  enum class says {
    nothing,
    words,
    frames,
    from_nowhere
  };
  static inline std::atomic<says> now{says::nothing};
  static inline tp::ref_id ref{};

  class link {
   public:
    using address = tp::udp_address;
    static constexpr std::size_t max_datagram_bytes = tp::udp_link::max_datagram_bytes;
    static constexpr bool checked = false, addresses_are_proved = false;

    explicit link(tp::udp_link inner) noexcept : link_(std::move(inner)) {}
    std::size_t datagram_bytes() const noexcept { return max_datagram_bytes; }
    std::uint16_t port() const noexcept { return link_.port(); }
    tp::io_result receive(byte_span memory, address& from) noexcept {
      if (forged_ > 0 && now != says::nothing) {
        --forged_;
        from = peer_;
        return forge(memory, from);
      }
      const auto io = link_.receive(memory, from);
      if (io.status == tp::io_status::ok) peer_ = from, forged_ = now == says::from_nowhere ? 16 : 3;
      return io;
    }
    tp::io_result send(std::span<const const_byte_span> spans, const address& to) noexcept {
      return link_.send(spans, to);
    }
    tp::io_result collect(std::span<const const_byte_span> spans, const address& to) noexcept {
      return link_.collect(spans, to);
    }
    tp::io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
      return link_.wait(read, write, timeout);
    }

   private:
    tp::io_result forge(byte_span memory, address& from) noexcept {
      const std::array words{random_(), random_()};
      std::memcpy(memory.data(), words.data(), sizeof words);
      const std::size_t n = ++count_ % 12;
      switch (now.load()) {
        case says::words: return {tp::io_status::ok, 0, tp::cookie_bytes * (1 + n % 2)};
        case says::from_nowhere:  // an address to which nothing can be sent
          from.host[12] = 255, from.host[13] = from.host[14] = from.host[15] = 254;
          return {tp::io_status::ok, 0, 64};
        default: break;
      }
      // frames of either end, behind a word that is made up or none
      constexpr tp::frame_kind kinds[] = {tp::frame_kind::description, tp::frame_kind::chunk, tp::frame_kind::refused,
                                          tp::frame_kind::describe,    tp::frame_kind::pull,  tp::frame_kind::cancel};
      tp::frame m;
      m.kind = kinds[n % 6];
      m.id = count_ / 12 % 64;
      m.ref = ref, m.version = 5, m.nonce = 7, m.image_bytes = 1000, m.data_start = 100, m.length = 64;
      m.recipient = {count_}, m.status = tp::status::withdrawn;
      byte_vector payload(64, std::byte{0xee});
      const auto f = m.kind == tp::frame_kind::chunk ? chunk_frame(m, payload) : encode(m, 4096);
      const std::size_t at = n < 6 ? 0 : tp::cookie_bytes;
      std::memcpy(memory.data() + at, f.bytes().data(), f.size());
      return {tp::io_status::ok, 0, at + f.size()};
    }
    tp::udp_link link_;
    address peer_{};
    unsigned forged_ = 0;
    std::uint32_t count_ = 0;
    tp::testing::seeded_random random_{3};
  };
};
struct haunted : tp::datagram_transport<haunted, haunted_udp::link> {
  static tp::result<link> connect(std::string_view address, std::chrono::milliseconds, const tp::stop_token&) noexcept {
    return around(tp::udp_link::connect(address));
  }
  static tp::result<link> open(std::string_view address) noexcept { return around(tp::udp_link::open(address)); }

 private:
  static tp::result<link> around(tp::result<tp::udp_link> inner) noexcept {
    if (!inner) return tp::failure(inner.error());
    return link(std::move(*inner));
  }
};
struct haunted_room : usual_room {
  using transport = haunted;
  template <class Model>
  using net = tp::pipeline<tp::raw_tensors<Model>, fit, transport>;

  template <class Model>
  auto open(const tp::authorise_callback& may) {
    return net<Model>::downloader::open({.listen = port.address(), .authorise = may});
  }
  const std::string& where() const { return port.address(); }
  static void published(const mlp&, const tp::reference& r) { haunted_udp::ref = r.id; }
  static std::uint64_t work() { return messages_sent; }
  static std::vector<third_party> third_parties() {
    const auto that_says = [](haunted_udp::says what) {
      return [what](const std::stop_token& stop, std::atomic<bool>& acts) {
        haunted_udp::now = what;
        acts = true;
        while (!stop.stop_requested()) look_again_soon();
        haunted_udp::now = haunted_udp::says::nothing;
      };
    };
    return {{"one that makes up words", that_says(haunted_udp::says::words)},
            {"one that makes up frames", that_says(haunted_udp::says::frames)},
            {"one at an address that cannot be answered", that_says(haunted_udp::says::from_nowhere)}};
  }
  own_udp_port port;
  slow_clock slow{20};  // nothing is asked for again because the machine is slow
};
INSTANTIATE_TYPED_TEST_SUITE_P(Udp, ThirdParties, haunted_room);

/// Many ports of one machine, each of which proves its address, and an owner with few places.
struct crowded_udp_room : udp_room {
  template <class Model>
  auto open(const tp::authorise_callback& may) {
    return net<Model>::downloader::open({.listen = port.address(), .peers = few_places, .authorise = may});
  }
  std::vector<third_party> third_parties() const {
    constexpr std::size_t ports = 8 * few_places;
    const auto say = [this](byte_vector said, bool proved) {
      return
          [at = port.address(), said = std::move(said), proved](const std::stop_token& stop, std::atomic<bool>& acts) {
            std::vector<test::stranger> all;
            std::vector<std::uint64_t> words;
            for (std::size_t i = 0; i < ports && !stop.stop_requested(); ++i) {
              all.emplace_back(at);
              words.push_back(proved ? all.back().word() : i + 1);
            }
            while (!stop.stop_requested()) {
              for (std::size_t i = 0; i < all.size(); ++i) {
                all[i].say(words[i], said);
                (void)all[i].hear(0ms);
              }
              acts = true;
              be_slow(2ms);  // otherwise the kernel throws away what honest recipients say
            }
          };
    };
    const auto asks = request(tp::frame_kind::describe, 1, {1234, 5678}, 0, 0);
    const byte_vector half(asks.begin(), asks.begin() + 24), rubbish(9, std::byte{0xee});
    return {{"ports that have no cookie", say(asks, false), 0, ports},
            {"ports that ask for what is not there", say(asks, true), 0, ports},
            {"ports that stop in the middle of a request", say(half, true), 0, ports},
            {"ports with a cookie that talk rubbish", say(rubbish, true), 0, ports},
            {"ports with a cookie that say nothing", say({}, true), 0, ports}};
  }
  slow_clock slow{20};  // nothing is asked for again because the machine is slow
};
#ifndef __SANITIZE_THREAD__  // its owner has one thread, and a crowd takes minutes there
INSTANTIATE_TYPED_TEST_SUITE_P(CrowdedUdp, ThirdParties, crowded_udp_room);
#endif

struct udp_pair : usual_pair {
  using net = udp_room::net<mlp>;
  auto ends() {
    auto far = net::session::open(any_port);
    return std::pair(net::session::connect(local(far->port())), std::move(far));
  }
};
struct serial_pair : usual_pair {
  using model = small;
  using net = serial_net<small>;
  auto ends() { return std::pair(net::session::connect(line.left()), net::session::connect(line.right())); }
  noisy_line line;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Udp, TwoWayLaws, udp_pair);
INSTANTIATE_TYPED_TEST_SUITE_P(Serial, TwoWayLaws, serial_pair);

}  // namespace laws_datagrams_test
