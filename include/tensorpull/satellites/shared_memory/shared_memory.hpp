// Shared memory, for programs on one Linux machine: control goes over a Unix socket, the tensors stay in place or are
// copied once. An owner, or a program with many connections, also includes transports/host/owner.hpp or host.hpp.
// README.md explains views.
#pragma once

#include <tensorpull/chunking/policies.hpp>
#include <tensorpull/integrity/policies.hpp>
#include <tensorpull/satellites/shared_memory/detail/shared_transfer.hpp>
#include <tensorpull/satellites/shared_memory/detail/sharing_owner.hpp>
#include <tensorpull/satellites/shared_memory/shared_region.hpp>
#include <tensorpull/satellites/shared_memory/shared_stream.hpp>
#include <tensorpull/satellites/shared_memory/shared_view.hpp>
#include <tensorpull/transports/over/stream_transport.hpp>
#include <tensorpull/transports/over/unix_socket/unix_connect.hpp>
#include <tensorpull/transports/over/unix_socket/unix_listener.hpp>

#include <utility>

namespace tensorpull {

/// Accepts connections over which memory is passed. Movable; its destructor closes it and removes its file.
class shared_listener {
 public:
  /// As unix_listener::open.
  static result<shared_listener> open(std::string_view address, unix_access access, int backlog) noexcept {
    auto l = unix_listener::open(address, access, backlog, true);
    if (!l) return failure(l.error());
    return shared_listener(std::move(*l));
  }
  /// The descriptor, which stays the listener's.
  int native_handle() const noexcept { return listener_.native_handle(); }
  /// As unix_listener::accept.
  result<shared_stream> accept() noexcept { return sharing(listener_.accept()); }
  /// As unix_listener::accept.
  result<shared_stream> accept(std::chrono::milliseconds timeout, const stop_token& stop = {}) noexcept {
    return sharing(listener_.accept(timeout, stop));
  }

 private:
  static result<shared_stream> sharing(result<unix_stream> s) noexcept {
    if (!s) return failure(s.error());
    return shared_stream(std::move(*s));
  }
  explicit shared_listener(unix_listener l) noexcept : listener_(std::move(l)) {}
  unix_listener listener_;
};

/// The single destination of an address, for a program that connects without waiting.
class shared_destination {
 public:
  /// As unix_destination::of.
  static result<shared_destination> of(std::string_view address, unix_access access) noexcept {
    const auto to = unix_destination::of(address, access);
    if (!to) return failure(to.error());
    return shared_destination(*to);
  }
  /// Whether it was not tried yet.
  bool more() const noexcept { return to_.more(); }
  /// As unix_destination::start_connect.
  result<shared_stream> start_connect() noexcept {
    auto s = to_.start_connect();
    if (!s) return failure(s.error());
    return shared_stream(std::move(*s));
  }

