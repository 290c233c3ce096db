// The connections of a parallel pull: they connect, again if need be, are pumped in turn, and make way for each other.
#pragma once

#include <tensorpull/links/posix/pollable_stream.hpp>
#include <tensorpull/links/pump.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>
#include <tensorpull/satellites/parallel/several_addresses.hpp>
#include <tensorpull/transports/blocking/stream_pull.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

namespace tensorpull::detail {

/// Where a program may connect without waiting (listening_transport, 4).
template <class Transport, class Address>
auto places_of(const Address& a) noexcept {
  if constexpr (requires { a.resolve(); }) return a.resolve();
  else if constexpr (requires { Transport::resolve(a); }) return Transport::resolve(a);
}
/// One destination, for a transport that connects at once, or only by waiting.
template <class Stream>
class only_place {
 public:
  explicit only_place(Stream s) noexcept : stream_(std::move(s)) {}
  bool more() const noexcept { return stream_.has_value(); }
  result<Stream> start_connect() noexcept {
    result<Stream> s(std::move(*stream_));
    stream_.reset();
    return s;
  }

 private:
  std::optional<Stream> stream_;
};

/// The connections of one pull: a pull_wire whose link is all of them.
template <class Parts, class Transport, class Address, class Transfer, class Options>
class parallel_wire {
  using limits = typename Parts::limits;
  using stream_type = typename Transport::stream;
  template <class T, class = void>
  struct handler_of {
    using type = ignore_messages;
  };
  template <class T>
  struct handler_of<T, std::void_t<decltype(std::declval<T&>().handler_of(0))>> {
    using type = decltype(std::declval<T&>().handler_of(0));
  };
  using handler_type = typename handler_of<Transfer>::type;
  using endpoint_type = endpoint<typename Parts::framing, limits, no_owner, handler_type>;
  using clock = std::chrono::steady_clock;
  static constexpr bool waits_to_connect = __is_same(decltype(places_of<Transport>(std::declval<const Address&>())),
                                                     void);

 public:
  parallel_wire(std::span<const Address> addresses, std::size_t connections, std::chrono::milliseconds each,
                const callback<const address_attempt&>& tell, const Options& options, Transfer& t) noexcept
      : addresses_(addresses), each_(each), tell_(tell), options_(options), t_(t), count_(connections) {}
  parallel_wire(const parallel_wire&) = delete;
  parallel_wire& operator=(const parallel_wire&) = delete;

  /// All lines connect again.
  void begin_anew() noexcept {
    for (std::size_t i = 0; i < count_; ++i) begin_line(i, i % addresses_.size());
    untried_ = count_;
    of_no_use_ = 0;
    t_.more_sources(untried_ < addresses_.size());
    why_ = {errc::connection_failed};
  }

  /// Another address of the same span, which has become longer, or another destination at address i: a line of its own
  /// connects to it. Requires that each address has a line.
  void connect_anew(std::span<const Address> all, std::size_t i) noexcept {
    addresses_ = all;
    count_ = untried_ = all.size();
    of_no_use_ &= ~(1U << i);
    begin_line(i, i);
  }
  /// Whether line i has been given up.
  bool is_over(std::size_t i) const noexcept { return lines_[i].now == state::is_over; }
  /// wait() ends when this descriptor can be read, too.
  void wait_for(int fd) noexcept { other_ = fd; }

  // The endpoint of a wire, for drive().
  parallel_wire& end() noexcept { return *this; }
  void begin_pull() noexcept {}
  void end_pull(Transfer& t) noexcept {
    for (std::size_t i = 0; i < count_; ++i)
      if (lines_[i].end) lines_[i].end->end_pull(t.line_of(number(i)));
  }
  bool send_control(const frame& bye) noexcept {
    const std::size_t i = t_.first_line();
    return i < count_ && lines_[i].end && lines_[i].end->send_control(bye);
  }

