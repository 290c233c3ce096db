// The sums behind weighted_average: one number for each element of a model, in one allocation, with the weight that has
// reached each byte. Decides where they lie and what is added.
#pragma once

#include <tensorpull/consumers/average/detail/slices.hpp>
#include <tensorpull/core/checked.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/image/view.hpp>
#include <tensorpull/system/pages.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace tensorpull::detail {

/// Updates arrive from byte 0 on, so one that stopped at k reached exactly [0, k): a sorted list of stops is enough.
/// Borrows its memory.
class reached_weights {
 public:
  struct stop {
    std::uint64_t at = 0;
    double weight = 0;
  };

  reached_weights() noexcept = default;
  explicit reached_weights(std::span<stop> memory) noexcept : stops_(memory) {}

  void clear() noexcept {
    count_ = 0;
    whole_ = 0;
  }
  void add_whole(double weight) noexcept { whole_ += weight; }
  double whole() const noexcept { return whole_; }

  /// False: there is no room for another stop.
  bool add_partial(std::uint64_t at, double weight) noexcept {
    const auto first = stops_.begin(), last = first + static_cast<std::ptrdiff_t>(count_);
    const auto place = std::lower_bound(first, last, at,
                                        [](const stop& s, std::uint64_t value) { return s.at < value; });
    if (place != last && place->at == at) {
      place->weight += weight;
      return true;
    }
    if (count_ == stops_.size()) return false;
    std::move_backward(place, last, last + 1);
    *place = {at, weight};
    ++count_;
    return true;
  }

  /// The bytes [0, reached(size)) have had some weight.
  std::uint64_t reached(std::uint64_t size) const noexcept {
    if (whole_ > 0) return size;
    return count_ > 0 ? stops_[count_ - 1].at : 0;
  }

  /// f(begin, end, weight) for the ranges of [0, size) with one weight each, in order; at most one more than there are
  /// stops.
  template <class F>
  void for_each_range(std::uint64_t size, F&& f) const {
    std::uint64_t begin = 0;
    for (std::size_t i = 0; i <= count_; ++i) {
      const std::uint64_t end = i < count_ ? std::min(stops_[i].at, size) : size;
      double weight = whole_;
      for (std::size_t k = count_; k-- > i;)
        weight += stops_[k].weight;  // summed anew: subtracting would leave rounding errors
      if (begin < end) f(begin, end, weight);
      begin = end;
    }
  }

 private:
  std::span<stop> stops_{};
  std::size_t count_ = 0;
  double whole_ = 0;
};

/// Owns sums and stops; borrows the destination, whose schema is that of an update, and the old model. Movable.
class weighted_sums {
 public:
  /// `from`: the old model, which may be the destination; without a schema there is none. `staging`: bytes that are
  /// allocated in addition, to hold an update. Errors, with the tensor's name: unsupported_dtype, unsupported_layout (a
  /// destination_writer would have to take it; the old one has no address, or is not as a destination's is),
  /// schema_mismatch and invalid_argument (the old one is another, or a part of it is a part of the new one);
  /// out_of_memory.
  static result<weighted_sums> make(const destination_view& to, const source_view& from, std::size_t max_stops,
                                    std::uint64_t staging) noexcept {
    const image_schema& schema = *to.schema;
    std::uint64_t sums = 0;
    for (const tensor_entry& t : schema.entries()) {
      const std::size_t each = sum_bytes(t.type);
      if (each == 0) return failure(errc::unsupported_dtype, t.begin, t.name);
      if (t.indirect) return failure(errc::unsupported_layout, t.begin, t.name);
      const auto bytes = checked_multiply(t.size_bytes() / (bits(t.type) / 8), each);
      const auto sum = bytes ? checked_add(sums, *bytes + padding(*bytes)) : bytes;
      if (!sum || *sum > most) return failure(errc::out_of_memory, t.begin, t.name);
      sums = *sum;
    }
    if (from.schema != nullptr)
      if (const auto ok = check(to, from); !ok) return failure(ok.error());
    const auto tables = checked_add(schema.tensor_count * std::uint64_t{sizeof(std::uint64_t)},
                                    max_stops * std::uint64_t{sizeof(reached_weights::stop)});
    if (!tables || *tables > most || staging > most || max_stops > most / sizeof(reached_weights::stop))
      return failure(errc::out_of_memory);
    const std::size_t bytes = static_cast<std::size_t>(sums + *tables + staging);
    const bool pages = has_pages && bytes >= own_pages_bytes;
    void* const block = pages ? take_pages(bytes)
                              : ::operator new(std::max<std::size_t>(bytes, 1), std::align_val_t{64}, std::nothrow);
    if (block == nullptr) return failure(errc::out_of_memory);
    return weighted_sums(to, from, {static_cast<std::byte*>(block), release{pages ? bytes : 0}},
                         static_cast<std::size_t>(sums), max_stops, bytes);
  }

