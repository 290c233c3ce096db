// The updates of one weighted average: what they share (the sums, the round, what each peer has added), and the two
// ways in which one is added: chunk by chunk as its chunks prove right, or as a whole, by way of the staging memory,
// when it has proved complete.
#pragma once

#include <tensorpull/consumers/average/chunk_buffers.hpp>
#include <tensorpull/consumers/average/detail/update_table.hpp>
#include <tensorpull/consumers/average/detail/weighted_sums.hpp>
#include <tensorpull/consumers/average/update_key.hpp>
#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/consumers/receipt.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace tensorpull::detail {

/// Sums are float32 for most dtypes: products of such weights and usual values neither vanish nor overflow there.
inline constexpr double least_weight = 0x1p-60, most_weight = 0x1p60;

struct averaging {
  averaging(weighted_sums made, update_table recorded, chunk_buffers* shared, std::uint64_t first_round) noexcept
      : sums(std::move(made)), table(std::move(recorded)), buffers(shared), round(first_round) {}

  weighted_sums sums;
  update_table table;  ///< what this round's peers have added: everything that finish() needs to know
  chunk_buffers* buffers = nullptr;  ///< null if updates are staged
  bool refuse_no_numbers = true;  ///< an update with a NaN or an infinity that the old model has not
  double longest = 0;  ///< of a difference; 0: of any length
  double heaviest = most_weight;  ///< of weights; a greater one counts as this
  std::uint64_t round;  ///< an update that was under way in another round adds nothing more
  const void* staging_user = nullptr;
  std::array<std::byte, 64> discarded;  ///< for the bytes of an update that fails as soon as they arrive

  void reset() noexcept {
    sums.clear();
    table.clear();
    ++round;
    staging_user = nullptr;
  }

  result<void> finish(bool partial_is_error) noexcept {
    std::size_t halfway = 0;
    sums.reached().clear();
    for (const update_record& r : table.records()) {
      if (r.counts()) sums.reached().add_whole(r.weight);
      else if (r.state == update_state::spoiled) return failure(errc::digest_mismatch, r.added_bytes, r.peer.name());
      else if (r.added_bytes == 0) continue;
      else if (r.state == update_state::under_way) ++halfway;
      else if (partial_is_error) return failure(errc::partial_update, r.added_bytes, r.peer.name());
      else if (!sums.reached().add_partial(r.added_bytes, r.weight))
        return failure(errc::too_many_partial_updates, r.added_bytes, r.peer.name());
    }
    if (halfway > 0) return failure(errc::partial_update, halfway);
    return sums.write();
  }
};

/// An update's part in its average. Three kinds of updates may begin: one that adds; the repeat of one that counts; and
/// one of an earlier round. The last two add nothing. They are taken as any other, so that their peers hear what they
/// wait for.
class keyed_update {
 public:
  std::uint64_t fingerprint() const noexcept { return to_.sums.schema().fingerprint; }
  const image_schema* schema() const noexcept { return &to_.sums.schema(); }
  /// The peer's confirmation was answered.
  void confirmed() noexcept {
    if (done_ && index_ != update_table::none && round_ == to_.round) record().state = update_state::told;
  }

 protected:
  keyed_update(averaging& to, double weight, const update_key& key) noexcept : to_(to), weight_(weight), key_(key) {}
  keyed_update(const keyed_update&) = delete;
  keyed_update& operator=(const keyed_update&) = delete;
  ~keyed_update() = default;

  result<void> join(const description& d) noexcept {
    active_ = adds_ = done_ = false;
    index_ = update_table::none;
    round_ = to_.round;
    data_start_ = d.data_start;
    if (!key_.peer || key_.round == 0 || key_.round > to_.round)
      return failure(errc::invalid_argument, key_.round, name());
    if (!(weight_ >= least_weight && weight_ <= most_weight)) return failure(errc::invalid_argument, 0, name());
    weight_ = std::min(weight_, to_.heaviest);
    if (d.fingerprint != fingerprint() || d.data_start > d.image_bytes || d.image_bytes - d.data_start != data_bytes())
      return failure(errc::schema_mismatch, 0, name());
    if (key_.round == to_.round)
      if (const auto ok = enter(d); !ok) return ok;
    active_ = true;
    return {};
  }
  /// The last byte was verified: the update counts, if it adds at all.
  void complete() noexcept {
    active_ = false;
    done_ = true;
    if (!adds_) return;
    record().added_bytes = data_bytes();
    record().state = update_state::counted;
  }
  void stop(errc why) noexcept {
    if (!std::exchange(active_, false) || !adds_ || round_ != to_.round) return;
    // each chunk was what the owner sent, but together they are not what it published: there is no telling which one is
    // wrong
    record().state = why == errc::digest_mismatch && record().added_bytes > 0 ? update_state::spoiled
                                                                              : update_state::stopped;
  }

