// The calls that a consumer in front of another one passes on as they are.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/image/view.hpp>

#include <cstdint>

namespace tensorpull::detail {

/// The base of such a consumer. Borrows the other one, and has of its optional members those that it has.
template <consumer Consumer>
class passed_on {
 public:
  std::uint64_t fingerprint() const noexcept { return to_.fingerprint(); }
  const image_schema* schema() const noexcept { return to_.schema(); }
  source_view read_back() const noexcept
    requires requires(const Consumer& c) { c.read_back(); }
  {
    return to_.read_back();
  }
  bool looked() const noexcept
    requires requires(const Consumer& c) { c.looked(); }
  {
    return to_.looked();
  }
  void confirmed() noexcept
    requires requires(Consumer& c) { c.confirmed(); }
  {
    to_.confirmed();
  }

 protected:
  explicit passed_on(Consumer& to) noexcept : to_(to) {}

  Consumer& to_;
};

}  // namespace tensorpull::detail