  const image_schema& schema() const noexcept { return *to_.schema; }
  bool has_base() const noexcept { return from_.schema != nullptr; }
  reached_weights& reached() noexcept { return reached_; }
  std::byte* staging() noexcept { return block_.get() + staging_; }
  std::size_t allocated_bytes() const noexcept { return bytes_; }

  void clear() noexcept {
    std::memset(block_.get(), 0, sums_bytes_);
    reached_.clear();
  }

  /// Adds the data section's bytes from `at` on, where an element begins. Returns how many of them were whole elements;
  /// the rest, fewer than 8, are the beginning of an element that ends behind `bytes`. `scale`: shortens differences.
  /// Counters (weighing) and values whose old one is no number have none.
  std::size_t add(std::uint64_t at, std::span<const std::byte> bytes, double weight, double scale = 1) noexcept {
    std::size_t done = 0;
    for_each_piece(at, at + bytes.size(),
                   [&]<class E>(E, std::byte* at_sums, std::size_t i, std::uint64_t within, std::size_t parts) {
                     using sum = typename E::sum;
                     auto* const sums = reinterpret_cast<sum*>(at_sums);
                     const std::byte* const from = bytes.data() + done;
                     done += parts * E::bytes;
                     const double by = moves<E>() ? scale : 1;
                     with_origin(i, within, [&](auto origin) {
                       add_weighted<E>(sums, from, parts, static_cast<sum>(weight * by), origin);
                     });
                     if (by == 1) return;
                     const std::byte* const old = from_.address(i) + static_cast<std::size_t>(within);
                     for (std::size_t k = 0; k < parts; ++k)
                       if (!std::isfinite(E::held(old + k * E::bytes)))
                         sums[k] += static_cast<sum>(weight - weight * by) * E::read(from + k * E::bytes);
                   });
    return done;
  }

  /// The Euclidean norm of a whole update less the old model, which there has to be, as weighing has it: to the same
  /// bits. Error: value_out_of_range: it is no number; `at`: the index of the first tensor with which it is none.
  result<double> norm(std::span<const std::byte> update) noexcept {
    compensated_sum squares;
    std::size_t done = 0, bad = schema().tensor_count;
    for_each_piece(0, update.size(), [&]<class E>(E, std::byte*, std::size_t i, std::uint64_t, std::size_t parts) {
      const std::byte *now = update.data() + done, *was = from_.address(i);
      done += parts * E::bytes;
      double step[slice_elements], old[slice_elements];
      for (std::size_t n = 0; moves<E>() && parts > 0; parts -= n, now += n * E::bytes, was += n * E::bytes) {
        n = std::min(parts, slice_elements);
        read_slice<E>(old, was, n);
        const std::size_t whole = read_step<E, &E::read>(step, now, old, n, all_finite(old, n));
        add_products(&squares, step, step, 1, whole);
      }
      if (bad == schema().tensor_count && !std::isfinite(squares.value())) bad = i;
    });
    if (bad < schema().tensor_count) return failure(errc::value_out_of_range, bad);
    return std::sqrt(squares.value());
  }

