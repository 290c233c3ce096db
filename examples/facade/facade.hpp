// Pulls, owners and sessions, whatever the link. An interface is compiled once for each kind of link, and chosen by the
// place that it is opened at.
#pragma once

#include "consumer.hpp"
#include "place.hpp"

#include <tensorpull/core/ids.hpp>
#include <tensorpull/image/view.hpp>
#include <tensorpull/protocol/owner/owner_memory.hpp>
#include <tensorpull/protocol/owner/transaction.hpp>
#include <tensorpull/std/any.hpp>
#include <tensorpull/std/functional.hpp>
#include <tensorpull/std/stop_token.hpp>
#include <tensorpull/transports/host/host_options.hpp>
#include <tensorpull/transports/message.hpp>
#include <tensorpull/transports/pull_options.hpp>
#include <tensorpull/transports/session/connect_options.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace tensorpull::facade {

/// One attempt of a pull to connect.
struct attempt {
  std::size_t index = 0;  ///< which of the places
  std::uint32_t before = 0;  ///< connections that were made before, of the same pull
  errc failed{};  ///< errc{}: it is connected
  std::int32_t system = 0;  ///< errno, if there is one
};
/// Pulls over connections of its own.
struct any_pull {
  /// One place; or several of one kind where the same is published (link_traits::several).
  std::vector<place> from;
  /// Bytes that are asked for at a time. Datagrams have a length of their own.
  std::uint64_t chunk_bytes = default_chunk_bytes;
  /// Whether the digest of the whole is compared.
  bool digest = true;
  /// Connections at a time, in all; 0: one to each place. None: a connection to one place after the other, when the one
  /// before is lost. A consumer that takes bytes in order alone has that in any case.
  std::optional<std::size_t> connections{};
  /// How long one place may take to connect, if there are others.
  std::chrono::milliseconds each = std::chrono::seconds(10);
  /// Called with each attempt to connect, over streams.
  callback<const attempt&> tell{};
  /// Afterwards: which places have given wrong bytes, one bit each, the first is the lowest.
  std::uint8_t wrong = 0;

  /// Pulls. Errors: those of the link, of the protocol and of the consumer; unsupported_request: the link has no digest
  /// of each chunk, and the consumer needs it, or this build pulls from one place alone.
  result<receipt> operator()(const reference& ref, any_consumer& to, const pull_options& options);
};

/// What publishes, as `publishing` does: an owner of many recipients, or a session.
class any_publisher {
 public:
  virtual ~any_publisher() = default;
  virtual result<reference> add_image(const source_view& image, const publish_options& options,
                                      unique_any keep) noexcept = 0;
  virtual result<transaction_id> add_images(std::vector<transaction_image>& images, const transaction_options& options,
                                            unique_any keep, const stop_token& stop) noexcept = 0;
  virtual result<void> withdraw(const reference& ref) noexcept = 0;
  virtual result<publication_status> status_of(const reference& ref) const noexcept = 0;
  virtual result<settlement> settlement_of(const reference& ref) noexcept = 0;
  virtual result<recipient_record> recipient_of(const reference& ref, recipient_id who) noexcept = 0;
  virtual std::size_t recipients_of(const reference& ref, std::span<recipient_record> out) noexcept = 0;
  virtual bool settled(const reference& ref) const noexcept = 0;
};

/// A port beside an owner that answers HTTP.
struct door_settings {
  std::string listen{};  ///< "host:port"
  bool metrics = false;  ///< whether it answers GET /metrics
  std::string origin{};  ///< of web pages that may read the answers; none: of no other
};
/// Whether web pages have such an origin.
bool is_origin(std::string_view text) noexcept;

