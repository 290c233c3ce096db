// Datagram links that are right pass every check, also if they lose, double and re-order; each link that is broken in
// one way fails exactly the check that is about it.
#include <tensorpull/testing/conformance/datagram_conformance.hpp>

#include <gtest/gtest.h>

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <memory>
#include <string>

namespace datagram_conformance_test {

using namespace tensorpull;
using namespace tensorpull::testing;
using namespace std::chrono_literals;

/// What is wrong with a link.
enum class flaw {
  none,
  hashes_its_place,
  names_itself,
  says_too_little,
  drops_the_longest,
  receives_nothing_well,
  receive_waits,
  receives_too_far,
  says_too_much,
  joins,
  cuts,
  ends_when_it_is_long,
  sends_backwards,
  send_waits,
  takes_a_part,
  stays_blocked,
  ends_with_its_peer,
  never_readable,
  never_writable,
  always_readable,
  never_waits,
  answers_too_much,
  forgets_what_it_holds,
  believes_damage,
  forgets_when_moved,
  stays_open,
  raises_signals,
  allocates,
  allocates_as_stated,
  throws,
  crashes,
};

/// What a link says that it allocated: the medium of this test allocates, too.
std::uint64_t allocations = 0;
std::uint64_t allocations_so_far() noexcept { return allocations; }

/// What is between the ends, in virtual time.
struct air {
  struct datagram {
    int from;
    std::vector<std::byte> bytes;
    bool damaged = false;
  };
  std::uint64_t now = 0;
  std::uint32_t lost = 0, doubled = 0, late = 0;  ///< of a thousand
  std::size_t room = 50;  ///< datagrams that wait at an end; later ones have to wait, or are dropped
  bool drops = false, damage = false;
  std::deque<datagram> at[2]{};
  bool open[2]{true, true};
  seeded_random random{4};

  void put(int to, datagram d) {
    if (random.chance(lost)) return;
    if (random.chance(doubled)) at[to].push_back(d);
    const bool overtakes = random.chance(late) && !at[to].empty();
    at[to].insert(overtakes ? at[to].end() - 1 : at[to].end(), std::move(d));
  }
};

template <flaw F>
struct place {
  int number = -1;
  friend bool operator==(const place&, const place&) = default;
  std::uint64_t hash() const noexcept {
    return F == flaw::hashes_its_place ? reinterpret_cast<std::uintptr_t>(this) : static_cast<std::uint64_t>(number);
  }
};
template <flaw F>
class radio {
 public:
  using address = place<F>;
  static constexpr std::size_t max_datagram_bytes = 300;
  static constexpr bool checked = true;
  static constexpr bool addresses_are_proved = false;
  static constexpr std::size_t allocations_per_datagram = F == flaw::allocates_as_stated ? 1 : 0;

  radio(std::shared_ptr<air> a, int me) : air_(std::move(a)), me_(me), open_(::dup(STDERR_FILENO)) {}
  radio(radio&& other) noexcept
      : air_(std::move(other.air_)), me_(F == flaw::forgets_when_moved && other.used_ ? 1 - other.me_ : other.me_),
        open_(std::exchange(other.open_, -1)) {}
  radio& operator=(radio&& other) noexcept {
    std::swap(air_, other.air_), std::swap(me_, other.me_), std::swap(open_, other.open_);
    return *this;
  }
  ~radio() {
    if (air_ != nullptr) air_->open[me_] = false;
    if (open_ >= 0 && F != flaw::stays_open) ::close(open_);
  }