  /// The first tensor with an element that is no finite number, nor as the old model has it, in the data section's
  /// whole elements from `at` on; the number of tensors: there is none.
  std::size_t without_number(std::uint64_t at, std::span<const std::byte> bytes) noexcept {
    std::size_t bad = schema().tensor_count, done = 0;
    for_each_piece(
        at, at + bytes.size(), [&]<class E>(E, std::byte*, std::size_t i, std::uint64_t within, std::size_t parts) {
          for (std::size_t k = 0; k < parts; ++k, done += E::bytes) {
            const auto x = E::read(bytes.data() + done);
            if (std::isfinite(x)) continue;
            const auto old = from_.schema == nullptr
                                 ? decltype(x){}
                                 : E::held(from_.address(i) + static_cast<std::size_t>(within) + k * E::bytes);
            if (x != old && !(std::isnan(x) && std::isnan(old))) bad = std::min(bad, i);
          }
        });
    return bad;
  }

  /// Writes every element's average into the destination. If that is the old model, it is what the sums are of from
  /// then on: they are 0 again, and the weights stay. Errors, before anything is written: no_updates with the first
  /// tensor that has an element without any weight.
  result<void> write() noexcept {
    const std::uint64_t size = schema().data_bytes(), reached = reached_.reached(size);
    if (reached < size || (size == 0 && reached_.whole() == 0)) {
      const std::size_t i = tensor_at(schema(), reached);
      return failure(errc::no_updates, reached,
                     i < schema().tensor_count ? error_name(schema().tensors[i].name) : error_name{});
    }
    reached_.for_each_range(size, [&](std::uint64_t begin, std::uint64_t end, double weight) {
      for_each_piece(
          begin, end, [&]<class E>(E, std::byte* at_sums, std::size_t i, std::uint64_t within, std::size_t parts) {
            auto* const sums = reinterpret_cast<typename E::sum*>(at_sums);
            std::byte* const out = to_.address(i) + static_cast<std::size_t>(within);
            with_origin(i, within, [&](auto origin) { write_quotients<E>(out, sums, parts, weight, origin); });
            if (from_.schema != nullptr && from_.address(i) == to_.address(i)) begin_again<E>(sums, out, parts);
          });
    });
    to_.complete();
    return {};
  }

  /// Whether `from` is a model as `to` is, in plain memory that is the other's own or apart from it. Errors, with the
  /// tensor's name: schema_mismatch, unsupported_layout, invalid_argument.
  static result<void> check(const destination_view& to, const source_view& from) noexcept {
    if (const auto ok = has(*from.schema, *to.schema); !ok) return ok;
    if (const auto ok = has(*to.schema, *from.schema); !ok) return ok;
    for (std::size_t i = 0; i < to.schema->tensor_count; ++i) {  // in image order, which is the same
      const tensor_entry &t = to.schema->tensors[i], &old = from.schema->tensors[i];
      if (old.indirect || old.strides_bytes != nullptr || old.swap_bytes != 0)
        return failure(errc::unsupported_layout, t.begin, t.name);
      const auto out = reinterpret_cast<std::uintptr_t>(to.address(i)),
                 in = reinterpret_cast<std::uintptr_t>(from.address(i));
      if (out != in && (out < in ? in - out : out - in) < t.size_bytes())
        return failure(errc::invalid_argument, t.begin, t.name);
    }
    return {};
  }

 private:
  static constexpr std::uint64_t most = std::numeric_limits<std::size_t>::max() / 8;
  static constexpr std::uint64_t padding(std::uint64_t bytes) noexcept { return (8 - bytes % 8) % 8; }

  /// From here on the sums have pages of their own: huge ones if possible, and freeing gives them back to the system.
  static constexpr std::size_t own_pages_bytes = std::size_t{128} * 1024;

