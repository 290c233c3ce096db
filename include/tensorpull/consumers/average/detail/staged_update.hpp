// One update on its way into a weighted average by way of the staging memory: added as a whole when it has proved complete, or not at all.
#pragma once

#include <tensorpull/consumers/average/detail/averaging.hpp>
#include <tensorpull/consumers/concept.hpp>

#include <algorithm>

namespace tensorpull::detail {

/// The staging memory holds one model: who finds it taken waits until the other update ends.
class staged_update {
 public:
  static constexpr bool irrevocable = false;
  /// The header lands in the staging memory too, a piece at a time, and is overwritten.
  static constexpr std::size_t least_staging_bytes = 4096;

  staged_update(averaging& to, double weight, error_name peer) noexcept : to_(to), weight_(weight), peer_(peer) {}
  staged_update(const staged_update&) = delete;
  staged_update& operator=(const staged_update&) = delete;
  ~staged_update() { stop(); }

  std::uint64_t fingerprint() const noexcept { return to_.sums.schema().fingerprint; }
  const image_schema* schema() const noexcept { return &to_.sums.schema(); }

  result<void> begin(const description& d) noexcept {
    stop();
    if (const auto ok = to_.check(weight_, d, peer_); !ok) return ok;
    active_ = true;
    round_ = to_.round;
    data_start_ = d.data_start;
    return {};
  }

  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    if (!active_ || length == 0 || out.empty()) return {};
    if (round_ == to_.round && to_.staging_user == nullptr) to_.staging_user = this;
    if (to_.staging_user != this) return {};
    const bool header = offset < data_start_;
    const std::uint64_t at = header ? 0 : offset - data_start_;
    const std::uint64_t room = header ? std::min<std::uint64_t>(data_start_ - offset, least_staging_bytes) : to_.sums.schema().data_bytes() - at;
    const auto n = static_cast<std::size_t>(std::min(length, room));
    out[0] = {to_.sums.staging() + static_cast<std::size_t>(at), n};
    return {1, n};
  }

  result<void> commit(std::uint64_t, std::span<const std::byte>) noexcept { return {}; }
  result<void> chunk(std::uint64_t offset, std::uint64_t) noexcept {
    if (!active_ || round_ != to_.round) return failure(errc::cancelled, offset, peer_);
    return {};
  }

  result<void> finish(const receipt&) noexcept {
    const auto n = static_cast<std::size_t>(to_.sums.schema().data_bytes());
    if (!active_ || round_ != to_.round || (n > 0 && to_.staging_user != this)) return failure(errc::cancelled, 0, peer_);
    to_.sums.add(0, {to_.sums.staging(), n}, weight_);
    to_.sums.reached().add_whole(weight_);
    ++to_.whole;
    stop();
    return {};
  }

  void rewind(std::uint64_t) noexcept {}
  void abandon(const error&) noexcept { stop(); }

 private:
  void stop() noexcept {
    active_ = false;
    if (to_.staging_user == this) to_.staging_user = nullptr;
  }

  averaging& to_;
  double weight_;
  error_name peer_;
  std::uint64_t data_start_ = 0, round_ = 0;
  bool active_ = false;
};

}  // namespace tensorpull::detail
