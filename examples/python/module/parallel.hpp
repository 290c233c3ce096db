// What a pull over several connections at a time needs; it is compiled in a file of its own.
#pragma once

#include "links.hpp"
#include "other_links.hpp"

#include <tensorpull/satellites/parallel/several_addresses.hpp>

#include <cstddef>
#include <span>
#include <variant>
#include <vector>

namespace tensorpull::python {

/// An any_consumer whose memory takes bytes in any order.
class any_order_consumer : public any_consumer {
 public:
  static constexpr bool any_order = true;
  virtual source_view arrived() const noexcept = 0;

 protected:
  ~any_order_consumer() = default;
};
static_assert(consumer<any_order_consumer>);

/// What bytes that come in any order land in.
using parallel_target = std::variant<landing*, any_order_consumer*>;

/// Owners of the same, over TCP, TLS or Unix sockets.
struct parallel_route {
  std::span<const place> places;
  std::size_t connections;  ///< in all
  callback<const address_attempt&> tell;
  std::vector<std::size_t>& wrong;  ///< is given those whose bytes were wrong
};
result<receipt> pull_in_parallel(const parallel_route& route, const reference& from, parallel_target to,
                                 const pull_options& options, chunks cut) noexcept;

}  // namespace tensorpull::python
