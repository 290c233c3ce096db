// Look, then weigh (robust aggregation, norm clipping): whole updates lie in memory or in mapped files, their
// differences to the old model are compared with each other, and a function of the program's decides what each is
// worth. So an update that is out of proportion, by accident or on purpose, does not decide the mean. For updates that
// are added while they arrive: weighted_average.hpp.
#pragma once

#include <tensorpull/consumers/average/detail/slices.hpp>
#include <tensorpull/consumers/average/detail/weighted_sums.hpp>
#include <tensorpull/consumers/average/update_key.hpp>
#include <tensorpull/consumers/average/update_weights.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/image/view.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <utility>

namespace tensorpull {

/// Whole updates of one round, and their result. One thread. Memory, all allocated by make(): for N = max_updates, 16
/// KiB and 4 KiB * N for the slices, 24 bytes * N * N, and about 200 bytes * N; nothing is allocated later. Reading is
/// in slices of 512 elements of all updates, which stay in the cache; sums over a slice are double, in 4 sums side by
/// side, and slices are added with compensation, in the order of the tensors. The same updates give the same bits in
/// whatever order they were added and looked at.
///
/// An old element that is no number (infinity, NaN, as masks have) has no difference: it counts in no norm, and its
/// mean is that of the values by the weights alone. An update that has another infinity there, or NaN instead, has a
/// norm that is NaN. An element that has its old value in all updates keeps its bits.
///
/// A step is of the floating-point tensors, or of those that make() is given. Others, such as BatchNorm's counter,
/// count in no norm or product. Each element of the result is the weighted median of theirs, which is the value of an
/// update, and no scale changes it. So fewer than half of the weights cannot move it beyond the others' values, nor
/// make it NaN. Cost: a sort of N for each element. A model of integers alone is weighed as any other.
class weighing {
 public:
  /// Updates that trimmed_mean() takes at most.
  static constexpr std::size_t max_trimmed = 64;

  /// Borrows the result's memory, which only finish(), trimmed_mean() and wrapping_sum() write, and that of `base`, the
  /// old model, which may be the result's own. trimmed_mean() and wrapping_sum() need none. `names`: the tensors that a
  /// step is of; none: the floating-point ones. Errors: as those of weighted_average::make for the result and the base;
  /// schema_mismatch (no tensor has one of these names, which the error has); invalid_argument (no updates),
  /// out_of_memory.
  [[nodiscard]] static result<weighing> make(const destination_view& result_model, const source_view& base,
                                             std::size_t max_updates,
                                             std::span<const std::string_view> names = {}) noexcept {
    for (const tensor_entry& t : result_model.schema->entries()) {
      if (detail::sum_bytes(t.type) == 0) return failure(errc::unsupported_dtype, t.begin, t.name);
      if (t.indirect) return failure(errc::unsupported_layout, t.begin, t.name);
    }
    if (base.schema != nullptr)
      if (const auto ok = detail::weighted_sums::check(result_model, base); !ok) return failure(ok.error());
    if (max_updates == 0) return failure(errc::invalid_argument);
    constexpr std::size_t most = std::size_t{1} << 20;  // so that no size below overflows
    if (max_updates > most || max_updates > (static_cast<std::size_t>(-1) >> 6U) / max_updates)
      return failure(errc::out_of_memory);
    weighing made(result_model, base, max_updates);
    if (!made.slices_ || !made.updates_ || !made.places_ || !made.sums_ || !made.numbers_ || !made.moves_)
      return failure(errc::out_of_memory);
    if (const auto ok = made.choose(names); !ok) return failure(ok.error());
    return made;
  }

