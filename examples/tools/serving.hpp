// An owner over whatever link the command line names. Each family of links is a file of its own (serve_*.cpp), so that
// they compile side by side.
#pragma once

#include "link_choice.hpp"

#include <tensorpull/core/ids.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/image/view.hpp>
#include <tensorpull/protocol/owner/owner_memory.hpp>
#include <tensorpull/protocol/owner/transaction.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace tools {

namespace tp = tensorpull;

/// How many files a sender has at most.
inline constexpr std::size_t most_files = 256;

/// What send does with an owner.
class served {
 public:
  virtual ~served() = default;
  virtual tp::result<tp::reference> add_image(const tp::source_view& image, const tp::publish_options& options) = 0;
  virtual tp::result<tp::publication_status> status_of(const tp::reference& ref) const = 0;
  virtual bool settled(const tp::reference& ref) const = 0;
  virtual tp::result<tp::recipient_record> recipient_of(const tp::reference& ref, tp::recipient_id who) = 0;
  virtual std::size_t recipients_of(const tp::reference& ref, std::span<tp::recipient_record> out) = 0;
  /// Serves until `until()` is true, which is asked several times a second. False: nobody is there any more, and nobody
  /// can come.
  virtual bool run(const std::function<bool()>& until) = 0;
  /// How many recipients are connected.
  virtual std::size_t connections() const = 0;
  /// The port that it listens on; 0: the link has none.
  virtual std::uint16_t port() const = 0;
  /// The port that answers HTTP; 0: there is none.
  virtual std::uint16_t http_port() const { return 0; }
};
using serving = tp::result<std::unique_ptr<served>>;

serving serve_over_streams(const link_choice& link);  ///< tcp, unix, pipe, shm
serving serve_over_datagrams(const link_choice& link);  ///< udp, serial
serving serve_over_tls(const link_choice& link);  ///< tls
serving serve_over_nats(const link_choice& link);  ///< nats

/// Begins to serve over the link, which this program was built with.
inline serving serve(const link_choice& link) {
  switch (link.scheme) {
    case link_scheme::udp_url:
    case link_scheme::serial_url: return serve_over_datagrams(link);
#if TENSORPULL_TOOLS_TLS
    case link_scheme::tls_url: return serve_over_tls(link);
#endif
#if TENSORPULL_TOOLS_NATS
    case link_scheme::nats_url: return serve_over_nats(link);
#endif
    default: return serve_over_streams(link);
  }
}

}  // namespace tools
