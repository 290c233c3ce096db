// A long line between two network namespaces: delay, a rate, a queue before the bottleneck, and loss. It is a process
// that carries packets from one TUN device to another, since kernels of containers often have no netem.
#pragma once

#include "../measure.hpp"

#include <tensorpull/testing/seeded_random.hpp>

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <arpa/inet.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <fstream>
#include <new>

namespace bench {

struct line_conditions {
  double round_trip = 0;  ///< seconds, there and back without a queue
  double bytes_per_second = 0;  ///< each way
  double loss = 0;  ///< of the packets, each way; 1 is all
  std::string congestion{};  ///< of the TCP at both ends; empty: the system's
};

/// What the line did, and what it is told. In memory that both processes share.
struct line_counts {
  std::uint64_t carried = 0, lost = 0, queue_was_full = 0;
  double late = 0;  ///< seconds that the packets left later than they should, all together
  /// When the line carries nothing, in seconds of the system's monotonic clock.
  std::atomic<double> gone_from = 0, gone_until = 0;

  bool gone() const {
    const double now = std::chrono::duration<double>(clock::now().time_since_epoch()).count();
    return now >= gone_from && now < gone_until;
  }
};

/// A network namespace without a name: it is gone when the last process in it has ended and the last descriptor is
/// closed, so however a run ends there is nothing to clean up.
class network_end {
 public:
  /// This process is in the new namespace then. A failure is the name of the step, with errno.
  network_end(const char* address, const std::string& congestion, const char*& failed) {
    if (failed != nullptr) return;
    if (::unshare(CLONE_NEWNET) != 0) {
      failed = "a network namespace";
      return;
    }
    packets_ = ::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    ifreq name{};
    std::strcpy(name.ifr_name, "wan");
    ifreq device = name;
    device.ifr_flags = IFF_TUN | IFF_NO_PI;
    if (packets_ < 0 || ::ioctl(packets_, TUNSETIFF, &device) != 0) {
      failed = "a TUN device";
      return;
    }
    const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifreq at = name, mask = name, queue = name, up = name, loopback = name;
    put(at.ifr_addr, address);
    put(mask.ifr_netmask, "255.255.255.0");
    queue.ifr_qlen = 10000;  // the line's own queue is the one that is to fill
    up.ifr_flags = loopback.ifr_flags = IFF_UP | IFF_RUNNING;
    std::strcpy(loopback.ifr_name, "lo");
    if (::ioctl(socket, SIOCSIFADDR, &at) != 0 || ::ioctl(socket, SIOCSIFNETMASK, &mask) != 0 ||
        ::ioctl(socket, SIOCSIFTXQLEN, &queue) != 0 || ::ioctl(socket, SIOCSIFFLAGS, &up) != 0 ||
        ::ioctl(socket, SIOCSIFFLAGS, &loopback) != 0)
      failed = "the TUN device's address";
    ::close(socket);
    // 64 MiB hold what the longest of the lines has on its way twice. What one connection has learned about the path is
    // kept from the next, or the cases would depend on their order.
    if (!set("tcp_rmem", "4096 131072 67108864") || !set("tcp_wmem", "4096 16384 67108864") ||
        !set("tcp_no_metrics_save", "1") || (!congestion.empty() && !set("tcp_congestion_control", congestion)))
      failed = "the settings of TCP";
    space_ = ::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  }
  network_end(const network_end&) = delete;
  ~network_end() {
    ::close(space_);
    ::close(packets_);
  }
  void enter() const {
    if (::setns(space_, CLONE_NEWNET) != 0) std::abort();
  }
  int packets() const { return packets_; }

 private:
  static void put(sockaddr& to, const char* address) {
    auto& a = reinterpret_cast<sockaddr_in&>(to);
    a.sin_family = AF_INET;
    ::inet_pton(AF_INET, address, &a.sin_addr);
  }
  /// /proc/sys/net shows the namespace that this process is in.
  static bool set(const char* name, const std::string& value) {
    std::ofstream file(std::string("/proc/sys/net/ipv4/") + name);
    return static_cast<bool>(file << value << std::flush);
  }

