// An owner that one thread at a time may use, for Python's threads: one serves, and the others publish and ask between
// its turns.
#pragma once

#include "any_owner.hpp"

#include <tensorpull/transports/peers/owner.hpp>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace tensorpull::python {

/// What ends a wait of another thread.
class bell {
 public:
  bell() noexcept : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  bell(bell&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  bell& operator=(bell&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~bell() {
    if (fd_ >= 0) ::close(fd_);
  }
  /// Ends the wait that is under way, or the next one. Any thread may call it.
  void ring() const noexcept {
    const std::uint64_t once = 1;
    (void)!::write(fd_, &once, sizeof once);
  }
  /// Waits until it rings, or until poll() reports something of `other`.
  void wait(const pollfd& other, std::chrono::milliseconds time) const noexcept {
    pollfd both[] = {other, {fd_, POLLIN, 0}};
    std::uint64_t rung = 0;
    if (::poll(both, 2, static_cast<int>(time.count())) > 0 && both[1].revents != 0)
      (void)!::read(fd_, &rung, sizeof rung);
  }

 private:
  int fd_;
};

/// A link of one descriptor whose wait another thread can end.
template <class Link>
class link_with_bell : public Link {
 public:
  explicit link_with_bell(Link&& link) noexcept : Link(std::move(link)) {}
  /// As that of the bell.
  void ring() const noexcept { bell_.ring(); }
  io_ready wait(bool read, bool write, std::chrono::milliseconds time) noexcept {
    const io_ready now = Link::wait(read, write, {});
    if (now.read || now.write || time.count() <= 0) return now;
    const bool full = !Link::wait(false, true, {}).write;  // what was collected waits for room
    const int events = (read ? POLLIN : 0) | (write || full ? POLLOUT : 0);
    bell_.wait({this->native_handle(), static_cast<short>(events), 0}, std::min(time, std::chrono::milliseconds(50)));
    return Link::wait(read, write, {});
  }

 private:
  bell bell_;
};

/// A lock that its holder may take again, since callbacks publish and ask. A thread that serves waits for all others.
class turns {
 public:
  /// Makes the thread that serves end its wait; none: it ends by its time.
  std::function<void()> hurry;

  class turn {
   public:
    explicit turn(turns& of, bool serves = false) : of_(of) { of_.take(serves); }
    turn(const turn&) = delete;
    turn& operator=(const turn&) = delete;
    ~turn() { of_.give(); }

   private:
    turns& of_;
  };

 private:
  void take(bool serves) {
    std::unique_lock lock(mutex_);
    if (depth_ == 0 || holder_ != std::this_thread::get_id()) {
      waiting_ += !serves;
      if (!serves && depth_ > 0 && hurry) hurry();
      changed_.wait(lock, [&] { return depth_ == 0 && (!serves || waiting_ == 0); });
      waiting_ -= !serves;
      holder_ = std::this_thread::get_id();
    }
    ++depth_;
  }
  void give() {
    const std::lock_guard lock(mutex_);
    if (--depth_ == 0) changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread::id holder_{};
  std::size_t depth_ = 0, waiting_ = 0;
};

/// A call waits while another thread serves: until it is told to hurry, or 0.05 s at most. `Borrowed`: what the
/// downloader borrows.
template <class Downloader, class Borrowed = int>
struct owner_by_turns final : any_owner {
  explicit owner_by_turns(Borrowed b) : borrowed(std::move(b)) {}
  std::uint16_t port() const noexcept override {
    if constexpr (requires { of->port(); }) return of->port();
    else return 0;
  }
  std::size_t connections() const noexcept override {
    const turns::turn mine(each);
    return of->peers();
  }
  result<reference> add_image(const source_view& image, const publish_options& options,
                              unique_any keep) noexcept override {
    const turns::turn mine(each);
    return of->add_image(image, options, std::move(keep));
  }
  result<transaction_id> add_images(std::vector<transaction_image>& images, const transaction_options& options,
                                    unique_any keep, const stop_token& stop) noexcept override {
    const turns::turn mine(each);
    if constexpr (requires { of->add_images(images, options, std::move(keep), stop); })
      return of->add_images(images, options, std::move(keep), stop);
    else return failure(errc::unsupported_request, 0, std::string_view("a transaction over NATS"));
  }
  result<void> withdraw(const reference& ref) noexcept override {
    const turns::turn mine(each);
    return of->withdraw(ref);
  }
  result<publication_status> status_of(const reference& ref) const noexcept override {
    const turns::turn mine(each);
    return of->status_of(ref);
  }
  result<settlement> settlement_of(const reference& ref) noexcept override {
    const turns::turn mine(each);
    return of->settlement_of(ref);
  }
  result<recipient_record> recipient_of(const reference& ref, recipient_id who) noexcept override {
    const turns::turn mine(each);
    return of->recipient_of(ref, who);
  }
  bool settled(const reference& ref) const noexcept override {
    const turns::turn mine(each);
    return of->settled(ref);
  }
  void run(const std::function<bool()>& until) override {
    while (!until()) {
      const turns::turn mine(each, true);
      bool served = false;
      of->run([&](const Downloader&) { return std::exchange(served, true); });
    }
  }

  Borrowed borrowed;
  mutable turns each;
  std::optional<Downloader> of;  ///< set before anybody else has this object
};

/// What an owner of peers that say no goodbye takes of a host's options. Their places are allocated at once, so there
/// are not more of them than `most`.
inline datagram_owner_options peers_of(const host_options& host, std::string_view listen,
                                       std::size_t most = datagram_owner_options{}.peers) {
  datagram_owner_options o;
  o.listen = listen;
  o.peers = std::min(host.max_connections, most);
  o.budgets.accept = host.budgets.accept;
  o.budgets.idle = host.budgets.idle;
  o.limits = host.limits;
  o.room = host.room;
  return o;
}

}  // namespace tensorpull::python
