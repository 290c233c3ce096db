// Pulls over several connections at a time (connections=), from one owner or from all of a route's.
#include "parallel.hpp"

#include <tensorpull/satellites/parallel/parallel_pull.hpp>

#include <type_traits>
#include <utility>
#include <vector>

namespace tensorpull::python {

result<receipt> pull_in_parallel(const parallel_route& route, const reference& from, parallel_target to,
                                 const pull_options& options, chunks cut) noexcept {
  return over(route.places.front(), [&]<class Transport>(std::type_identity<Transport>, const auto& first) {
    using address = std::remove_cvref_t<decltype(first)>;
    const auto all = addresses_over<address>(route.places);
    const parallel_addresses<Transport, address> where(all, route.connections, std::chrono::seconds(10), route.tell);
    auto how = std::visit([&](auto* target) { return net<Transport>::pull(where, from, *target, options, cut); }, to);
    for (std::size_t i = 0; i < all.size(); ++i)
      if ((where.wrong() >> i & 1) != 0) route.wrong.push_back(i);
    return how;
  });
}

}  // namespace tensorpull::python