  /// Takes an update that is complete and verified. Its elements may not change until the result is written, nor may
  /// those of the base from the first look on. Errors, and the update is not taken: invalid_argument (nobody, or a
  /// weight that is not finite and above 0), update_changed (the peer has one already), table_full, each with the
  /// peer's name; schema_mismatch, unsupported_layout and invalid_argument (it overlaps the result's memory and does
  /// not begin with it) with the tensor's. An overlap with a tensor of another name is not noticed.
  result<void> add(const whole_update& u) noexcept {
    if (!u.peer || !(u.weight > 0) || !std::isfinite(u.weight) || u.model.schema == nullptr)
      return failure(errc::invalid_argument, 0, u.peer.name());
    const auto place = place_of(u.peer);
    if (place != all().end() && place->peer == u.peer) return failure(errc::update_changed, 0, u.peer.name());
    if (count_ == max_) return failure(errc::table_full, 0, u.peer.name());
    if (const auto ok = detail::weighted_sums::check(to_, u.model); !ok) return ok;
    std::size_t* const at = places_.get() + (place - all().begin());
    std::move_backward(place, all().end(), all().end() + 1);
    std::move_backward(at, places_.get() + count_, places_.get() + count_ + 1);
    *place = u;
    *at = count_++;
    return {};
  }

  /// Leaves out the update of `peer`, such as one that finish() or trimmed_mean() has refused by its name: the rest of
  /// the round goes on, with the bits that it has without that update. Its elements are not borrowed any more. The
  /// facts about the others stay. Errors: no_updates (there is none of this peer) with the peer's name.
  result<void> remove(const update_peer& peer) noexcept {
    const auto place = place_of(peer);
    if (place == all().end() || place->peer != peer) return failure(errc::no_updates, 0, peer.name());
    std::size_t* const at = places_.get() + (place - all().begin());
    const std::size_t gone = *at;
    std::move(place + 1, all().end(), place);
    std::move(at + 1, places_.get() + count_, at);
    --count_;
    for (std::size_t i = 0; i < count_; ++i) places_[i] -= static_cast<std::size_t>(places_[i] > gone);
    if (gone < compared_) --compared_;
    for (std::size_t p = gone; p < compared_; ++p)
      for (std::size_t q = 0; q <= p; ++q)
        sums_[p * max_ + q] = sums_[(p + 1) * max_ + q + static_cast<std::size_t>(q >= gone)];
    return {};
  }

  /// The updates that count: exactly those whose elements are in the result, in the order of their peers' numbers.
  std::span<const whole_update> updates() const noexcept { return {updates_.get(), count_}; }
  /// Forgets the updates; a new round begins.
  void reset() noexcept { count_ = compared_ = 0; }

  /// Norms and products of the differences. An earlier look's comparisons are kept: this one compares the updates that
  /// are new with each other and with all others. So a look after each add() does the work while other updates are on
  /// their way, and leaves one update's to the end; it reads all of them each time, though. Cost: no pass if none is
  /// new; otherwise one over all elements, with a multiplication for each pair that is. Valid until the next call.
  /// Errors: no_updates, invalid_argument (there is no base). An update with an infinity or NaN, or with differences
  /// whose squares are too large for a double, has a norm that is not finite: not if the old value is the same.
  [[nodiscard]] result<update_differences> look() noexcept {
    if (from_.schema == nullptr) return failure(errc::invalid_argument);
    if (count_ == 0) return failure(errc::no_updates);
    if (compared_ < count_) compare();
    for (std::size_t i = 0; i < count_; ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        const auto [first, second] = std::minmax(places_[i], places_[j]);
        products()[i * count_ + j] = products()[j * count_ + i] = sums_[second * max_ + first].value();
      }
      norms()[i] = std::sqrt(products()[i * count_ + i]);
    }
    std::ranges::transform(updates(), weights(), &whole_update::weight);
    double* const middle = weights() + (count_ - 1) / 2;
    std::nth_element(weights(), middle, weights() + count_);
    return update_differences{updates(), {norms(), count_}, {products(), count_ * count_}, *middle};
  }

