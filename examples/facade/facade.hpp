// Pulls, owners and sessions, whatever the link. An interface is compiled once for each kind of link, and chosen by the
// place that it is opened at.
#pragma once

#include "consumer.hpp"
#include "place.hpp"

#include <tensorpull/core/ids.hpp>
#include <tensorpull/image/view.hpp>
#include <tensorpull/links/posix/posix_stream.hpp>
#include <tensorpull/protocol/owner/owner_memory.hpp>
#include <tensorpull/protocol/owner/transaction.hpp>
#include <tensorpull/std/any.hpp>
#include <tensorpull/std/functional.hpp>
#include <tensorpull/std/stop_token.hpp>
#include <tensorpull/transports/host/host_options.hpp>
#include <tensorpull/transports/message.hpp>
#include <tensorpull/transports/pull_counts.hpp>
#include <tensorpull/transports/pull_options.hpp>
#include <tensorpull/transports/session/connect_options.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
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

/// How the pulls of this program have ended, those of sessions among them.
extern pull_counts pulled;

/// Publishes, as `publishing` does: an owner of many recipients, or a session.
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
  std::string status_password{};  ///< of the page that shows what is published and who has it; empty: there is none
};
/// An owner of many recipients; over a pipe of one. Any thread may call, also while another one runs it; over datagrams
/// a call waits for that one, 0.05 s at most.
class any_owner : public any_publisher {
 public:
  /// The port that it listens on; 0: the link has none.
  virtual std::uint16_t port() const noexcept = 0;
  /// How many recipients are connected, those of its door, too.
  virtual std::size_t connections() const noexcept = 0;
  /// Serves on this thread until `until()` is true, which is asked several times a second. False: nobody is there any
  /// more, and nobody can come.
  virtual bool run(const std::function<bool()>& until) = 0;
  /// Tells the status page of a door what a recipient (`who`), or what is published under an ID, is called. Empty:
  /// there is no such page.
  std::function<void(recipient_id who, const ref_id& id, std::string_view name)> name{};
};

/// A recipient that serves others what it has proved, and takes it from them: as swarm_member. One thread at a time.
class any_member {
 public:
  /// As swarm_member::proof_bytes.
  static constexpr std::uint64_t proof_bytes = 16 * 1024;

  virtual ~any_member() = default;
  /// Pulls; the consumer checks groups.
  virtual result<receipt> pull(const reference& from, any_consumer& to, const pull_options& options,
                               std::uint64_t chunk_bytes) noexcept = 0;
  /// After a pull that has completed: serves as swarm_member::serve does. The consumer is there meanwhile.
  virtual bool serve(std::chrono::milliseconds time, const stop_token& stop) noexcept = 0;
  virtual std::uint64_t bytes_sent() noexcept = 0;
  /// The most others that the owner has listed at a time.
  virtual std::size_t most_members() const noexcept = 0;
  /// Whether the owner has given wrong bytes, and the addresses of members that have.
  virtual bool is_owner_wrong() const noexcept = 0;
  virtual std::vector<std::string> wrong() const = 0;
};

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
/// Bytes that a tunnel has passed on, to the other session and from there.
struct tunnel_counts {
  std::uint64_t forth = 0, back = 0;
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
  /// Decides what the other end may have, as publisher::authorise, before anything is served.
  virtual void authorise(const authorise_callback& may) noexcept = 0;
  /// The common name in the certificate of the other end; empty if it has shown none.
  virtual std::string_view peer_name() const noexcept = 0;
  /// Its stream, for a relay to whoever pulls at the other end; null: it has none that can be waited for.
  virtual any_stream* lend() noexcept = 0;
  /// As basic_session::between_frames(); false over other links.
  virtual bool between_frames() const noexcept = 0;
  /// Passes what the other end has published on to whoever pulls at the other end of `to`, as relay().
  /// unsupported_request: there is no stream, or this build has no relays.
  virtual result<relay_counts> relay_to(any_stream& to, const reference& ref, const relay_settings& how) noexcept = 0;
  /// Passes all bytes of the other end and of that of `to` on to each other, as tunnel(). Errors: as relay_to, too.
  virtual result<tunnel_counts> tunnel_to(any_stream& to, const relay_settings& how) noexcept = 0;
};
/// How an end of a tunnel knows the other one.
struct tunnel_end {
  std::shared_ptr<any_tls> tls{};  ///< none: nothing is encrypted
  std::string peer{};  ///< the name that its certificate has to have: as its common name, and where an end that has
                       ///< connected looks for names
  bool accepts = false;  ///< whether this end has the part of a server in TLS. Clients have to show certificates then
  std::chrono::milliseconds timeout = std::chrono::seconds(10);
  stop_token stop{};
};
/// A session over the stream of `of`, to whose other end its other end passes all bytes on (any_session::tunnel_to).
/// `of` can only be destroyed afterwards. Errors, of which the first two leave it as it is: unsupported_request: it has
/// no stream of TCP, or no TLS can be had over it; unread_messages: it is not between frames; invalid_argument:
/// `peer` or certificates of clients are missing; not_authenticated: the other end has another name; as
/// tls_address::connect; out_of_memory.
result<std::unique_ptr<any_session>> session_through(any_session& of, const tunnel_end& how) noexcept;
/// Accepts connections that become sessions.
struct any_listener {
  std::uint16_t port = 0;
  /// timed_out: nobody has called within the time. Several threads may accept.
  std::function<result<std::unique_ptr<any_session>>(std::chrono::milliseconds, const stop_token&)> accept;
};

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

