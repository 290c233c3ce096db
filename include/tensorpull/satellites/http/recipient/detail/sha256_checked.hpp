// A consumer that compares the SHA-256 of a whole image before it is told that all has come.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/consumers/detail/passed_on.hpp>
#include <tensorpull/core/sha256.hpp>
#include <tensorpull/integrity/range_digest.hpp>

namespace tensorpull::detail {

/// A consumer behind one that computes SHA-256, if a digest of that kind is to be compared.
template <consumer Consumer>
class sha256_checked : public passed_on<Consumer> {
  using passed_on<Consumer>::to_;

 public:
  static constexpr bool irrevocable = Consumer::irrevocable;

  explicit sha256_checked(Consumer& to) noexcept : passed_on<Consumer>(to) {}
  void expect(const sha256_value& digest) noexcept {
    expected_ = digest;
    checks_ = true;
  }
  bool verified() const noexcept { return verified_; }

  result<void> begin(const description& d) noexcept { return to_.begin(d); }
  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    return to_.prepare(offset, length, out);
  }
  result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    if (checks_) {
      if constexpr (reads_back)
        if (hashed_ < offset) {  // a resumed transfer begins behind what is there already
          if (const auto ok = hash_range(hash_, to_.read_back(), hashed_, offset - hashed_); !ok) return ok;
          hashed_ = offset;
        }
      if (hashed_ != offset) return failure(errc::not_verifiable);
      hash_.update(bytes);  // before the consumer has them, which may change their order in place
      hashed_ += bytes.size();
    }
    return to_.commit(offset, bytes);
  }
  result<void> chunk(std::uint64_t offset, std::uint64_t length) noexcept { return to_.chunk(offset, length); }
  result<void> finish(const receipt& r) noexcept {
    if (!checks_) return to_.finish(r);
    if (hash_.value() != expected_) return failure(errc::digest_mismatch);
    verified_ = true;
    receipt with = r;
    with.outcome = outcome::completed;
    return to_.finish(with);
  }
  void abandon(const error& e) noexcept { to_.abandon(e); }

 private:
  static constexpr bool reads_back = requires(const Consumer& c) { c.read_back(); };
  sha256_hash hash_{};
  sha256_value expected_{};
  std::uint64_t hashed_ = 0;
  bool checks_ = false, verified_ = false;
};

}  // namespace tensorpull::detail
