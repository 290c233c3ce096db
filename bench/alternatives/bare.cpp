// The bare socket loop that everything is compared with: what a careful programmer writes without a library, and
// without any check. Variants: pull (requests of one chunk, a window of them in flight), push (one request, then all
// bytes), copy (memcpy, no socket). The sender has one thread that waits with epoll, or with `--threads 0` a thread for
// each connection.
#include "../job/job.hpp"
#include "sockets.hpp"

#include <fcntl.h>
#include <sys/epoll.h>

#include <cerrno>
#include <thread>

class sender {
 public:
  sender(const bench::job& j, const bench::model& m) : from_(m.block()) {
    listener_ = bench::listen_on_loopback(port_);
    if (j.threads == 0) {
      std::thread([this] {
        for (;;) {
          const int fd = ::accept(listener_, nullptr, nullptr);
          std::thread([this, fd] { serve(fd); }).detach();
        }
      }).detach();
    } else {
      std::thread([this] { serve_all(); }).detach();
    }
  }
  std::string address() const { return std::to_string(port_); }

 private:
  struct connection {
    int fd;
    bench::bare_request now{};
  };

  void serve(int fd) const {
    bench::no_delay(fd);
    bench::bare_request r;
    while (bench::receive_all(fd, reinterpret_cast<std::byte*>(&r), sizeof r))
      if (!bench::send_all(fd, from_.data() + r.offset, r.length)) break;
    ::close(fd);
  }

  /// Sends and reads what can be without waiting. False: the connection is closed.
  bool go_on(connection& c) const {
    for (;;) {
      while (c.now.length > 0) {
        const ssize_t k = ::send(c.fd, from_.data() + c.now.offset, c.now.length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k < 0) return errno == EAGAIN;
        c.now.offset += static_cast<std::uint64_t>(k);
        c.now.length -= static_cast<std::uint64_t>(k);
      }
      bench::bare_request r;
      const ssize_t k = ::recv(c.fd, &r, sizeof r, MSG_DONTWAIT);
      if (k < 0) return errno == EAGAIN;
      if (k != sizeof r) return false;  // 16 bytes sent at once arrive at once on this interface
      c.now = r;
    }
  }
  void serve_all() {
    const int poll = ::epoll_create1(0);
    epoll_event e{.events = EPOLLIN, .data = {.ptr = nullptr}};
    ::epoll_ctl(poll, EPOLL_CTL_ADD, listener_, &e);
    std::vector<epoll_event> ready(256);
    for (;;) {
      const int n = ::epoll_wait(poll, ready.data(), static_cast<int>(ready.size()), -1);
      for (int i = 0; i < n; ++i) {
        auto* c = static_cast<connection*>(ready[static_cast<std::size_t>(i)].data.ptr);
        if (c == nullptr) {
          c = new connection{::accept(listener_, nullptr, nullptr)};
          bench::no_delay(c->fd);
          e = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {.ptr = c}};
          ::epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &e);
        }
        if (!go_on(*c)) {
          ::close(c->fd);
          delete c;
        }
      }
    }
  }

  std::span<const std::byte> from_;
  int listener_;
  std::uint16_t port_ = 0;
};

class receiver {
 public:
  receiver(const bench::job& j) : job_(j) {
    if (j.variant == "copy") {
      from_ = std::make_unique<bench::model>(j.sizes());
      from_->fill();
    } else fd_ = bench::connect_to_loopback(static_cast<std::uint16_t>(std::atoi(j.address.c_str())));
  }
  bench::clock::time_point pull(bench::model& m) {
    bench::clock::time_point first{};
    const auto landed = [&](std::size_t so_far) {
      if (first == bench::clock::time_point{} && so_far >= m.first_tensor_ends_at()) first = bench::clock::now();
    };
    const auto to = m.block();
    if (job_.variant == "copy") {
      for (std::size_t at = 0; at < to.size(); at += job_.chunk) {
        const std::size_t n = std::min(job_.chunk, to.size() - at);
        std::memcpy(to.data() + at, from_->block().data() + at, n);
        landed(at + n);
      }
    } else if (job_.variant == "push") {
      const bench::bare_request all{0, to.size()};
      if (!bench::send_all(fd_, reinterpret_cast<const std::byte*>(&all), sizeof all))
        bench::give_up("the sender has gone");
      for (std::size_t at = 0; at < to.size();) {
        const std::size_t n = std::min(job_.chunk, to.size() - at);
        if (!bench::receive_all(fd_, to.data() + at, n)) bench::give_up("the sender has gone");
        landed(at += n);
      }
    } else {
      bench::bare_pull(fd_, to.data(), to.size(), job_.chunk, job_.window, landed);
    }
    return first;
  }

 private:
  const bench::job& job_;
  std::unique_ptr<bench::model> from_;
  int fd_ = -1;
};

int main(int count, char** arguments) { return bench::run_job<sender, receiver>(count, arguments); }
