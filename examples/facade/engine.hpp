// The pipelines behind every link, and the interfaces of facade.hpp in front of their owners and sessions.
#pragma once

#include "streams.hpp"

#include <tensorpull/chunking/policies.hpp>
#include <tensorpull/links/posix/pollable_stream.hpp>
#include <tensorpull/protocol/owner/owner_room.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#if TENSORPULL_FACADE_RELAY
#include <tensorpull/satellites/relay/relay.hpp>
#include <tensorpull/satellites/relay/tunnel.hpp>
#endif

#include <mutex>
#include <new>
#include <optional>
#include <utility>

namespace tensorpull::facade {

/// Room for as much as host_options say, and long lines: 16 chunks ahead over a stream, or datagrams, whose window
/// takes 210 KiB of stack.
struct facade_limits : default_limits {
  using owner_room = heap_owner_room;
  static constexpr std::uint64_t chunk_cap_bytes = max_payload_bytes;  // read while it is sent: a long one takes no
                                                                       // memory
  static constexpr std::size_t references = 512;
  static constexpr std::size_t pipelined_requests = 16, window = 32'768;
  // Several workers that take a slice each of every tensor ask for some dozen digests at a time, of all bytes together.
  // A peer that has a reference can cost a seventh of a processor by that.
  static constexpr std::uint64_t subset_bytes_per_second = 2ull << 30;
  static constexpr std::size_t digest_jobs = 8;
};
using any_chunks = bytes_up_to<max_payload_bytes>;
template <class Transport, class Chunking = any_chunks, class... More>
using net = pipeline<tensor_list, Chunking, Transport, facade_limits, More...>;

/// `Model` of what was made, as a `Base`.
template <class Base, class Model, class Made, class... Arguments>
result<std::unique_ptr<Base>> boxed_as(result<Made> made, Arguments&&... arguments) noexcept {
  if (!made) return failure(made.error());
  std::unique_ptr<Base> box(new (std::nothrow) Model(std::move(*made), std::forward<Arguments>(arguments)...));
  if (!box) return failure(errc::out_of_memory);
  return box;
}

/// Pulls over streams, with the digests that the consumer needs.
template <class Transport, class Where>
result<receipt> pull_over(const Where& where, const any_pull& how, const reference& ref, any_consumer& to,
                          const pull_options& options) {
  const any_chunks cut{how.chunk_bytes};
  if (!to.undoes()) return net<Transport, any_chunks, chunk_and_image_digest>::pull(where, ref, to, options, cut);
  if (!how.digest) return net<Transport, any_chunks, unverified>::pull(where, ref, to, options, cut);
  return net<Transport>::pull(where, ref, to, options, cut);
}

/// Who may have what is published at a place, if its program does not say; empty: everybody everything.
inline authorise_callback authorised_at(const place& at) noexcept {
  if (at.tls && at.tls->given.require_client_certificates) return expected_ones_are_certified;
  return {};
}

/// For an end that holds off other threads itself, or has one alone.
struct no_turns {
  bool take() const noexcept { return true; }
};
/// `Base`: any_owner or any_session. `End`: the library's. `Turns::take()`: what holds off other threads as long as it
/// is kept.
template <class Base, class End, class Turns = no_turns>
class publisher_of : public Base {
 public:
  explicit publisher_of(End of) : end(std::move(of)) {}
  result<reference> add_image(const source_view& image, const publish_options& options,
                              unique_any keep) noexcept override {
    return mine()->add_image(image, options, std::move(keep));
  }
  result<transaction_id> add_images(std::vector<transaction_image>& images, const transaction_options& options,
                                    unique_any keep, const stop_token& stop) noexcept override {
    if constexpr (requires { end.add_images(images, options, std::move(keep), stop); })
      return mine()->add_images(images, options, std::move(keep), stop);
    else return failure(errc::unsupported_request, 0, std::string_view("a transaction over NATS"));
  }
  result<void> withdraw(const reference& ref) noexcept override { return mine()->withdraw(ref); }
  result<publication_status> status_of(const reference& ref) const noexcept override { return mine()->status_of(ref); }
  result<settlement> settlement_of(const reference& ref) noexcept override { return mine()->settlement_of(ref); }
  result<recipient_record> recipient_of(const reference& ref, recipient_id who) noexcept override {
    return mine()->recipient_of(ref, who);
  }
  std::size_t recipients_of(const reference& ref, std::span<recipient_record> out) noexcept override {
    return mine()->recipients_of(ref, out);
  }
  bool settled(const reference& ref) const noexcept override { return mine()->settled(ref); }

 protected:
  template <class E>
  struct held_end {
    E* of;
    decltype(std::declval<Turns&>().take()) turn;
    E* operator->() const noexcept { return of; }
  };
  held_end<End> mine() noexcept { return {&end, turns_.take()}; }
  held_end<const End> mine() const noexcept { return {&end, turns_.take()}; }

  End end;
  mutable Turns turns_{};
};

/// An owner, whatever it is called. `keep`: a place that the end borrows.
template <class End, class Turns = no_turns>
class owner_of : public publisher_of<any_owner, End, Turns> {
 public:
  explicit owner_of(End of, std::unique_ptr<const place> keep = nullptr)
      : publisher_of<any_owner, End, Turns>(std::move(of)), keep_(std::move(keep)) {}
  std::uint16_t port() const noexcept override {
    if constexpr (requires { this->end.port(); }) return this->end.port();
    else return 0;
  }
  std::size_t connections() const noexcept override {
    if constexpr (requires { this->end.connections(); }) return this->end.connections() + (door ? door() : 0);
    else return this->mine()->peers();
  }
  bool run(const std::function<bool()>& until) override {
    return this->end.run([&](const End&) { return until(); });
  }
  End& below() noexcept { return this->end; }
  std::function<std::size_t()> door{};  ///< of a door, how many connections it has; keeps it open