  std::size_t datagram_bytes() const noexcept { return F == flaw::says_too_little ? 100 : max_datagram_bytes; }
  io_result receive(std::span<std::byte> memory, address& from) noexcept {
    ++air_->now;
    auto& mine = held_.empty() ? air_->at[me_] : held_;
    const bool alone = F == flaw::ends_with_its_peer && !air_->open[1 - me_];
    if (alone) return {io_status::closed, 0, 0};
    while (!mine.empty()) {
      air::datagram d = std::move(mine.front());
      mine.pop_front();
      if (F == flaw::forgets_what_it_holds && !mine.empty() && held_.empty()) std::swap(held_, mine);
      if (d.damaged && F != flaw::believes_damage) continue;
      if (F == flaw::joins && !mine.empty())
        d.bytes.insert(d.bytes.end(), mine.front().bytes.begin(), mine.front().bytes.end());
      if (d.bytes.size() > memory.size()) {
        if (F == flaw::ends_when_it_is_long) return {io_status::failed, EMSGSIZE, 0};
        if (F != flaw::cuts) continue;
        d.bytes.resize(memory.size());
      }
      std::memcpy(memory.data(), d.bytes.data(), d.bytes.size());
      if (F == flaw::receives_too_far && memory.size() == 100) memory.data()[100] = std::byte{1};
      from.number = F == flaw::names_itself ? me_ : d.from;
      used_ = true;
      return {io_status::ok, 0, d.bytes.size() + (F == flaw::says_too_much ? 1 : 0)};
    }
    if (F == flaw::receive_waits) air_->now += 60'000;
    return {F == flaw::receives_nothing_well ? io_status::ok : io_status::would_block, 0, 0};
  }
  io_result send(std::span<const std::span<const std::byte>> spans, const address& to) noexcept {
    ++air_->now;
    if (F == flaw::throws) (void)std::string().at(1);  // out of a noexcept function
    if (F == flaw::crashes) ::raise(SIGSEGV);
    if (F == flaw::raises_signals) ::raise(SIGPIPE);
    if (F == flaw::allocates || F == flaw::allocates_as_stated) ++allocations;
    std::size_t bytes = 0;
    for (const auto& s : spans) bytes += s.size();
    const int there = to.number;
    if (F == flaw::ends_with_its_peer && !air_->open[1 - me_]) return {io_status::closed, ECONNREFUSED, 0};
    if (there < 0 || there > 1 || !air_->open[there]) return {io_status::ok, 0, 0};
    if (air_->at[there].size() >= air_->room) {
      if (F == flaw::send_waits) air_->now += 60'000;
      if (F == flaw::takes_a_part && bytes > 100) return {io_status::ok, 0, bytes - 1};
      blocked_ = true;
      return {air_->drops ? io_status::ok : io_status::would_block, 0, 0};
    }
    if (there == me_ || (F == flaw::drops_the_longest && bytes == max_datagram_bytes)) return {io_status::ok, 0, bytes};
    air::datagram d{me_, {}, std::exchange(air_->damage, false)};
    for (std::size_t i = 0; i < spans.size(); ++i) {
      const auto& s = spans[F == flaw::sends_backwards ? spans.size() - 1 - i : i];
      d.bytes.insert(d.bytes.end(), s.begin(), s.end());
    }
    if (d.damaged) d.bytes[d.bytes.size() / 2] ^= std::byte{4};
    air_->put(there, std::move(d));
    return {io_status::ok, 0, bytes};
  }
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    ++air_->now;
    const bool has = !air_->at[me_].empty() || (F != flaw::forgets_what_it_holds && !held_.empty()),
               room = air_->at[1 - me_].size() < air_->room || air_->drops;
    io_ready r{read && has, write && room};
    if (F == flaw::never_readable) r.read = false;
    if (F == flaw::never_writable || (F == flaw::stays_blocked && blocked_)) r.write = false;
    if (F == flaw::always_readable && read) r.read = true;
    if (F == flaw::answers_too_much && (r.read || r.write)) r = {true, true};
    if (!r.read && !r.write && F != flaw::never_waits) air_->now += static_cast<std::uint64_t>(timeout.count()) * 1000;
    return r;
  }

 private:
  std::shared_ptr<air> air_;
  int me_, open_;
  bool blocked_ = false, used_ = false;
  std::deque<air::datagram> held_;
};

template <flaw F>
struct on_the_air {
  air conditions{};
  std::shared_ptr<air> last = std::make_shared<air>();
  std::uint64_t before = 0;
  result<datagram_pair<radio<F>>> operator()() {
    before += last->now;
    last = std::make_shared<air>(conditions);
    return datagram_pair<radio<F>>{radio<F>(last, 0), radio<F>(last, 1), {1}};
  }
  std::uint64_t now_us() const noexcept { return before + last->now; }
  void damage_next() noexcept { last->damage = true; }
};

