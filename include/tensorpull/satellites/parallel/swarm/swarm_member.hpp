// A recipient that serves what it has proved, while it still receives: a member of a swarm.
#pragma once

#include <tensorpull/satellites/parallel/checked_transfer.hpp>
#include <tensorpull/satellites/parallel/detail/parallel_wire.hpp>
#include <tensorpull/satellites/parallel/swarm/detail/arriving_owner.hpp>
#include <tensorpull/satellites/parallel/swarm/detail/member_state.hpp>
#include <tensorpull/transports/blocking/stream_pull.hpp>
#include <tensorpull/transports/host/host.hpp>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tensorpull {

/// How a member of a swarm serves.
struct swarm_options {
  host_options host{};  ///< limits and budgets of the connections of others to it, such as its rate (`limits`)
  std::chrono::milliseconds connect = std::chrono::seconds(10);  ///< the time for one connection to be made
};

/// A recipient in a swarm, `swarm_member<net>` for a pipeline `net` over streams (tcp, unix_socket): give it to
/// pull_proved in place of an address. It takes parts of the image from the owner and from other members, and serves
/// those that it has proved to the others, on the thread that pulls, while it pulls. The owner tells it who the others
/// are: open_swarm_door (swarm_door.hpp) at the owner's address. An owner without a door, or a door without a seat, is
/// pulled from as ever.
///
/// Of the parts, at most 512, the owner gives each member a share, and members give each other the rest: with n members
/// in a group (at most 16) about one image in all. Each part is from one source alone and proved by the root, so that
/// one that lies is named (wrong()), and the parts of one that leaves, is silent or slow are others'. The owner alone
/// is confirmed to, and alone knows that this recipient has everything: its transaction settles as in any other pull.
/// If it is lost, members go on among themselves as far as they have the image, and the receipt is unconfirmed. If they
/// lack some of it, the pull fails (connection_lost) once the owner is given up and nothing has arrived for 10 seconds.
///
/// Anybody who has the reference may pull from a member, unless its `host.authorise` decides. Bytes between members are
/// not encrypted over tcp. Movable. Memory: 0.2 MiB on the stack of the pull, 64 KiB, and what a host takes for each
/// connection; one allocation for each connection, none for a chunk. It starts no thread.
template <class Net>
class swarm_member {
  using parts_type = typename Net::parts;
  using transport = typename parts_type::transport;
  using state = detail::member_state<parts_type>;

 public:
  /// For pull_proved: memory of the values of groups that a member wants, so that parts are small.
  static constexpr std::uint64_t proof_bytes = 16 * 1024;

  /// Starts to listen. `listen`: where others reach it, such as "0.0.0.0:0" (the door puts the address there from which
  /// it sees this member). `owner`: the address of the owner's door. Errors: those of host::listen(); io,
  /// out_of_memory; bad_address: an address is longer than 54 bytes.
  static result<swarm_member> open(std::string_view listen, std::string_view owner,
                                   const swarm_options& options = {}) noexcept {
    try {
      std::unique_ptr<state> s(new state(owner, options.host, options.connect));
      if (const auto ok = s->open(listen); !ok) return failure(ok.error());
      return swarm_member(std::move(s));
    } catch (...) {
      return failure(errc::out_of_memory);
    }
  }

  /// The port that it listens on; 0: the transport has none.
  std::uint16_t port() const noexcept { return s_->port(); }
  /// The owner's address.
  std::span<const std::string_view> addresses() const noexcept { return s_->addresses().first(1); }
  /// Which sources of the last pull were not believed: bit 0 is the owner, others are members, by their seats.
  std::uint32_t wrong() const noexcept { return s_->wrong; }
  /// The address of such a source, until the next pull; empty: there is none.
  std::string_view address_of(std::size_t source) const noexcept {
    return source < s_->addresses().size() ? s_->addresses()[source] : std::string_view();
  }
  /// Bytes of payload that it has sent to others.
  std::uint64_t bytes_sent() noexcept { return s_->bytes_sent(); }
  /// Members that it knows now.
  std::size_t members() const noexcept { return s_->members(); }
  /// The most others that the owner has listed at a time.
  std::size_t most_members() const noexcept { return s_->most_members(); }

  /// For a transport: an address that pulls by itself.
  template <class Parts, consumer Consumer>
  result<receipt> pull(const reference& ref, Consumer& to, const pull_options& options,
                       typename Parts::chunking chunking) const noexcept {
    static_assert(
        requires { requires Consumer::checks_groups; },
        "tensorpull: a member of a swarm proves what it passes on: pull by pull_proved (satellites/proofs)");
    using transfer_type =
        checked_transfer<Consumer, typename Parts::chunking, typename Parts::limits, detail::member_plan<state>>;
    using pull_type = detail::running_pull<Parts, Consumer, transfer_type>;
    state& s = *s_;
    s.begin(ref);
    pull_type pull(ref, to, options, chunking, 1,
                   options.recipient ? options.recipient : detail::random_recipient<typename Parts::platform>());
    pull.transfer().follow({&s});
    const callback<const address_attempt&> tell;
    detail::parallel_wire<Parts, transport, std::string_view, transfer_type, pull_options> lines(
        s.addresses().first(1), 1, s.connect_time(), tell, options, pull.transfer());
    detail::stopwatch<typename Parts::platform> lonely;
    std::uint64_t landed = 0;
    const auto besides = [&](const auto&) noexcept {
      if (pull.ended()) return;  // a consumer that was abandoned may have no memory any more
      s.step(lines);
      // members that cannot reach the owner, either, wait for each other
      const std::uint64_t before = std::exchange(landed, pull.transfer().landed_bytes());
      if (!lines.is_over(0) || landed != before) lonely.restart();
      else if (lonely.left(std::min<std::chrono::milliseconds>(options.per_request_timeout, patience)).count() == 0)
        pull.fail({errc::connection_lost});
    };
    const auto once = [&]() noexcept {
      lines.begin_anew();
      return pull.drive(lines, besides);
    };
    const auto pause = [&](std::chrono::milliseconds time) noexcept { s.serve_for(time); };
    const auto how = pull.run(once, pause);
    s.wrong = pull.transfer().wrong();
    if (how) s.end();
    else s.resign();
    return how;
  }

  /// After a pull that has completed: serves others from the consumer's memory, which must not change meanwhile, on
  /// this thread, until no member that the owner lists pulls any more (if it is gone: until nobody has taken anything
  /// for a second), for `time` at most, or until `stop` is requested, which is noticed within 0.1 s. True: nobody needs
  /// it any more. If the memory cannot be read any more, as that of a safetensors_file after finish(), nobody is
  /// served.
  bool serve(std::chrono::milliseconds time, const stop_token& stop = {}) noexcept { return s_->serve(time, stop); }

  /// From now on nobody is served from a consumer's memory, which may go away. A pull begins with it.
  void stop_serving() const noexcept { s_->withdraw(); }

 private:
  static constexpr std::chrono::milliseconds patience{10'000};
  explicit swarm_member(std::unique_ptr<state> s) noexcept : s_(std::move(s)) {}
  std::unique_ptr<state> s_;
};

}  // namespace tensorpull