 private:
  std::unique_ptr<const place> keep_;
};

/// A session over a stream; or over datagrams, whose longest chunk has `Most` bytes. `Parts`: of its pipeline.
template <class Session, class Parts, std::uint64_t Most = 0>
class session_of : public publisher_of<any_session, Session> {
  static constexpr bool streams = Most == 0;

 public:
  using publisher_of<any_session, Session>::publisher_of;
  result<receipt> pull(const reference& from, any_consumer& to, const pull_options& options,
                       [[maybe_unused]] std::uint64_t chunk_bytes) noexcept override {
    if (!to.undoes()) return failure(errc::unsupported_request);
    auto done = [&]() -> result<receipt> {
      if constexpr (streams) {
        return this->end.pull(from, to, options, any_chunks{chunk_bytes});
      } else {
        to.fits(Most);
        return this->end.pull(from, to, options);
      }
    }();
    pulled.add(done);
    return done;
  }
  result<void> send(std::uint32_t kind, std::span<const reference> references, std::span<const std::byte> body,
                    std::chrono::milliseconds time, const stop_token& stop) noexcept override {
    return this->end.send(kind, references, body, time, stop);
  }
  result<message> receive(std::chrono::milliseconds time, const stop_token& stop) noexcept override {
    return this->end.receive(time, stop);
  }
  result<void> serve(const std::function<bool()>& until, std::chrono::milliseconds time) override {
    return this->end.serve([&](const Session&) { return until(); }, time);
  }
  void authorise(const authorise_callback& may) noexcept override { this->end.authorise(may); }
  std::string_view peer_name() const noexcept override {
    if constexpr (requires { this->end.peer(); }) {
      const peer_identity who = this->end.peer();
      if (who.kind == identity_kind::certificate) return who.name;
    }
    return {};
  }
  bool between_frames() const noexcept override {
    if constexpr (streams) return this->end.between_frames();
    else return false;
  }

  any_stream* lend() noexcept override {
    if constexpr (requires { this->end.stream().native_handle(); }) return lent(this->end.stream());
    else return nullptr;
  }
  result<relay_counts> relay_to([[maybe_unused]] any_stream& to, [[maybe_unused]] const reference& ref,
                                [[maybe_unused]] const relay_settings& how) noexcept override {
#if TENSORPULL_FACADE_RELAY
    if constexpr (streams) {
      const auto done = relay<Parts>(this->end, to, ref, how.chunk, {how.idle_timeout, how.stop, how.bytes_per_second});
      if (!done) return failure(done.error());
      return relay_counts{done->bytes, done->chunks, done->completed, done->completed_unverified};
    }
#endif
    return failure(errc::unsupported_request);
  }
  result<tunnel_counts> tunnel_to([[maybe_unused]] any_stream& to,
                                  [[maybe_unused]] const relay_settings& how) noexcept override {
#if TENSORPULL_FACADE_RELAY
    if (any_stream* const mine = lend()) {
      const auto done = tunnel(*mine, to, how.chunk, {how.idle_timeout, how.stop, how.bytes_per_second});
      if (!done) return failure(done.error());
      return tunnel_counts{done->forth, done->back};
    }
#endif
    return failure(errc::unsupported_request);
  }

 private:
  any_stream* lent(any_stream& s) noexcept { return s.native_handle() < 0 ? nullptr : &s; }
  /// A relay moves bytes alone: over the descriptor, which stays the same.
  template <class Stream>
  any_stream* lent(Stream& s) noexcept {
    if (!lent_) lent_ = lend_descriptor(s.native_handle());
    return lent_.get();
  }
  std::unique_ptr<any_stream> lent_;
};
/// A session of the pipeline `Net`.
template <class Net, std::uint64_t Most = 0, class Session = typename Net::session>
result<std::unique_ptr<any_session>> boxed_session(result<Session> made) noexcept {
  return boxed_as<any_session, session_of<Session, typename Net::parts, Most>>(std::move(made));
}

/// Accepts sessions of the pipeline `Net` from a listener of streams.
template <class Net, class Listener>
result<any_listener> listen_with(result<Listener> made, const authorise_callback& may = {}) {
  if (!made) return failure(made.error());
  struct state {
    explicit state(Listener l) noexcept : of(std::move(l)) {}
    Listener of;
    std::timed_mutex turn{};
  };
  const auto s = std::make_shared<state>(std::move(*made));
  std::uint16_t port = 0;
  if constexpr (requires { s->of.port(); }) port = s->of.port();
  return any_listener{
      port, [s, may](std::chrono::milliseconds time, const stop_token& stop) -> result<std::unique_ptr<any_session>> {
        // several threads may accept, and a listener over TLS remembers who shakes hands
        const std::unique_lock hold(s->turn, time);
        if (!hold) return failure(errc::timed_out);
        auto stream = s->of.accept(time, stop);
        if (stream) {
          auto session = boxed_session<Net>(Net::session::over(std::move(*stream)));
          if (session && may) (*session)->authorise(may);
          return session;
        }
        // a peer whose handshake fails gets no connection, and says nothing about the others
        const bool of_a_peer = stream.error() == errc::connection_failed || stream.error() == errc::not_authenticated ||
                               stream.error() == errc::handshake_failed;
        return failure(of_a_peer ? error{errc::timed_out, 0, 0, {}} : stream.error());
      }};
}

}  // namespace tensorpull::facade