  /// Memory for an update that was overtaken: commit() fails with the bytes, which prepare() cannot.
  bool active() const noexcept { return active_; }
  /// Whether it adds to the sums.
  bool adds() const noexcept { return adds_; }
  /// Whether its round has ended while it was under way: it fails with its next bytes.
  bool overtaken() const noexcept { return adds_ && round_ != to_.round; }
  update_record& record() noexcept { return to_.table[index_]; }
  /// For a tensor that has no number.
  unexpected refuse(std::uint64_t tensor) noexcept {
    record().refused_tensor = static_cast<std::uint32_t>(tensor);
    return failure(errc::value_out_of_range, tensor, name());
  }
  const error_name& name() const noexcept { return key_.peer.name(); }
  std::uint64_t data_bytes() const noexcept { return to_.sums.schema().data_bytes(); }

  averaging& to_;
  double weight_;
  std::uint64_t data_start_ = 0;

 private:
  result<void> enter(const description& d) noexcept {
    std::uint32_t i = to_.table.find(key_.peer.id());
    if (i == update_table::none) i = to_.table.add(key_.peer);
    if (i == update_table::none) return failure(errc::table_full, to_.table.records().size(), name());
    update_record& r = to_.table[i];
    if (r.state == update_state::under_way) return failure(errc::update_under_way, r.added_bytes, name());
    if (r.state == update_state::spoiled) return failure(errc::digest_mismatch, r.added_bytes, name());
    if (!r.counts()) {
      const bool same = d.verifiable && r.verifiable && d.version == r.version && weight_ == r.weight;
      if (r.added_bytes > 0 && !same) return failure(errc::update_changed, r.added_bytes, name());
      r.weight = weight_;
      r.version = d.version;
      r.verifiable = d.verifiable;
      r.state = update_state::under_way;
      r.refused_tensor = update_record::no_tensor;
      adds_ = true;
    }
    index_ = i;
    return {};
  }

  update_key key_;
  std::uint64_t round_ = 0;  // the average's when it began
  std::uint32_t index_ = update_table::none;
  bool active_ = false, adds_ = false, done_ = false;
};

/// Holds a chunk buffer while a chunk arrives, and at most 7 bytes of an element between chunks. About 200 bytes.
class streamed_update : public keyed_update {
 public:
  static constexpr bool irrevocable = true;

  streamed_update(averaging& to, double weight, const update_key& key) noexcept : keyed_update(to, weight, key) {}
  ~streamed_update() { abandon({errc::cancelled}); }

  result<void> begin(const description& d) noexcept {
    abandon({errc::cancelled});
    if (const auto ok = join(d); !ok) return ok;
    taken_ = place_ = carried_ = 0;
    begun_ = false;
    there_ = adds() ? record().added_bytes : data_bytes();
    return {};
  }

  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    if (!active() || length == 0 || out.empty()) return {};
    if (overtaken()) return prepare_in(to_.discarded, length, out);
    if (!lease_) lease_ = to_.buffers->acquire();
    if (!lease_) return {};
    const std::size_t capacity = to_.buffers->chunk_bytes();
    if (!begun_ && offset >= data_start_) place_ = offset - data_start_ - carried_;
    // the header is not kept: the chunk's data overwrites it
    std::size_t at = 0;
    std::size_t room = capacity;
    if (offset < data_start_) {
      length = std::min(length, data_start_ - offset);
    } else if (const std::uint64_t filled = offset - data_start_ - chunk_begin(); filled < capacity) {
      at = static_cast<std::size_t>(filled);
      room -= at;
    } else {
      room = 1;  // a chunk longer than a buffer: commit() fails with it, which this call cannot
    }
    return prepare_in({lease_.data() + at, room}, length, out);
  }

  result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    if (overtaken()) return failure(errc::cancelled, taken_, name());
    const std::uint64_t end = offset + bytes.size();
    if (end > data_start_ && end - data_start_ - chunk_begin() > to_.buffers->chunk_bytes())
      return failure(errc::does_not_fit, to_.buffers->chunk_bytes(), name());
    begun_ = end > data_start_;
    return {};
  }

  result<void> chunk(std::uint64_t offset, std::uint64_t length) noexcept {
    if (!active() || overtaken()) return failure(errc::cancelled, taken_, name());
    const std::uint64_t end = offset + length;
    if (end > data_start_ && end - data_start_ > chunk_begin()) {
      const std::uint64_t n = end - data_start_ - chunk_begin();
      if (!lease_ || n > to_.buffers->chunk_bytes()) return failure(errc::invalid_argument, offset, name());
      if (const std::size_t bad = add(static_cast<std::size_t>(n)); bad < schema()->tensor_count) return refuse(bad);
    }
    let_go();
    return {};
  }

  result<void> finish(const receipt&) noexcept {
    if (!active() || overtaken() || taken_ != data_bytes()) return failure(errc::cancelled, taken_, name());
    let_go();
    complete();
    return {};
  }

  void rewind(std::uint64_t) noexcept { let_go(); }
  void abandon(const error& e) noexcept {
    let_go();
    stop(e.code);
  }

 private:
  /// Where the current chunk's data begins in the data section.
  std::uint64_t chunk_begin() const noexcept { return place_ + carried_; }
  /// Of a chunk that ends, or is sent again.
  void let_go() noexcept {
    lease_ = {};
    begun_ = false;
  }

  /// n bytes of the chunk are in the buffer; the margin in front of it takes what the chunk before left over. They are
  /// not added if one is no number: that tensor is returned; otherwise the number of tensors.
  std::size_t add(std::size_t n) noexcept {
    std::byte* first = lease_.data();
    if (taken_ < there_) {
      // in the sums since an earlier time; what is there ends with a whole element, so nothing is carried before that
      const auto skipped = static_cast<std::size_t>(std::min<std::uint64_t>(n, there_ - taken_));
      taken_ += skipped;
      place_ += skipped;
      first += skipped;
      n -= skipped;
      if (taken_ < there_ || n == 0) return schema()->tensor_count;
    }
    first -= carried_;
    std::memcpy(first, carry_.data(), carried_);
    const std::size_t all = carried_ + n;
    if (to_.refuse_no_numbers)
      if (const std::size_t bad = to_.sums.without_number(place_, {first, all}); bad < schema()->tensor_count)
        return bad;
    const std::size_t done = to_.sums.add(place_, {first, all}, weight_);
    taken_ += done;
    place_ += done;
    record().added_bytes = taken_;
    carried_ = std::min(all - done, carry_.size());
    std::memcpy(carry_.data(), first + done, carried_);
    return schema()->tensor_count;
  }

  chunk_buffers::lease lease_;
  std::array<std::byte, 8> carry_{};
  std::size_t carried_ = 0;
  std::uint64_t taken_ = 0;  // bytes of the data section that have arrived and are in the sums
  std::uint64_t place_ = 0;  // where what is not in them begins: taken_, unless tensors arrive in another order
  bool begun_ = false;  // bytes of the chunk's data have arrived
  std::uint64_t there_ = 0;  // bytes of it that are in the sums from before
};

