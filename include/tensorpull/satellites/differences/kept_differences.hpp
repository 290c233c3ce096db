// The differences of an owner's last rounds: with them a recipient that missed some pulls their changes, and not all.
#pragma once

#include <tensorpull/satellites/differences/difference.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tensorpull {

/// Differences from one version to the next, of which the last leads to what is published. `Difference` is a
/// model_difference, or narrowed<...>; each is made once, and serves for as many rounds as it is kept.
///
/// Memory: at most `most` differences, and beside the last one at most `most_bytes` of images; each takes an entry of
/// the owner's table. Differences that are together longer than the model save nothing, so its bytes are a good bound.
template <class Difference>
class kept_differences {
 public:
  /// Keeps the last one alone by default.
  explicit kept_differences(std::size_t most = 1, std::uint64_t most_bytes = ~std::uint64_t{0}) noexcept
      : most_(most == 0 ? 1 : most), most_bytes_(most_bytes) {}

  /// Takes the difference from that version to the one that is published next; the one before led to `from_version`.
  /// The oldest are dropped, or as long as they are published by withdraw(). After a round without a difference, call
  /// clear() first. Throws std::bad_alloc.
  void keep(Difference made, std::uint64_t from_version) {
    kept_.push_back({std::move(made), from_version});
    if (published_.empty()) drop_oldest();
  }
  /// Publishes all of them beside `whole`, the last first. If the owner's table is full, the older ones are left out,
  /// and who needs these pulls the whole. Other errors: those of add_image(). Throws std::bad_alloc.
  template <class Owner>
  result<void> publish(Owner& owner, const reference& whole) {
    published_.reserve(published_.size() + kept_.size());
    for (auto one = kept_.rbegin(); one != kept_.rend(); ++one) {
      const auto made = owner.add_image(one->difference.image(), difference_options(whole, one->from));
      if (!made && made.error().code == errc::table_full) return {};
      if (!made) return failure(made.error());
      published_.push_back(*made);
    }
    return {};
  }
  /// Withdraws the differences that were published: before they are published beside another whole.
  template <class Owner>
  void withdraw(Owner& owner) noexcept {
    for (const reference& one : published_) (void)owner.withdraw(one);
    published_.clear();
    drop_oldest();
  }
  /// Withdraws and forgets all of them.
  template <class Owner>
  void clear(Owner& owner) noexcept {
    withdraw(owner);
    kept_.clear();
  }

  /// How many are kept.
  std::size_t size() const noexcept { return kept_.size(); }
  /// Bytes of their images.
  std::uint64_t bytes() const noexcept {
    std::uint64_t sum = 0;
    for (const entry& one : kept_) sum += bytes_of(one);
    return sum;
  }

 private:
  struct entry {
    Difference difference;
    std::uint64_t from;
  };
  void drop_oldest() noexcept {
    if (kept_.empty()) return;
    std::uint64_t before = 0;
    std::size_t first = kept_.size() - 1;
    while (first != 0 && kept_.size() - first < most_ && bytes_of(kept_[first - 1]) <= most_bytes_ - before)
      before += bytes_of(kept_[--first]);
    kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(first));
  }
  static std::uint64_t bytes_of(const entry& one) noexcept { return one.difference.image().schema->image_bytes; }

  std::vector<entry> kept_;
  std::vector<reference> published_;
  std::size_t most_;
  std::uint64_t most_bytes_;
};

}  // namespace tensorpull
