// Sessions over any byte_stream.
#pragma once

#include <tensorpull/links/pump.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>
#include <tensorpull/transports/blocking/stream_pull.hpp>
#include <tensorpull/transports/session/session.hpp>

#include <utility>

namespace tensorpull {

/// The wire of a session over a stream (session_wire).
template <class Parts, byte_stream Stream>
class stream_wire {
  using transport = typename Parts::transport;

 public:
  using link_type = Stream;  ///< a connected stream
  template <class Owner, class Handler>
  using end = endpoint<typename Parts::framing, typename Parts::limits, Owner, Handler>;
  template <class Consumer>
  using pull = detail::running_pull<Parts, Consumer>;
  static constexpr std::size_t scratch_bytes = detail::slice_bytes<typename Parts::limits>;
  static constexpr std::size_t buffer_bytes = 0;
  static constexpr bool messages_block = true;  ///< bytes arrive in order

  explicit stream_wire(Stream stream) noexcept : stream_(std::move(stream)) {}
  /// As basic_session::connect.
  static result<Stream> connect(std::string_view address, std::chrono::milliseconds timeout,
                                const stop_token& stop) noexcept {
    static_assert(
        detail::connects<transport, Stream>,
        "tensorpull: a transport over streams connects: static result<stream> connect(std::string_view address, std::chrono::milliseconds timeout, "
        "const stop_token& stop) noexcept");
    if constexpr (detail::connects<transport, Stream>) return transport::connect(address, timeout, stop);
    else return failure(errc::bad_address);  // refused above
  }
  Stream& link() noexcept { return stream_; }
  const Stream& link() const noexcept { return stream_; }

  template <class Owner, class Handler>
  end<Owner, Handler> make_end(Owner& owner, buffer_pool<>& pool, Handler& handler) noexcept {
    return end<Owner, Handler>(owner, pool, handler);
  }
  template <class End, class Transfer>
  result<pumped> step(End& e, Transfer& t, std::span<std::byte> scratch, session_moves what) noexcept {
    if (what == session_moves::what_is_due) {
      pumped did;
      auto ok = detail::pump_write(e, t, stream_, scratch, did);
      if (ok && did.write_ended) ok = detail::pump_read(e, t, stream_, did);  // which returns why
      return ok ? result<pumped>(did) : result<pumped>(failure(ok.error()));
    }
    return pump_once(e, t, stream_, scratch, {}, what == session_moves::one_answer_first ? 1 : write_piece_bytes);
  }
  static bool goes_on(const pumped& did) noexcept { return did.received > 0 || did.sent > 0 || did.works; }
  template <class End>
  void wait(End&, const pumped& did, std::chrono::milliseconds most) noexcept {
    stream_.wait(did.wants_read, did.wants_write, most);
  }
  void leave() noexcept {}
  template <class End>
  result<void> resume(End& e) noexcept {
    no_transfer none;
    return e.stalled() ? e.parse(none) : result<void>{};
  }
  template <class Pull>
  void prepare(Pull&) noexcept {}
  template <class Pull, class End, class Besides>
  result<void> drive(Pull& p, End& e, std::span<std::byte> scratch, Besides& besides) noexcept {
    detail::stream_pull_wire line(e, stream_, scratch);
    return p.drive(line, besides);
  }

 private:
  Stream stream_;
};

/// A session over a stream.
template <class Parts, byte_stream Stream>
using stream_session = basic_session<Parts, stream_wire<Parts, Stream>>;

}  // namespace tensorpull
