// Recipients in this process for an owner of the same thread: honest ones, and those that end badly.
#pragma once

#include "support/frames.hpp"
#include "transports/network.hpp"

namespace test {

/// Lands in a model that all share (what each received is checked by its digest), and gives up after the first chunk if
/// it is told to.
template <class Model>
struct landing : tp::land {
  bool gives_up;
  landing(Model& m, bool stop) noexcept : tp::land(tp::raw_tensors<Model>::destination(m)), gives_up(stop) {}
  tp::result<void> chunk(std::uint64_t, std::uint64_t) noexcept {
    return gives_up ? tp::result<void>(tp::failure(errc::cancelled)) : tp::result<void>{};
  }
};

/// Connections of one event loop; each pulls what it is told to once it is connected.
template <class Net, class Model>
struct crowd_of {
  using host_type = typename Net::template host<crowd_of, landing<Model>>;
  using connection = typename host_type::connection;

  tp::event_loop io;
  Model& mine;
  tp::reference ref{};
  host_type host;
  std::vector<connection*> open;
  std::size_t ended = 0, completed = 0, gave_up = 0, other = 0;
  static constexpr std::uint64_t quitter = 1;

  explicit crowd_of(Model& m) : mine(m), host(io, *this, {.message_buffers = 1}) {}
  void connected(connection& c) {
    open.push_back(&c);
    if (ref.id) begin(c);
  }
  void begin(connection& c) { EXPECT_TRUE(c.pull(ref, {}, mine, c.tag == quitter)); }
  void message(connection&, const tp::message&) {}
  void pulled(connection& c, const tp::result<tp::receipt>& r) {
    ++ended;
    if (r && r->outcome == tp::outcome::completed) ++completed;
    else if (c.tag == quitter && !r && r.error() == errc::cancelled) ++gave_up;
    else ++other;
  }
  void closed(connection& c, const tp::error&) { std::erase(open, &c); }
  void add(std::uint16_t port, std::uint64_t tag) { EXPECT_TRUE(host.connect(local(port), tag)); }
};

}  // namespace test
