// The pipelines of recv over one transport.
#pragma once

#include "pulls.hpp"

#include <tensorpull/satellites/parallel/parallel_pull.hpp>
#include <tensorpull/tensorpull.hpp>

#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace tools {

/// As much ahead as fills a line of 1 Gbit/s and 200 ms: 16 chunks of 2 MiB over a stream, or datagrams, whose window
/// takes 210 KiB of stack.
struct long_lines : tp::default_limits {
  static constexpr std::size_t pipelined_requests = 16, window = 32'768;
};

template <class Net, class Where, class Cut>
tp::result<tp::receipt> pull_by(const Where& where, const pull_call& call, pull_target to,
                                const tp::pull_options& options, const Cut& cut) {
  return std::visit(
      [&]<class Target>(Target* target) -> tp::result<tp::receipt> {
        constexpr bool looks = std::is_same_v<Target, tp::published_schema> ||
                               std::is_same_v<Target, applied_to_file> || std::is_same_v<Target, changed_to_file>;
        if constexpr (looks && !Net::parts::integrity::whole) return tp::failure(tp::errc::unsupported_request);
        else return Net::pull(where, call.ref, *target, options, cut);
      },
      to);
}

/// Pulls from `where`, which is what the transport takes for an address, in chunks as the call says.
template <class Transport, class Where>
tp::result<tp::receipt> pull_over(const Where& where, const pull_call& call, pull_target to) {
  using cut = tp::bytes_up_to<longest_chunk>;
  const cut chunks{call.chunk == 0 ? longest_chunk : call.chunk};
  if (call.digest)
    return pull_by<tp::pipeline<tp::tensor_list, cut, Transport, long_lines>>(where, call, to, call.options, chunks);
  return pull_by<tp::pipeline<tp::tensor_list, cut, Transport, tp::unverified, long_lines>>(where, call, to,
                                                                                            call.options, chunks);
}
/// The same from all senders of the call's link at once, or over several connections to one. `at(address)`: what the
/// transport takes for an address.
template <class Transport, class At>
tp::result<tp::receipt> pull_over_all(const pull_call& call, pull_target to, At at) {
  const link_choice& link = call.link;
  std::vector<std::remove_cvref_t<std::invoke_result_t<At&, std::string_view>>> all{at(link.address)};
  if (link.also.empty() && link.connections <= 1) return pull_over<Transport>(all.front(), call, to);
  for (const std::string& other : link.also) all.push_back(at(other));
  const tp::parallel_addresses<Transport, typename decltype(all)::value_type> where(all, link.connections);
  const auto how = pull_over<Transport>(where, call, to);
  if (call.wrong != nullptr) *call.wrong = where.wrong();
  return how;
}
/// Over datagrams: in chunks that fit one. The digest is always checked.
template <class Transport>
tp::result<tp::receipt> pull_in_datagrams(const pull_call& call, pull_target to) {
  using net = tp::pipeline<tp::tensor_list, tp::fit_datagram, Transport, long_lines>;
  return pull_by<net>(std::string_view(call.link.address), call, to, call.options, typename net::chunking{});
}

}  // namespace tools
