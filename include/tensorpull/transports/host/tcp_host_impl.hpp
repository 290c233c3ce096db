// How tcp_host accepts, connects, keeps its list and watches its budgets. Included by tcp_host.hpp.
#pragma once

#include <tensorpull/transports/host/tcp_host.hpp>

namespace tensorpull {

template <class P, class H, class C, bool T>
result<std::uint16_t> tcp_host<P, H, C, T>::listen(std::string_view address) noexcept {
  auto listener = tcp_listener::open(address, 4096);
  if (!listener) return failure(listener.error());
  posix_stream s = listener->release();
  boost::system::error_code failed;
  try {
    acceptor_.assign(s.native_handle(), failed);
  } catch (...) {  // the event loop's record of the descriptor
    return failure(errc::out_of_memory, 0, address);
  }
  if (failed) return failure(errc::io, 0, address, failed.value());
  (void)s.release();
  at_door(looked);
  return listener->port();
}

template <class P, class H, class C, bool T>
auto tcp_host<P, H, C, T>::connect(std::string_view address, std::uint64_t tag) noexcept -> result<connection*> {
  const auto parsed = parse_address(address);
  if (!parsed) return failure(parsed.error());
  const auto list = detail::resolve(*parsed, address, false);
  if (!list) return failure(list.error());
  const addrinfo& a = **list;
  posix_stream s(::socket(a.ai_family, a.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a.ai_protocol));
  if (s.native_handle() < 0) return failure(errc::connection_failed, 0, address, errno);
  if (::connect(s.native_handle(), a.ai_addr, a.ai_addrlen) != 0 && errno != EINPROGRESS) return failure(errc::connection_failed, 0, address, errno);
  connection* const c = make(s.native_handle(), true, tag);
  if (c == nullptr) return failure(errc::out_of_memory);
  (void)s.release();
  c->again();
  return c;
}

template <class P, class H, class C, bool T>
auto tcp_host<P, H, C, T>::make(int fd, bool connecting, std::uint64_t tag) noexcept -> connection* {
  try {
    const auto shared = std::make_shared<connection>(*this, io_.get_executor(), fd, connecting);
    connection* const c = shared.get();
    c->tag = tag;
    const lock_guard hold(lock_);
    c->self_ = shared;
    c->next_ = first_;
    if (first_ != nullptr) first_->previous_ = c;
    first_ = c;
    ++count_;
    return c;
  } catch (...) {
    return nullptr;  // the descriptor is still the caller's
  }
}

/// The event loop keeps a record of each descriptor that it has ever watched at the same time, and uses it again. Made here, from
/// copies of one descriptor, that high-water mark does not move with the number of participants.
template <class P, class H, class C, bool T>
void tcp_host<P, H, C, T>::reserve(std::size_t count) {
  std::deque<boost::asio::posix::basic_stream_descriptor<executor>> watched;  // of a type that Asio 1.74 cannot move
  posix_stream original(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  for (std::size_t i = 0; i < count; ++i) {
    posix_stream copy(::fcntl(original.native_handle(), F_DUPFD_CLOEXEC, 0));
    if (copy.native_handle() < 0) return;  // fewer descriptors than asked for: then there will not be as many connections either
    watched.emplace_back(io_.get_executor(), copy.native_handle());
    (void)copy.release();
  }
}

template <class P, class H, class C, bool T>
void tcp_host<P, H, C, T>::at_door(std::uint32_t what) noexcept {
  door_.pass(what, [this](std::uint32_t events) noexcept {
    if (events & arrived) accept_waits_ = false;
    if (stopping_) {
      boost::system::error_code ignored;
      acceptor_.close(ignored);
    } else if (!(events & arrived) || accept_more()) {
      await_accept();
    }
  });
}

template <class P, class H, class C, bool T>
void tcp_host<P, H, C, T>::await_accept() noexcept {
  if (accept_waits_ || !acceptor_.is_open() || count_ >= options_.max_connections) return;
  accept_waits_ = true;
  acceptor_.async_wait(acceptor_.wait_read, detail::in_memory(anchor_->accept_memory, [a = anchor_](const boost::system::error_code&) {
    if (a->host != nullptr) a->host->at_door(arrived);
  }));
}

/// False: there is nothing for another connection now; the next tick tries again, so nothing spins.
template <class P, class H, class C, bool T>
bool tcp_host<P, H, C, T>::accept_more() noexcept {
  for (int i = 0; i < 64 && count_ < options_.max_connections; ++i) {
    posix_stream s(::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (s.native_handle() < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) return false;
      if (errno != EINTR && errno != ECONNABORTED) break;
      continue;
    }
    detail::tune_connected(s.native_handle());
    connection* const c = make(s.native_handle(), false, 0);
    if (c == nullptr) return false;
    (void)s.release();
    c->again();  // another thread may tell the handler at once
  }
  return true;
}

template <class P, class H, class C, bool T>
void tcp_host<P, H, C, T>::tick() {
  timer_.expires_after(tick_interval);
  timer_.async_wait(detail::in_memory(anchor_->timer_memory, [a = anchor_](const boost::system::error_code&) {
    if (a->host != nullptr) a->host->at_clock(passed);
  }));
}

template <class P, class H, class C, bool T>
void tcp_host<P, H, C, T>::at_clock(std::uint32_t what) noexcept {
  clock_.pass(what, [this](std::uint32_t events) noexcept {
    if (stopping_) timer_.cancel();
    else if (events & passed) ticked();
  });
}

template <class P, class H, class C, bool T>
void tcp_host<P, H, C, T>::ticked() noexcept {
  {
    const lock_guard hold(lock_);
    const auto now = std::chrono::steady_clock::now();
    constexpr auto relaxed = std::memory_order_relaxed;
    for (connection* c = first_; c != nullptr; c = c->next_)
      if (c->watch_.over(options_.budgets, now, c->bytes_.load(relaxed), c->owing_.load(relaxed), c->greeted_.load(relaxed))) c->end_later(errc::timed_out);
  }
  published_.tick();
  feed();
  at_door(looked);
  tick();
}

/// Takes a closed connection out of the lists and gives up the host's share of it.
template <class P, class H, class C, bool T>
void tcp_host<P, H, C, T>::release(connection& c) noexcept {
  std::shared_ptr<connection> share;
  bool was_full = false;
  {
    const lock_guard hold(lock_);
    was_full = count_ >= options_.max_connections;
    (c.previous_ != nullptr ? c.previous_->next_ : first_) = c.next_;
    if (c.next_ != nullptr) c.next_->previous_ = c.previous_;
    if (c.starving_) {
      connection* before = nullptr;
      for (connection* s = starving_first_; s != &c; s = s->next_starving_) before = s;
      (before != nullptr ? before->next_starving_ : starving_first_) = c.next_starving_;
      if (starving_last_ == &c) starving_last_ = before;
    }
    --count_;
    share = std::move(c.self_);
  }
  if (was_full && anchor_->host != nullptr) at_door(looked);
}

template <class P, class H, class C, bool T>
void tcp_host<P, H, C, T>::starving(connection& c) noexcept {
  const lock_guard hold(lock_);
  if (c.starving_) return;
  c.starving_ = true;
  c.next_starving_ = nullptr;
  (starving_last_ != nullptr ? starving_last_->next_starving_ : starving_first_) = &c;
  starving_last_ = &c;
}

/// Memory became free: the connection that has waited longest may try again.
template <class P, class H, class C, bool T>
void tcp_host<P, H, C, T>::feed() noexcept {
  const lock_guard hold(lock_);
  connection* const c = starving_first_;
  if (c == nullptr) return;
  starving_first_ = c->next_starving_;
  if (starving_first_ == nullptr) starving_last_ = nullptr;
  c->starving_ = false;
  c->again();
}

}  // namespace tensorpull
