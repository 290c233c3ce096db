// Runs an event loop of this library in a program's loop of Boost.Asio.
#pragma once

#include <tensorpull/transports/host/event_loop.hpp>

#include <utility>  // Boost.Asio 1.74 uses std::exchange without including it

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <memory>

namespace tensorpull {

/// While it lives, the io_context runs the loop of an owner (`owner->event_loop()`) or of hosts. The loop is like any
/// other work of the io_context, and gives way to that after `turn` calls. Ends before both, and while no other thread
/// runs the io_context. Throws what Asio throws when it begins to watch a descriptor.
///   in_io_context serving(owner->event_loop(), io);
class in_io_context {
 public:
  static constexpr std::size_t turn = 64;  ///< the most calls of targets in a row

  /// Borrows both.
  in_io_context(event_loop& loop, boost::asio::io_context& io) : s_(std::make_shared<state>(loop, io)) { wait(s_); }
  in_io_context(const in_io_context&) = delete;
  in_io_context& operator=(const in_io_context&) = delete;
  ~in_io_context() {
    s_->loop = nullptr;
    (void)s_->events.release();  // which ends the wait
  }

 private:
  struct state {
    state(event_loop& l, boost::asio::io_context& io) : loop(&l), events(io, l.native_handle()) {}
    event_loop* loop;
    boost::asio::posix::stream_descriptor events;  // borrows the loop's descriptor
  };
  static void wait(const std::shared_ptr<state>& s) {
    s->events.async_wait(boost::asio::posix::stream_descriptor::wait_read, [s](const boost::system::error_code&) {
      if (s->loop == nullptr) return;
      s->loop->poll(turn);
      wait(s);
    });
  }

  std::shared_ptr<state> s_;
};

}  // namespace tensorpull
