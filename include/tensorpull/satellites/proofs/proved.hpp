// A consumer whose bytes are proved, group by group, as they land: whoever sent them.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/consumers/detail/passed_on.hpp>
#include <tensorpull/satellites/proofs/proof_tree.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/functional.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace tensorpull {

/// Stands in front of a consumer. `Consumer` is told of a group (consumer, 6) once all its bytes are those that the
/// root stands for, and of nothing else, so that one that cannot undo needs no digests of chunks; the buffers of such a
/// one are as long as a group. A group that is wrong ends the transfer (digest_mismatch), and its last bytes are never
/// committed: in their order, no more than a group of wrong bytes ever lands.
///
/// Bytes are taken in their order. Over several connections at a time the rest of a consumer that takes them in any
/// order is taken so, too, once the groups with the header are proved (consumer, 15): a group is proved where it has
/// landed. A pull that resumes begins behind `there`, what was proved before (proved_prefix), or at the beginning;
/// behind anything else it fails (not_verifiable), as a pull of some tensors by name does. Memory: 2 KiB. Cost: one
/// pass of BLAKE3 over what lands.
template <consumer Consumer, class Chunks = detail::blake3::by_lanes>
class proved : public detail::passed_on<Consumer> {
  using detail::passed_on<Consumer>::to_;

 public:
  static constexpr bool irrevocable = false;
  /// Whether several sources at once may give groups (consumer, 15).
  static constexpr bool checks_groups = requires { requires Consumer::any_order; };

  /// Borrows both. `there`: bytes in the consumer's memory that are proved, whole groups; a pull may begin behind them.
  proved(Consumer& to, const proof& by, std::uint64_t there = 0) noexcept
      : detail::passed_on<Consumer>(to), by_(by), there_(there) {}

  /// For a pull from another owner with the same consumer. `there`: as above. `last`: the consumer is abandoned if that
  /// fails, too; otherwise it stays open, and its begin() is called again.
  void go_on(std::uint64_t there, bool last) noexcept {
    there_ = there;
    last_ = last;
  }
  /// Abandons the consumer if it is still open.
  void give_up(const error& e) noexcept {
    last_ = true;
    abandon(e);
  }
  /// Bytes of the image, from its beginning on, that have landed and are right.
  std::uint64_t proved_bytes() const noexcept { return proved_; }
  /// Whether it was the consumer that ended the last pull: whatever its error is, it is no owner's lie.
  bool refused() const noexcept { return refused_; }

