// A consumer of your own: it looks for NaNs in an update and computes its norm while the bytes arrive, without holding
// the update.
#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/tensorpull.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>

using namespace tensorpull;

struct Update {
  float weight[300][70], bias[300];
};
BOOST_HANA_ADAPT_STRUCT(Update, weight, bias);

/// Takes updates of one schema whose tensors are all F32. Memory: the 1 KiB that the bytes pass through.
class inspection {
 public:
  static constexpr bool irrevocable = false;  // nothing outside this object changes before finish()

  explicit inspection(const image_schema& schema) noexcept : schema_(schema) {}

  double norm() const noexcept { return std::sqrt(squares_); }
  unsigned long zeros() const noexcept { return zeros_; }
  unsigned long nans() const noexcept { return nans_; }

  std::uint64_t fingerprint() const noexcept { return schema_.fingerprint; }
  const image_schema* schema() const noexcept { return &schema_; }
  result<void> begin(const description& d) noexcept {
    data_start_ = d.data_start;
    squares_ = 0;
    zeros_ = nans_ = 0;
    return {};
  }
  prepared prepare(std::uint64_t, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    if (length == 0 || out.empty()) return {};
    out[0] = {room_, static_cast<std::size_t>(std::min<std::uint64_t>(length, sizeof room_))};
    return {1, out[0].size()};
  }
  /// Takes a piece of any length. It may begin in the header, and it may end within a number, which is kept until its
  /// last byte comes.
  result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    for (const std::byte b : bytes) {
      if (offset++ < data_start_) continue;
      number_ = number_ >> 8 | static_cast<std::uint32_t>(b) << 24;  // little-endian: the last byte is the highest
      if ((offset - data_start_) % 4 == 0) take(std::bit_cast<float>(number_));
    }
    return {};
  }
  result<void> chunk(std::uint64_t, std::uint64_t) noexcept { return {}; }
  /// Fails the transfer if the update has a NaN, so that the owner is told that it was refused.
  result<void> finish(const receipt&) noexcept {
    return nans_ == 0 ? result<void>{} : failure(errc::value_out_of_range);
  }
  void abandon(const error&) noexcept {}

 private:
  void take(float x) noexcept {
    if (std::isnan(x)) {
      ++nans_;
      return;
    }
    squares_ += double{x} * double{x};
    zeros_ += x == 0;
  }

  const image_schema& schema_;
  std::uint64_t data_start_ = 0;
  std::uint32_t number_ = 0;
  double squares_ = 0;
  unsigned long zeros_ = 0, nans_ = 0;
  std::byte room_[1024];
};
static_assert(consumer<inspection>);

int main() {
  using net = pipeline<raw_tensors<Update>, fixed_bytes<4_KiB>, loopback>;
  static Update update;
  for (auto& row : update.weight) row[3] = 0.5f;
  static net::downloader owner;
  const auto ref = owner.add_tensors(update);
  if (!ref) return 1;
  inspection seen(raw_tensors<Update>::schema());
  const auto done = net::pull(owner, *ref, seen);
  if (!done) return 1;
  std::printf("%s: norm %.3f, %lu zeros, %lu NaNs\n", to_string(done->outcome).data(), seen.norm(), seen.zeros(),
              seen.nans());
}
