// The owner's side of every transport over streams: publishes, and serves many recipients on the caller's threads. Needs Boost.Asio.
#pragma once

#include <tensorpull/transports/host/host.hpp>
#include <tensorpull/transports/stream/stream_transport.hpp>
#include <tensorpull/transports/stream/wait.hpp>
#include <tensorpull/transports/until_settled.hpp>

namespace tensorpull {

/// Where and how an owner listens.
struct owner_options {
  std::string_view listen{};  ///< the address. None: the transport's any_address (tcp: a free port of 127.0.0.1); without an any_address it does not listen, and serves adopted streams
  host_options host{};        ///< limits and budgets of its connections
};

/// A pipeline's `downloader` over streams. Movable. open() allocates the buffers; each connection is one more allocation.
template <class Parts>
  requires listening_transport<typename Parts::transport>
class stream_owner<Parts> {
  using transport = typename Parts::transport;

 public:
  using model_type = typename Parts::tensors::model_type;  ///< what is published

  /// Starts to listen. Errors: bad_address, connection_failed (with errno: the address is in use, ...), io (the event loop has no descriptors), out_of_memory.
  static result<stream_owner> open(const owner_options& options = {}) noexcept {
    try {
      std::unique_ptr<state> s(new state(options.host));
      std::string_view listen = options.listen;
      if constexpr (requires { transport::any_address; })
        if (listen.data() == nullptr) listen = transport::any_address;
      if (listen.data() != nullptr) {
        const auto port = s->connections.listen(listen);
        if (!port) return failure(port.error());
        s->port = *port;
      }
      return stream_owner(std::move(s));
    } catch (const boost::system::system_error& e) {  // of the event loop's own descriptors
      return failure(errc::io, 0, {}, e.code().value());
    } catch (...) {
      return failure(errc::out_of_memory);
    }
  }

  /// The port that it listens on; 0 if the transport has no ports, or if it does not listen.
  std::uint16_t port() const noexcept { return s_->port; }

  /// Serves a connection that the program has made itself. Error: out_of_memory: the stream is still the caller's.
  result<void> adopt(typename transport::stream&& stream) noexcept {
    return s_->connections.adopt(std::move(stream));
  }

  /// Publishes a model. An lvalue is borrowed: it must not change until it is settled or withdrawn. An rvalue or a pointer that owns a model is kept, and
  /// released then. Cost and errors: as publisher::add_tensors.
  template <class Model>
  result<reference> add_tensors(Model&& model, const publish_options& options = {}) {
    return s_->connections.published().add_tensors(std::forward<Model>(model), options);
  }
  /// Publishes any image. The memory behind the view is the caller's, or that of `keep`, which is released when the reference is settled or withdrawn.
  result<reference> add_image(const source_view& image, const publish_options& options = {}, unique_any keep = {}) noexcept {
    return s_->connections.published().add_image(image, options, std::move(keep));
  }
  /// As publisher::withdraw.
  result<void> withdraw(const reference& ref) noexcept { return s_->connections.published().withdraw(ref); }
  /// As publisher::status_of.
  result<publication_status> status_of(const reference& ref) const noexcept { return s_->connections.published().status_of(ref); }
  /// As publisher::settled.
  bool settled(const reference& ref) const noexcept { return s_->connections.published().settled(ref); }
  /// Opens a transaction for references that settle together: publish each with `{.transaction = id}`, then seal it. Error: table_full.
  result<transaction_id> open_transaction(const transaction_options& options) noexcept { return s_->connections.published().open_transaction(options); }
  /// No more references are added to the transaction, so it may settle.
  void seal(transaction_id id) noexcept { s_->connections.published().seal(id); }
  /// As publisher::settlement_of.
  result<settlement> settlement_of(const reference& ref) noexcept { return s_->connections.published().settlement_of(ref); }
  /// As publisher::recipient_of.
  result<recipient_record> recipient_of(const reference& ref, recipient_id who) noexcept { return s_->connections.published().recipient_of(ref, who); }
  /// As publisher::recipients_of.
  std::size_t recipients_of(const reference& ref, std::span<recipient_record> out) noexcept { return s_->connections.published().recipients_of(ref, out); }
  /// How many callbacks of transactions have thrown. What they threw is dropped.
  std::uint64_t callback_failures() const noexcept { return s_->connections.published().callback_failures(); }
  /// How many connections there are.
  std::size_t connections() const noexcept { return s_->connections.connections(); }

  /// Serves on this thread until `until(owner)` is true (until_settled(ref), or a lambda) or `stop` is requested, which is noticed within 0.1 s. True if
  /// `until` held. If the transport's `threads` is true, several threads may call it at the same time. What `until` throws is passed on.
  template <class Until>
    requires(!std::is_convertible_v<Until, stop_token>)
  bool run(Until until, const stop_token& stop = {}) {
    detail::check_until<Until, stream_owner>();
    if constexpr (std::predicate<Until&, const stream_owner&>)
      while (!until(std::as_const(*this))) {
        if (stop.stop_requested()) return false;
        s_->io.run_one_for(detail::wait_step);
      }
    return true;
  }
  /// Serves until `stop` is requested.
  void run(const stop_token& stop) {
    run([](const stream_owner&) { return false; }, stop);
  }

 private:
  struct state {
    explicit state(const host_options& options) : io(transport::threads ? BOOST_ASIO_CONCURRENCY_HINT_SAFE : 1), connections(io, handler, options) {}
    boost::asio::io_context io;
    detail::silent_handler handler;
    host<Parts, detail::silent_handler, no_consumer> connections;
    std::uint16_t port = 0;
  };
  explicit stream_owner(std::unique_ptr<state> s) noexcept : s_(std::move(s)) {}
  std::unique_ptr<state> s_;
};

/// An owner over a transport that cannot listen, which is refused.
template <class Parts>
  requires(!listening_transport<typename Parts::transport>)
class stream_owner<Parts> {
  static_assert(detail::never<Parts>,
                "tensorpull: this transport cannot have an owner: it needs `static result<L> listen(std::string_view address) noexcept`, where L "
                "is a stream_listener and its stream a pollable_stream (transports/stream/pollable_stream.hpp)");

 public:
  static result<stream_owner> open(const owner_options& = {}) noexcept;  ///< not defined
};

}  // namespace tensorpull
