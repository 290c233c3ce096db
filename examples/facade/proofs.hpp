// Pulls that are proved, over any link (satellites/proofs): for the tools and for Python.
#pragma once

#include "consumer.hpp"
#include "facade.hpp"

#include <tensorpull/satellites/proofs/proved_pull.hpp>
#include <tensorpull/system/host_platform.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tensorpull::facade {

/// Pulls from one of several places.
using pull_from = std::function<result<receipt>(const reference&, any_consumer&, const pull_options&)>;

/// Pulls from all of several places at once, or over several connections from one.
struct pull_at_once {
  const pull_from& pull;
  const std::uint8_t& wrong;  ///< afterwards, as any_pull::wrong
};
/// The same, as pull_proved() takes it.
struct places_at_once {
  std::span<const pull_from> each;
  const pull_at_once& all;
  std::span<const pull_from> addresses() const noexcept { return each; }
  std::uint64_t wrong() const noexcept { return all.wrong; }
};

/// What pull_proved() takes as its network.
struct proved_net {
  struct parts {
    using platform = host_platform;
  };
  template <consumer Consumer>
  static result<receipt> pull(const pull_from& from, const reference& ref, Consumer& to,
                              const pull_options& options) noexcept {
    consumer_for as(to);
    return from(ref, as, options);
  }
  template <consumer Consumer>
  static result<receipt> pull(const places_at_once& from, const reference& ref, Consumer& to,
                              const pull_options& options) noexcept {
    consumer_for as(to);
    return from.all.pull(ref, as, options);
  }
};

/// pull_proved(), from all places at once if `at_once` is given and the consumer takes bytes in any order; otherwise
/// from one after the other: as long as others are left, one of them is tried again once.
inline result<proved_receipt> pull_proved_from(std::span<const pull_from> all, const proved_reference& of,
                                               any_consumer& to, const proof_options& how, const pull_options& options,
                                               const pull_at_once* at_once = nullptr) {
  std::vector<pull_from> each;
  for (std::size_t i = 0; i < all.size(); ++i)
    each.push_back([&pull = all[i], last = i + 1 == all.size()](const reference& ref, any_consumer& into,
                                                                const pull_options& given) {
      pull_options with = given;
      if (!last) with.retry.retries = std::min<std::uint32_t>(with.retry.retries, 1);
      return pull(ref, into, with);
    });
  if (at_once != nullptr && to.takes_any_order())
    return pull_proved<proved_net>(places_at_once{each, *at_once}, of, to, how, options);
  return pull_proved<proved_net>(std::span(each), of, to, how, options);
}

}  // namespace tensorpull::facade