/// An owner of many recipients; over a pipe of one. Any thread may call, also while another one runs it; over datagrams
/// a call waits for that one, 0.05 s at most.
class any_owner : public any_publisher {
 public:
  /// The port that it listens on; 0: the link has none.
  virtual std::uint16_t port() const noexcept = 0;
  /// How many recipients are connected, those of the door, too.
  virtual std::size_t connections() const noexcept = 0;
  /// Answers HTTP on a port of its own from now on, and returns that; with TLS, if the owner's link has it. Nobody runs
  /// the owner meanwhile. Errors: those of listening; unsupported_request: it is not beside TCP, TLS or a Unix socket.
  virtual result<std::uint16_t> open_door(const door_settings&) { return failure(errc::unsupported_request); }
  /// Serves on this thread until `until()` is true, which is asked several times a second. False: nobody is there any
  /// more, and nobody can come.
  virtual bool run(const std::function<bool()>& until) = 0;
};
/// Starts to serve there; "pipe:" serves the one program at the other end. Over datagrams there are 1,024 recipients at
/// most, since their places are allocated at once, and one at a serial line. Errors: bad_address, connection_failed
/// with errno, out_of_memory, and those of the link; unsupported_request: nobody can be served on such a link.
result<std::unique_ptr<any_owner>> open_owner(const place& at, const host_options& options = {});
/// Starts to help the owner at `coordinator`, as replica_owner does. unsupported_request: they are not places of one
/// stream, or this build has no replicas.
result<std::unique_ptr<any_owner>> open_replica(const place& at, const place& coordinator);

/// How a relay goes on.
struct relay_settings {
  std::span<std::byte> chunk;  ///< memory for the longest chunk
  std::chrono::milliseconds idle_timeout = std::chrono::seconds(600);
  stop_token stop{};
  std::uint64_t bytes_per_second = 0;  ///< 0: no limit
};
/// Bytes and chunks that a relay has passed on, and confirmations.
struct relay_counts {
  std::uint64_t bytes = 0, chunks = 0, completed = 0, completed_unverified = 0;
};
class any_stream;  // streams.hpp
/// One connection in both roles. One thread at a time. The views of a message are valid until the next receive().
class any_session : public any_publisher {
 public:
  /// unsupported_request: the consumer needs a digest of each chunk, which a session has not.
  virtual result<receipt> pull(const reference& from, any_consumer& to, const pull_options& options,
                               std::uint64_t chunk_bytes) noexcept = 0;
  virtual result<void> send(std::uint32_t kind, std::span<const reference> references, std::span<const std::byte> body,
                            std::chrono::milliseconds time, const stop_token& stop) noexcept = 0;
  virtual result<message> receive(std::chrono::milliseconds time, const stop_token& stop) noexcept = 0;
  virtual result<void> serve(const std::function<bool()>& until, std::chrono::milliseconds time) = 0;
  /// The common name in the certificate of the other end; empty if it has shown none.
  virtual std::string_view peer_name() const noexcept = 0;
  /// Its stream, for a relay to whoever pulls at the other end; null: it has none that can be waited for.
  virtual any_stream* lend() noexcept = 0;
  /// As basic_session::between_frames(); false over other links.
  virtual bool between_frames() const noexcept = 0;
  /// Passes what the other end has published on to whoever pulls at the other end of `to`, as relay().
  /// unsupported_request: there is no stream, or this build has no relays.
  virtual result<relay_counts> relay_to(any_stream& to, const reference& ref, const relay_settings& how) noexcept = 0;
};
/// Connects. unsupported_request: there are no sessions with a web server.
result<std::unique_ptr<any_session>> connect_session(const place& to, const connect_options& how);

/// What accepts connections that become sessions.
struct any_listener {
  std::uint16_t port = 0;
  /// timed_out: nobody has called within the time. Several threads may accept.
  std::function<result<std::unique_ptr<any_session>>(std::chrono::milliseconds, const stop_token&)> accept;
};
/// Starts to listen. unsupported_request: nobody can listen on a link of this kind.
result<any_listener> listen_for_sessions(const place& at);

struct view_settings {
  bool writable = false;  ///< pages that are written become this view's own
  std::uint64_t max_header_bytes = std::uint64_t{16} << 20, max_tensors = 1'000'000;
};
/// Tensors of another program of this machine, where they are. Readable as long as `keep`, whatever becomes of the
/// owner.
struct any_view {
  source_view tensors{};
  std::span<const std::byte> memory{};
  bool owner_can_write = false;
  receipt how{};
  std::shared_ptr<const void> keep{};
};
/// Opens what is published there. Errors: as basic_shared_memory::view; unsupported_request: the link shares no memory.
result<any_view> open_view(const place& at, const reference& ref, const view_settings& how,
                           const pull_options& options);

/// Reads the image for its digest, then sends it to a URL. The digest of what was sent, which is that one. Errors: as
/// tensorpull::http_put; digest_mismatch: the image has changed meanwhile, and the store lacks its end;
/// unsupported_request: the place is no URL.
result<std::uint64_t> put(const place& at, const source_view& image, std::chrono::milliseconds timeout,
                          const stop_token& stop);

}  // namespace tensorpull::facade