template <flaw F>
void expect_only(std::string_view number) {
  const auto r = check_datagram_link(on_the_air<F>{}, {.patience = 300ms, .allocations = &allocations_so_far});
  EXPECT_TRUE(number.empty() ? r.passed() : r.failed(number)) << number;
  EXPECT_EQ(r.count(check_result::failed), number.empty() ? 0u : 1u) << number;
  if (r.count(check_result::failed) != (number.empty() ? 0u : 1u) || (!number.empty() && !r.failed(number)))
    r.print(stderr);
}
TEST(DatagramConformance, A_link_without_a_flaw_passes) {
  expect_only<flaw::none>("");
  expect_only<flaw::allocates_as_stated>("");
}
TEST(DatagramConformance, Each_flaw_of_addresses_and_sizes_fails_its_own_check) {
  expect_only<flaw::hashes_its_place>("1.1");
  expect_only<flaw::names_itself>("1.2");
  expect_only<flaw::says_too_little>("2.1");
  expect_only<flaw::drops_the_longest>("2.2");
}
TEST(DatagramConformance, Each_flaw_of_receiving_fails_its_own_check) {
  expect_only<flaw::receives_nothing_well>("3.1");
  expect_only<flaw::receive_waits>("3.2");
  expect_only<flaw::receives_too_far>("3.3");
  expect_only<flaw::says_too_much>("3.3");
  expect_only<flaw::joins>("3.4");
  expect_only<flaw::cuts>("3.5");
  expect_only<flaw::ends_when_it_is_long>("3.5");
  expect_only<flaw::believes_damage>("6.1");
}
TEST(DatagramConformance, Each_flaw_of_sending_fails_its_own_check) {
  expect_only<flaw::sends_backwards>("4.1");
  expect_only<flaw::send_waits>("4.2");
  expect_only<flaw::takes_a_part>("4.3");
  expect_only<flaw::stays_blocked>("4.4");
  expect_only<flaw::ends_with_its_peer>("4.5");
}
TEST(DatagramConformance, Each_flaw_of_waiting_fails_its_own_check) {
  expect_only<flaw::never_readable>("5.1");
  expect_only<flaw::never_writable>("5.2");
  expect_only<flaw::always_readable>("5.3");
  expect_only<flaw::never_waits>("5.4");
  expect_only<flaw::answers_too_much>("5.5");
  expect_only<flaw::forgets_what_it_holds>("5.6");
}
TEST(DatagramConformance, Each_flaw_of_moving_and_ending_fails_its_own_check) {
  expect_only<flaw::forgets_when_moved>("8.1");
  expect_only<flaw::stays_open>("8.2");
  expect_only<flaw::raises_signals>("8.3");
  expect_only<flaw::allocates>("8.4");
}
TEST(DatagramConformanceDeathTest, A_crash_is_a_line_before_it_is_the_end) {
  EXPECT_DEATH((void)check_datagram_link(on_the_air<flaw::crashes>{}),
               "FAILED 3.3 a receive stays within its memory.*: the program crashed");
  EXPECT_DEATH((void)check_datagram_link(on_the_air<flaw::throws>{}),
               "FAILED 3.3 a receive stays within its memory.*: the program crashed");
}
TEST(DatagramConformance, A_link_may_lose_and_double_and_reorder_and_drop) {
  for (const air& conditions :
       {air{.lost = 300, .doubled = 100, .late = 200}, air{.room = 3, .drops = true}, air{.lost = 200, .room = 2}}) {
    const auto r = check_datagram_link(on_the_air<flaw::none>{conditions}, {.allocations = &allocations_so_far});
    EXPECT_TRUE(r.passed());
    EXPECT_GE(r.count(check_result::passed), 23u);
    if (!r.passed()) r.print(stderr);
  }
}

}  // namespace datagram_conformance_test
