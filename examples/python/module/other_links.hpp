// The links whose pipelines are compiled in files of their own, so that they compile side by side.
#pragma once

#include "any_consumer.hpp"
#include "any_owner.hpp"
#include "any_session.hpp"
#include "download.hpp"

#include <string_view>
#include <variant>

namespace tensorpull::python {

/// What a pull lands in, or what it is added to.
using pull_target = std::variant<landing*, any_consumer*, any_update*>;

result<receipt> pull_shared_memory(std::string_view address, const reference& from, pull_target to,
                                   const pull_options& options, chunks cut) noexcept;
result<receipt> pull_pipe(std::string_view command, const reference& from, pull_target to, const pull_options& options,
                          chunks cut) noexcept;
result<receipt> pull_udp(std::string_view address, const reference& from, pull_target to, const pull_options& options,
                         chunks) noexcept;
result<receipt> pull_serial(std::string_view address, const reference& from, pull_target to,
                            const pull_options& options, chunks) noexcept;
result<receipt> pull_nats(std::string_view url, const reference& from, pull_target to, const pull_options& options,
                          chunks) noexcept;

// These raise what opening fails with.
std::shared_ptr<any_owner> open_shared_memory(std::string_view listen, const host_options& host);
std::shared_ptr<any_owner> open_udp(std::string_view listen, const host_options& host);
std::shared_ptr<any_owner> open_serial(std::string_view device, const host_options& host);
std::shared_ptr<any_owner> open_nats(std::string_view url, const host_options& host);

made_session connect_shared_memory(std::string_view address, const connect_options& options) noexcept;
made_session connect_pipe(std::string_view command, const connect_options& options) noexcept;
made_session connect_udp(std::string_view address, const connect_options& options) noexcept;
made_session connect_serial(std::string_view device, const connect_options& options) noexcept;
made_session connect_nats(std::string_view url, const connect_options& options) noexcept;

// These raise what listening fails with.
std::shared_ptr<any_listener> listen_shared_memory(std::string_view address);
std::shared_ptr<any_listener> listen_udp(std::string_view address);
std::shared_ptr<any_listener> listen_serial(std::string_view device);
std::shared_ptr<any_listener> listen_nats(std::string_view url);

/// Adds the class of views to the module.
void bind_view(py::module_& m);
/// Adds the classes that read and write images by ranges.
void bind_images(py::module_& m);
/// What message structs need.
void bind_messages(py::module_& m);

}  // namespace tensorpull::python