  /// look(), then weigh(update_differences, update_weights), then the weighted mean: two passes over the elements.
  /// An update with weight or scale 0 is not read in the second. Errors, before anything is written: those of look();
  /// value_out_of_range with the peer's name (its norm is not finite, and `refuse_no_numbers` is set, before `weigh` is
  /// called; `at`: the index of the first tensor whose own norm is not); invalid_argument with the peer's name (its
  /// weight or scale is negative, infinite, NaN or not set), and without one (no weight is set, all are 0, or their sum
  /// is not finite).
  template <class F>
    requires(update_weights::set_by<F>)
  result<void> finish(F&& weigh, bool refuse_no_numbers = true) noexcept {
    const auto seen = look();
    if (!seen) return failure(seen.error());
    for (std::size_t i = 0; i < count_ && refuse_no_numbers; ++i)
      if (!std::isfinite(seen->norms[i]))
        return failure(errc::value_out_of_range, tensor_to_blame(i), updates_[i].peer.name());
    std::fill_n(weights(), count_, std::numeric_limits<double>::quiet_NaN());
    std::fill_n(scales(), count_, 1.0);
    weigh(*seen, update_weights{{weights(), count_}, {scales(), count_}});
    if (std::all_of(weights(), weights() + count_, [](double x) { return x != x; }))
      return failure(errc::invalid_argument);  // it has given up, and no update is to blame
    double sum = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      for (const double x : {weights()[i], scales()[i]})
        if (!(x >= 0) || !std::isfinite(x)) return failure(errc::invalid_argument, i, updates_[i].peer.name());
      sum += weights()[i];
    }
    if (!(sum > 0) || !std::isfinite(sum)) return failure(errc::invalid_argument);
    for (std::size_t i = 0; i < count_; ++i) weights()[i] /= sum;
    for_each_slice([&]<class E>(E, std::size_t tensor, std::size_t at, std::size_t n) {
      if (!moves_[tensor]) return write_median<E>(tensor, at, n);
      write_mean<E>(tensor, at, n);
      return true;
    });
    complete();
    return {};
  }

  /// Each element is the mean of its values without the `cut` least and the `cut` greatest, whoever they are of; of
  /// integers it is their median. Own weights do not count. Two passes: the first finds what is no number. Errors,
  /// before anything is written: no_updates; invalid_argument (nothing is left, or there are more than max_trimmed);
  /// unsupported_dtype (other than F32, F64, F16, BF16 and integers) with the tensor's name; value_out_of_range (an
  /// infinity or NaN) with the peer's. The sum of an element's values has to fit a double.
  result<void> trimmed_mean(std::size_t cut) noexcept {
    if (count_ == 0) return failure(errc::no_updates);
    if (count_ > max_trimmed || cut >= count_ || 2 * cut >= count_) return failure(errc::invalid_argument);
    if (const auto ok = only({dtype::f32, dtype::f64, dtype::f16, dtype::bf16, dtype::u8, dtype::i8, dtype::u16,
                              dtype::i16, dtype::u32, dtype::i32, dtype::u64, dtype::i64});
        !ok)
      return ok;
    std::size_t bad = count_, in = 0;
    for_each_slice([&]<class E>(E, std::size_t tensor, std::size_t at, std::size_t n) {
      for (std::size_t i = 0; i < bad; ++i) {
        detail::read_slice<E>(slice(1), updates_[i].model.address(tensor) + at, n);
        if (!std::all_of(slice(1), slice(1) + n, [](double v) { return std::isfinite(v); })) bad = i, in = tensor;
      }
      return bad > 0;
    });
    if (bad < count_) return failure(errc::value_out_of_range, in, updates_[bad].peer.name());
    std::fill_n(weights(), count_, 1.0);
    for_each_slice([&]<class E>(E, std::size_t tensor, std::size_t at, std::size_t n) {
      if (detail::is_integer<E>) return write_median<E>(tensor, at, n);
      for (std::size_t i = 0; i < count_; ++i) {
        std::fill_n(slice(1 + i), detail::slice_elements, 0.0);
        detail::read_slice<E>(slice(1 + i), updates_[i].model.address(tensor) + at, n);
      }
      detail::for_each_comparison(count_,
                                  [&](std::size_t i, std::size_t j) { detail::order(slice(1 + i), slice(1 + j)); });
      const double* const low = slice(1 + cut);
      const double* const high = slice(count_ - cut);
      double* const sum = slice(0);
      std::fill_n(sum, n, 0.0);
      for (std::size_t i = cut; i < count_ - cut; ++i)
        for (std::size_t k = 0; k < n; ++k) sum[k] += slice(1 + i)[k];
      const auto left = static_cast<double>(count_ - 2 * cut);
      std::byte* const out = to_.address(tensor) + at;
      // what is equal in all that are left is its own mean; + 0.0: which zero it is would depend on the order
      for (std::size_t k = 0; k < n; ++k)
        E::write(out + k * E::bytes, low[k] == high[k] ? low[k] + 0.0 : sum[k] / left);
      return true;
    });
    complete();
    return {};
  }

  /// Each element is the sum of its values modulo 2^32 or 2^64, without weights: what masks that cancel out in a sum
  /// need (Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", 2017). updates() is
  /// exactly who is in it. Errors, before anything is written: no_updates; unsupported_dtype (other than I32, U32, I64,
  /// U64) with the tensor's name.
  result<void> wrapping_sum() noexcept {
    if (count_ == 0) return failure(errc::no_updates);
    if (const auto ok = only({dtype::i32, dtype::u32, dtype::i64, dtype::u64}); !ok) return ok;
    for_each_slice([&]<class E>(E, std::size_t tensor, std::size_t at, std::size_t n) {
      using word = detail::word_of<E::bytes>;
      for (std::size_t k = 0; k < n; ++k) {
        word sum = 0;
        for (const whole_update& u : updates())
          sum = static_cast<word>(sum + detail::load_own<word>(u.model.address(tensor) + at + k * E::bytes));
        std::memcpy(to_.address(tensor) + at + k * E::bytes, &sum, sizeof sum);
      }
      return true;
    });
    complete();
    return {};
  }

 private:
  weighing(const destination_view& to, const source_view& from, std::size_t max) noexcept
      : to_(to), from_(from), max_(max), updates_(new(std::nothrow) whole_update[max]),
        slices_(new(std::nothrow) double[(max + 1) * detail::slice_elements]),
        places_(new(std::nothrow) std::size_t[max]), sums_(new(std::nothrow) detail::compensated_sum[max * max]),
        numbers_(new(std::nothrow) double[max * (max + 3)]), moves_(new(std::nothrow) bool[to.schema->tensor_count]) {}

  /// The tensors that a step is of.
  result<void> choose(std::span<const std::string_view> names) noexcept {
    const image_schema& s = *to_.schema;
    const bool all = std::ranges::all_of(s.entries(), &detail::has_integers, &tensor_entry::type);
    for (std::size_t t = 0; t < s.tensor_count; ++t)
      moves_[t] = names.empty() && (all || !detail::has_integers(s.tensors[t].type));
    for (const std::string_view name : names) {
      const std::size_t t = detail::find_tensor(s, name);
      if (t == s.tensor_count) return failure(errc::schema_mismatch, 0, name);
      moves_[t] = true;
    }
    return {};
  }

  std::span<whole_update> all() noexcept { return {updates_.get(), count_}; }
  /// Where an update of this peer is, or would be.
  std::span<whole_update>::iterator place_of(const update_peer& peer) noexcept {
    return std::ranges::lower_bound(all(), peer.id().value, {},
                                    [](const whole_update& w) { return w.peer.id().value; });
  }
  double* slice(std::size_t i) noexcept { return slices_.get() + i * detail::slice_elements; }
  double* weights() noexcept { return numbers_.get(); }
  double* scales() noexcept { return numbers_.get() + max_; }
  double* norms() noexcept { return numbers_.get() + 2 * max_; }
  double* products() noexcept { return numbers_.get() + 3 * max_; }

  result<void> only(std::initializer_list<dtype> types) const noexcept {
    for (const tensor_entry& t : to_.schema->entries())
      if (std::ranges::find(types, t.type) == types.end()) return failure(errc::unsupported_dtype, t.begin, t.name);
    return {};
  }

  template <class F>
  void for_each_slice(F&& f) noexcept {
    detail::for_each_slice(to_.schema->entries(), std::forward<F>(f));
  }

  /// Of an update whose norm is no number: the first tensor with which it is none.
  std::size_t tensor_to_blame(std::size_t i) noexcept {
    std::size_t found = 0;
    detail::compensated_sum squares;
    for_each_slice([&]<class E>(E, std::size_t tensor, std::size_t at, std::size_t n) {
      if (!moves_[tensor]) return true;
      detail::read_slice<E>(slice(0), from_.address(tensor) + at, n);
      const std::size_t whole = detail::read_step<E>(slice(1), updates_[i].model.address(tensor) + at, slice(0), n,
                                                     detail::all_finite(slice(0), n));
      detail::add_products(&squares, slice(1), slice(1), 1, whole);
      found = tensor;
      return std::isfinite(squares.value());
    });
    return found;
  }
  /// Slices and sums are in the order of arrival, so that what is known stays where it is.
  void compare() noexcept {
    std::fill(sums_.get() + compared_ * max_, sums_.get() + count_ * max_, detail::compensated_sum{});
    for_each_slice([&]<class E>(E, std::size_t tensor, std::size_t at, std::size_t n) {
      if (!moves_[tensor]) return true;
      double* const old = slice(0);
      detail::read_slice<E>(old, from_.address(tensor) + at, n);
      const bool numbers = detail::all_finite(old, n);
      std::size_t whole = 0;
      for (std::size_t i = 0; i < count_; ++i)
        whole = detail::read_step<E>(slice(1 + places_[i]), updates_[i].model.address(tensor) + at, old, n, numbers);
      for (std::size_t p = compared_; p < count_; ++p)
        detail::add_products(sums_.get() + p * max_, slice(1 + p), slice(1), p + 1, whole);
      return true;
    });
    compared_ = count_;
  }
  /// The memory that was written may be memory that was compared.
  void complete() noexcept {
    to_.complete();
    compared_ = 0;
  }

  /// Of the updates whose weight is not 0. If half of the weights are below the middle, the lower value.
  template <class E>
  bool write_median(std::size_t tensor, std::size_t at, std::size_t n) noexcept {
    double* const order = norms();  // which are not read any more: indices, by value
    std::size_t m = 0;
    double all = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      if (weights()[i] == 0) continue;
      detail::read_slice<E>(slice(1 + i), updates_[i].model.address(tensor) + at, n);
      order[m++] = static_cast<double>(i);
      all += weights()[i];
    }
    for (std::size_t k = 0; k < n; ++k) {
      const auto index = [&](double of) { return static_cast<std::size_t>(of); };
      const auto value = [&](double of) {
        const double x = slice(1 + index(of))[k];
        return std::pair(x == x ? x : std::numeric_limits<double>::infinity(), of);
      };
      std::ranges::sort(order, order + m, {}, value);
      std::size_t middle = 0;
      for (double sum = weights()[index(order[0])]; 2 * sum < all && middle + 1 < m;)
        sum += weights()[index(order[++middle])];
      std::memcpy(to_.address(tensor) + at + k * E::bytes,
                  updates_[index(order[middle])].model.address(tensor) + at + k * E::bytes, E::bytes);
    }
    return true;
  }
  template <class E>
  void write_mean(std::size_t tensor, std::size_t at, std::size_t n) noexcept {
    double* const sum = slice(0);
    double* const old = slice(1);
    const std::byte* const from = from_.address(tensor) + at;
    detail::read_slice<E>(old, from, n);
    bool numbers = true;
    for (std::size_t k = 0; k < n; ++k) {
      numbers &= std::isfinite(old[k]);
      sum[k] = 0;
    }
    for (std::size_t i = 0; i < count_; ++i) {
      const double by = weights()[i] * scales()[i];
      if (by == 0) continue;
      detail::add_differences<E>(sum, updates_[i].model.address(tensor) + at, old, n, by);
    }
    for (std::size_t k = 0; k < n && !numbers; ++k) {  // no difference, so no scale
      if (std::isfinite(old[k])) continue;
      sum[k] = 0;
      for (std::size_t i = 0; i < count_; ++i)
        if (weights()[i] != 0)
          sum[k] += weights()[i] * static_cast<double>(E::held(updates_[i].model.address(tensor) + at + k * E::bytes));
    }
    detail::write_quotients<E>(to_.address(tensor) + at, sum, n, 1, detail::old_model{from});
  }

  destination_view to_;
  source_view from_;
  std::size_t max_, count_ = 0;
  std::size_t compared_ = 0;  // the first ones, whose sums are there
  std::unique_ptr<whole_update[]> updates_;
  std::unique_ptr<double[]> slices_;
  std::unique_ptr<std::size_t[]> places_;  // of each in `updates_`: how many were added before it
  std::unique_ptr<detail::compensated_sum[]> sums_;  // of those at two positions, the later one's row by row
  std::unique_ptr<double[]> numbers_;
  std::unique_ptr<bool[]> moves_;  // of each tensor whether it is a part of a step
};

}  // namespace tensorpull
