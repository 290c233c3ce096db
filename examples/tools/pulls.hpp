// A pull over whatever link the command line names. Each family of links is a file of its own (pull_*.cpp), so that
// they compile side by side.
#pragma once

#include "file_difference.hpp"
#include "link_choice.hpp"
#include "received_file.hpp"

#include <tensorpull/consumers/any_schema/published_schema.hpp>
#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/core/ids.hpp>
#include <tensorpull/transports/pull_options.hpp>

#include <cstdint>
#include <variant>

namespace tools {

/// A pull, apart from what it pulls into.
struct pull_call {
  const link_choice& link;
  tp::reference ref;
  const tp::pull_options& options;
  /// bytes that are asked for at a time; 0: all at once. Datagrams have a length of their own
  std::uint64_t chunk = tp::default_chunk_bytes;
  std::uint8_t* wrong = nullptr;  ///< which of the link's senders gave wrong bytes: one bit each, the first is the
                                  ///< lowest
  bool digest = true;  ///< whether the digest of the whole is checked; over datagrams it always is
};
/// A look at what is there is always over the pipeline with a digest, which it has no use for; a difference needs it.
using pull_target =
    std::variant<observed_file*, finished_file*, tp::published_schema*, applied_to_file*, changed_to_file*>;

tp::result<tp::receipt> pull_over_streams(const pull_call& call, pull_target to);  ///< tcp, unix, pipe, shm
tp::result<tp::receipt> pull_over_datagrams(const pull_call& call, pull_target to);  ///< udp, serial
tp::result<tp::receipt> pull_over_tls(const pull_call& call, pull_target to);  ///< tls
tp::result<tp::receipt> pull_over_nats(const pull_call& call, pull_target to);  ///< nats
tp::result<tp::receipt> pull_over_http(const pull_call& call, pull_target to);  ///< http, https
/// The reference by which a cursor knows what a URL names; none: it is no URL.
tp::ref_id http_reference(const std::string& url);

/// Pulls over the link of the call, which this program was built with.
inline tp::result<tp::receipt> pull(const pull_call& call, pull_target to) {
  if (call.link.http.used) return pull_over_http(call, to);
  switch (call.link.scheme) {
    case link_scheme::udp_url:
    case link_scheme::serial_url: return pull_over_datagrams(call, to);
#if TENSORPULL_TOOLS_TLS
    case link_scheme::tls_url: return pull_over_tls(call, to);
#endif
#if TENSORPULL_TOOLS_NATS
    case link_scheme::nats_url: return pull_over_nats(call, to);
#endif
    default: return pull_over_streams(call, to);
  }
}

}  // namespace tools