  struct release {
    std::size_t pages_bytes = 0;
    void operator()(std::byte* p) const noexcept {
      if (pages_bytes != 0) give_pages(p, pages_bytes);
      else ::operator delete(p, std::align_val_t{64});
    }
  };
  using memory = std::unique_ptr<std::byte[], release>;

  static bool alike(const tensor_entry& a, const tensor_entry& b) noexcept {
    return a.name == b.name && a.type == b.type && std::ranges::equal(a.extents(), b.extents());
  }
  /// Whether `of` has each tensor of `all`; otherwise the first that it has not.
  static result<void> has(const image_schema& of, const image_schema& all) noexcept {
    for (const tensor_entry& t : all.entries()) {
      const std::size_t i = find_tensor(of, t.name);
      if (i == of.tensor_count || !alike(of.tensors[i], t)) return failure(errc::schema_mismatch, 0, t.name);
    }
    return {};
  }
  weighted_sums(const destination_view& to, const source_view& from, memory block, std::size_t sums_bytes,
                std::size_t max_stops, std::size_t bytes) noexcept
      : block_(std::move(block)), to_(to), from_(from), sums_bytes_(sums_bytes), bytes_(bytes),
        integers_move_(std::ranges::all_of(to.schema->entries(), &has_integers, &tensor_entry::type)) {
    std::byte* at = block_.get() + sums_bytes;
    begin_ = reinterpret_cast<std::uint64_t*>(at);
    std::uninitialized_value_construct_n(begin_, schema().tensor_count);
    at += schema().tensor_count * sizeof(std::uint64_t);
    auto* const stops = reinterpret_cast<reached_weights::stop*>(at);
    std::uninitialized_value_construct_n(stops, max_stops);
    reached_ = reached_weights(std::span(stops, max_stops));
    staging_ = static_cast<std::size_t>(at - block_.get()) + max_stops * sizeof(reached_weights::stop);
    std::uint64_t sums = 0;
    for (std::size_t i = 0; i < schema().tensor_count; ++i) {
      const tensor_entry& t = schema().tensors[i];
      begin_[i] = sums;
      const std::uint64_t own = t.size_bytes() / (bits(t.type) / 8) * sum_bytes(t.type);
      sums += own + padding(own);
    }
    clear();
  }

  /// Whether elements of this kind are a part of a step.
  template <class E>
  bool moves() const noexcept {
    return integers_move_ || !is_integer<E>;
  }
  /// f(what the sums are of, from a byte of a tensor on).
  template <class F>
  void with_origin(std::size_t tensor, std::uint64_t within, F&& f) const noexcept {
    if (from_.schema != nullptr) f(old_model{from_.address(tensor) + static_cast<std::size_t>(within)});
    else f(no_old_model{});
  }

  /// f(element, its sums, index of the tensor, byte within it, parts) for the whole elements of [at, end), tensor by
  /// tensor.
  template <class F>
  void for_each_piece(std::uint64_t at, std::uint64_t end, F&& f) noexcept {
    for (std::size_t i = tensor_at(schema(), at); i < schema().tensor_count && at < end; ++i) {
      const tensor_entry& t = schema().tensors[i];
      if (t.begin == t.end) continue;
      const std::uint64_t size = bits(t.type) / 8, first = (at - t.begin) / size,
                          count = (std::min(end, t.end) - at) / size;
      std::byte* const sums = block_.get() + static_cast<std::size_t>(begin_[i] + first * sum_bytes(t.type));
      const auto call = [&]<class E>(E element) {
        f(element, sums, i, at - t.begin, static_cast<std::size_t>(count) * E::parts);
        return true;
      };
      if (count > 0) with_element(t.type, call, false);
      at += count * size;
      if (at < t.end) return;
    }
  }

  memory block_;
  destination_view to_;
  source_view from_;
  std::uint64_t* begin_ = nullptr;  // where each tensor's sums begin
  reached_weights reached_;
  std::size_t sums_bytes_ = 0, staging_ = 0, bytes_ = 0;
  bool integers_move_;  // there is nothing else
};

}  // namespace tensorpull::detail