  result<void> begin(const description& d) noexcept {
    if (d.data_start == 0) return failure(errc::not_verifiable);
    refused_ = any_order_ = false;
    if (d.image_bytes != by_.image_bytes()) return failure(errc::digest_mismatch, d.image_bytes);
    proved_ = hashed_ = 0;
    data_start_ = d.data_start;
    cut_ = false;
    hash_ = hash_type();
    open_ = true;
    description proves = d;
    proves.verifiable = true;  // whatever the owner claims
    return heard(to_.begin(proves));
  }
  /// No further than the group's end, so that what is left of the consumer's buffer is never asked for.
  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    if (any_order_) return to_.prepare(offset, length, out);
    if (offset < hashed_) return detail::prepare_in(again_, std::min(length, hashed_ - offset), out);
    return to_.prepare(offset, std::min(length, by_.end_of_group(offset) - offset), out);
  }
  result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    if (any_order_) return heard(to_.commit(offset, bytes));
    if (offset < hashed_) return {};
    if (hashed_ != offset) {
      if (offset != there_ || hashed_ != 0) return failure(errc::not_verifiable, offset);
      hashed_ = there_;
      (void)next_group();
    }
    hash_.update(bytes);
    hashed_ += bytes.size();
    const bool ends = hashed_ == by_.end_of_group(offset);
    if (ends && !holds()) return failure(cut_ ? errc::wrong_payload : errc::digest_mismatch, proved_);
    if (const auto ok = heard(to_.commit(offset, bytes)); !ok || !ends) return ok;
    const std::uint64_t from = next_group();
    return heard(to_.chunk(from, proved_ - from));
  }
  result<void> chunk(std::uint64_t offset, std::uint64_t length) noexcept {
    return any_order_ ? heard(to_.chunk(offset, length)) : result<void>();
  }
  /// As requirement 15 has them.
  std::uint64_t group_bytes() const noexcept { return by_.group_bytes(); }
  /// Those that begin() found there, proved.
  std::uint64_t right_bytes() const noexcept { return there_; }
  /// From here on groups land in any order, those before `right` are proved, and check() proves each other one.
  void in_any_order(std::uint64_t right) noexcept {
    any_order_ = true;
    proved_ = hashed_ = right;
  }
  /// Where they are, for one that passes on what is proved.
  source_view landed() const noexcept
    requires checks_groups
  {
    return landed_in(to_);
  }
  /// Whether whole groups are proved where they have landed. Errors: digest_mismatch; io: they cannot be read.
  result<void> check(std::uint64_t offset, std::uint64_t length) noexcept
    requires checks_groups
  {
    const source_view there = landed_in(to_);
    if (there.schema == nullptr) return failure(errc::io, offset);
    const auto right = prove(there, data_start_, offset, length);
    if (right) proved_ += length;
    return right;
  }
  /// A chunk was damaged or cut off, and arrives again. Its proved bytes stay, and are thrown away when they arrive
  /// again. So are those of a group that began before the chunk: if they were damaged, the group is wrong, and that is
  /// nobody's lie.
  void rewind(std::uint64_t offset) noexcept
    requires requires(Consumer& c) { c.rewind(std::uint64_t{}); }
  {
    cut_ = offset > proved_;
    if (cut_) return;
    hashed_ = proved_;
    hash_ = hash_type(proved_ / detail::blake3::chunk_bytes);
    to_.rewind(proved_);
  }
  result<void> finish(const receipt& r) noexcept {
    if (proved_ != by_.image_bytes()) return failure(errc::not_verifiable, proved_);
    receipt with = r;
    with.outcome = outcome::completed;
    with.believed = false;
    const auto done = heard(finish_with(with));
    if (done) open_ = false;
    return done;
  }
  void abandon(const error& e) noexcept {
    if (!last_ || !std::exchange(open_, false)) return;
    // the chunks that it was told of are right, and another owner may go on behind them
    error why = e;
    if (why.code == errc::digest_mismatch) why.code = errc::wrong_payload;
    to_.abandon(why);
  }

 private:
  using hash_type = detail::group_hash<Chunks>;
  /// `C`: Consumer, of which it need not be known yet whether it can show that.
  template <class C>
  static source_view landed_in(const C& of) noexcept {
    if constexpr (requires { of.arrived(); }) return of.arrived();
    else return of.read_back();
  }
  /// Whole groups. `begin`: of the image's bytes, which one lies behind the header of `there`.
  result<void> prove(const source_view& there, std::uint64_t begin, std::uint64_t offset,
                     std::uint64_t length) const noexcept {
    for (std::uint64_t at = offset; at < offset + length; at = by_.end_of_group(at)) {
      const std::uint64_t i = at / by_.group_bytes();
      auto one = by_.template hash_of<Chunks>(i);
      const std::uint64_t from = there.schema->header_bytes + (at - begin);
      if (!hash_range(one, there, from, by_.end_of_group(at) - at)) return failure(errc::io, at);
      if (!by_.holds(i, one)) return failure(errc::digest_mismatch, at);
    }
    return {};
  }
  /// Without a digest of what arrived the consumer could not tell that others have changed it since.
  result<void> finish_with(const receipt& r) noexcept {
    const auto holds = [this](const source_view& all) noexcept -> bool {
      return all.schema->image_bytes == by_.image_bytes() && prove(all, 0, 0, by_.image_bytes());
    };
    if constexpr (requires { to_.finish(r, holds); })
      if (r.digest == 0) return to_.finish(r, holds);
    return to_.finish(r);
  }
  bool holds() const noexcept { return by_.holds(proved_ / by_.group_bytes(), hash_); }
  /// A group is right. Returns where it began.
  std::uint64_t next_group() noexcept {
    const std::uint64_t from = proved_;
    proved_ = hashed_;
    cut_ = false;
    hash_ = hash_type(proved_ / detail::blake3::chunk_bytes);
    return from;
  }
  result<void> heard(const result<void>& answer) noexcept {
    refused_ = !answer;
    return answer;
  }
  const proof& by_;
  hash_type hash_{};
  std::uint64_t there_, proved_ = 0, hashed_ = 0, data_start_ = 0;
  bool any_order_ = false;
  bool last_ = true, open_ = false, refused_ = false;
  bool cut_ = false;  // bytes of this group have arrived a second time
  std::byte again_[120];
};

/// How many of the first `bytes` of an image that lies somewhere are those of the root: whole groups, and never the
/// last one, since a pull always fetches the last byte. `all`, another hash, takes them. Cost: one pass of each.
template <hash Hash>
std::uint64_t proved_prefix(const proof& by, const source_view& there, std::uint64_t bytes, Hash& all) noexcept {
  if (there.schema == nullptr || there.schema->image_bytes != by.image_bytes()) return 0;
  const std::uint64_t group = by.group_bytes();
  std::uint64_t proved = 0;
  for (std::uint64_t i = 0; i + 1 < by.groups() && group <= bytes - proved; ++i, proved += group) {
    auto one = by.hash_of(i);
    if (!hash_range(one, there, proved, group) || !by.holds(i, one) || !hash_range(all, there, proved, group)) break;
  }
  return proved;
}

}  // namespace tensorpull
