// A datagram link that does to datagrams what networks do: it loses, doubles, delays and damages them, and lets them
// overtake each other.
#pragma once

#include <tensorpull/links/datagram_link.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/testing/seeded_random.hpp>

#include <array>
#include <map>
#include <utility>
#include <vector>

namespace tensorpull::testing {

/// How many datagrams in 1,000 meet which fault when they are sent, and how long each is under way.
struct datagram_faults {
  std::uint32_t lost = 0;                   ///< never arrive
  std::uint32_t doubled = 0;                ///< arrive twice
  std::uint32_t overtaken = 0;              ///< arrive `late` after the others
  std::uint32_t damaged = 0;                ///< one bit is another; lost, if the link drops what is damaged
  std::chrono::microseconds delay{0};       ///< of each
  std::chrono::microseconds late{2'000};    ///< more for those that are overtaken
  std::uint64_t seed = 1;                   ///< decides which datagrams; the same seed, the same faults
};

/// How many datagrams have met which fault.
struct datagram_fault_counts {
  std::uint64_t sent = 0;  ///< all that the link was given
  std::uint64_t sent_bytes = 0;  ///< their bytes
  std::uint64_t lost = 0;       ///< of these, as in datagram_faults
  std::uint64_t doubled = 0;    ///< as above
  std::uint64_t overtaken = 0;  ///< as above
  std::uint64_t damaged = 0;    ///< as above
};

/// A link around another one, with faults in what is sent over it; wrap both ends for faults both ways. It allocates
/// for datagrams that are under way.
template <datagram_link Link>
class faulty_datagrams {
 public:
  using address = typename Link::address;  ///< as the link's
  static constexpr std::size_t max_datagram_bytes = Link::max_datagram_bytes;  ///< as the link's
  static constexpr bool checked = Link::checked;                              ///< as the link's
  static constexpr bool addresses_are_proved = Link::addresses_are_proved;    ///< as the link's

  /// Takes the link over. `counts`: where to count, if it is not null; it must live as long as this link.
  faulty_datagrams(Link link, const datagram_faults& faults, datagram_fault_counts* counts = nullptr)
      : link_(std::move(link)), faults_(faults), random_(faults.seed), counts_(counts) {}

  /// The link inside.
  Link& inside() noexcept { return link_; }
  /// As the link's.
  std::size_t datagram_bytes() const noexcept { return link_.datagram_bytes(); }
  /// As the link's.
  std::uint16_t port() const noexcept
    requires requires(const Link& l) { l.port(); }
  {
    return link_.port();
  }
  /// As datagram_link asks.
  io_result receive(std::span<std::byte> memory, address& from) noexcept {
    release();
    return link_.receive(memory, from);
  }
  /// As datagram_link asks.
  io_result send(gather_list spans, const address& to) noexcept {
    release();
    std::vector<std::byte> all;
    for (const auto& s : spans) all.insert(all.end(), s.begin(), s.end());
    count(&datagram_fault_counts::sent);
    if (counts_ != nullptr) counts_->sent_bytes += all.size();
    const std::size_t n = all.size();
    if (random_.chance(faults_.lost)) {
      count(&datagram_fault_counts::lost);
      return io_result{io_status::ok, 0, n};
    }
    if (n > 0 && random_.chance(faults_.damaged)) {
      count(&datagram_fault_counts::damaged);
      if (checked) return {io_status::ok, 0, n};
      all[random_.below(n)] ^= std::byte(1u << random_.below(8));
    }
    // drawn whether they apply or not, so that the same seed means the same faults
    const bool twice = random_.chance(faults_.doubled), late = random_.chance(faults_.overtaken);
    if (twice) count(&datagram_fault_counts::doubled);
    if (late) count(&datagram_fault_counts::overtaken);
    const auto due = faults_.delay + (late ? faults_.late : std::chrono::microseconds(0));
    if (due.count() == 0 && !twice)
      return link_.send(spans, to).status == io_status::would_block ? io_result{io_status::would_block, 0, 0}
                                                                    : io_result{io_status::ok, 0, n};
    const auto at = clock::now() + due;
    if (twice) under_way_.emplace(at, parcel{all, to});
    under_way_.emplace(at, parcel{std::move(all), to});
    release();
    return {io_status::ok, 0, n};
  }
  /// As datagram_link asks.
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    release();
    if (!under_way_.empty()) {
      const auto next = std::chrono::ceil<std::chrono::milliseconds>(under_way_.begin()->first - clock::now());
      timeout = std::max(std::chrono::milliseconds(0), std::min(timeout, next));
    }
    const io_ready ready = link_.wait(read, write, timeout);
    release();
    return ready;
  }

 private:
  using clock = std::chrono::steady_clock;
  struct parcel {
    std::vector<std::byte> bytes;
    address to;
  };

  void count(std::uint64_t datagram_fault_counts::* what) noexcept {
    if (counts_ != nullptr) ++(counts_->*what);
  }
  /// Sends what has been under way for long enough.
  void release() noexcept {
    const auto now = under_way_.empty() ? clock::time_point{} : clock::now();
    while (!under_way_.empty() && under_way_.begin()->first <= now) {
      const std::array one{std::span<const std::byte>(under_way_.begin()->second.bytes)};
      if (link_.send(one, under_way_.begin()->second.to).status == io_status::would_block) return;
      under_way_.erase(under_way_.begin());
    }
  }

  Link link_;
  datagram_faults faults_;
  seeded_random random_;
  datagram_fault_counts* counts_;
  std::multimap<clock::time_point, parcel> under_way_;
};

}  // namespace tensorpull::testing
