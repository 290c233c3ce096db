// Datagrams to an owner over a link whose addresses anybody can forge: a peer that has not shown the word of its
// address gets no more bytes than it sent and takes no place.
#include "support/words.hpp"
#include "target.hpp"

#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/transports/over/datagram_transport.hpp>
#include <tensorpull/transports/peers/owner.hpp>

#include <deque>
#include <vector>

namespace test::fuzz {
namespace {

namespace tp = tensorpull;

struct place {
  std::uint64_t number = 0;
  friend bool operator==(const place&, const place&) = default;
  std::uint64_t hash() const noexcept { return number % 3; }
};
constexpr std::size_t places = 8;

/// All that came from an address and went to it.
struct traffic {
  std::uint64_t sent = 0, heard = 0, word = 0, front = 0;
  bool proved = false;
};
struct network {
  std::deque<std::pair<place, byte_vector>> under_way;
  std::array<traffic, places> of{};
};
struct memory_link {
  using address = place;
  static constexpr std::size_t max_datagram_bytes = 1200;
  static constexpr bool checked = false;
  static constexpr bool addresses_are_proved = false;

  network* between;

  std::size_t datagram_bytes() const noexcept { return max_datagram_bytes; }
  tp::io_result receive(byte_span memory, address& from) noexcept {
    if (between->under_way.empty()) return {tp::io_status::would_block, 0, 0};
    const auto [who, bytes] = std::move(between->under_way.front());
    between->under_way.pop_front();
    from = who;
    std::copy(bytes.begin(), bytes.end(), memory.begin());
    return {tp::io_status::ok, 0, bytes.size()};
  }
  tp::io_result send(std::span<const const_byte_span> spans, const address& to) noexcept {
    traffic& t = between->of[to.number];
    std::size_t n = 0;
    for (const auto& s : spans) n += s.size();
    t.heard += n;
    if (n == tp::cookie_bytes || n == 2 * tp::cookie_bytes) t.word = tp::cookie_in(spans[0]);
    if (n == 2 * tp::cookie_bytes)
      require(tp::cookie_in(spans[0].subspan(tp::cookie_bytes)) == t.front, "an echo is what its datagram began with");
    return {tp::io_status::ok, 0, n};
  }
  tp::io_ready wait(bool, bool, std::chrono::milliseconds) noexcept { return {}; }
};
static_assert(tp::datagram_link<memory_link>);
struct memory_transport : tp::datagram_transport<memory_transport, memory_link> {};

struct limits : tp::default_limits {
  static constexpr std::size_t references = 1, recipients = 8;
};
using net = tp::pipeline<tp::tensor_list, tp::fit_datagram, memory_transport, limits>;

}  // namespace

/// Datagrams, each with a head of two bytes: the sender and whether it says its word or asks for an echo, then the
/// length in words. What is to stand in front is put there by the target: a fuzzer cannot guess a word.
static unsigned cookies(input in) {
  network between;
  auto owner = net::downloader::over(memory_link{&between}, {.peers = 4, .long_buffers = 2});
  require(owner.has_value(), "the owner has its memory");
  std::array<std::uint64_t, 1> shape{1000};
  std::array<std::byte, 1000> bytes{};
  const std::array views{
      tp::mutable_tensor_view{.name = "w", .type = tp::dtype::u8, .shape = shape, .data = bytes.data()}};
  const auto image = tp::dynamic_image::make(std::span<const tp::mutable_tensor_view>(views));
  require(owner->add_image(image->source(), {.id = {1, 2}}).has_value(), "the model is published");
  unsigned proved = 0;
  while (in.size() >= 2) {
    const auto head = static_cast<std::uint8_t>(in[0]);
    std::size_t length = static_cast<std::uint8_t>(in[1]) * 8;
    if ((head & 0x20) != 0) length -= std::min<std::size_t>(length, 3);  // also lengths that are no words
    length = std::min(length, in.size() - 2);
    traffic& t = between.of[head % places];
    byte_vector datagram;
    if ((head & 0x80) != 0) {  // the word that the address was told, or that another one was
      const std::uint64_t word = between.of[(head & 0x40) != 0 ? (head + 1) % places : head % places].word;
      datagram.resize(tp::cookie_bytes);
      std::memcpy(datagram.data(), &word, sizeof word);
      t.proved |= word != 0 && word == t.word;
    } else if ((head & 0x10) != 0) {  // the number of a guest that wants an echo
      const std::uint64_t number = tp::cookie_guest(head).number();
      datagram.resize(tp::cookie_bytes);
      std::memcpy(datagram.data(), &number, sizeof number);
    }
    datagram.insert(datagram.end(), in.begin() + 2, in.begin() + 2 + static_cast<std::ptrdiff_t>(length));
    in = in.subspan(2 + length);
    if (datagram.size() > memory_link::max_datagram_bytes) datagram.resize(memory_link::max_datagram_bytes);
    t.sent += datagram.size();
    if (datagram.size() >= tp::cookie_bytes) t.front = tp::cookie_in(datagram);
    between.under_way.emplace_back(place{head % places}, std::move(datagram));
    owner->run([&, turns = 0](const auto&) mutable { return between.under_way.empty() && turns++ > 0; });
    std::size_t honest = 0;
    for (const traffic& each : between.of) {
      require(each.proved || each.heard <= each.sent, "who has not proved its address gets no more than it sent");
      honest += each.proved;
    }
    require(owner->peers() <= std::min<std::size_t>(honest, 4), "nobody else has a place");
    proved = std::max(proved, static_cast<unsigned>(honest));
  }
  return proved;
}
static const registered cookies_target{{"cookies", cookies}};

}  // namespace test::fuzz