/// The staging memory holds one model. An update that finds it taken waits until the other one ends.
class staged_update : public keyed_update {
 public:
  static constexpr bool irrevocable = false;
  /// The header lands in the staging memory too, a piece at a time, and is overwritten.
  static constexpr std::size_t least_staging_bytes = 4096;

  staged_update(averaging& to, double weight, const update_key& key) noexcept : keyed_update(to, weight, key) {}
  ~staged_update() { abandon({errc::cancelled}); }

  result<void> begin(const description& d) noexcept {
    abandon({errc::cancelled});
    return join(d);
  }

  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    if (!active() || length == 0 || out.empty()) return {};
    if (overtaken()) return prepare_in(to_.discarded, length, out);
    if (to_.staging_user == nullptr) to_.staging_user = this;
    if (to_.staging_user != this) return {};
    if (offset < data_start_)
      return prepare_in({to_.sums.staging(), least_staging_bytes}, std::min(length, data_start_ - offset), out);
    const auto at = static_cast<std::size_t>(offset - data_start_);
    return prepare_in({to_.sums.staging() + at, static_cast<std::size_t>(data_bytes()) - at}, length, out);
  }

  result<void> commit(std::uint64_t offset, std::span<const std::byte>) noexcept { return chunk(offset, 0); }
  result<void> chunk(std::uint64_t offset, std::uint64_t) noexcept {
    if (!active() || overtaken()) return failure(errc::cancelled, offset, name());
    return {};
  }

  result<void> finish(const receipt&) noexcept {
    const auto n = static_cast<std::size_t>(data_bytes());
    if (!active() || overtaken() || (adds() && n > 0 && to_.staging_user != this))
      return failure(errc::cancelled, 0, name());
    if (adds())
      if (const auto added = add({to_.sums.staging(), n}); !added) return added;
    complete();
    release();
    return {};
  }

  void rewind(std::uint64_t) noexcept {}
  void abandon(const error& e) noexcept {
    stop(e.code);
    release();
  }

 private:
  result<void> add(std::span<const std::byte> update) noexcept {
    weighted_sums& sums = to_.sums;
    if (to_.refuse_no_numbers)
      if (const std::size_t bad = sums.without_number(0, update); bad < schema()->tensor_count) return refuse(bad);
    double scale = 1;
    if (to_.longest > 0) {
      const auto norm = sums.norm(update);
      if (!norm) return refuse(norm.error().at);
      record().norm = *norm;
      if (*norm > to_.longest) scale = to_.longest / *norm;
    }
    sums.add(0, update, weight_, scale);
    return {};
  }
  void release() noexcept {
    if (to_.staging_user == this) to_.staging_user = nullptr;
  }
};

}  // namespace tensorpull::detail
