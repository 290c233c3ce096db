// The tables of links and of features: what a file has to give so that it is known.
#pragma once

#include "facade.hpp"

#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <utility>

namespace tensorpull::facade {

class owner_over_streams;  // owners.hpp

/// A kind of link: what it is, and what it can do. A pointer that is null: it cannot.
struct link_kind {
  std::string_view name;  ///< of its addresses
  link_traits is{};
  result<receipt> (*pull)(any_pull&, const reference&, any_consumer&, const pull_options&) = nullptr;
  decltype(&open_owner) own = nullptr;
  decltype(&connect_session) connect = nullptr;
  decltype(&listen_for_sessions) listen = nullptr;
  result<ref_id> (*url_id)(std::string_view url) = nullptr;
  decltype(&facade::put) put = nullptr;
  decltype(&open_view) view = nullptr;
};
/// A kind of link that this build has not, and why.
struct missing_kind {
  std::string_view name, why;
};

struct opened_door {
  std::uint16_t port = 0;
  std::function<std::size_t()> connections{};  ///< keeps it open
};
/// Features beside links.
struct feature_table {
  result<std::shared_ptr<any_tls>> (*tls)(const tls_arguments&) = nullptr;
  result<opened_door> (*door)(owner_over_streams&, const place&, const door_settings&) = nullptr;
  decltype(&facade::is_origin) is_origin = nullptr;
  decltype(link_kind::pull) several = nullptr;
  decltype(&open_replica) replica = nullptr;
  result<posix_stream> (*dial)(const proxy_settings&, std::string_view, std::chrono::milliseconds,
                               const stop_token&) noexcept = nullptr;
};
// The functions that CMakeLists.txt names.
result<std::shared_ptr<any_tls>> make_tls(const tls_arguments& given);
result<opened_door> open_door_beside(owner_over_streams& owner, const place& at, const door_settings& door);
bool is_page_origin(std::string_view text) noexcept;
result<receipt> pull_from_several(any_pull& how, const reference& ref, any_consumer& to, const pull_options& options);
result<std::unique_ptr<any_owner>> open_stream_replica(const place& at, const place& coordinator);
result<posix_stream> dial_through(const proxy_settings& proxy, std::string_view address,
                                  std::chrono::milliseconds timeout, const stop_token& stop) noexcept;

/// Borrows the texts.
tls_options options_of(const tls_arguments& a) noexcept;

// CMakeLists.txt makes them: a file whose component is not there is in none.
extern const std::span<const link_kind* const> kinds;
extern const std::span<const missing_kind> missing_kinds;
extern const feature_table features;

/// `Model` of what was made, as a `Base`.
template <class Base, class Model, class Made, class... Arguments>
result<std::unique_ptr<Base>> boxed_as(result<Made> made, Arguments&&... arguments) noexcept {
  if (!made) return failure(made.error());
  std::unique_ptr<Base> box(new (std::nothrow) Model(std::move(*made), std::forward<Arguments>(arguments)...));
  if (!box) return failure(errc::out_of_memory);
  return box;
}

}  // namespace tensorpull::facade