/// A function of a table. If it is not there, its result is unsupported_request.
template <class>
struct entry;
template <class Result, class... Arguments>
struct entry<Result(Arguments...)> {
  Result (*function)(Arguments...) = nullptr;
  constexpr entry() = default;
  constexpr entry(Result (*f)(Arguments...)) noexcept
      : function(f) {}  // NOLINT: a row of a table is a list of functions
  explicit operator bool() const noexcept { return function != nullptr; }
  Result operator()(Arguments... arguments) const {
    if (function == nullptr) return failure(errc::unsupported_request);
    return function(arguments...);
  }
};
/// How an upload went.
struct put_counts {
  std::uint64_t digest = 0;  ///< XXH3-64 of the image
  std::uint64_t sent = 0;  ///< bytes that were sent, and not there already
};
/// A kind of link: what it is, and what it can do.
struct link_kind {
  std::string_view name;  ///< of its addresses
  link_traits is{};
  /// As any_pull, which calls it.
  entry<result<receipt>(any_pull&, const reference&, any_consumer&, const pull_options&)> pull{};
  /// Starts to serve there; "pipe:" serves the one program at the other end. Where clients have to show certificates
  /// and the options authorise nobody, expected_ones_are_certified decides. Over datagrams there are 1,024 recipients
  /// at most, since their places are allocated at once, and one at a serial line. Errors: bad_address,
  /// connection_failed with errno, out_of_memory, and those of the link.
  entry<result<std::unique_ptr<any_owner>>(const place&, const host_options&)> own{};
  /// Connects.
  entry<result<std::unique_ptr<any_session>>(const place&, const connect_options&)> connect{};
  /// Starts to listen.
  entry<result<any_listener>(const place&)> listen{};
  /// Opens what is published there. Errors: as basic_shared_memory::view.
  entry<result<any_view>(const place&, const reference&, const view_settings&, const pull_options&)> view{};
  /// Reads an image for its digest, then sends it to a URL, with keys of S3 in parts. Errors: as http_put and s3_put;
  /// digest_mismatch: the image has changed meanwhile, and the store lacks its end.
  entry<result<put_counts>(const place&, const source_view&, std::chrono::milliseconds, const stop_token&)> put{};
  /// The place::id of a URL.
  entry<result<ref_id>(std::string_view)> url_id{};
};
struct hub_model;  // hub.hpp
struct hub_call;
struct hub_wanted;
struct hub_brought;
struct hub_file;
/// Features beside links.
struct feature_table {
  /// As any_tls::make.
  entry<result<std::shared_ptr<any_tls>>(const tls_arguments&)> tls{};
  /// Answers HTTP beside the owner at a place, which has to be one of several (link_traits); with TLS, if its link has
  /// it. The port. Nobody runs the owner meanwhile. Errors: those of listening.
  entry<result<std::uint16_t>(any_owner&, const place&, const door_settings&, const host_options&)> door{};
  /// Whether web pages have such an origin.
  entry<result<void>(std::string_view)> is_origin{};
  /// As link_kind::pull, from several places.
  decltype(link_kind::pull) several{};
  /// As link_kind::own, at a place of one of several streams: the owner tells recipients of each other, as swarm_door
  /// does.
  entry<result<std::unique_ptr<any_owner>>(const place&, const host_options&)> swarm{};
  /// Starts to listen at the second place, as a member of the swarm of the owner at the first. Both are of one link,
  /// TCP or Unix sockets. Errors: as swarm_member::open; unsupported_request: another link.
  entry<result<std::unique_ptr<any_member>>(const place&, const place&)> member{};
  /// Starts to help the owner at the second place, as replica_owner does. Both are places of one of several streams.
  entry<result<std::unique_ptr<any_owner>>(const place&, const place&)> replica{};
  /// Connects to an address through a proxy. Errors: as proxy_dialer::dial.
  entry<result<posix_stream>(const proxy_settings&, std::string_view, std::chrono::milliseconds, const stop_token&)>
      dial{};
  /// Makes a directory of a hub's model: all of its files of one commit, or nothing. Errors: those of http_fetcher and
  /// receive_files; bad_file and too_large, with "the list of files"; stale_version: the hub states another commit, or
  /// other bytes, than in its list; not_verifiable, with a path: it states no digest.
  entry<result<hub_brought>(const hub_model&, const hub_call&, const hub_wanted&)> bring_model{};
  /// Where a hub has one file, and its SHA-256. Errors: the same; unknown_reference, with its path.
  entry<result<hub_file>(const hub_model&, const hub_call&)> find_model_file{};
};
extern const feature_table features;

}  // namespace tensorpull::facade
