// The functions and kinds of links of which CMakeLists.txt makes tables. A file without its component is in none.
#pragma once

#include "facade.hpp"

#include <tensorpull/transports/tls_options.hpp>

namespace tensorpull::facade {

/// A kind of link that this build has not, and why.
struct missing_kind {
  std::string_view name, why;
};
extern const std::span<const link_kind* const> kinds;
extern const std::span<const missing_kind> missing_kinds;

result<std::shared_ptr<any_tls>> make_tls(const tls_arguments& given);
result<std::uint16_t> open_door_beside(any_owner& owner, const place& at, const door_settings& door,
                                       const host_options& options);
result<void> is_page_origin(std::string_view text);
result<receipt> pull_from_several(any_pull& how, const reference& ref, any_consumer& to, const pull_options& options);
result<std::unique_ptr<any_owner>> open_stream_swarm(const place& at, const host_options& options);
result<std::unique_ptr<any_member>> open_stream_member(const place& owner, const place& at);
result<std::unique_ptr<any_owner>> open_stream_replica(const place& at, const place& coordinator);
result<posix_stream> dial_through(const proxy_settings& proxy, std::string_view address,
                                  std::chrono::milliseconds timeout, const stop_token& stop);
result<hub_brought> bring_model(const hub_model& model, const hub_call& call, const hub_wanted& wanted);
result<hub_file> find_model_file(const hub_model& model, const hub_call& call);

/// Borrows the texts.
tls_options options_of(const tls_arguments& a) noexcept;

}  // namespace tensorpull::facade
