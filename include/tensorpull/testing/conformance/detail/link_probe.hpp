// The common part of the helpers of both kinds of link: the objects of each check, and time.
#pragma once

#include <tensorpull/testing/conformance/conformance_options.hpp>
#include <tensorpull/testing/conformance/conformance_report.hpp>
#include <tensorpull/testing/seeded_random.hpp>

#include <algorithm>
#include <optional>
#include <utility>

namespace tensorpull::testing::detail {

using namespace std::chrono_literals;

/// `Connect`: a stream_factory or a datagram_factory.
template <class Connect>
class link_probe {
 public:
  using pair = typename std::invoke_result_t<Connect&>::value_type;

  link_probe(Connect& connect, const conformance_options& o, conformance_report& r) noexcept
      : options(o), report(r), connect_(connect) {}

  std::uint64_t now_us() {
    if constexpr (requires { connect_.now_us(); }) return connect_.now_us();
    else
      return static_cast<std::uint64_t>(
          std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
              .count());
  }
  /// A new connection or pair; nothing if it cannot be made, and then the current check has failed.
  std::optional<pair> connect() {
    auto made = connect_();
    if (made) return std::move(*made);
    report.fail("no %s: %s", stream_factory<Connect> ? "connection" : "pair of links",
                to_string(made.error().code).data());
    return std::nullopt;
  }
  /// How long the shortest and the longest of so many calls took, in microseconds.
  template <class F>
  std::pair<std::uint64_t, std::uint64_t> durations(int calls, F call) {
    std::uint64_t shortest = ~std::uint64_t{0}, longest = 0;
    for (int i = 0; i < calls; ++i) {
      const std::uint64_t begin = now_us();
      call();
      const std::uint64_t took = now_us() - begin;
      shortest = std::min(shortest, took);
      longest = std::max(longest, took);
    }
    return {shortest, longest};
  }
  std::uint64_t patience_us() const noexcept { return static_cast<std::uint64_t>(options.patience.count()) * 1000; }
  /// A function that is true while the patience lasts, which begins now.
  auto patience() {
    return [this, begin = now_us()] { return now_us() - begin < patience_us(); };
  }

  const conformance_options& options;
  conformance_report& report;

 protected:
  Connect& connect_;
};

}  // namespace tensorpull::testing::detail