  int space_ = -1, packets_ = -1;
};

/// One way of the line. A packet waits until those before it have left the bottleneck, and then takes half the round
/// trip. It is dropped if it would wait before the bottleneck for longer than a whole one.
class one_way {
 public:
  one_way(int from, int to, const line_conditions& c) : from_(from), to_(to), c_(c) {}

  int from() const { return from_; }
  bool idle() const { return under_way_.empty(); }
  void take(double now, tensorpull::testing::seeded_random& random, line_counts& counts) {
    const bool gone = counts.gone();
    for (int i = 0; i < 256; ++i) {
      under_way_.emplace_back();
      packet& p = under_way_.back();
      const ssize_t n = ::read(from_, p.bytes.data(), p.bytes.size());
      const bool came = n > 0, full = free_at_ - now > c_.round_trip;
      if (!came || full || gone || static_cast<double>(random.below(1'000'000)) < c_.loss * 1e6) {
        under_way_.pop_back();
        if (!came) return;
        ++(full ? counts.queue_was_full : counts.lost);
        continue;
      }
      free_at_ = std::max(free_at_, now) + static_cast<double>(n) / c_.bytes_per_second;
      p.size = static_cast<std::size_t>(n);
      p.due = free_at_ + std::max(0.0, c_.round_trip / 2 - tick);
    }
  }
  void give(double now, line_counts& counts) {
    for (; !under_way_.empty() && under_way_.front().due <= now; under_way_.pop_front()) {
      const packet& p = under_way_.front();
      counts.late += now - p.due - tick / 2;
      ++counts.carried;
      if (::write(to_, p.bytes.data(), p.size) < 0) ++counts.queue_was_full;
    }
  }

  /// The line looks so often, so a packet is seen half of this late and leaves half of this late, on average.
  static constexpr double tick = 1e-4;

 private:
  struct packet {
    double due;
    std::size_t size;
    std::array<std::byte, 1500> bytes;
  };
  int from_, to_;
  line_conditions c_;
  std::deque<packet> under_way_;
  double free_at_ = 0;
};

/// The line is up as long as this object is there. The process that makes it is at its near end afterwards.
class line {
 public:
  static constexpr const char *far_address = "10.77.0.1", *near_address = "10.77.0.2";

  explicit line(const line_conditions& c)
      : far_(far_address, c.congestion, failed_), near_(near_address, c.congestion, failed_),
        counts_(new(::mmap(nullptr, sizeof(line_counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
                    line_counts),
        relay_([&](int) { carry(c); }) {}

  /// Why there is no line, or null.
  const char* failed() const { return failed_; }
  const network_end& far() const { return far_; }
  const network_end& near() const { return near_; }
  const line_counts& counts() const { return *counts_; }
  /// It carries nothing for so many seconds, from a second after now.
  void go_for(double seconds) const {
    const double now = std::chrono::duration<double>(clock::now().time_since_epoch()).count();
    counts_->gone_from = now + 1;
    counts_->gone_until = now + 1 + seconds;
  }

 private:
  void carry(const line_conditions& c) {
    if (failed_ != nullptr) return;
    ::prctl(PR_SET_TIMERSLACK, 1);
    tensorpull::testing::seeded_random random(1);
    one_way there(near_.packets(), far_.packets(), c), back(far_.packets(), near_.packets(), c);
    const auto start = clock::now();
    for (;;) {
      if (there.idle() && back.idle()) {
        pollfd any[] = {{there.from(), POLLIN, 0}, {back.from(), POLLIN, 0}};
        ::poll(any, 2, -1);
      } else {
        const timespec pause{0, static_cast<long>(one_way::tick * 1e9)};
        ::nanosleep(&pause, nullptr);
      }
      for (one_way* way : {&there, &back}) {
        way->take(seconds_since(start), random, *counts_);
        way->give(seconds_since(start), *counts_);
      }
    }
  }

  const char* failed_ = nullptr;
  network_end far_, near_;
  line_counts* counts_;
  child relay_;
};

}  // namespace bench
