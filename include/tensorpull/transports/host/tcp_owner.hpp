// The owner's side of the tcp transport: publishes, and serves any number of recipients on the caller's thread. Needs Boost.Asio.
#pragma once

#include <tensorpull/transports/stream/session.hpp>
#include <tensorpull/transports/tcp/tcp.hpp>
#include <tensorpull/transports/host/tcp_host.hpp>

#include <stop_token>
#include <string>

namespace tensorpull {

/// Where and how an owner listens.
struct tcp_owner_options {
  std::string_view listen = "127.0.0.1:0";
  host_options host{};
};

/// A pipeline's `downloader` over TCP. Movable; everything is allocated by open().
template <class Parts, bool Threads>
  requires detail::with_owner<Parts>
class tcp_owner<Parts, Threads> {
 public:
  using model_type = typename Parts::tensors::model_type;

  /// Errors: bad_address, connection_failed (the address is in use, ...), io (no descriptors), out_of_memory.
  static result<tcp_owner> open(const tcp_owner_options& options = {}) noexcept {
    try {
      std::unique_ptr<state> s(new state(options.host));
      const auto port = s->host.listen(options.listen);
      if (!port) return failure(port.error());
      s->port = *port;
      return tcp_owner(std::move(s));
    } catch (const boost::system::system_error& e) {  // of the event loop's own descriptors
      return failure(errc::io, 0, {}, e.code().value());
    } catch (...) {
      return failure(errc::out_of_memory);
    }
  }

  /// The port that it listens on.
  std::uint16_t port() const noexcept { return s_->port; }

  /// An lvalue is borrowed: it must not change until it is settled or withdrawn. An rvalue or shared_ptr is kept and released.
  template <class Model>
  result<reference> add_tensors(Model&& model, const publish_options& options = {}) {
    return s_->host.published().add_tensors(std::forward<Model>(model), options);
  }
  /// The memory behind the view is the caller's, or what `keep` holds.
  result<reference> add_image(const source_view& image, const publish_options& options = {}, unique_any keep = {}) noexcept {
    return s_->host.published().add_image(image, options, std::move(keep));
  }
  result<void> withdraw(const reference& ref) noexcept { return s_->host.published().withdraw(ref); }
  result<publication_status> status_of(const reference& ref) const noexcept { return s_->host.published().status_of(ref); }
  bool settled(const reference& ref) const noexcept { return s_->host.published().settled(ref); }
  /// References that settle together: publish each with `{.transaction = id}`, then seal it. table_full.
  result<transaction_id> open_transaction(const transaction_options& options) noexcept { return s_->host.published().open_transaction(options); }
  void seal(transaction_id id) noexcept { s_->host.published().seal(id); }
  result<settlement> settlement_of(const reference& ref) noexcept { return s_->host.published().settlement_of(ref); }
  result<recipient_record> recipient_of(const reference& ref, recipient_id who) noexcept { return s_->host.published().recipient_of(ref, who); }
  std::size_t recipients_of(const reference& ref, std::span<recipient_record> out) noexcept { return s_->host.published().recipients_of(ref, out); }
  std::uint64_t callback_failures() const noexcept { return s_->host.published().callback_failures(); }
  std::size_t connections() const noexcept { return s_->host.connections(); }

  /// Serves on this thread until `until(owner)` is true or `stop` is requested, which is heard within 0.1 s. True: `until` held.
  /// With tcp_on_threads several threads may call it at a time.
  template <class Until>
  bool run(Until until, const std::stop_token& stop = {}) {
    while (!until(std::as_const(*this))) {
      if (stop.stop_requested()) return false;
      s_->io.run_one_for(abort_interval);
    }
    return true;
  }
  /// Serves until `stop` is requested.
  void run(const std::stop_token& stop) {
    run([](const tcp_owner&) { return false; }, stop);
  }

 private:
  struct state {
    explicit state(const host_options& options) : io(Threads ? BOOST_ASIO_CONCURRENCY_HINT_SAFE : 1), host(io, handler, options) {}
    boost::asio::io_context io;
    detail::silent_handler handler;
    tcp_host<Parts, detail::silent_handler, no_consumer, Threads> host;
    std::uint16_t port = 0;
  };
  explicit tcp_owner(std::unique_ptr<state> s) noexcept : s_(std::move(s)) {}
  std::unique_ptr<state> s_;
};

}  // namespace tensorpull