  /// One step of each connection. Error: none of them can go on.
  result<bool> step(Transfer& t) noexcept {
    bool moved = false;
    std::size_t over = 0;
    for (std::size_t i = 0; i < count_ && !t.ended(); ++i) {
      line& l = lines_[i];
      if (l.now == state::waits && clock::now() >= l.at) connect(i);
      if (l.now == state::connects) moved = establish(i) || moved;
      if (l.now == state::is_up) moved = pump(i) || moved;
      over += l.now == state::is_over;
    }
    if (over < count_ || t.ended()) return moved;
    t.fail(why_);
    return failure(why_);
  }
  void wait(const Transfer&, std::chrono::milliseconds most) noexcept {
    std::array<pollfd, Transfer::most_lines + 1> all;
    const auto now = clock::now();
    for (std::size_t i = 0; i < count_; ++i) {
      const line& l = lines_[i];
      all[i] = polled(l.stream ? l.stream->native_handle() : -1, l.stream ? l.wants : io_ready{});
      if (l.now == state::waits) most = std::min(most, std::chrono::ceil<std::chrono::milliseconds>(l.at - now));
    }
    all[count_] = polled(other_, {true, false});
    (void)poll_for(all.data(), count_ + (other_ >= 0 ? 1 : 0), most);
  }
  void leave(Transfer& t, bool) noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      line& l = lines_[i];
      if (!l.end) continue;
      if (i != t.first_line())
        if (const auto bye = t.farewell_of(number(i)); bye) (void)l.end->send_control(*bye);
      auto role = t.line_of(number(i));
      if (!l.end->output_idle()) (void)pump_once(*l.end, role, *l.stream, std::span<std::byte>());
    }
  }

 private:
  enum class state : std::uint8_t {
    waits,  ///< to connect
    connects,
    is_up,
    is_over,  ///< it will not be tried again
  };
  template <bool Waits, class = void>
  struct places {
    using type = only_place<stream_type>;
  };
  template <class Unused>
  struct places<false, Unused> {
    using type = std::remove_cvref_t<decltype(*places_of<Transport>(std::declval<const Address&>()))>;
  };
  struct line {
    std::optional<typename places<waits_to_connect>::type> left;  // where else the other end may be
    std::optional<stream_type> stream;
    std::optional<endpoint_type> end;  // destroyed before the stream
    retry_state tries{retry_policy{}};
    clock::time_point at{};  // waits: when to connect; connects: when it began; is_up: when it last heard something
    std::size_t address = 0;
    clock::time_point idle{}, began{};  // since when it has nothing to do, and when it had brought `parts`
    clock::duration took = std::chrono::milliseconds(500);  // the last of them
    std::uint32_t before = 0, parts = 0;
    io_ready wants{};
    state now = state::waits;
  };

  /// Fewer bytes do not give a line its tries back: otherwise one that ends behind each byte has them for ever.
  static constexpr std::uint64_t least_progress = 16 * 1024;

  static std::uint8_t number(std::size_t i) noexcept { return static_cast<std::uint8_t>(i); }

  void begin_line(std::size_t i, std::size_t address) noexcept {
    close(i);
    line& l = lines_[i];
    l.address = address;
    l.tries = retry_state(options_.retry);
    l.at = clock::now();
    l.now = state::waits;
    t_.coming(number(i), true);
  }
  void close(std::size_t i) noexcept {
    line& l = lines_[i];
    if (l.end) t_.lost(number(i));
    l.end.reset();
    l.stream.reset();
    l.left.reset();
  }
  void connect(std::size_t i) noexcept {
    line& l = lines_[i];
    l.at = clock::now();
    if constexpr (waits_to_connect) {
      auto s = connect_to<Transport>(addresses_[l.address], std::min(each_, options_.per_request_timeout),
                                     options_.stop);
      if (!s) return failed(i, s.error());
      l.left.emplace(std::move(*s));
    } else {
      auto found = places_of<Transport>(addresses_[l.address]);
      if (!found) return failed(i, found.error());
      l.left.emplace(std::move(*found));
    }
    next_place(i, {errc::connection_failed});
  }
  /// Connects to the next destination of the address. If none is left, the line has failed.
  void next_place(std::size_t i, error why) noexcept {
    line& l = lines_[i];
    l.stream.reset();
    while (l.left->more()) {
      auto s = l.left->start_connect();
      if (!s) {
        why = s.error();
        continue;
      }
      l.stream.emplace(std::move(*s));
      l.at = clock::now();
      l.now = state::connects;
      return;
    }
    failed(i, why);
  }
  /// True: something has happened.
  bool establish(std::size_t i) noexcept {
    line& l = lines_[i];
    if constexpr (requires { l.stream->establish(); }) {
      const establishment e = l.stream->establish();
      if (e.status == io_status::would_block) {
        l.wants = e.waits_for;
        if (!has_passed(clock::now() - l.at, std::min(each_, options_.per_request_timeout))) return false;
        next_place(i, {errc::timed_out});
        return true;
      }
      if (e.status != io_status::ok) {
        next_place(i, {e.code, e.system, 0, e.why});
        return true;
      }
    }
    if constexpr (requires { Transport::connected(*l.stream); }) Transport::connected(*l.stream);
    if constexpr (requires { l.stream->expect_bytes(true); }) l.stream->expect_bytes(true);
    l.now = state::is_up;
    l.at = clock::now();
    if (tell_) tell_({l.address, l.before, errc{}, 0});
    ++l.before;
    handler_type& handler = handlers_[i];
    l.end.emplace(none_, pool_, handler);
    l.end->begin_pull();
    t_.up(number(i), number(l.address), l.end->next_id());
    if constexpr (requires { handler = t_.handler_of(0); }) handler = t_.handler_of(number(i));
    return true;
  }
  bool pump(std::size_t i) noexcept {
    line& l = lines_[i];
    auto role = t_.line_of(number(i));
    const auto did = pump_once(*l.end, role, *l.stream, std::span<std::byte>());
    if (!did) {
      failed(i, did.error());
      return true;
    }
    if (const auto why = t_.line_ended(number(i)); why && !t_.ended()) {
      failed(i, *why);
      return true;
    }
    const auto now = clock::now();
    if (did->received > 0) l.at = now;
    if constexpr (requires { t_.stage(); })
      if (std::exchange(stage_, t_.stage()) != t_.stage()) most_landed_ = 0;
    if (did->received > 0 && t_.landed_bytes() >= most_landed_ + least_progress) {  // what is fetched again is none
      most_landed_ = t_.landed_bytes();
      l.tries.succeeded();
    }
    l.wants = {did->wants_read, did->wants_write};
    if constexpr (requires { l.stream->interest(l.wants); }) l.wants = l.stream->interest(l.wants);
    if (const auto pause = t_.line_pause(number(i)); i != t_.first_line() && pause.count() > 0 && now - l.at >= pause)
      t_.resume_line(number(i));
    if (did->received == 0 && t_.awaits(number(i))) look_after(i, now);
    if (i == t_.first_line() || t_.first_line() >= Transfer::most_lines) hurry(now);
    if constexpr (requires { t_.take_over(number(i)); })
      if (relieve(i, now)) return true;
    return did->received > 0 || did->sent > 0 || did->works;
  }
  /// A silent connection: it may be gone, and the first one may have to make way for another.
  void look_after(std::size_t i, clock::time_point now) noexcept {
    line& l = lines_[i];
    if (now - l.at < std::chrono::seconds(1)) return;
    if constexpr (requires { l.stream->wait(true, false, std::chrono::milliseconds(0)); })
      (void)l.stream->wait(true, false, std::chrono::milliseconds(0));  // the next read tells
    if (i != t_.first_line() || now - l.at < patience_ || !t_.replace_first()) return;
    patience_ = std::min<std::chrono::milliseconds>(2 * patience_, std::chrono::seconds(60));
    if (t_.first_line() < count_) lines_[t_.first_line()].at = now;
  }
  /// The others wait while the first line brings the beginning. If it is slow, another may be faster.
  void hurry(clock::time_point now) noexcept {
    std::uint64_t enough = 64 * 1024;
    if constexpr (requires { t_.take_over(0); })  // the beginning is a whole part
      enough = std::max(enough, t_.total_bytes() / 1024);
    const std::uint64_t landed = t_.landed_bytes();
    const bool is_another = t_.first_line() < Transfer::most_lines && hurried_ != t_.first_line();
    if (!t_.waits_for_first() || is_another || landed >= began_with_ + enough) {
      if (is_another) hurried_ = t_.first_line();
      began_with_ = landed;
      began_ = now;
    }
    if (now - began_ < slowness_ || !t_.replace_first()) return;
    slowness_ *= 2;  // perhaps all are as slow
    if (t_.first_line() < count_) lines_[t_.first_line()].at = now;
  }
  /// A part is from one source alone. One that has nothing to do waits as long as two parts took it, and then begins
  /// those of a slower one anew. True: it does.
  bool relieve(std::size_t i, clock::time_point now) noexcept {
    line& l = lines_[i];
    if (const auto parts = t_.parts_of(number(i)); parts != std::exchange(l.parts, parts)) {
      if (parts > 1) l.took = now - l.began;
      l.began = now;
    }
    if (!t_.idles(number(i))) l.idle = now;
    const clock::duration least = std::chrono::milliseconds(20), most = std::chrono::seconds(1);
    if (now - l.idle < std::clamp(2 * l.took, least, most) * (1 << t_.repeats()) || !t_.take_over(number(i)))
      return false;
    l.idle = now;
    return true;
  }
  void failed(std::size_t i, const error& why) noexcept {
    line& l = lines_[i];
    if (tell_ && !l.end) tell_({l.address, l.before, why.code, why.system});
    close(i);
    if (is_passing(why_.code)) why_ = why;  // an owner's answer counts for more than an address out of reach
    auto rest = l.tries.after(why.code, 0, {}, Parts::platform::random());
    if (!rest) of_no_use_ |= 1U << l.address;
    const bool untried = untried_ < addresses_.size();  // one that nobody has tried may be another
    std::size_t next = untried ? untried_++ : l.address;
    for (std::size_t k = 0; !untried && count_ < addresses_.size() && k < addresses_.size(); ++k)
      if (next = (l.address + count_ + k) % addresses_.size(); !is_of_no_use(next)) break;
    l.address = next;
    if (untried || (!rest && !is_of_no_use(next))) {
      l.tries = retry_state(options_.retry);
      if (!rest) rest = std::chrono::milliseconds(0);
    }
    l.now = rest ? state::waits : state::is_over;
    t_.more_sources(spares() > 0);
    t_.coming(number(i), rest.has_value());
    if (rest) l.at = clock::now() + *rest;
  }
  bool is_of_no_use(std::size_t address) const noexcept { return (of_no_use_ >> address & 1) != 0; }
  /// Addresses that a line may go to, and none is at.
  std::size_t spares() const noexcept {
    std::size_t n = 0;
    for (std::size_t a = 0; a < addresses_.size(); ++a)
      n += !is_of_no_use(a) && std::none_of(lines_.begin(), lines_.begin() + static_cast<std::ptrdiff_t>(count_),
                                            [&](const line& l) { return l.address == a && l.now != state::is_over; });
    return n;
  }

  std::span<const Address> addresses_;
  std::chrono::milliseconds each_;
  const callback<const address_attempt&>& tell_;
  const Options& options_;
  Transfer& t_;
  std::size_t count_, untried_ = 0;  // untried_: the first address that no line has had
  unsigned of_no_use_ = 0;  // addresses that a line has given up for good, a bit each
  std::chrono::milliseconds patience_{1000};  // with a first line that is silent while others are not
  std::chrono::milliseconds slowness_{1000};  // and with one that brings less than 64 KiB in this time
  clock::time_point began_{};
  std::uint64_t began_with_ = 0;
  std::uint8_t hurried_ = 0xff;
  error why_{};
  std::uint64_t most_landed_ = 0;
  std::uint8_t stage_ = 0;
  no_owner none_;
  std::array<handler_type, Transfer::most_lines> handlers_{};
  int other_ = -1;
  // for the names of a subset, and for pages of the owner's schema if the schemas differ: one for each line, since
  // whoever begins a long frame need not end it
  alignas(8) std::array<std::byte, Transfer::most_lines * limits::page_bytes> memory_;
  buffer_pool<> pool_{memory_, limits::page_bytes};
  std::array<line, Transfer::most_lines> lines_;
};

}  // namespace tensorpull::detail
