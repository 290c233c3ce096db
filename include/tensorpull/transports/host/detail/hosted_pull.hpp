// The state of a connection of a host while it pulls.
#pragma once

#include <tensorpull/pull/running_pull.hpp>
#include <tensorpull/std/chrono.hpp>
#include <tensorpull/std/optional.hpp>
#include <tensorpull/transports/pull_options.hpp>

#include <cstdint>
#include <utility>

namespace tensorpull {

/// Stands for the consumer on a host whose connections do not pull.
struct no_consumer {};

namespace detail {

/// The consumer, the options, the transfer, and the pause before its next try.
template <class Parts, class Consumer>
struct hosted_pull {
  using consumer_type = typename checked_consumer<Consumer>::type;

  template <class... Arguments>
  hosted_pull(const reference& ref, const pull_options& asked, std::uint32_t first_id, Arguments&&... arguments)
      : consumer(std::forward<Arguments>(arguments)...), options(asked),
        run(ref, consumer, options, typename Parts::chunking{}, first_id) {}

  /// How much of the pause is left.
  std::chrono::milliseconds rest_left() const noexcept { return rested.left(*rest); }

  /// The pause is over.
  template <class End>
  void begin_again(End& end) noexcept {
    rest = {};
    run.transfer().restart();
    run.begin(end);
  }

  consumer_type consumer;
  const pull_options options;
  running_pull<Parts, consumer_type> run;
  optional<std::chrono::milliseconds> rest;  ///< the pause; none: a try is under way
  stopwatch<typename Parts::platform> rested, looked;  ///< since the pause began; since a look after the path
};
template <class Parts>
struct hosted_pull<Parts, no_consumer> {};

}  // namespace detail

}  // namespace tensorpull