 private:
  explicit shared_destination(const unix_destination& to) noexcept : to_(to) {}
  unix_destination to_;
};

/// Policy for the transport slot. Addresses and `Access` are those of a Unix socket (unix_socket/unix_socket.hpp).
/// `MostCopied`: the most bytes that an owner copies into memory that it can share, in all; the rest is sent over the
/// socket. `Threads`: whether several threads of the caller may run an owner's connections. An owner's options have to
/// name an address.
template <unix_access Access, std::uint64_t MostCopied, bool Threads>
struct basic_shared_memory
    : stream_transport<basic_shared_memory<Access, MostCopied, Threads>, shared_stream, Threads> {
  static constexpr std::string_view scheme = "shm";  ///< of its addresses, as in system/link_url.hpp
  static constexpr bool reliable = true;
  static constexpr bool ordered = true;
  static constexpr bool shares_memory = true;
  static constexpr bool encrypted = false;
  static constexpr identity_kind identifies = identity_kind::user;

  /// The owner's state machine, with the memory of its publications.
  template <class Owner>
  using sharing_owner = detail::sharing_owner<Owner, MostCopied>;
  /// The transfer of each pull.
  template <class Parts, class Consumer>
  using shared_transfer = detail::shared_transfer<
      transfer<Consumer, typename Parts::chunking, typename Parts::integrity, typename Parts::limits>,
      std::uint64_t{Parts::limits::tensors} + 1, Parts::integrity::whole || Parts::integrity::per_chunk>;
  /// Of a pull besides the transfer. Its index takes 16 bytes a tensor of the heap.
  template <class Parts>
  static constexpr std::size_t pull_bytes =
      sizeof(endpoint<typename Parts::framing, typename Parts::limits, no_owner, ignore_messages>) +
      Parts::limits::page_bytes + 128;

  /// As unix_connect.
  static result<shared_stream> connect(std::string_view address, std::chrono::milliseconds timeout,
                                       const stop_token& stop) noexcept {
    auto s = unix_connect(address, timeout, stop, Access);
    if (!s) return failure(s.error());
    return shared_stream(std::move(*s));
  }
  /// As shared_destination::of.
  static result<shared_destination> resolve(std::string_view address) noexcept {
    return shared_destination::of(address, Access);
  }
  /// As unix_listener::open.
  static result<shared_listener> listen(std::string_view address) noexcept {
    return shared_listener::open(address, Access, 4096);
  }

  /// Connects, receives the memory, and closes. With `options.unverified` no digest is computed, and the time does not
  /// depend on the model's size. Errors: those of a pull; memory_not_shared: the owner passes no memory;
  /// memory_not_sealed, bad_shared_memory: it passes something else; not_verifiable: there is no digest to compare, and
  /// `options.unverified` is false.
  template <class Parts>
  static result<receipt> view(std::string_view address, const reference& ref, viewed_tensors& to,
                              const pull_options& options) noexcept {
    if (options.by_name()) return failure(errc::invalid_argument);  // a view is of the whole
    pull_options once = options;
    once.cursor = nullptr;  // nothing lands
    if (options.unverified) return view_with<viewing_parts<Parts, unverified>>(address, ref, to, once);
    if constexpr (Parts::integrity::whole)
      return view_with<viewing_parts<Parts, basic_image_digest<typename Parts::integrity::hash_type>>>(address, ref, to,
                                                                                                       once);
    else return failure(errc::not_verifiable);
  }
  /// The same with a view that expects the pipeline's own schema, if the compiler knows it.
  template <class Parts>
  static result<shared_view<Parts>> open_view(std::string_view address, const reference& ref,
                                              const pull_options& options) noexcept {
    const image_schema* expected = nullptr;
    if constexpr (Parts::tensors::is_static) expected = &Parts::tensors::schema();
    viewed_tensors to(expected);
    const auto done = view<Parts>(address, ref, to, options);
    if (!done) return failure(done.error());
    return shared_view<Parts>(std::move(to), *done);
  }

 private:
  /// The same pipeline with the longest chunks, since they do not travel, and the digest of the whole or none.
  template <class Parts, class Integrity>
  struct viewing_parts : Parts {
    using chunking = fixed_bytes<max_payload_bytes / 8 * 8>;
    using integrity = Integrity;
  };
  template <class Parts>
  static result<receipt> view_with(std::string_view address, const reference& ref, viewed_tensors& to,
                                   const pull_options& options) noexcept {
    const auto connect = [&] {
      return basic_shared_memory::connect(address, options.per_request_timeout, options.stop);
    };
    return pull_with<Parts>(connect, &detail::pause, ref, to, options);
  }
};

/// this user's programs; copies up to 1 TiB; one thread runs an owner's connections
using shared_memory = basic_shared_memory<unix_access::same_user, std::uint64_t{1} << 40, false>;
/// the same; several threads may run an owner's connections
using shared_memory_on_threads = basic_shared_memory<unix_access::same_user, std::uint64_t{1} << 40, true>;

static_assert(transport<shared_memory> && listening_transport<shared_memory>);

}  // namespace tensorpull
