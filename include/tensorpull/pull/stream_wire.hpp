// A pull over byte streams: what running_pull moves bytes over, and the pull that makes its connections itself.
#pragma once

#include <tensorpull/core/buffer_pool.hpp>
#include <tensorpull/links/pump.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/pull/running_pull.hpp>

#include <array>

namespace tensorpull::detail {

/// A borrowed link of which bytes are due as long as this object is there, if it can look after its line
/// (byte_stream, 8).
template <class Link>
class awaited_link {
 public:
  explicit awaited_link(Link& link) noexcept : link_(&link) { expect_bytes(true); }
  awaited_link(const awaited_link&) = delete;
  awaited_link& operator=(const awaited_link&) = delete;
  ~awaited_link() { expect_bytes(false); }
  Link& operator*() const noexcept { return *link_; }
  Link* operator->() const noexcept { return link_; }

 private:
  void expect_bytes(bool on) noexcept {
    if constexpr (requires { link_->expect_bytes(on); }) link_->expect_bytes(on);
  }
  Link* link_;
};

/// A wire over a stream. Borrows the endpoint and the stream. `scratch`: as for pump_once.
template <class Endpoint, byte_stream Stream>
class stream_pull_wire {
 public:
  stream_pull_wire(Endpoint& end, Stream& stream, std::span<std::byte> scratch = {}) noexcept
      : end_(&end), stream_(stream), scratch_(scratch) {}

  Endpoint& end() noexcept { return *end_; }
  template <class Transfer>
  result<bool> step(Transfer& t) noexcept {
    const auto did = pump_once(*end_, t, *stream_, scratch_, wait_step);
    if (!did) return failure(did.error());
    wants_ = {did->wants_read, did->wants_write};
    return did->received > 0 || did->sent > 0 || did->works || did->waited;
  }
  template <class Transfer>
  void wait(const Transfer&, std::chrono::milliseconds most) noexcept {
    stream_->wait(wants_.read, wants_.write, most);
  }
  template <class Transfer>
  [[gnu::noinline]] void leave(Transfer& t, bool says) noexcept {
    if (says) (void)pump_once(*end_, t, *stream_, scratch_);
  }

 private:
  Endpoint* end_;
  awaited_link<Stream> stream_;
  std::span<std::byte> scratch_;
  io_ready wants_{};
};

/// A stream that the caller owns and closes.
template <byte_stream Stream>
struct borrowed_stream {
  Stream* to;
  io_result read_some(scatter_list s) noexcept { return to->read_some(s); }
  io_result write_some(gather_list s) noexcept { return to->write_some(s); }
  io_ready wait(bool read, bool write, std::chrono::milliseconds t) noexcept { return to->wait(read, write, t); }
  auto take_descriptors() noexcept
    requires requires(Stream& s) { s.take_descriptors(); }
  {
    return to->take_descriptors();
  }
  void expect_bytes(bool on) noexcept
    requires requires(Stream& s) { s.expect_bytes(on); }
  {
    to->expect_bytes(on);
  }
};

/// Runs a pull over streams that `connect() -> result<Stream>` makes: one for each try, the first one too. It has no
/// owner role; the endpoint and its memory are on the stack. `seen(stream)`: the stream as the wire sees it. `besides`:
/// as in running_pull::drive.
template <class Parts, class Pull, class Connect, class Pause, class Seen, class Besides>
result<receipt> run_over_streams(Pull& pull, Connect& connect, Pause& pause, Seen seen, Besides& besides) noexcept {
  using limits = typename Parts::limits;
  ignore_messages handler;
  no_owner none;
  const auto once = [&]() noexcept -> result<void> {
    auto connected = connect();
    if (!connected) return failure(connected.error());
    // for the names of a subset, and for pages of the owner's schema if the schemas differ
    alignas(8) std::array<std::byte, limits::page_bytes> memory;
    buffer_pool<> pool(memory, memory.size());
    endpoint<typename Parts::framing, limits, no_owner, ignore_messages> end(none, pool, handler);
    auto&& stream = seen(*connected);
    stream_pull_wire line(end, stream);
    return pull.drive(line, besides, pause);
  };
  return pull.run(once, pause);
}

}  // namespace tensorpull::detail
