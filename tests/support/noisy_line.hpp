// Two pseudo-terminals with a wire between them that carries bytes at a rate, changes, loses and adds some, and can be
// cut. A thread is the wire.
#pragma once

#include "own_folder.hpp"
#include "threads.hpp"
#include "waiting.hpp"
#include "words.hpp"

#include <tensorpull/testing/seeded_random.hpp>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <termios.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace test {

/// What a wire does to a million bytes, in each direction.
struct line_noise {
  std::uint32_t flipped = 0;   ///< another byte comes instead
  std::uint32_t lost = 0;      ///< none comes
  std::uint32_t inserted = 0;  ///< one more comes
  std::uint64_t seed = 1;
};

/// The master of a pseudo-terminal.
class pty {
 public:
  pty() : master_(::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC)) {
    std::array<char, 64> name{};
    if (master_ < 0 || ::grantpt(master_) != 0 || ::unlockpt(master_) != 0 ||
        ::ptsname_r(master_, name.data(), name.size()) != 0)
      throw std::system_error(errno, std::generic_category(), "no pseudo-terminal");
    path_ = name.data();
    // held open, so that the master does not end while nobody has the line; raw from the start
    held_ = ::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC);
    termios t{};
    ::tcgetattr(held_, &t);
    ::cfmakeraw(&t);
    ::tcsetattr(held_, TCSANOW, &t);
  }
  pty(const pty&) = delete;
  pty& operator=(const pty&) = delete;
  ~pty() { vanish(); }
  /// The tty is gone, as if its adapter had been pulled out.
  void vanish() noexcept {
    for (int* fd : {&master_, &held_})
      if (*fd >= 0) ::close(std::exchange(*fd, -1));
  }
  const std::string& path() const noexcept { return path_; }
  int master() const noexcept { return master_; }

 private:
  int master_, held_ = -1;
  std::string path_;
};

/// A name for a tty, as /dev/serial/by-id has one for each adapter: the adapter can be pulled out, and plugged in
/// again.
class adapter {
 public:
  adapter() { plug_in(); }
  adapter(const adapter&) = delete;
  adapter& operator=(const adapter&) = delete;
  ~adapter() { pull_out(); }
  const std::string& name() const noexcept { return name_; }
  /// -1: it is pulled out.
  int master() const noexcept { return tty_ ? tty_->master() : -1; }
  void plug_in() {
    tty_.emplace();
    std::filesystem::create_symlink(tty_->path(), name_);
  }
  void pull_out() {
    tty_.reset();
    std::error_code none;
    std::filesystem::remove(name_, none);
  }

 private:
  own_folder folder_;
  std::string name_ = folder_ / "tty";
  std::optional<pty> tty_;
};

/// Carries from when it is made until it is destroyed.
class noisy_line {
 public:
  /// `rate`: bytes a second in each direction; 0: as fast as it goes.
  explicit noisy_line(const line_noise& noise = {}, std::uint64_t rate = 0)
      : noise_(noise), rate_(rate), random_(noise.seed) {}
  const std::string& left() const noexcept { return end_[0].name(); }
  const std::string& right() const noexcept { return end_[1].name(); }
  /// Bytes carried so far from end 0 or 1, noise included.
  std::uint64_t carried(int from) const noexcept { return carried_[static_cast<std::size_t>(from)]; }
  /// From now on bytes are lost, or carried again.
  void cut(bool is) noexcept { cut_ = is; }
  /// The next bytes that come by are damaged: a bit of one of them.
  void damage_next() noexcept { damage_ = true; }
  /// Whether the damage has been done.
  bool damaged() const noexcept { return !damage_; }
  /// The tty of one end is gone, or there again as a new one of the same name.
  void vanish(int end) {
    const std::lock_guard lock(mutex_);
    end_[static_cast<std::size_t>(end)].pull_out();
  }
  void come_back(int end) {
    const std::lock_guard lock(mutex_);
    end_[static_cast<std::size_t>(end)].plug_in();
  }

 private:
  void carry(const std::stop_token& stop) {
    using clock = std::chrono::steady_clock;
    auto before = clock::now();
    std::array<double, 2> may{};
    std::array<pollfd, 2> p{};
    while (!stop.stop_requested()) {
      {
        const auto now = clock::now();
        // a wire that this machine let sleep catches up with what has waited for it, and not with time in which there
        // was nothing to carry
        for (double& m : may)
          m = rate_ == 0
                  ? 4096.
                  : std::min(m + std::chrono::duration<double>(now - before).count() * static_cast<double>(rate_),
                             std::max(256., static_cast<double>(rate_) / 10));
        before = now;
        const std::lock_guard lock(mutex_);
        for (std::size_t from = 0; from < 2; ++from) may[from] = step(from, may[from]);
        for (std::size_t i = 0; i < 2; ++i)
          p[i] = {end_[i].master(),
                  static_cast<short>((waiting_[1 - i].empty() ? 0 : POLLOUT) | (waiting_[i].empty() ? POLLIN : 0)), 0};
      }
      if (rate_ == 0) ::poll(p.data(), 2, 1);
      else be_slow(500us);
    }
  }
  /// Moves at most so many bytes from one end to the other; returns how many more may leave the first at once.
  double step(std::size_t from, double most) {
    auto& waiting = waiting_[from];
    if (waiting.empty() && most >= 1) {
      std::array<std::byte, 4096> bytes;
      const std::size_t asked = std::min(static_cast<std::size_t>(most), bytes.size());
      const auto n = ::read(end_[from].master(), bytes.data(), asked);
      const bool quiet = noise_.flipped + noise_.lost + noise_.inserted == 0 && !cut_;
      if (quiet && n > 0) waiting.assign(bytes.begin(), bytes.begin() + n);
      for (ssize_t i = 0; !quiet && i < n; ++i) {
        if (cut_ || random_.below(1'000'000) < noise_.lost) continue;
        if (random_.below(1'000'000) < noise_.inserted) waiting.push_back(static_cast<std::byte>(random_.below(256)));
        std::byte b = bytes[static_cast<std::size_t>(i)];
        if (random_.below(1'000'000) < noise_.flipped) b ^= static_cast<std::byte>(1 + random_.below(255));
        waiting.push_back(b);
      }
      if (n > 0 && damage_ && !waiting.empty()) {
        waiting[random_.below(waiting.size())] ^= static_cast<std::byte>(1u << random_.below(8));
        damage_ = false;
      }
      if (n > 0) carried_[from] += static_cast<std::uint64_t>(n);
      most = n == static_cast<ssize_t>(asked) ? most - static_cast<double>(n) : 0;
    }
    if (!waiting.empty()) {
      const auto n = ::write(end_[1 - from].master(), waiting.data(), waiting.size());
      if (n > 0) waiting.erase(waiting.begin(), waiting.begin() + n);
    }
    return most;
  }

  line_noise noise_;
  std::uint64_t rate_;
  tensorpull::testing::seeded_random random_;
  std::array<adapter, 2> end_;
  std::array<byte_vector, 2> waiting_ = [] {
    std::array<byte_vector, 2> both;
    for (auto& w : both) w.reserve(8192);  // a test may count allocations
    return both;
  }();
  std::array<std::atomic<std::uint64_t>, 2> carried_{};
  std::atomic<bool> cut_{false}, damage_{false};
  std::mutex mutex_;
  joined_thread wire_{[this](const std::stop_token& stop) { carry(stop); }};
};

}  // namespace test
